"""The layouts that must give the single-process loss: one entry each, from which the parity tests are made."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Layout:
    """A way of dividing one training over processes.

    data_ranks: processes that see different samples; with the micro batch chosen so that every layout has the same
    global batch.
    """

    name: str
    processes: int
    data_ranks: int
    flags: list[str] = field(default_factory=list)

    @property
    def argv(self) -> list[str]:
        return [*self.flags, "--per_device_train_batch_size", str(GLOBAL_BATCH // self.data_ranks)]


GLOBAL_BATCH = 8
SINGLE = Layout("single", 1, 1)
LAYOUTS = [
    Layout("dp2", 2, 2),
    Layout("stage1-2", 2, 2, ["--sharding", "stage1"]),
    Layout("stage2-2", 2, 2, ["--sharding", "stage2"]),
    Layout("dp8", 8, 8),
    Layout("stage1-8", 8, 8, ["--sharding", "stage1"]),
    Layout("stage2-8", 8, 8, ["--sharding", "stage2"]),
    Layout("stage2-4-dp2", 8, 8, ["--sharding", "stage2", "--sharding_parallel_degree", "4"]),
]
