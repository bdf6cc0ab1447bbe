"""What ranks send each other and what they exchange with host memory, in seconds.

No overlap with arithmetic is assumed: Paddle runs most collectives on the stream of the arithmetic, and the published
rows agree better without it (docs/plan.md).
"""

from dataclasses import dataclass
from functools import cached_property

from launch.families.arithmetic import lora_parameters, prefix_parameters
from launch.families.parameters import LINEAR
from launch.families.registry import parameters
from launch.plan.job import FLOAT16, Job, Lora
from launch.plan.work import Pace

# Bytes a trained parameter that the optimizer's step moves: AdamW reads gradient, master weight and moments and writes
# the last two and the weight (28), the loss scale is taken off (4) and the norm measured and applied (6).
UPDATE_BYTES = 38
# Kept per trained parameter in host memory by offload: master weight and two moments, float32.
STATE_BYTES = 12
# How often offload copies a gradient for a step, to the card or back (launch/offload/streamed_optimizer.py): it is read
# for the norm, scaled, and read for the update; with a loss scale it is unscaled before.
GRADIENT_COPIES, UNSCALING_COPIES = 4, 2


@dataclass(frozen=True)
class Traffic:
    """Of one rank."""

    job: Job
    pace: Pace

    @cached_property
    def parameters(self) -> float:
        """Of the model, on this rank, before sharding."""
        layout = self.job.layout
        whole = sum(one.size for one in parameters(self.job.config))
        return whole / (layout.tensor_parallel_degree * layout.pipeline_parallel_degree)

    @cached_property
    def trained(self) -> float:
        """Those that have gradients, on this rank, before sharding."""
        job, layout = self.job, self.job.layout
        if job.adapter is None:
            return self.parameters
        parts = layout.tensor_parallel_degree * layout.pipeline_parallel_degree
        if isinstance(job.adapter, Lora):
            return lora_parameters(job.config, job.adapter.targets, job.adapter.rank) / parts
        return prefix_parameters(job.config, job.adapter.tokens) / parts

    @property
    def updated(self) -> float:
        """Those that this rank's optimizer steps."""
        return self.trained / (self.job.layout.sharding_parallel_degree if self.job.layout.sharding else 1)

    def tensor_parallel(self, layers: float, recomputed: int) -> float:
        """The collectives of so many layers for one micro batch: two forward, two backward, `recomputed` more.

        An all-reduce sends 2 (n - 1) / n times its size; sequence parallel's two halves of it send as much.
        """
        ranks = self.job.layout.tensor_parallel_degree
        if ranks == 1:
            return 0.0
        size = self.job.micro_batch * self.job.sequence_length * self.job.config["hidden_size"] * self.job.item
        times = (4 + recomputed) * layers
        return self.pace.send(times * 2 * (ranks - 1) / ranks * size, messages=times)

    def pipeline(self) -> float:
        """Activations to the next stage and gradients back, for one micro batch."""
        if self.job.layout.pipeline_parallel_degree == 1:
            return 0.0
        size = self.job.micro_batch * self.job.sequence_length * self.job.config["hidden_size"] * self.job.item
        return self.pace.send(2 * size, messages=2)

    def gather(self) -> float:
        """Stage 3: all parameters to every rank, forward and backward, once more where layers are recomputed."""
        layout = self.job.layout
        if layout.sharding != "stage3":
            return 0.0
        ranks = layout.sharding_parallel_degree
        size = self._times_gathered() * self.weight_bytes
        messages = self._times_gathered() * self._matrices()
        return self.pace.send(size * (ranks - 1) / ranks, messages)

    def fetch(self) -> float:
        """Parameters in host memory: before each gathering a rank's shard goes to its card. The host keeps its values,
        nothing goes back (launch/offload/group_sharded.py)."""
        if not self.job.offload.parameters:
            return 0.0
        shard = self.weight_bytes / self.job.layout.sharding_parallel_degree
        return self.pace.copy(self._times_gathered() * shard)

    def reduce_in_micro_batch(self) -> float:
        """Gradients that are summed after every micro batch: stages 2 and 3.

        Stage 2 reduces each to its owner; stage 3 sums all of them on all ranks and keeps a slice
        (paddle/distributed/fleet/meta_parallel/sharding/group_sharded_stage{2,3}.py).
        """
        layout, size = self.job.layout, self.trained * self.job.gradient_item
        ranks = layout.sharding_parallel_degree
        if layout.sharding == "stage2":
            return self.pace.send(size)
        if layout.sharding == "stage3":
            return self.pace.send(2 * (ranks - 1) / ranks * size)
        return 0.0

    def reduce_in_step(self) -> float:
        """Gradients that are summed once a step, and updated parameters sent to all: data parallel, stages 1 and 2."""
        layout, gradients = self.job.layout, self.trained * self.job.gradient_item
        ranks = layout.data_parallel_degree
        seconds = self.pace.send(2 * (ranks - 1) / ranks * gradients) if ranks > 1 else 0.0
        if layout.sharding in ("stage1", "stage2"):
            seconds += self.pace.send(self.trained * self.job.item)
        if layout.sharding == "stage1":
            seconds += self.pace.send(gradients)
        return seconds

    def update(self) -> float:
        """The optimizer's step, on the card."""
        return self.pace.stream(self.updated * UPDATE_BYTES)

    def offload(self) -> float:
        """In a step: the optimizer's states to the card and back; gradients to the host after each micro batch, and to
        the card for the next one's to be added, and for the update; of stage 3 the updated slices, too."""
        job, offload = self.job, self.job.offload
        if not offload.optimizer:
            return 0.0
        each = 2 * STATE_BYTES
        if offload.gradients:
            copies = 2 * job.accumulation - 1 + GRADIENT_COPIES + (UNSCALING_COPIES if job.compute == FLOAT16 else 0)
            each += copies * job.item
        if offload.parameters:
            each += 2 * job.item
        return self.pace.copy(self.updated * each)

    @property
    def weight_bytes(self) -> float:
        """Of all parameters of this rank before sharding."""
        return self.parameters * (self.job.base.bits / 8 if self.job.base else self.job.item)

    def _times_gathered(self) -> int:
        return 3 if self.job.recompute == "full" else 2

    def _matrices(self) -> int:
        return sum(one.kind == LINEAR for one in parameters(self.job.config))
