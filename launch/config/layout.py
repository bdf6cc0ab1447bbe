"""How the processes of a run are divided: degrees that follow from the flags and the number of processes.

Follows paddlenlp 3.0.0b4, TrainingArguments.__post_init__ (paddlenlp/trainer/training_args.py), where that gives
each process a place; what it accepts without giving every process a place is a LayoutError here.
"""

from dataclasses import dataclass

from launch.config.flag_values import Flags
from launch.errors import UserError


class LayoutError(UserError):
    """Processes that cannot be divided as the flags ask. flag, found, fix: what a check shows."""

    def __init__(self, flag: str, found: str, fix: str):
        super().__init__(f"--{flag}: {found}. {fix[0].upper()}{fix[1:]}.")
        self.flag, self.found, self.fix = flag, found, fix


@dataclass(frozen=True)
class Layout:
    """Degrees of a run, each 1 where its dimension is not used; their product is the number of processes.

    sharding: stage1, stage2, stage3, or "" where nothing is sharded, be it that the flags ask for it.
    """

    data_parallel_degree: int
    sharding_parallel_degree: int
    tensor_parallel_degree: int
    pipeline_parallel_degree: int
    sharding: str

    @classmethod
    def from_flags(cls, flags: Flags, processes: int) -> "Layout":
        """The layout of that many processes. Raises LayoutError where they cannot be divided."""
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
        sharding = _wanted_sharding_degree(flags) or (replicas if stage else 1)
        if replicas % sharding:
            divisors = ", ".join(str(number) for number in range(1, replicas + 1) if replicas % number == 0)
            raise LayoutError(
                "sharding_parallel_degree",
                f"{sharding} does not divide the {_count(replicas)} that tensor x pipeline parallel "
                f"({tensor} x {pipeline}) leave of {processes}",
                f"one of {divisors}, or leave it out for {replicas}",
            )
        return cls(
            data_parallel_degree=replicas // sharding,
            sharding_parallel_degree=sharding,
            tensor_parallel_degree=tensor,
            pipeline_parallel_degree=pipeline,
            sharding=stage if sharding > 1 else "",
        )

    @property
    def processes(self) -> int:
        return self.data_ranks * self.tensor_parallel_degree * self.pipeline_parallel_degree

    @property
    def data_ranks(self) -> int:
        """Groups of processes that see different samples: upstream's dataset_world_size."""
        return self.data_parallel_degree * self.sharding_parallel_degree

    def __str__(self) -> str:
        """2 processes: sharding stage2 2"""
        parts = [
            ("data parallel", self.data_parallel_degree),
            (f"sharding {self.sharding}".strip(), self.sharding_parallel_degree),
            ("tensor parallel", self.tensor_parallel_degree),
            ("pipeline parallel", self.pipeline_parallel_degree),
        ]
        used = " x ".join(f"{name} {degree}" for name, degree in parts if degree > 1)
        return f"{_count(self.processes)}{': ' if used else ''}{used}"


def degree(flags: Flags, name: str) -> int:
    """A degree as a flag states it, 1 where it does not or says less (upstream's default is -1).

    A value that is no number counts as not stated: the check of the flags tells it.
    """
    words = flags.get(name) or ["1"]
    try:
        return max(int(words[0]), 1)
    except ValueError:
        return 1


def sharding_stage(flags: Flags) -> str:
    """The stage that --sharding asks for, "" for none; a word beside it, such as offload, is left aside."""
    words = " ".join(flags.get("sharding", [])).split()
    return next((word for word in words if word.startswith("stage")), "")


def _wanted_sharding_degree(flags: Flags) -> int | None:
    """The larger of --sharding_parallel_degree and its older name --sharding_degree; None where neither is given."""
    given = [name for name in ("sharding_parallel_degree", "sharding_degree") if flags.get(name, ["-1"]) != ["-1"]]
    return max((degree(flags, name) for name in given), default=None)


def _count(processes: int) -> str:
    return "1 process" if processes == 1 else f"{processes} processes"
