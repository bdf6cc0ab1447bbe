"""What ends a sick run: a loss that goes wrong, a rank that hangs, memory that runs out. No Paddle here."""

import contextlib
import faulthandler
import math
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import mean, median

from launch.errors import UserError
from launch.plan.plan_report import this_run
from launch.preflight.proposals import lines_after_out_of_memory

# ---- the loss: looked at with every record of a run, before the next checkpoint is written
#
# Five faults, each with its likely causes, the likeliest first: a first loss outside its window, a loss or gradient
# norm that is no number, a collapse towards 0, a spike, gradients that stay 0.

# Random weights: natural text spreads around the closed form by a per cent or two, wrong labels by far more.
CLOSED_FORM_TOLERANCE = 0.05
# A kernel that returns garbage shows within a few steps. Later, or on samples seen before, a small loss is learning.
COLLAPSE_STEPS = 100
USUAL_LOSSES = 20  # losses that a spike is compared with
ENOUGH_LOSSES = 5  # of them, to know what is usual
STUCK = 3  # records in a row without a gradient
CLIMB = 1.0  # nats above the first loss, to which too high a learning rate takes it
USUAL_RATE = 1e-4  # of LoRA and of most pretraining


@dataclass(frozen=True)
class Window:
    """The range of the first loss, in nats.

    Attributes:
        reason: Why it lies there.
    """

    low: float
    high: float
    reason: str


@dataclass(frozen=True)
class Limits:
    """The bounds that a run's losses are watched for.

    Attributes:
        first_loss: None where it is unknown.
        collapse: Share of the first loss (at least 1 nat).
        spike: Nats above the median of the last losses; 0: not watched.
        overflows: Whether a gradient norm without a value is usual, as with a loss scale that is still being found.
        rests: Whether a gradient of 0 is usual.
        on_cpu: No cause is a kernel of a card.
    """

    first_loss: Window | None
    collapse: float
    spike: float
    overflows: bool = False
    rests: bool = False
    on_cpu: bool = False


@dataclass(frozen=True)
class TrainingFault:
    """A fault of a run.

    Attributes:
        found: What is wrong, with its number.
        causes: The most likely first, each with what to do.
    """

    found: str
    causes: tuple[str, ...]


def parse_window(text: str, random_weights_loss: float | None) -> Window | None:
    """Return the window of --loss_first: auto, off, or LOW-HIGH in nats, which is for pretrained weights.

    Args:
        random_weights_loss: The closed form, None where the weights are not random, which auto then does not watch.
        text: The value of the flag.

    Raises:
        UserError: For another text.
    """
    if text == "off":
        return None
    low, dash, high = text.partition("-")
    try:
        stated = None if text == "auto" else Window(float(low), float(high), "--loss_first")
    except ValueError:
        stated = None
    if text != "auto" and not (stated and 0 <= stated.low < stated.high):
        raise UserError(f"--loss_first: found {text!r}; expected auto, off, or two numbers such as 1.8-2.5.")
    if random_weights_loss is None:
        return stated
    spread = CLOSED_FORM_TOLERANCE * random_weights_loss
    reason = f"random weights, ln V + h sigma^2/2 = {random_weights_loss:.2f}, 5 %"
    return Window(random_weights_loss - spread, random_weights_loss + spread, reason)


class LossWatch:
    """Looks at each record of a run in turn.

    Attributes:
        past: Losses of the same run before it was resumed.
    """

    def __init__(self, limits: Limits, past: Iterable[float] = ()):
        self.limits = limits
        self._recent = deque(past, maxlen=USUAL_LOSSES)
        self._first: float | None = None
        self._first_step = 0
        self._highest, self._rate = -math.inf, 0.0
        self._without_gradient = 0

    def fault(self, record: dict) -> TrainingFault | None:
        """Return the fault at a record of train_log.jsonl, None where there is none."""
        step, grad_norm = record["global_step"], record["grad_norm"]
        loss: float = record["loss"]
        if self._first is None:
            self._first, self._first_step = loss, step
        self._highest = max(self._highest, loss if math.isfinite(loss) else -math.inf)
        self._rate = max(record["learning_rate"], self._rate)
        self._without_gradient = self._without_gradient + 1 if grad_norm == 0 else 0
        found = (
            self._no_number(loss, grad_norm)
            or self._collapse(step, record["epoch"], loss)
            or self._first_loss(step, loss)
            or self._spike(loss)
            or self._stuck()
        )
        self._recent.append(loss)
        if found and self._highest > self._first + CLIMB:
            lower = min(self._rate / 10, USUAL_RATE)
            high = f"the learning rate is too high: found {self._rate:g}, try {lower:g}; also --max_grad_norm 1.0"
            rest = (cause for cause in found.causes if not cause.startswith("the learning rate"))
            found = replace(found, causes=(high, *rest))
        if found and self.limits.on_cpu:
            return replace(found, causes=tuple(cause for cause in found.causes if "on this card" not in cause))
        return found

    def _no_number(self, loss: float, grad_norm: float) -> TrainingFault | None:
        if math.isfinite(loss) and (math.isfinite(grad_norm) or self.limits.overflows):
            return None
        what = f"the gradient norm is {grad_norm}" if math.isfinite(loss) else f"the loss is {loss}"
        return TrainingFault(
            what,
            (
                "half precision overflows: --bf16 1 where the card has it, else a smaller --scale_loss",
                "the learning rate is too high: half of it, longer --warmup_steps, --max_grad_norm 1.0",
                "a checkpoint or model whose weights are damaged: its own loss, by --max_steps 1",
                "a kernel that is wrong on this card: --use_flash_attention off --use_fused_rms_norm off "
                "--use_fused_rope off",
            ),
        )

    def _collapse(self, step: int, epoch: float, loss: float) -> TrainingFault | None:
        assert self._first is not None, "fault() notes it at the first record"
        bound = self.limits.collapse * max(self._first, 1.0)
        if not self.limits.collapse or loss >= bound or epoch > 1 or step - self._first_step > COLLAPSE_STEPS:
            return None
        return TrainingFault(
            f"the loss is {loss:.4f}, below {bound:.4f} ({self.limits.collapse:g} of the first, at least of 1 nat: "
            "--loss_collapse); nobody predicts text like that",
            (
                "flash attention that does not work on this card: --use_flash_attention off",
                "the inputs tell the labels (a mask that is not causal, labels not one token ahead): verify the data",
                "answers that are all the same or easily guessed: --loss_collapse 0",
            ),
        )

    def _first_loss(self, step: int, loss: float) -> TrainingFault | None:
        window = self.limits.first_loss
        if step != 1 or window is None or window.low <= loss <= window.high:
            return None
        return TrainingFault(
            f"the first loss is {loss:.3f}, expected {window.low:.2f} to {window.high:.2f} ({window.reason})",
            _TOO_HIGH if loss > window.high else _TOO_LOW,
        )

    def _spike(self, loss: float) -> TrainingFault | None:
        if not self.limits.spike or len(self._recent) < ENOUGH_LOSSES:
            return None
        usual = median(self._recent)
        if loss <= usual + self.limits.spike:
            return None
        return TrainingFault(
            f"the loss jumped to {loss:.3f} from {usual:.3f}, the median of the last {len(self._recent)} records; "
            f"allowed {self.limits.spike:g} nats (--loss_spike)",
            (
                "the learning rate is too high: resume with half of it, and --max_grad_norm 1.0",
                "half precision overflows: --bf16 1 instead of --fp16 1 where the card has it",
                "unusual data in these steps: --skip_data_intervals leaves them out",
            ),
        )

    def _stuck(self) -> TrainingFault | None:
        if self._without_gradient < STUCK or self.limits.rests:
            return None
        return TrainingFault(
            f"the gradient is 0 in {STUCK} records in a row: the weights do not change",
            (
                "no token counts: every answer was cut off (--src_length, --max_length), or labels are all ignored",
                "gradients too small for fp16: a larger --scale_loss, or --bf16 1",
                "all parameters are frozen, or the optimizer got none of them",
            ),
        )


_TOO_HIGH = (
    "tokens of another tokenizer than the model's: the one its data were made with",
    "the weights were not loaded, or only in part: a model directory that `make import` wrote",
    "labels that do not belong to the inputs: python -m data_tools.verify",
    "a position encoding that differs (rope_theta, max_position_embeddings): the model's config.json",
)
_TOO_LOW = (
    "the model was trained on these data before: --loss_first off, or its own window",
    "flash attention that does not work on this card: --use_flash_attention off",
    "the same text again and again in the data: python -m data_tools.inspect",
)


# ---- pairs: a margin between responses that both become less likely

PAIR_RECORDS = 10  # looked at together: single batches differ
# Nats a token below the model before training. Each token is then less than 0.61 times as likely on average, a response
# of 100 tokens e^-50 times; tuned models that answer well are at 0.05 to 0.2.
UNLIKELY = 0.5


class PairWatch:
    """Looks at each record of preference tuning in turn, and warns once.

    Attributes:
        likelihoods: From a record to the mean ln p of a token of the chosen and of the rejected responses, of which
            only the change since the first record counts.
        past: Records of the same run before it was resumed.
    """

    def __init__(self, likelihoods: Callable[[dict], tuple[float, float]], past: Iterable[dict] = ()):
        self._likelihoods = likelihoods
        self._first: tuple[float, float] | None = None
        self._recent: deque[tuple[float, float, float]] = deque(maxlen=PAIR_RECORDS)
        self._warned = False
        for record in past:
            self.warning(record)

    def warning(self, record: dict) -> str | None:
        """Return a warning at a record of train_log.jsonl, None where nothing is wrong or it was printed before."""
        now = self._likelihoods(record)
        self._first = self._first or now
        self._recent.append((record["rewards_margin"], now[0] - self._first[0], now[1] - self._first[1]))
        if self._warned or len(self._recent) < PAIR_RECORDS:
            return None
        margins, *changes = zip(*self._recent, strict=True)
        chosen, rejected = map(mean, changes)
        falls = max(chosen, rejected) < -UNLIKELY and _rise(changes[0]) < 0 and _rise(changes[1]) < 0
        if not falls or _rise(margins) <= 0:
            return None
        self._warned = True
        return (
            f"the margin grows while both responses become less likely: a token of the chosen ones by {-chosen:.2f} "
            f"nats, of the rejected ones by {-rejected:.2f}, since the first step. The model unlearns to answer: a "
            "lower --learning_rate, a higher --beta, or --sft_loss_ratio 0.1 to 1"
        )


def _rise(values: Sequence[float]) -> float:
    """Return the difference between the means of the second half and the first."""
    half = len(values) // 2
    return mean(values[half:]) - mean(values[:half])


# ---- hangs: a rank that makes no step for many times the usual shows where it is, and ends
#
# A hung collective holds the interpreter, so nothing here needs it: faulthandler writes the stacks of all threads from
# a thread of its own, into the rank's log, and the kernel's timer ends the process some seconds later, when the other
# ranks have written theirs. Exit code: that of SIGALRM, launch.processes.logs.HUNG.

STDERR = 2
USUAL_STEPS = 50  # steps whose median is the usual
ENOUGH_STEPS = 3
FIRST_STEPS = 6  # times the least limit: until enough steps are known; the first ones also set up what the rest use
SECONDS_TO_WRITE = 5.0  # between a rank's stacks and its end: for the other ranks, whose timers run out about then


class HangTimer:
    """A timer that ends a run without progress.

    Attributes:
        factor: Times the median step.
        seconds: The limit is never less. factor 0: nothing is watched.
    """

    def __init__(self, factor: float, seconds: float, seconds_to_write: float = SECONDS_TO_WRITE):
        self.factor = factor
        self.seconds = seconds
        self.seconds_to_write = seconds_to_write
        self._steps = deque(maxlen=USUAL_STEPS)
        self._step_start = None
        self._armed = False

    @property
    def limit(self) -> float:
        """Seconds without a step after which a rank counts as hung."""
        if len(self._steps) < ENOUGH_STEPS:
            return FIRST_STEPS * self.seconds
        return max(self.seconds, self.factor * median(self._steps))

    def start(self) -> None:
        """Start to watch."""
        self._armed = self.factor > 0
        self.moved()

    def stop(self) -> None:
        """Stop to watch."""
        self._armed = False
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)

    def step_done(self) -> None:
        """Note the end of a step."""
        now = time.monotonic()
        if self._step_start is not None:
            self._steps.append(now - self._step_start)
        self._step_start = now
        self.moved()

    def moved(self) -> None:
        """Restart the timer after less than a step: a micro batch, a batch of an evaluation, a part of a checkpoint."""
        if self._armed:
            faulthandler.dump_traceback_later(self.limit, file=STDERR)
            signal.setitimer(signal.ITIMER_REAL, self.limit + self.seconds_to_write)

    @contextlib.contextmanager
    def beside_steps(self):
        """Watch work between steps that reports its progress by moved(), such as saving.

        The step around it is not measured.
        """
        armed = self._armed
        self.start()
        try:
            yield
        finally:
            self._step_start = None
            if armed:
                self.moved()
            else:
                self.stop()


# ---- out of memory: what the run was doing then, and what to change

FORWARD, BACKWARD, PIPELINE = "the forward pass", "the backward pass", "forward and backward passes of the pipeline"
OPTIMIZER, EVALUATION, CHECKPOINT = "the optimizer step", "an evaluation", "saving a checkpoint"
BUILDING = "building the model"
PINNED = "page-locking host memory"

# Of Paddle's allocators: paddle/phi/core/memory/allocation/cuda_allocator.cc, cpu_allocator.cc; of CUDA itself, where a
# stream, a handle of cuBLAS or a communicator finds no memory beside them: an OSError "(External) CUDA error(2)".
WORDS = ("ResourceExhausted", "cudaErrorMemoryAllocation", "CUBLAS_STATUS_ALLOC_FAILED")


class RunPhase:
    """The current phase of a run, as far as it matters for memory."""

    def __init__(self, name: str):
        self.name = name

    @contextlib.contextmanager
    def during(self, name: str):
        """Set the phase within the block."""
        before, self.name = self.name, name
        yield
        self.name = before  # not after an error: the message names the phase that failed


@contextlib.contextmanager
def out_of_memory_explained(phase: RunPhase, args):
    """Raise a UserError with the phase and what to change for an out-of-memory error within the block.

    args: the flags of the run.
    """
    try:
        yield
    except (MemoryError, RuntimeError, SystemError, OSError) as error:
        # Page-locked memory is refused, or above its cap: a copy to nowhere then fails
        # (paddle/phi/core/memory/allocation/pinned_allocator.cc, system_allocator.cc in the same folder).
        said = str(error)
        pinned = "pinned_allocator.cc" in said or ("cudaErrorInvalidValue" in said and "cuda_info.cc" in said)
        if not (pinned or isinstance(error, MemoryError) or any(word in said for word in WORDS)):
            raise
        what = f"{PINNED}, in {phase.name}" if pinned else phase.name
        raise UserError(_message(error, what, changes(PINNED if pinned else phase.name, args))) from error


def changes(phase: str, args) -> list[str]:
    """Return what to change, the cheapest first."""
    if phase == EVALUATION:
        smaller = ["--per_device_eval_batch_size 1"] if args.per_device_eval_batch_size > 1 else []
        return [*smaller, "shorter samples: --max_seq_length, --max_length"]
    if phase == PINNED:
        return ["more host memory, or fewer ranks on this node", "less offload: docs/low-memory.md"]
    if phase == CHECKPOINT:
        return ["more host memory: each rank copies there what it writes", "fewer ranks on this node"]
    if phase in (OPTIMIZER, BUILDING):
        return [*_shard_optimizer(args), *_shard_model(args)]
    return [*_less_activations(args), *_shard_model(args)]


def _less_activations(args) -> list[str]:
    lines = [] if args.recompute else ["--recompute 1: a fourth to a third slower, a fraction of the activations"]
    micro_batch, accumulation = args.per_device_train_batch_size, args.gradient_accumulation_steps
    if micro_batch > 1:
        same = f"--gradient_accumulation_steps {accumulation * micro_batch}: the same global batch"
        lines.append(f"--per_device_train_batch_size 1 {same}")
    return [*lines, "shorter samples: --max_seq_length, --max_length"]


def _shard_optimizer(args) -> list[str]:
    """Return the flags that shard optimizer and gradients over the data ranks."""
    names = [option.value for option in args.sharding]
    if args.world_size > 1 and not {"stage2", "stage3"} & set(names) and args.pipeline_parallel_degree <= 1:
        return ["--sharding stage2: optimizer and gradients are divided over the data ranks"]
    return []


def _shard_model(args) -> list[str]:
    lines = []
    if args.world_size > 1 and args.tensor_parallel_degree <= 1 and args.pipeline_parallel_degree <= 1:
        lines.append("--sharding stage3: the model itself is divided, too; slower by its all-gathers")
    degree = 2 * max(args.tensor_parallel_degree, 1)
    return [*lines, f"--tensor_parallel_degree {degree}: each card holds a {degree}th of the model, on cards of a node"]


def _message(error: BaseException, phase: str, lines: list[str]) -> str:
    reason = str(error).rpartition("Error Message Summary:")[2]
    reason = " ".join(reason.strip(" -\n").split())[:300] or type(error).__name__
    steps = "\n".join(f"  {number}. {line}" for number, line in enumerate(lines, start=1))
    run = this_run()
    planned = [] if run is None else ["", "The plan of this run:", *run.lines, *lines_after_out_of_memory(run)]
    plan = "\n".join(planned)
    return f"out of memory in {phase}. What helps, the cheapest first:\n{steps}{plan}\nThe error was: {reason}"
