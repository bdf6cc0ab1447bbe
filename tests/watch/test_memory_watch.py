"""Out of memory: the message names what the run was doing and what to change."""

from types import SimpleNamespace

import pytest

from launch.errors import UserError
from launch.watch import (
    BACKWARD,
    EVALUATION,
    FORWARD,
    OPTIMIZER,
    RunPhase,
    changes,
    out_of_memory_explained,
)
from tests.distributed.layouts import PP2, SINGLE
from tests.runs import as_words

EXHAUSTED = "tests.watch.faulty_ranks:run_out_of_memory"
GPU = """
--------------------------------------
C++ Traceback (most recent call last):
--------------------------------------
0   paddle::memory::allocation::CUDAAllocator::AllocateImpl(unsigned long)

----------------------
Error Message Summary:
----------------------
ResourceExhaustedError: 

Out of memory error on GPU 0. Cannot allocate 2.000000GB memory on GPU 0, 79.1GB memory has been allocated.
"""  # noqa: W291


def arguments(**changed) -> SimpleNamespace:
    usual = {
        "recompute": False,
        "per_device_train_batch_size": 4,
        "per_device_eval_batch_size": 2,
        "gradient_accumulation_steps": 8,
        "sharding": [],
        "world_size": 8,
        "tensor_parallel_degree": 1,
        "pipeline_parallel_degree": 1,
    }
    return SimpleNamespace(**(usual | changed))


@pytest.mark.parametrize(
    ("phase", "changed", "first"),
    [
        (FORWARD, {}, "--recompute 1: "),
        (BACKWARD, {"recompute": True}, "--per_device_train_batch_size 1 --gradient_accumulation_steps 32: the same"),
        (OPTIMIZER, {}, "--sharding stage2: "),
        (OPTIMIZER, {"sharding": [SimpleNamespace(value="stage2")]}, "--sharding stage3: "),
        (OPTIMIZER, {"world_size": 1}, "--tensor_parallel_degree 2: "),
        (EVALUATION, {}, "--per_device_eval_batch_size 1"),
        (EVALUATION, {"per_device_eval_batch_size": 1}, "shorter samples"),
    ],
)
def test_the_first_change_is_the_cheapest_that_there_is(phase, changed, first):
    assert changes(phase, arguments(**changed))[0].startswith(first)


def test_paddles_words_for_a_card_are_known():
    with pytest.raises(UserError) as caught, out_of_memory_explained(RunPhase(OPTIMIZER), arguments()):
        raise RuntimeError(GPU)
    assert str(caught.value).startswith("out of memory in the optimizer step. What helps, the cheapest first:\n  1. --")
    assert str(caught.value).endswith("Cannot allocate 2.000000GB memory on GPU 0, 79.1GB memory has been allocated.")


@pytest.mark.parametrize(
    "told",
    [
        "(External) CUDA error(2), out of memory. \n  [Hint: 'cudaErrorMemoryAllocation'. The API call failed because "
        "it was unable to allocate enough memory to perform the requested operation. ] (at .../cuda_stream.cc:45)",
        "(External) CUBLAS error(3). \n  [Hint: 'CUBLAS_STATUS_ALLOC_FAILED'. Resource allocation failed inside the "
        "cuBLAS library. ] (at .../gpu_resources.cc:215)",
    ],
)
def test_cudas_own_words_are_known(told):
    with pytest.raises(UserError, match="^out of memory in the forward pass"):
        with out_of_memory_explained(RunPhase(FORWARD), arguments()):
            raise OSError(told)


@pytest.mark.parametrize(
    "told",
    [
        "(External) CUDA error(2), out of memory. [Hint: 'cudaErrorMemoryAllocation'.] (at .../pinned_allocator.cc:41)",
        "(External) CUDA error(1), invalid argument. \n  [Hint: 'cudaErrorInvalidValue'.] (at .../cuda_info.cc:288)",
    ],
)
def test_host_memory_that_cannot_be_pinned_is_known(told):
    wanted = (
        "^out of memory in page-locking host memory, in the optimizer step.*\n  1. more host memory, or fewer ranks"
    )
    with pytest.raises(UserError, match=wanted), out_of_memory_explained(RunPhase(OPTIMIZER), arguments()):
        raise OSError(told)


def test_another_error_is_left_alone():
    with pytest.raises(OSError, match="invalid argument"), out_of_memory_explained(RunPhase(FORWARD), arguments()):
        raise OSError(
            "(External) CUDA error(1), invalid argument. [Hint: 'cudaErrorInvalidValue'.] (at .../cublas.cc:2)"
        )
    with pytest.raises(RuntimeError, match="^shapes differ$"), out_of_memory_explained(RunPhase(FORWARD), arguments()):
        raise RuntimeError("shapes differ")


PHASES = {
    "forward": "the forward pass. What helps, the cheapest first: 1. --recompute 1",
    "building": "building the model. ",
    "backward": "the backward pass. ",
    "optimizer": "the optimizer step. ",
    "evaluation": "an evaluation. ",
    "saving": "saving a checkpoint. What helps, the cheapest first: 1. more host memory",
    "pipeline": "forward and backward passes of the pipeline. ",
}


@pytest.mark.parametrize(
    "phase", [pytest.param(one, marks=[] if one == "forward" else [pytest.mark.long]) for one in PHASES]
)
def test_the_phase_is_named(ranks, runs, tmp_path, phase):
    layout = PP2 if phase == "pipeline" else SINGLE
    words = as_words(runs.words("pretraining", layout, output_dir=tmp_path / "out", save_steps=2))
    for said in ranks(layout.processes, EXHAUSTED, words, phase):
        assert said["exit_code"] == 2 and f"error: out of memory in {PHASES[phase]}" in said["stderr"]
        assert "Fail to alloc memory of 17592186044416 size" in said["stderr"] and "Traceback" not in said["stderr"]
