"""The peak of a real training beside the planned one, on every rank."""

from dataclasses import dataclass
from pathlib import Path

from launch.config.flag_values import parse_flags
from launch.config.layout import Layout
from launch.plan.job import Job
from launch.plan.states import WEIGHTS, states_of
from launch.plan.step import Place, replay
from tests.families.cells import Cell
from tests.plan.material import flags, model

STATES = ("parameters", "gradients", "moments")
TRAIN = "tests.plan.memory_ranks:train"


@dataclass(frozen=True)
class Measured:
    """One rank of a cell. planned, measured: bytes at the peak of a step. states_planned, states_measured: bytes of
    parameters, gradients and moments that are kept between two steps."""

    cell: Cell
    rank: int
    planned: int
    measured: int
    states_planned: dict[str, int]
    states_measured: dict[str, int]

    @property
    def error(self) -> float:
        return self.planned / self.measured - 1


def measure(ranks, cell: Cell, root: Path) -> list[Measured]:
    """Train the cell and plan it. ranks: tests.ranks; root: with tests.plan.material."""
    output = root / cell.name.replace(" ", "-")
    given = flags(root, model(root, cell.family), output, cell.script) | cell.flags
    argv = [word for name, value in given.items() for word in (f"--{name}", value)]
    found = ranks(cell.layout.processes, TRAIN, cell.script, argv)
    job = Job.from_flags(cell.script, parse_flags(argv), cell.layout.processes)
    places = [place_of(rank, job.layout) for rank in range(cell.layout.processes)]
    plans = {place: replay(job, place) for place in set(places)}
    return [
        Measured(
            cell,
            rank,
            planned=max(sum(parts.values()) for parts in plans[place].values()),
            measured=max(one["forward and backward"], one["optimizer"]),
            states_planned=_states(job, place),
            states_measured={name: one[name] for name in (*STATES, "host")},
        )
        for rank, (place, one) in enumerate(zip(places, found, strict=True))
    ]


def _states(job: Job, place: Place) -> dict[str, int]:
    states = states_of(job, place.stage)[place.shard]
    # Stage 3 forgets the slices of gradients after the optimizer's step.
    host = {part: size for part, size in states.host.items() if job.layout.sharding != "stage3" or part != "gradients"}
    kept = {name: states.parts.get(name, 0) for name in STATES} | {"host": sum(host.values())}
    kept["parameters"] = sum(states.parts[part] for part in WEIGHTS)
    return kept


def place_of(rank: int, layout: Layout) -> Place:
    """Ranks are numbered by data parallel, pipeline, sharding, tensor parallel, the last the fastest
    (paddlenlp/trainer/training_args.py, hybrid_parallel_topo_order pp_first)."""
    rest = rank // layout.tensor_parallel_degree
    shard, rest = rest % layout.sharding_parallel_degree, rest // layout.sharding_parallel_degree
    return Place(stage=rest % layout.pipeline_parallel_degree, shard=shard)
