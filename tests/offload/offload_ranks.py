"""What the ranks of the tests of offload do."""

import contextlib
from functools import partial

from tests.plan.memory_ranks import allocated, forget_peak, peak

BUCKET = 2**12  # numbers of stage 2's gradient buffers: a tiny model's matrices do not all fit, as a large model's


def watch():
    """What gives the bytes that this rank's allocator counts, after the first step: {"between" two steps, "peak" of
    forward and backward, "update" of the optimizer's step, "host": moved there}; "loading": the peak while the model
    is read."""
    from paddle.distributed import sharding
    from paddlenlp.trainer import TrainerCallback

    from launch.training import run
    from launch.training.trainer import Trainer

    seen = {"loading": 0, "between": 0, "peak": 0, "update": 0, "host": 0}
    build = run.build_model

    def build_model(*args):
        forget_peak()
        built = build(*args)
        seen["loading"] = peak()
        return built

    run.build_model = build_model
    sharding.group_sharded_parallel = partial(sharding.group_sharded_parallel, buffer_max_size=BUCKET)

    class Watch(TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            seen["between"] = allocated()
            forget_peak()

        def on_optimizer_begin(self, args, state, control, **kwargs):
            seen["peak"] = peak() if state.global_step else 0
            forget_peak()

        def on_optimizer_end(self, args, state, control, **kwargs):
            seen["update"] = peak() if state.global_step else 0
            forget_peak()

    stock = Trainer.train

    def watched(trainer, *args, **kwargs):
        trainer.add_callback(Watch())
        stock(trainer, *args, **kwargs)
        if trainer.offload:
            seen["host"] = trainer.offload.host.nbytes

    Trainer.train = watched
    return lambda: seen


def host_memory_of_copies() -> list[list[bool]]:
    """A lane with a pretended stream, on which the first of three copies from the host takes its time: which of their
    tensors in the host are still held after each copy, when that one is done, and after settle()."""
    import gc
    import weakref
    from types import SimpleNamespace
    from unittest.mock import MagicMock

    import paddle

    from launch.offload.host_memory import Lane

    class Tensor:
        def __init__(self, pinned: bool):
            self.place = SimpleNamespace(is_gpu_place=lambda: True, is_cuda_pinned_place=lambda: pinned)

        def copy_(self, source, blocking):
            assert not blocking

    done = []  # of each copy's event
    stream = MagicMock()
    stream.record_event = lambda: SimpleNamespace(query=lambda number=len(done): done[number])
    paddle.framework._current_expected_place = lambda: Tensor(False).place
    paddle.device.Stream = paddle.device.current_stream = lambda *_: stream
    paddle.device.stream_guard = lambda stream: contextlib.nullcontext()
    lane, seen, held = Lane(), [], []

    def look() -> None:
        gc.collect()
        held.append([one() is not None for one in seen])

    for number in range(3):
        pinned = Tensor(True)
        seen.append(weakref.ref(pinned))
        lane.copy(Tensor(False), pinned)
        done.append(number > 0)
        del pinned
        look()
    done[0] = True
    lane.copy(Tensor(False), Tensor(True))
    done.append(False)
    look()
    lane.settle()
    look()
    return held
