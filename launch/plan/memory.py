"""The memory model: from a job to what each device holds, phase by phase."""

from launch.models.arithmetic import ModelShape
from launch.plan.hardware import Card
from launch.plan.job import Job
from launch.plan.memory_plan import MemoryPlan, Phase, StagePlan


def plan_memory(job: Job, card: Card | None = None) -> MemoryPlan:
    """What the job needs on each device. card: None for a CPU."""
    shape = ModelShape.from_config(job.config)
    layout = job.layout
    stages = layout.pipeline_parallel_degree
    each = shape.num_hidden_layers // stages
    mine = shape.parameters // (layout.tensor_parallel_degree * stages)
    shards = layout.sharding_parallel_degree
    trained = mine if job.trains_all else mine // 100
    tokens = job.micro_batch * job.sequence_length
    parts = {
        "parameters": mine * job.item // (shards if layout.sharding == "stage3" else 1),
        "gradients": trained * job.item // (shards if layout.sharding in ("stage2", "stage3") else 1),
        "master weights": trained * 4 // shards if job.master_weights else 0,
        "moments": trained * 8 // shards,
        "attention": 15 * tokens * shape.hidden_size * job.item * each // layout.tensor_parallel_degree,
        "MLP": 19 * tokens * shape.hidden_size * job.item * each // layout.tensor_parallel_degree,
        "logits and loss": tokens * shape.vocab_size * (job.item + 8) // layout.tensor_parallel_degree,
    }
    return MemoryPlan(
        card=card,
        stages=tuple(
            StagePlan(stage, (stage * each, stage * each + each - 1), (Phase("backward", parts),))
            for stage in range(stages)
        ),
        calibrated=card is not None and card.name.startswith("A100"),
    )
