"""From a job and a card to the time of a step, by parts."""

from dataclasses import dataclass, replace
from math import ceil, floor

from launch.families.arithmetic import ModelShape
from launch.families.parameters import layers as layers_of
from launch.plan.hardware import CPU, Card
from launch.plan.job import Job
from launch.plan.traffic import Traffic
from launch.plan.work import HOST_LAYER, HOST_UPDATE, Pace, Work

DAY = 86400

# The parts of a step, in the order in which they are shown.
PRODUCTS, ATTENTION, ELEMENTWISE, LOGITS = "matrix products", "attention", "element-wise", "logits and loss"
RECOMPUTE, TENSOR, PIPELINE, BUBBLE = "recompute", "tensor parallel", "pipeline sends", "pipeline bubble"
GATHER, FETCH, REDUCE = "gathering parameters", "parameters from the host", "summing gradients"
UPDATE, OFFLOAD, HOST = "optimizer", "offload", "waiting for the host"


@dataclass(frozen=True)
class TimePlan:
    """How long a step takes. parts: seconds of a step by part, of the slowest pipeline stage; their sum is the step."""

    job: Job
    card: Card
    parts: dict[str, float]

    @property
    def step_seconds(self) -> float:
        return sum(self.parts.values())

    @property
    def tokens_per_second(self) -> float:
        """Of all ranks together; tokens that pad a sample to its length count."""
        return self.job.global_batch * self.job.sequence_length / self.step_seconds

    @property
    def tokens_per_second_per_card(self) -> float:
        return self.tokens_per_second / self.job.layout.processes

    @property
    def mfu(self) -> float:
        """Model FLOP utilisation by 6 N (4 N where the model is frozen) of the cards' rate, as a run reports it."""
        shape = ModelShape.from_config(self.job.config)
        each = shape.training_flops_per_token(self.job.sequence_length, False, frozen=not self.job.trains_all)
        return self.tokens_per_second_per_card * each / self.card.flops(self.job.compute)

    def days(self, rows: int) -> float:
        """For so many samples, evaluation and checkpoints not counted."""
        return rows / self.job.global_batch * self.step_seconds / DAY


def plan_time(job: Job, card: Card | None = None) -> TimePlan:
    """The time of a step on such cards, all in one machine. card: None for a CPU, one core a rank."""
    card = card or CPU
    pace = Pace(card, job.compute, job.item)
    work, traffic = Work(job, pace), Traffic(job, pace)
    stages = job.layout.pipeline_parallel_degree
    each = layers_of(job.config) / stages
    # The slowest stage of a pipeline has a layer more than others, or else the head.
    candidates = [(floor(each), True), (ceil(each), False)] if stages > 1 else [(layers_of(job.config), True)]
    micro_batches = [_micro_batch(work, traffic, layers, head) for layers, head in candidates]
    micro_batch = max(micro_batches, key=lambda parts: sum(parts.values()))
    step = {part: job.accumulation * seconds for part, seconds in micro_batch.items()}
    step[BUBBLE] = (stages - 1) * sum(micro_batch.values())
    step[REDUCE] += traffic.reduce_in_step()
    step[UPDATE] = traffic.update()
    step[OFFLOAD] = traffic.offload()
    step[HOST] += max(0.0, HOST_UPDATE * ceil(each) - step[UPDATE]) if job.trains_all and job.on_gpu else 0.0
    return TimePlan(job, card, {part: seconds for part, seconds in step.items() if seconds > 0})


def _micro_batch(work: Work, traffic: Traffic, layers: int, head: bool) -> dict[str, float]:
    """Seconds by part that a stage of so many layers, with or without the head, needs for one micro batch."""
    job, forward, backward, again = work.job, work.forward, work.backward, work.recomputed
    parts = {
        PRODUCTS: layers * (forward.products + backward.products),
        ATTENTION: layers * (forward.scores + backward.scores),
        ELEMENTWISE: layers * (forward.elementwise + backward.elementwise),
        LOGITS: work.head if head else 0.0,
        RECOMPUTE: layers * again.total,
        TENSOR: traffic.tensor_parallel(layers, {"full": 2, "full_attn": 1}.get(job.recompute, 0)),
        PIPELINE: traffic.pipeline(),
        GATHER: traffic.gather(),
        FETCH: traffic.fetch(),
        REDUCE: traffic.reduce_in_micro_batch(),
    }
    starting = layers * HOST_LAYER * (1.5 if job.recompute == "full" else 1.0) if job.on_gpu else 0.0
    parts[HOST] = max(0.0, starting - sum(parts.values()))
    return parts


def with_pcie(card: Card, generation: int, lanes: int) -> Card:
    """The same card in another slot."""
    return replace(card, pcie=(generation, lanes))
