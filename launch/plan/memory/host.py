"""Host memory and disk: what a node needs beside its cards."""

from launch.models.layout import Layout
from launch.plan.job import Job
from launch.plan.memory.division import adapter, held
from launch.plan.memory.states import MASTER, MOMENTS, states_of

# A process that has imported Paddle and PaddleNLP, measured: 1.1 GB resident; a data worker is a fork of it that shares
# most pages.
PROCESS, WORKER = 1_100_000_000, 300_000_000


def host_bytes(job: Job) -> dict[str, int]:
    """Of one rank, by part."""
    trained = _trained(job)
    parts = {
        "process": PROCESS,
        "data workers": job.data_workers * WORKER,
        "offload": max(_offloaded(job, stage) for stage in _stages(job)),
        # Each tensor is copied to the host, then written; stage 3 gathers the whole model on every rank first.
        "checkpoint": trained * job.item if job.layout.sharding == "stage3" else _largest(job) * job.item,
    }
    return {part: size for part, size in parts.items() if size}


def disk_bytes(job: Job) -> dict[str, int]:
    """Of a run: one checkpoint, all that are kept at once, the model at the end."""
    trained = _whole(job)
    checkpoint = trained * (job.item + MOMENTS + (MASTER if job.master_weights else 0))
    return {"checkpoint": checkpoint, "kept checkpoints": job.checkpoints * checkpoint, "model": trained * job.item}


def _offloaded(job: Job, stage: int) -> int:
    """Of the rank of this stage's sharding groups that keeps the most there, page-locked."""
    tensors = held(job, stage) + adapter(job, stage)
    ranks = range(job.layout.sharding_parallel_degree)
    return max(sum(states_of(job, tensors, rank).host.values()) for rank in ranks)


def _trained(job: Job) -> int:
    """Numbers that one rank trains, on its largest stage."""
    return max(sum(one.size for one in held(job, stage) + adapter(job, stage) if one.trained) for stage in _stages(job))


def _whole(job: Job) -> int:
    """Numbers that are trained and saved, of all ranks."""
    alone = job.changed(layout=Layout(1, 1, 1, 1, ""))
    return sum(one.size for one in held(alone) + adapter(alone) if one.trained)


def _largest(job: Job) -> int:
    return max(one.size for stage in _stages(job) for one in held(job, stage) + adapter(job, stage) if one.trained)


def _stages(job: Job) -> range:
    return range(job.layout.pipeline_parallel_degree)
