"""Tensors as on a card, for test_local_tensors.py. Imported in ranks only: it needs Paddle."""

from types import SimpleNamespace

import numpy as np
import paddle
from paddle.base import core
from paddlenlp.transformers import LlamaForCausalLM

from launch.checkpoint import local_tensors as module
from launch.checkpoint.local_tensors import LocalTensor, local_tensors
from launch.checkpoint.parts import MODEL, Part
from launch.upstream.module_view import ModuleView

SIZE, COUNT = 1 << 12, 64  # elements of a tensor, tensors in a buffer
ON_CARD = SimpleNamespace(is_cpu_place=lambda: False, is_cuda_pinned_place=lambda: False)


class OnCard:
    """A tensor that says it lies on a card."""

    place = ON_CARD

    def __init__(self, tensor: paddle.Tensor):
        self.tensor, self.dtype, self.shape = tensor, tensor.dtype, tensor.shape

    def detach(self):
        return self

    def __getattr__(self, name: str):
        return getattr(self.tensor, name)


def facts(directory: str) -> dict:
    """What the functions below return. Each puts what it pretends over what was there before."""
    return {
        "read from a buffer, float32": read_from_a_buffer("float32"),
        "read from a buffer, bfloat16": read_from_a_buffer("bfloat16"),
        "tensors read for a model": tensors_read_for_a_model(directory),
        "where filled": where_filled(),
        "waits for the card": waits_for_the_card(),
        "device of the writing thread": device_of_the_writing_thread(),
    }


def read_from_a_buffer(dtype: str) -> dict:
    """All tensors of one buffer, read one after the other. allocated: bytes; equal: to what the buffer has."""
    values = np.random.default_rng(0).normal(size=SIZE * COUNT).astype("float32")
    buffer = paddle.to_tensor(values).astype(dtype)
    expected = buffer.astype("float32").numpy().reshape(COUNT, SIZE)
    allocated, equal = 0, True
    for number in range(COUNT):
        view = buffer._slice(number * SIZE, (number + 1) * SIZE)
        held = LocalTensor(MODEL, str(number), Part((SIZE,)), OnCard(view))
        before = core.host_memory_stat_current_value("Allocated", 0)
        core.host_memory_stat_reset_peak_value("Allocated", 0)
        found = held.values()
        allocated += core.host_memory_stat_peak_value("Allocated", 0) - before
        if dtype == "bfloat16":
            found = (found.astype(np.uint32) << 16).view(np.float32)
        equal &= bool((found == expected[number]).all())
    return {"allocated": allocated, "equal": equal}


def where_filled() -> list[str]:
    """Where values are put of a tensor on the card, and of one in host memory."""
    places = []
    tensor = SimpleNamespace(set=lambda values, place: places.append(place))
    module.paddle = ModuleView(paddle, framework=SimpleNamespace(_current_expected_place=lambda: "the card"))
    for place in (ON_CARD, core.CPUPlace()):
        state = SimpleNamespace(place=place, shape=[1], get_tensor=lambda: tensor)
        LocalTensor(MODEL, "beta1_pow", Part((1,)), state).fill(np.ones(1, "float32"))
    return [str(place) for place in places]


def waits_for_the_card() -> list[str]:
    """What is done on a card, in order, when tensors are asked for."""
    done = []
    module.paddle = ModuleView(
        paddle, get_device=lambda: "gpu:1", device=SimpleNamespace(synchronize=lambda: done.append("synchronize"))
    )
    module.named_parameters = lambda model: done.append("read") or {}
    module._split_actions = lambda model, names: {}
    local_tensors(None, None, None)
    return done


def device_of_the_writing_thread() -> list:
    """(what was done, in which thread) while a checkpoint is written by a rank on card 3."""
    import threading

    from launch.training import saver as module

    done = []

    def note(what):
        done.append([what, threading.current_thread() is threading.main_thread()])

    module.paddle = ModuleView(paddle, get_device=lambda: "gpu:3")
    module.core = ModuleView(core, set_cuda_current_device_id=lambda number: note(f"card {number}"))
    saver = module.Saver.__new__(module.Saver)
    partial = SimpleNamespace(write=lambda files: note("write"), finish=lambda manifest: None, final=None)
    saver._remove_old = lambda newest: None
    thread = threading.Thread(target=saver._write, args=(partial, [], None))
    thread.start()
    thread.join()
    return done


def tensors_read_for_a_model(directory: str) -> list[int]:
    """How many tensors a rank reads that writes the model, and one that another data rank writes it for; and how many
    the model has."""
    from launch.training import result
    from tests.families.family_ranks import tiny

    read = []
    module.LocalTensor.values = lambda held, values=LocalTensor.values: read.append(held.key) or values(held)
    model = LlamaForCausalLM._from_config(tiny("llama"), dtype="float32")
    args = SimpleNamespace(pipeline_parallel_degree=1, pipeline_parallel_rank=0, tensor_parallel_rank=0)
    counts = []
    for dataset_rank in (0, 1):
        read.clear()
        args.dataset_rank = dataset_rank
        result.save_whole_model(model, None, f"{directory}/{dataset_rank}", args)
        counts.append(len(read))
    return [*counts, len(model.state_dict())]
