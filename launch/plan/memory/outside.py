"""What a card's memory holds beside the tensors that a step is known to make.

Each constant has one reason and counts for every job alike; none belongs to one published row. What the estimates then
are worth is in docs/plan.md.
"""

from launch.plan.hardware import GIB
from launch.plan.job import Job

# Paddle's allocator counts kernels' own buffers and rounds up: what the published max_memory_allocated of PaddleNLP
# (llm/docs/pretrain.rst, 2023-11) and the stages' differences of FlagPerf have beyond the tensors. Fitted.
WORKSPACE = 2.2 * GIB
# A process of Paddle with all its kernels, cuBLAS and cuDNN loaded, before its first tensor. Fitted, together with
# the next, to what nvidia-smi shows beyond the allocator: 2 to 3 GB in all, as PaddleNLP's tables say.
CUDA_CONTEXT = 1.5 * GIB
# Each communicator of NCCL keeps buffers for its channels and peers (NCCL documentation, NCCL_BUFFSIZE).
NCCL_COMMUNICATOR = 0.5 * GIB


def workspace(job: Job) -> int:
    """Bytes that Paddle's own count has beside the tensors; none on a CPU."""
    return int(WORKSPACE) if job.on_gpu else 0


def outside_allocator(job: Job) -> dict[str, int]:
    """Bytes by part that nvidia-smi shows and Paddle does not count; none on a CPU."""
    if not job.on_gpu:
        return {}
    found = {"CUDA context": int(CUDA_CONTEXT), "NCCL": int(NCCL_COMMUNICATOR * communicators(job))}
    return {part: size for part, size in found.items() if size}


def communicators(job: Job) -> int:
    """Groups of ranks that this one talks to: one of all, and one for each kind of parallelism that is not of all."""
    layout = job.layout
    degrees = (
        layout.data_parallel_degree,
        layout.sharding_parallel_degree,
        layout.tensor_parallel_degree,
        layout.pipeline_parallel_degree,
    )
    used = [degree for degree in degrees if degree > 1]
    return len(used) + 1 if len(used) > 1 else len(used)
