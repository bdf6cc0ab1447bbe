"""Out of memory: what the run was doing then, and what to change. No Paddle here."""

import contextlib

from launch.errors import UserError
from launch.plan.out_of_memory import this_run
from launch.preflight.memory import lines_after_out_of_memory

FORWARD, BACKWARD, PIPELINE = "the forward pass", "the backward pass", "forward and backward passes of the pipeline"
OPTIMIZER, EVALUATION, CHECKPOINT = "the optimizer step", "an evaluation", "saving a checkpoint"
BUILDING = "building the model"

# Of Paddle's allocators: paddle/phi/core/memory/allocation/cuda_allocator.cc, cpu_allocator.cc; of CUDA itself, where a
# stream, a handle of cuBLAS or a communicator finds no memory beside them: an OSError "(External) CUDA error(2)".
WORDS = ("ResourceExhausted", "cudaErrorMemoryAllocation", "CUBLAS_STATUS_ALLOC_FAILED")


class Phase:
    """What a run is doing, as far as it matters for memory."""

    def __init__(self, name: str):
        self.name = name

    @contextlib.contextmanager
    def during(self, name: str):
        before, self.name = self.name, name
        yield
        self.name = before  # not after an error: that is what is asked then


def is_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, MemoryError) or any(word in str(error) for word in WORDS)


@contextlib.contextmanager
def out_of_memory_explained(phase: Phase, args):
    """An out-of-memory error within becomes a UserError that names the phase and what to change.

    args: the flags of the run.
    """
    try:
        yield
    except (MemoryError, RuntimeError, SystemError, OSError) as error:
        if not is_out_of_memory(error):
            raise
        raise UserError(_message(error, phase.name, changes(phase.name, args))) from error


def changes(phase: str, args) -> list[str]:
    """What to change, the cheapest first."""
    if phase == EVALUATION:
        smaller = ["--per_device_eval_batch_size 1"] if args.per_device_eval_batch_size > 1 else []
        return [*smaller, "shorter samples: --max_seq_length, --max_length"]
    if phase == CHECKPOINT:
        return ["more host memory: each rank copies there what it writes", "fewer ranks on this node"]
    if phase in (OPTIMIZER, BUILDING):
        return [*_divide_state(args), *_divide_model(args)]
    return [*_less_activations(args), *_divide_model(args)]


def _less_activations(args) -> list[str]:
    lines = [] if args.recompute else ["--recompute 1: a fourth to a third slower, a fraction of the activations"]
    micro_batch, accumulation = args.per_device_train_batch_size, args.gradient_accumulation_steps
    if micro_batch > 1:
        same = f"--gradient_accumulation_steps {accumulation * micro_batch}: the same global batch"
        lines.append(f"--per_device_train_batch_size 1 {same}")
    return [*lines, "shorter samples: --max_seq_length, --max_length"]


def _divide_state(args) -> list[str]:
    """Optimizer and gradients over the data ranks."""
    names = [option.value for option in args.sharding]
    if args.world_size > 1 and not {"stage2", "stage3"} & set(names) and args.pipeline_parallel_degree <= 1:
        return ["--sharding stage2: optimizer and gradients are divided over the data ranks"]
    return []


def _divide_model(args) -> list[str]:
    lines = []
    if args.world_size > 1 and args.tensor_parallel_degree <= 1 and args.pipeline_parallel_degree <= 1:
        lines.append("--sharding stage3: the model itself is divided, too; slower by its all-gathers")
    degree = 2 * max(args.tensor_parallel_degree, 1)
    return [*lines, f"--tensor_parallel_degree {degree}: each card holds a {degree}th of the model, on cards of a node"]


def _message(error: BaseException, phase: str, lines: list[str]) -> str:
    told = str(error).rpartition("Error Message Summary:")[2]
    told = " ".join(told.strip(" -\n").split())[:300] or type(error).__name__
    steps = "\n".join(f"  {number}. {line}" for number, line in enumerate(lines, start=1))
    run = this_run()
    planned = [] if run is None else ["", "The plan of this run:", *run.lines, *lines_after_out_of_memory(run)]
    plan = "\n".join(planned)
    return f"out of memory in {phase}. What helps, the cheapest first:\n{steps}{plan}\nThe error was: {told}"
