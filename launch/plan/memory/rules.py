"""Published rules of thumb, printed beside the plan: what is commonly reckoned with, and how far off it is."""

from launch.families.arithmetic import ModelShape
from launch.plan.hardware import GIB
from launch.plan.job import FLOAT32, Job
from launch.plan.memory_plan import MemoryPlan

STATES = ("parameters", "gradients")
ACTIVATIONS = ("attention", "MLP", "norms", "residuals", "embedding", "logits and loss")


def rules(job: Job, plan: MemoryPlan) -> list[str]:
    """A line for each rule that says something about such a job."""
    parts = plan.worst.peak.parts
    lines = []
    if job.layout.sharding == "stage3":
        lines.append(
            f"rule of thumb 2 bytes x N x 2 / cards: at most {stage3_states(job) / GIB:.1f} GiB of weights and "
            f"gradients; here {sum(parts.get(part, 0) for part in STATES) / GIB:.1f} GiB"
        )
    activations = activations_of_layers(job)
    if activations:
        lines.append(
            f"published rule (34 + 5 a s / h) s b h a layer: {activations / GIB:.1f} GiB of activations; "
            f"here {sum(parts.get(part, 0) for part in ACTIVATIONS) / GIB:.1f} GiB with the loss (docs/plan.md)"
        )
    return lines


def stage3_states(job: Job) -> float:
    """Bytes of weights and gradients in 16 bit, divided evenly."""
    return 2 * 2 * ModelShape.from_config(job.config).parameters / job.layout.sharding_parallel_degree


def activations_of_layers(job: Job) -> float:
    """Bytes of a micro batch in 16 bit with exact attention and no recompute, by arXiv 2205.05198, equations 1, 2 and 4
    (one process, tensor parallel, with sequence parallel). 0 where the rule says nothing: pipelines, and the rest."""
    if job.compute == FLOAT32 or job.flash_attention or job.recompute or job.layout.pipeline_parallel_degree > 1:
        return 0.0
    shape, ranks = ModelShape.from_config(job.config), job.layout.tensor_parallel_degree
    tokens = job.micro_batch * job.sequence_length * shape.hidden_size
    scores = 5 * shape.num_attention_heads * job.sequence_length / shape.hidden_size
    whole = 10 / ranks if job.sequence_parallel else 10
    return shape.num_hidden_layers * tokens * (whole + (24 + scores) / ranks)
