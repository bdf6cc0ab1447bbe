"""The memory of a run as an answer: parts, by pipeline stage and phase; host memory, disk."""

from dataclasses import dataclass, field

from launch.plan.hardware import Card

# The parts of a device's memory, in the order in which they are shown, the model's own weights first.
WEIGHTS: tuple[str, ...] = ("parameters", "quantized base", "adapter")
PARTS = (
    *WEIGHTS,
    "gradients",
    "master weights",
    "moments",
    "attention",
    "MLP",
    "norms",
    "residuals",
    "embedding",
    "logits and loss",
    "communication",
    "allocator slack",
    "CUDA context",
    "NCCL",
)
# What Paddle's allocator does not count, but nvidia-smi does.
OUTSIDE = ("CUDA context", "NCCL")


@dataclass(frozen=True)
class Phase:
    """A moment of a step at which memory is at a peak. parts: bytes by name, of PARTS."""

    name: str
    parts: dict[str, int]

    @property
    def allocated_bytes(self) -> int:
        """Of tensors: what Paddle's max_memory_allocated shows."""
        return sum(size for part, size in self.parts.items() if part not in OUTSIDE)

    @property
    def total_bytes(self) -> int:
        """All that is taken of the card: what nvidia-smi shows."""
        return sum(self.parts.values())


@dataclass(frozen=True)
class StagePlan:
    """One pipeline stage: its rank that needs the most. layers: (first, last) transformer layer."""

    stage: int
    layers: tuple[int, int]
    phases: tuple[Phase, ...]

    @property
    def peak(self) -> Phase:
        """The phase that needs the most: memory is not the sum of the phases."""
        return max(self.phases, key=lambda phase: phase.total_bytes)


@dataclass(frozen=True)
class MemoryPlan:
    """What a run needs. card: None for a CPU or an unknown card. host, disk: bytes of a node by part."""

    card: Card | None
    stages: tuple[StagePlan, ...]
    host: dict[str, int] = field(default_factory=dict)
    disk: dict[str, int] = field(default_factory=dict)
    calibrated: bool = False

    @property
    def worst(self) -> StagePlan:
        """The stage whose peak is the highest."""
        return max(self.stages, key=lambda stage: stage.peak.total_bytes)

    @property
    def peak_bytes(self) -> int:
        return self.worst.peak.total_bytes

    @property
    def fits(self) -> bool | None:
        """Whether every stage fits on the card; None where no card is named."""
        return None if self.card is None else self.peak_bytes <= self.card.memory_bytes
