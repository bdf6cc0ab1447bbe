"""From a job and a card to the time of a step, by parts: arithmetic (launch/plan/work.py), and traffic.

Traffic is what ranks send each other and what they exchange with host memory. No overlap with arithmetic is assumed
within a node: Paddle runs most collectives on the stream of the arithmetic, and the published rows agree better without
it (docs/plan.md). Between nodes what the engine overlaps is hidden behind arithmetic.

Seconds are summed by fsum, so that a plan is the same to the last digit in every Python: since 3.12 the built-in sum
rounds otherwise.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil, floor, fsum, log2

from launch.families.arithmetic import MOMENT_BLOCK, ModelShape, lora_parameters, prefix_parameters
from launch.families.parameters import EXPERTS, LINEAR, stated
from launch.families.parameters import layers as layers_of
from launch.families.registry import parameters
from launch.methods.preference_flags import ADAPTER_OFF, PRECOMPUTED
from launch.plan.hardware import Card, cpu_of_rank
from launch.plan.job import (
    ACTIVATIONS,
    BY_DATA,
    BY_PIPELINE,
    BY_SEQUENCE,
    BY_SHARDING,
    BY_TENSOR,
    FLOAT16,
    FLOAT32,
    GRADIENTS,
    ITEM,
    PARAMETERS,
    Job,
    Lora,
)
from launch.plan.sampling_time import SAMPLING_PARTS, SamplingTime
from launch.plan.states import MASTER
from launch.plan.work import HOST_LAYER, HOST_UPDATE, NETWORK, ROW_PARALLEL, Pace, Work

# Bytes a trained parameter that AdamW moves beside the gradient: a float32 weight and two moments, read and written.
UPDATE_BYTES = 24
# The same for moments in 16 bits (launch/training/narrow_moments.py): 8 of the weight, and of each moment
# 6 to widen it, 8 by AdamW, 28 to round it, 10 to write it back.
NARROW_UPDATE_BYTES = 112
# And in 8 bits (launch/training/eight_bit_moments.py): 29 to decode each moment, 24 by AdamW, 99 to encode each, and
# 42 to widen weight and gradient and round the weight.
EIGHT_BIT_UPDATE_BYTES = 322
# And factored (launch/training/factored_moments.py): 20 for the squares of the gradient, 32 for the size of the update,
# 52 for the update, and 40 to read the gradient twice more and round the weight.
FACTORED_UPDATE_BYTES = 144
# How often a step moves a gradient: AdamW reads it, the norm is measured (1) and applied (2); the loss scale's taking
# off reads and writes it.
GRADIENT_MOVES, UNSCALING_MOVES = 4, 2
# How often offload copies a gradient for a step, to the card or back (launch/offload/streamed_optimizer.py): it is read
# for the norm, scaled, and read for the update; with a loss scale it is unscaled before.
GRADIENT_COPIES, UNSCALING_COPIES = 4, 2
# How often ranks that share a sample read or write what they exchange, beside sending it.
EXCHANGE_COPIES = 4


@dataclass(frozen=True)
class Traffic:
    """The traffic of one rank."""

    job: Job
    pace: Pace

    @cached_property
    def parameters(self) -> float:
        """Elements of the model on this rank, before sharding."""
        layout = self.job.layout
        whole = sum(parameter.size for parameter in parameters(self.job.config))
        return whole / (layout.tensor_parallel_degree * layout.pipeline_parallel_degree)

    @cached_property
    def trained(self) -> float:
        """Elements that have gradients on this rank, before sharding."""
        job, layout = self.job, self.job.layout
        if job.adapter is None:
            return self.parameters
        parts = layout.tensor_parallel_degree * layout.pipeline_parallel_degree
        if isinstance(job.adapter, Lora):
            lora = job.adapter
            return lora_parameters(job.config, lora.targets, lora.rank, lora.dora) / parts
        return prefix_parameters(job.config, job.adapter.tokens) / parts

    @property
    def updated(self) -> float:
        """Elements that this rank's optimizer steps."""
        return self.trained / (self.job.layout.sharding_parallel_degree if self.job.layout.sharding else 1)

    def send(self, dimension: str, size: float, messages: float = 1, beside: float = 0.0) -> float:
        """Return the seconds until a rank has sent `size` bytes, in this many messages, to the others of its group.

        They go within the nodes, then between them. beside: seconds of arithmetic that hide the messages between nodes.
        """
        if self.job.network is None:
            return self.pace.send(size, messages)
        group = self.job.groups[dimension]
        between = size * group.share_between
        seconds = self.pace.send(size - between, messages)
        return seconds + max(0.0, self.cross(between, messages * ceil(log2(group.nodes))) - beside)

    def cross(self, size: float, messages: float) -> float:
        """Return the seconds of the bytes of each card of a node to other nodes.

        All cards send at once, one message after the other.

        A card reaches the links over its PCIe.
        """
        network = self.job.network
        assert network is not None  # several nodes have one
        rate = min(network.links * network.rate / self.job.cards, self.pace.card.host_link)
        return size / (rate * NETWORK) + messages * network.latency

    def tensor_parallel(self, layers: float, work: Work) -> float:
        """Return the seconds of the collectives of `layers` layers for one micro batch.

        A linear layer that shards its inputs sums its outputs, one that shards its outputs sums the gradient of its
        input, each with an all-reduce of its own (paddle/distributed/fleet/layers/mpu/mp_layers.py), which sends 2 (n -
        1) / n times its size. Sequence parallel makes two halves of each, one of them in the other direction.
        """
        job, ranks = self.job, self.job.layout.tensor_parallel_degree
        if ranks == 1:
            return 0.0
        row = 2 * (ranks - 1) / ranks * job.config["hidden_size"] * job.item
        halves = 2 if job.sequence_parallel else 1
        sums = [(linear, self.send(BY_TENSOR, work.rows(linear) * row, halves)) for linear in work.linear]
        columns = [(linear, each) for linear, each in sums if linear.module not in ROW_PARALLEL]
        whole = fsum(each for _, each in sums)
        forward = whole / 2 if job.sequence_parallel else whole - fsum(each for _, each in columns)
        again = {"full": forward, "full_attn": forward / 2}.get(job.recompute, 0)
        hidden = fsum(min(each / halves, work.product(linear)) for linear, each in columns)
        reference = forward * job.passes_beside
        return layers * (whole + again + reference - (hidden if job.tensor_parallel_overlap else 0))

    def sharing_samples(self, layers: float, work: Work) -> float:
        """Return the seconds in which the ranks of a sample exchange tokens for heads, of one micro batch.

        Forward, backward, and once more where attention is recomputed. Each tensor is put in order before it goes and
        when it has come (launch/training/sequence_ranks.py).
        """
        ranks, passes = self.job.layout.sep_parallel_degree, 2 + bool(self.job.recompute)
        if ranks == 1:
            return 0.0
        nodes = self.job.groups[BY_SEQUENCE].nodes if self.job.network else 1
        between = work.exchanged * (nodes - 1) / nodes  # each rank sends each other the same
        sent = self.pace.send(work.exchanged * (ranks - 1) / ranks - between, 4)
        sent += self.cross(between, 4) if nodes > 1 else 0.0
        return layers * passes * (sent + self.pace.stream(EXCHANGE_COPIES * work.exchanged))

    def pipeline(self, beside: float) -> float:
        """Return the seconds of activations to the next stage and gradients back, for one micro batch.

        To another node each tensor parallel rank sends its part.
        """
        job, stages = self.job, self.job.engine.virtual_stages
        if job.layout.pipeline_parallel_degree == 1:
            return 0.0
        size = job.batch * job.sequence_length * job.config["hidden_size"] * job.item
        whole = self.pace.send(2 * stages * size, messages=2 * stages)
        if job.network is None or job.groups[BY_PIPELINE].nodes == 1:
            return whole
        parts = 1 if job.whole_sends and not job.sequence_parallel else job.layout.tensor_parallel_degree
        between = self.cross(2 * stages * size / parts, 2 * stages)
        together = 0.0 if parts == 1 or job.sequence_parallel else whole  # the parts, within the node
        return together + max(0.0, between - self.hidden(ACTIVATIONS, beside))

    def hidden(self, sent: str, beside: float) -> float:
        """Return the seconds of arithmetic, of `beside`, that hide `sent` between nodes."""
        return beside if sent in self.job.engine.overlapped else 0.0

    def gather(self, beside: float) -> float:
        """Return the seconds of stage 3's gathering: all parameters to every rank, forward and backward.

        It comes once more where layers are recomputed.
        """
        layout = self.job.layout
        if layout.sharding != "stage3":
            return 0.0
        ranks = layout.sharding_parallel_degree
        size = self._times_gathered() * self.weight_bytes
        matrices = sum(parameter.kind == LINEAR for parameter in parameters(self.job.config))
        messages = self._times_gathered() * matrices
        return self.send(BY_SHARDING, size * (ranks - 1) / ranks, messages, self.hidden(PARAMETERS, beside))

    def fetch(self) -> float:
        """Return the seconds of parameters in host memory: before each gathering a rank's shard goes to its card.

        The host keeps its values, nothing goes back (launch/offload/group_sharded.py).
        """
        if not self.job.offload.parameters:
            return 0.0
        shard = self.weight_bytes / self.job.layout.sharding_parallel_degree
        return self.pace.copy(self._times_gathered() * shard)

    def reduce_in_micro_batch(self, beside: float) -> float:
        """Return the seconds of gradients that are summed after every micro batch: stages 2 and 3.

        Stage 2 reduces each to its owner; stage 3 sums all of them on all ranks and keeps a slice
        (paddle/distributed/fleet/meta_parallel/sharding/group_sharded_stage{2,3}.py).
        """
        layout, size = self.job.layout, self.trained * self.job.gradient_item
        ranks = layout.sharding_parallel_degree
        if layout.sharding == "stage2":
            return self.send(BY_SHARDING, size, beside=self.hidden(GRADIENTS, beside))
        if layout.sharding == "stage3":
            size *= 2 * (ranks - 1) / ranks
            return self.send(BY_SHARDING, size, beside=self.hidden(GRADIENTS, beside))
        return 0.0

    def reduce_in_step(self, beside: float) -> float:
        """Return the seconds of gradients summed once a step, and of updated parameters: data parallel, stages 1, 2."""
        layout, gradients = self.job.layout, self.trained * self.job.gradient_item
        ranks = layout.data_parallel_degree
        hidden = {sent: self.hidden(sent, beside) for sent in (GRADIENTS, PARAMETERS)}
        seconds = 0.0
        if ranks > 1:
            seconds = self.send(BY_DATA, 2 * (ranks - 1) / ranks * gradients, beside=hidden[GRADIENTS])
        if layout.sharding in ("stage1", "stage2"):
            seconds += self.send(BY_SHARDING, self.trained * self.job.item, beside=hidden[PARAMETERS])
        if layout.sharding == "stage1":
            seconds += self.send(BY_SHARDING, gradients, beside=hidden[GRADIENTS])
        return seconds

    def accumulate(self) -> float:
        """Return the seconds of adding a micro batch's gradients to the earlier ones: both are read, the sum written.

        Stages 2 and 3 have only their own to add to. In float32 a gradient is widened first
        (paddle/distributed/fleet/utils/mix_precision_utils.py).
        """
        job = self.job
        kept = self.updated if job.layout.sharding in ("stage2", "stage3") else self.trained
        added = 3 * job.gradient_item * (job.accumulation - 1) / job.accumulation
        widened = job.item + job.gradient_item if job.master_gradients else 0
        return self.pace.stream(kept * added + self.trained * widened)

    def update(self) -> float:
        """Return the seconds of the optimizer's step, on the card.

        A master weight is written once more, in the weight's dtype.
        """
        job = self.job
        moves = GRADIENT_MOVES + (UNSCALING_MOVES if job.compute == FLOAT16 else 0)
        written = job.item if job.master_weights else 0
        each = UPDATE_BYTES if job.moment_item == ITEM[FLOAT32] else NARROW_UPDATE_BYTES
        each = EIGHT_BIT_UPDATE_BYTES if job.eight_bits else FACTORED_UPDATE_BYTES if job.factored else each
        return self.pace.stream(self.updated * (each + written + moves * job.gradient_item))

    def offload(self) -> float:
        """Return the seconds of a step's copies between host and card.

        They are the optimizer's states to the card and back; gradients to the host after each micro batch, and to the
        card to add the next one's, and for the update; under stage 3 the updated slices, too.
        """
        job, offload = self.job, self.job.offload
        if not offload.optimizer:
            return 0.0
        each = 2 * (job.moments_of((MOMENT_BLOCK,)) / MOMENT_BLOCK + (0 if job.eight_bits else MASTER))
        if offload.gradients:
            copies = 2 * job.accumulation - 1 + GRADIENT_COPIES + (UNSCALING_COPIES if job.compute == FLOAT16 else 0)
            each += copies * job.item
        if offload.parameters:
            each += 2 * job.item
        return self.pace.copy(self.updated * each)

    def activations(self, layers: float) -> float:
        """Return the seconds of the inputs of `layers` layers of a micro batch, to the host and back.

        With them those of the rows of a word embedding in host memory, in float32 (launch/offload).
        """
        copies = 2 * layers if self.job.offload.activations else 0
        rows = ITEM[FLOAT32] / self.job.item if self.job.host_embedding else 0
        return self.pace.copy((copies + rows) * self.job.residual_bytes) if copies or rows else 0.0

    @property
    def weight_bytes(self) -> float:
        """Bytes of all parameters of this rank before sharding."""
        return self.parameters * (self.job.base.bits / 8 if self.job.base else self.job.item)

    def _times_gathered(self) -> int:
        again = 1 + self.job.reads_unrelated if self.job.reference == ADAPTER_OFF else 0  # by the reference
        return 2 + (self.job.recompute == "full") + again + self.job.reads_unrelated


DAY = 86400

# The parts of a step, in the order in which they are shown; further ones of sampling.
PRODUCTS, ATTENTION, ELEMENTWISE, LOGITS = "matrix products", "attention", "element-wise", "logits and loss"
RECOMPUTE, TENSOR, PIPELINE, BUBBLE = "recompute", "tensor parallel", "pipeline sends", "pipeline bubble"
SHARING = BY_SEQUENCE
COMPARING = "reference"  # forward passes without gradients
GATHER, FETCH, REDUCE = "gathering parameters", "parameters from the host", "summing gradients"
ACCUMULATE = "accumulating gradients"
UPDATE, OFFLOAD, HOST = "optimizer", "offload", "waiting for the host"
ARITHMETIC = (PRODUCTS, ATTENTION, ELEMENTWISE, LOGITS, COMPARING, RECOMPUTE)
STEP_PARTS = (
    *(PRODUCTS, ATTENTION, ELEMENTWISE, LOGITS, COMPARING, RECOMPUTE, TENSOR, SHARING, PIPELINE, BUBBLE),
    *(GATHER, FETCH, REDUCE, ACCUMULATE, UPDATE, OFFLOAD, HOST, *SAMPLING_PARTS),
)

# Published speeds as shares of planned ones: the smallest and the largest of pretraining with micro batches of so many
# tokens or more (rows A and B of docs/plan.md), and the range, its end 1.5 times its start, in which most of the first
# half of public runs are (benchmarks/plan_runs.py).
LARGE, LARGE_SHARES, PUBLIC_SHARES = 4096, (0.93, 1.03), (0.84, 1.26)
# The same of sampling, assumed: decoding as a whole was never measured on cards.
SAMPLING_SHARES = (0.5, 2.0)
SAMPLING, LEARNING = "sampling", "learning"


@dataclass(frozen=True)
class TimePlan:
    """The time of a step.

    Attributes:
        parts: Seconds of a step by part, of the slowest pipeline stage; with those of sampling their sum is the step.
        sampling: Seconds by part in which reinforcement samples what a step learns from.
        before: Seconds before training, for as many samples as a step has: the reference's pass, where it is made
            once.
    """

    job: Job
    card: Card
    parts: dict[str, float]
    before: float = 0.0
    sampling: dict[str, float] = field(default_factory=dict)

    @property
    def step_seconds(self) -> float:
        """Seconds of a step."""
        return fsum((*self.parts.values(), *self.sampling.values()))

    @property
    def phases(self) -> dict[str, "TimePlan"]:
        """The plans of sampling and of learning alone; {} where nothing is sampled."""
        return {SAMPLING: replace(self, parts={}), LEARNING: replace(self, sampling={})} if self.sampling else {}

    @property
    def spread(self) -> "TimePlan":
        """The plan with each step's share of the work before training, to compare whole runs, each sample once."""
        return replace(self, parts=self.parts | {COMPARING: self.before}, before=0.0) if self.before else self

    @property
    def tokens_per_second(self) -> float:
        """Tokens of all ranks together; tokens that pad a sample to its length count."""
        return self.tokens / self.step_seconds

    @property
    def tokens(self) -> int:
        """Tokens of a step, of all ranks together: those that are learned from, or, of sampling alone, its own."""
        job, samples = self.job, self.job.global_batch * self.job.rows
        if self.parts:
            return samples * job.sequence_length
        return samples * (job.sequence_length - job.prompt_length) // job.rollout_passes

    @property
    def tokens_per_second_per_card(self) -> float:
        """Tokens a second of a card."""
        return self.tokens_per_second / self.job.layout.processes

    @property
    def mfu(self) -> float:
        """Model FLOP utilisation by 6 N (4 N where the model is frozen) of the cards' rate, as a run reports it."""
        shape = ModelShape.from_config(self.job.config)
        each = shape.training_flops_per_token(self.job.sequence_length, False, frozen=not self.job.trains_all)
        return self.tokens_per_second_per_card * each / self.card.flops(self.job.compute)

    @property
    def calibrated(self) -> bool:
        """Whether there are published runs like this one: on this kind of card in one node, of a model without experts.

        Published runs on several nodes are of other engines.
        """
        usual = self.job.nodes == self.job.layout.sep_parallel_degree == 1 and not stated(self.job.config, EXPERTS)
        return not self.sampling and self.card.calibrated and usual

    @property
    def shares(self) -> tuple[float, float]:
        """The smallest and the largest share of the planned speed that published runs like this one reached.

        Where there are none, or few, it is the share of most public runs. Sampling has a wider one.
        """
        if self.sampling:
            learned, sampled = fsum(self.parts.values()), fsum(self.sampling.values())
            low, high = (
                self.step_seconds / (learned / share + sampled / of_sampling)
                for share, of_sampling in zip(PUBLIC_SHARES, SAMPLING_SHARES, strict=True)
            )
            return low, high
        large = self.job.batch * self.job.rank_length >= LARGE and not self.job.own_loss
        return LARGE_SHARES if self.calibrated and large else PUBLIC_SHARES

    @property
    def error(self) -> float:
        """The longer side of the range, as a share of the plan."""
        return max(abs(share - 1) for share in self.shares)

    def seconds(self, steps: float) -> float:
        """Return the seconds of `steps` steps, without evaluation and checkpoints.

        Where the reference passes before training, each step counts samples of its own.
        """
        return steps * (self.before + self.step_seconds)

    def days(self, rows: int) -> float:
        """Return the days needed to train once on `rows` samples."""
        return self.seconds(rows / self.job.global_batch) / DAY


def plan_time(job: Job, card: Card | None = None) -> TimePlan:
    """Return the time of a step on such cards. card: None for this machine's CPU."""
    card = card or cpu_of_rank(job.layout.processes // job.nodes)
    pace = Pace(card, job.compute, job.item)
    work, traffic = Work(job, pace), Traffic(job, pace)
    stages = job.layout.pipeline_parallel_degree
    each = layers_of(job.config) / stages
    # The slowest stage of a pipeline has a layer more than others, or else the head.
    candidates = [(floor(each), True), (ceil(each), False)] if stages > 1 else [(layers_of(job.config), True)]
    micro_batches = [_micro_batch(work, traffic, layers, head) for layers, head in candidates]
    micro_batch = max(micro_batches, key=lambda parts: fsum(parts.values()))
    step = {part: job.accumulation * seconds for part, seconds in micro_batch.items()}
    step[BUBBLE] = (stages - 1) * fsum(micro_batch.values()) / job.engine.virtual_stages
    step[REDUCE] += traffic.reduce_in_step(fsum(micro_batch[part] for part in ARITHMETIC))
    step[UPDATE] = traffic.update()
    step[OFFLOAD] += traffic.offload()
    step[HOST] += (
        max(0.0, HOST_UPDATE * work.host_layers * ceil(each) - step[UPDATE]) if job.trains_all and job.on_gpu else 0.0
    )
    parts = {part: seconds for part, seconds in step.items() if seconds > 0}
    plan = TimePlan(job, card, parts, sampling=SamplingTime(job, card).parts())
    if job.reference != PRECOMPUTED:
        return plan
    comparing = plan_time(job.changed(reference=ADAPTER_OFF), card)  # the same pass, in each step
    return replace(plan, before=comparing.step_seconds - plan.step_seconds)


def _micro_batch(work: Work, traffic: Traffic, layers: int, head: bool) -> dict[str, float]:
    """Return the seconds by part that a stage of `layers` layers, with the head or not, needs for a micro batch."""
    job, forward, backward, again = work.job, work.forward, work.backward, work.recomputed
    compared, compared_layers = work, layers  # the reference's forward pass: by as many layers, or by a teacher
    if job.teacher:
        compared, compared_layers = Work(job.compared, work.pace), layers_of(job.teacher)
    parts = {
        PRODUCTS: layers * (forward.products + backward.products),
        ATTENTION: layers * (forward.scores + backward.scores),
        ELEMENTWISE: layers * (forward.elementwise + backward.elementwise),
        LOGITS: work.head if head else 0.0,
        COMPARING: job.passes_beside * (compared_layers * compared.forward.total + compared.head_forward),
        RECOMPUTE: layers * (again.total + work.recomputed_in_slices),
    }
    beside = fsum(parts.values())
    parts |= {
        TENSOR: traffic.tensor_parallel(layers, work),
        SHARING: traffic.sharing_samples(layers, work),
        PIPELINE: traffic.pipeline(beside),
        GATHER: traffic.gather(beside),
        FETCH: traffic.fetch(),
        REDUCE: traffic.reduce_in_micro_batch(beside),
        ACCUMULATE: traffic.accumulate(),
        OFFLOAD: traffic.activations(layers),
    }
    comparing = 0.5 * job.passes_beside * (layers_of(job.teacher) / layers if job.teacher else 1)
    passes = 1.0 + 0.5 * (job.recompute == "full") + comparing + (work.slices - 1)  # each some operators
    starting = layers * work.host_layers * HOST_LAYER * passes if job.on_gpu else 0.0
    parts[HOST] = max(0.0, starting - fsum(parts.values()))
    return parts


def with_pcie(card: Card, generation: int, lanes: int) -> Card:
    """Return the same card in another slot."""
    return replace(card, pcie=(generation, lanes))
