"""Host memory and disk: what a node needs beside its cards."""

from launch.config.layout import Layout
from launch.plan.job import Job
from launch.plan.memory.division import adapter, held
from launch.plan.memory.states import MASTER, MOMENTS, States, states_of

# A process that has imported Paddle and PaddleNLP, measured: 1.1 GB resident; a data worker is a fork of it that shares
# most pages.
PROCESS, WORKER = 1_100_000_000, 300_000_000
OF_OPTIMIZER = ("master weights", "moments")


def host_bytes(job: Job) -> dict[str, int]:
    """Of one rank, by part."""
    stages = range(job.layout.pipeline_parallel_degree)
    parts = {
        "process": PROCESS,
        "data workers": job.data_workers * WORKER,
        "offload": max(_offloaded(job, stage) for stage in stages),
        "checkpoint": max(_written_at_once(job, stage) for stage in stages),
    }
    return {part: size for part, size in parts.items() if size}


def disk_bytes(job: Job) -> dict[str, int]:
    """Of a run: one checkpoint, all that are kept at once, the model at the end."""
    trained = _whole(job)
    checkpoint = trained * (job.item + MOMENTS + (MASTER if job.master_weights else 0))
    return {"checkpoint": checkpoint, "kept checkpoints": job.checkpoints * checkpoint, "model": trained * job.item}


def _offloaded(job: Job, stage: int) -> int:
    """Of the rank of this stage's sharding groups that keeps the most there, page-locked. Parameters that are offloaded
    are read as a whole, then divided (launch/offload/group_sharded.py)."""
    read = sum(one.nbytes for one in held(job, stage) if not one.base) if job.offload.parameters else 0
    return max(read, *(sum(one.host.values()) for one in _states(job, stage)))


def _written_at_once(job: Job, stage: int) -> int:
    """A checkpoint is copied to the host tensor by tensor; in the background all that a rank writes."""
    trained = [one.size for one in held(job, stage) + adapter(job, stage) if one.trained]
    if not job.saves_in_background:
        return max(trained, default=0) * job.item
    optimizer = max(_optimizer_bytes(one) for one in _states(job, stage))
    return sum(trained) * job.item + optimizer


def _optimizer_bytes(states: States) -> int:
    return sum(size for place in (states.parts, states.host) for part, size in place.items() if part in OF_OPTIMIZER)


def _states(job: Job, stage: int) -> list[States]:
    """Of each rank of a sharding group."""
    tensors = held(job, stage) + adapter(job, stage)
    return [states_of(job, tensors, rank) for rank in range(job.layout.sharding_parallel_degree)]


def _whole(job: Job) -> int:
    """Numbers that are trained and saved, of all ranks."""
    alone = job.changed(layout=Layout(1, 1, 1, 1, ""))
    return sum(one.size for one in held(alone) + adapter(alone) if one.trained)
