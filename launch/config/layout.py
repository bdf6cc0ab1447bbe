"""The layout of a run, from its flags and its number of processes, and the global batch on another number of them.

Follows paddlenlp 3.0.0b4, TrainingArguments.__post_init__ (paddlenlp/trainer/training_args.py), where that gives
each process a place; what it accepts without giving every process a place is a LayoutError here.
"""

from collections.abc import Collection
from dataclasses import dataclass

from data_tools.formats.plural import plural
from launch.config.flag_values import Flags
from launch.config.numbers import read_count
from launch.errors import UserError

ACCUMULATION = "gradient_accumulation_steps"
MICRO_BATCH = "per_device_train_batch_size"
EVALUATION_BATCH = "per_device_eval_batch_size"


class LayoutError(UserError):
    """Processes that cannot be divided as the flags ask.

    Attributes:
        flag, found, fix: What a check shows.
    """

    def __init__(self, flag: str, found: str, fix: str):
        super().__init__(f"--{flag}: {found}. {fix[0].upper()}{fix[1:]}.")
        self.flag, self.found, self.fix = flag, found, fix


@dataclass(frozen=True)
class Layout:
    """Degrees of a run, each 1 where its dimension is not used; their product is the number of processes.

    Attributes:
        sharding: stage1, stage2, stage3, or "" where nothing is sharded, be it that the flags ask for it.
        sep_parallel_degree: Ranks that share each sample. They are of data parallel or sharding, and no factor here.
    """

    data_parallel_degree: int
    sharding_parallel_degree: int
    tensor_parallel_degree: int
    pipeline_parallel_degree: int
    sharding: str
    sep_parallel_degree: int = 1

    @classmethod
    def from_flags(cls, flags: Flags, processes: int) -> "Layout":
        """Return the layout of `processes` processes.

        Raises:
            LayoutError: If they cannot be divided.
        """
        tensor = degree(flags, "tensor_parallel_degree")
        pipeline = degree(flags, "pipeline_parallel_degree")
        if processes % (tensor * pipeline):
            flag = "tensor_parallel_degree" if processes % tensor else "pipeline_parallel_degree"
            raise LayoutError(
                flag,
                f"tensor parallel {tensor} x pipeline parallel {pipeline} do not divide {_count(processes)}",
                f"degrees whose product divides {processes}, or a multiple of {tensor * pipeline} processes",
            )
        replicas = processes // (tensor * pipeline)  # of the model's parts; each is given to sharding or data parallel
        stage = sharding_stage(flags)
        names = ("sharding_parallel_degree", "sharding_degree")  # the second is the older name; the larger one counts
        given = [degree(flags, name) for name in names if flags.get(name, ["-1"]) != ["-1"]]
        sharding = max(given, default=0) or (replicas if stage else 1)
        if replicas % sharding:
            divisors = ", ".join(str(number) for number in range(1, replicas + 1) if replicas % number == 0)
            raise LayoutError(
                "sharding_parallel_degree",
                f"{sharding} does not divide the {_count(replicas)} that tensor x pipeline parallel "
                f"({tensor} x {pipeline}) leave of {processes}",
                f"one of {divisors}, or leave it out for {replicas}",
            )
        sharing = degree(flags, "sep_parallel_degree")
        if replicas % sharing:
            raise LayoutError(
                "sep_parallel_degree",
                f"{sharing} does not divide the {_count(replicas)} that tensor x pipeline parallel "
                f"({tensor} x {pipeline}) leave of {processes}",
                f"a multiple of {sharing * tensor * pipeline} processes, or a degree that divides {replicas}",
            )
        return cls(
            data_parallel_degree=replicas // sharding,
            sharding_parallel_degree=sharding,
            tensor_parallel_degree=tensor,
            pipeline_parallel_degree=pipeline,
            sharding=stage if sharding > 1 else "",
            sep_parallel_degree=sharing,
        )

    @property
    def processes(self) -> int:
        """Number of processes."""
        replicas = self.data_parallel_degree * self.sharding_parallel_degree
        return replicas * self.tensor_parallel_degree * self.pipeline_parallel_degree

    @property
    def data_ranks(self) -> int:
        """Groups of processes that see different samples."""
        return self.data_parallel_degree * self.sharding_parallel_degree // self.sep_parallel_degree

    def __str__(self) -> str:
        """Return the layout as text, such as "2 processes: sharding stage2 2"."""
        parts = [
            ("data parallel", self.data_parallel_degree),
            (f"sharding {self.sharding}".strip(), self.sharding_parallel_degree),
            ("tensor parallel", self.tensor_parallel_degree),
            ("pipeline parallel", self.pipeline_parallel_degree),
        ]
        used = " x ".join(f"{name} {degree}" for name, degree in parts if degree > 1)
        shared = f", {self.sep_parallel_degree} share a sample" if self.sep_parallel_degree > 1 else ""
        return f"{_count(self.processes)}{': ' if used else ''}{used}{shared}"


def degree(flags: Flags, name: str) -> int:
    """Return a degree as a flag has it, 1 where it is missing or less (upstream's default is -1).

    A value that is no number counts as missing: the check of the flags reports it.
    """
    words = flags.get(name) or ["1"]
    try:
        return max(int(words[0]), 1)
    except ValueError:
        return 1


def sharding_stage(flags: Flags) -> str:
    """Return the stage of --sharding, "" for none; a word beside it, such as offload, is left aside."""
    words = " ".join(flags.get("sharding", [])).split()
    return next((word for word in words if word.startswith("stage")), "")


def _count(processes: int) -> str:
    return "1 process" if processes == 1 else f"{processes} processes"


def keep_global_batch(
    flags: Flags, stated: Layout, processes: int, variable: str = "GPUS", own: Collection[str] = ()
) -> tuple[Flags, str]:
    """Return the flags for `processes` processes, with as many samples a step as before, and a line about it.

    Accumulation changes; the micro batch becomes smaller only where its micro batches cannot be dealt out, and the user
    has not given it.

    Args:
        flags: Of the run.
        stated: The layout before.
        processes: Their number.
        variable: The user's variable for it, for messages; as many processes are arranged in another way.
        own: Flags that the user has given.

    Raises:
        UserError: If the processes cannot be divided as the flags request, or the samples of a step not be dealt to
            them; it names the numbers that can.
    """
    steps, size = _count_of(flags, ACCUMULATION), _count_of(flags, MICRO_BATCH)
    samples = stated.data_ranks * steps * size
    unit = size if {MICRO_BATCH, ACCUMULATION} & set(own) else 1  # samples that stay together
    data_ranks = data_ranks_of(flags, processes)
    if not data_ranks or samples // unit % data_ranks:
        raise UserError(_refusal(flags, stated, processes, variable, samples // unit))
    each = samples // data_ranks
    smaller = next(number for number in range(size, 0, -1) if each % number == 0)
    changed = {ACCUMULATION: [str(each // smaller)]} | ({MICRO_BATCH: [str(smaller)]} if smaller < size else {})
    told = ", ".join(
        f"--{name} {value} instead of {before}"
        for (name, [value]), before in zip(changed.items(), (steps, size), strict=False)
        if int(value) != before
    )
    told = told or f"--{ACCUMULATION} {steps}"
    line = f"{variable}: {processes} instead of {stated.processes}, {told}: as many samples a step"
    if processes == stated.processes:
        line = f"{data_ranks} data ranks instead of {stated.data_ranks}, {told}: as many samples a step"
    return flags | changed, line


def _count_of(flags: Flags, name: str) -> int:
    [word] = (flags.get(name) or ["1"])[:1]
    return read_count(f"--{name}", word)


def data_ranks_of(flags: Flags, processes: int) -> int:
    """Return the number of data ranks, 0 where the processes cannot be divided as the flags request."""
    try:
        return Layout.from_flags(flags, processes).data_ranks
    except LayoutError:
        return 0


def _refusal(flags: Flags, stated: Layout, processes: int, variable: str, dealt: int) -> str:
    """Return the refusal. dealt: samples, or micro batches of the user's size, that are dealt to the ranks."""
    model_ranks = stated.tensor_parallel_degree * stated.pipeline_parallel_degree
    counts = range(1, dealt * model_ranks + 1)
    ranks = {count: data_ranks_of(flags, count) for count in counts}
    possible = [str(count) for count in counts if ranks[count] and dealt % ranks[count] == 0]
    size, steps = _count_of(flags, MICRO_BATCH), _count_of(flags, ACCUMULATION)
    step = f"{stated.data_ranks} data ranks x --{MICRO_BATCH} {size} x --{ACCUMULATION} {steps}"
    units = plural(processes, "card" if "GPUS" in variable else "process")
    parts = f"Each copy of the model takes {model_ranks}. " if model_ranks > 1 else ""
    return (
        f"{variable}: found {processes}, but the samples of a step ({step}) cannot be dealt to {units}. "
        f"{parts}Possible: {', '.join(possible)}; or another batch: "
        f'ARGS="--{ACCUMULATION} N".'
    )
