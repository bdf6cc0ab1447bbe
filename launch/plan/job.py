"""What a run is, as far as memory and time follow from it: read from flags and a model's configuration, no Paddle."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod

from launch.checkpoint.model_identity import run_config
from launch.config.flag_values import Flags, FlagValues
from launch.config.layout import Layout
from launch.config.run_config import RunConfig
from launch.errors import UserError
from launch.families.arithmetic import (
    MOMENT_BLOCK,
    MOMENT_ELEMENTS,
    loss_chunk,
    rows_at_once,
    rows_of_part,
    tokens_of_slice,
)
from launch.families.lora_targets import lora_targets
from launch.families.named_configs import load_config
from launch.families.parameters import gives_scores
from launch.families.registry import Family, as_reward_model, family_of_config, parameters
from launch.methods.preference_flags import ADAPTER_OFF, KTO, NONE, SECOND_COPY, reference_of_flags
from launch.plan.hardware import Card
from launch.plan.interconnect import Group, Network, network_of
from launch.switches import FLASH_ATTENTION, FLASH_MASK, FUSED_RMS_NORM, FUSED_ROPE, OVERLAP, precision
from launch.switches.switch import case_of
from launch.tape.quantized import HEAD_WEIGHT, Format

FLOAT32, FLOAT16, BFLOAT16 = "float32", "float16", "bfloat16"
# Bytes an element that is updated: both moments in float32, and the noise of one; of 8 bits both moments, and places,
# signs and these as integers.
NARROW, NARROWEST = 12, 20
# The same of factored moments, by the bytes of a weight: the update, and a weight or gradient in 16 bits, widened.
FACTORED = {2: 8, 4: 4}
ITEM = {FLOAT32: 4, FLOAT16: 2, BFLOAT16: 2}  # bytes of an element


@dataclass(frozen=True)
class Lora:
    """Adapters of this rank beside the linear layers whose names end in one of `targets`.

    Attributes:
        dora: With magnitudes.
        tokens: Number of those whose rows of embedding and output layer are trained, too.
    """

    rank: int
    targets: tuple[str, ...]
    dropout: float = 0.0
    dora: bool = False
    tokens: int = 0


@dataclass(frozen=True)
class Prefix:
    """Prefix tuning.

    Attributes:
        tokens: Trained tokens before each layer's keys and values.
    """

    tokens: int


@dataclass(frozen=True)
class Offload:
    """The offload to host memory.

    Attributes:
        returns: The optimizer's states are on the device during its step.
        activations: The inputs of recomputed layers, until the layers' backward passes.
    """

    optimizer: bool = False
    returns: bool = False
    gradients: bool = False
    parameters: bool = False
    activations: bool = False

    def keeps_more_than(self, other: "Offload") -> bool:
        """Return whether this one has something in host memory that the other has not."""
        mine, others = ((one.optimizer, one.gradients, one.parameters, one.activations) for one in (self, other))
        return any(one > another for one, another in zip(mine, others, strict=True))


# The dimensions of a layout.
BY_TENSOR, BY_SHARDING, BY_PIPELINE, BY_DATA = "tensor parallel", "sharding", "pipeline parallel", "data parallel"
BY_SEQUENCE = "sharing samples"  # its ranks are of data parallel or sharding, too
GRADIENTS, PARAMETERS, ACTIVATIONS = "gradients", "parameters", "activations"  # that ranks send each other


@dataclass(frozen=True)
class Engine:
    """The way a framework runs a step. The defaults are PaddleNLP's; other values are for published runs.

    The defaults are PaddleNLP's; what others do differently is for published runs.

    Attributes:
        softmax_passes: How often exact attention reads or writes the scores, forward and backward (float32 counts
            double).
        overlapped: Of GRADIENTS, PARAMETERS, ACTIVATIONS, what goes between nodes beside arithmetic.
        virtual_stages: That each card of a pipeline takes turns in (interleaved schedule).
        recomputes_first: The first layer is recomputed over a frozen embedding, too: its output asks for a gradient.
        flash_rate: Of flash attention, as a share of version 2's.
    """

    softmax_passes: tuple[float, float] = (18, 20)
    overlapped: frozenset[str] = frozenset()
    virtual_stages: int = 1
    recomputes_first: bool = False
    flash_rate: float = 1.0


@dataclass(frozen=True)
class Job:
    """One run.

    Attributes:
        config: The model's, as launch/families/configs has it.
        layout: The degrees.
        sequence_parallel: Activations between blocks are sharded over the tensor parallel ranks.
        micro_batch, accumulation, eval_batch: Samples of a device at once; micro batches a step.
        sequence_length: Tokens of a sample, the longest.
        compute: Dtype of weights and activations.
        amp: O1: float32 weights, matrix products in `compute`; "" where there is nothing to cast.
        master_weights: A float32 copy of each trained weight that is kept in half precision.
        master_gradients: Gradients are summed and kept in float32 (--amp_master_grad).
        recompute: "", full, full_attn or core_attn.
        adapter: What is trained instead of the model's own weights.
        base: How the frozen weights of linear layers are quantized.
        checkpoints: Kept on disk at once.
        on_gpu: A card, or a CPU with the framework's own operators (--cpu_fast off).
        own_loss: The loss is one of ours (launch/training/losses.py), not that of the model's class.
        rows: Of a sample in a batch: a pair has two.
        loss_type: Of preference tuning, "" in other methods.
        sampled_at_once: Answers that reinforcement samples together, 0 in other methods.
        prompt_length: Tokens of a prompt, at most, in reinforcement: an answer has the rest of sequence_length.
        rollout_steps: Steps that learn from answers sampled before the first of them.
        rollout_passes: Times that these steps are made.
        sorts_ids: Tokens are drawn among the most likely of all ids (--top_p).
        reference: What a preference loss compares with (launch/methods/preference_flags.py).
        teacher: The configuration of another model that is the second one; {}: it is a copy of the model.
        saves_in_background: Checkpoints are copied to host memory before they are written.
        save_steps: Between two checkpoints; 0: none is saved, or one at the end of an epoch.
        dense_mask: Packed rows are kept apart by a mask of [length, length] each, not by FlashMask.
        fused_rope: Rotary embeddings by one kernel.
        tensor_parallel_overlap: Sums of gradients over tensor parallel ranks beside the products of weights'
            gradients.
        float32_norms_and_head: These compute in float32, their weights stay in `compute`.
        loss_chunk_tokens, sequence_slices: Of the flags.
        moment_item: Bytes of an element of AdamW's two moments; 0: they are factored (--optim adafactor).
        in_backward: Parameters are updated within the backward pass (--update_in_backward).
        nodes, network: The machines, all with as many cards, and what joins them; None: there is one.
        sharding_first: Pipeline stages are neighbors, sharding ranks are not (--hybrid_parallel_topo_order).
        whole_sends: Each tensor parallel rank sends all activations to the next stage, not its part of them.
        engine: What runs it.
    """

    config: dict = field(hash=False)  # two jobs that differ in it alone are not equal
    layout: Layout
    micro_batch: int
    accumulation: int
    sequence_length: int
    compute: str = FLOAT32
    amp: str = ""
    master_weights: bool = False
    master_gradients: bool = False
    sequence_parallel: bool = False
    recompute: str = ""
    flash_attention: bool = False
    dense_mask: bool = False
    fused_rms_norm: bool = False
    fused_rope: bool = False
    tensor_parallel_overlap: bool = False
    adapter: Lora | Prefix | None = None
    base: Format | None = None
    offload: Offload = Offload()
    eval_batch: int = 0
    data_workers: int = 0
    checkpoints: int = 0
    on_gpu: bool = True
    own_loss: bool = False
    rows: int = 1
    loss_type: str = ""
    sampled_at_once: int = 0
    prompt_length: int = 0
    rollout_steps: int = 1
    rollout_passes: int = 1
    sorts_ids: bool = False
    reference: str = NONE
    teacher: dict = field(default_factory=dict, hash=False)
    float32_norms_and_head: bool = False
    loss_chunk_tokens: str = "auto"
    sequence_slices: str = "off"
    saves_in_background: bool = False
    save_steps: int = 0
    host_embedding: bool = False
    moment_item: int = ITEM[FLOAT32]
    in_backward: bool = False
    nodes: int = 1
    network: Network | None = None
    sharding_first: bool = False
    whole_sends: bool = False
    engine: Engine = Engine()

    @property
    def family(self) -> Family:
        """The model's family."""
        return family_of_config(self.config)

    @property
    def item(self) -> int:
        """Bytes of an element of a weight or activation."""
        return ITEM[self.compute]

    @property
    def gradient_item(self) -> int:
        """Bytes of an element of a weight's gradient."""
        return ITEM[FLOAT32 if self.master_gradients else self.compute]

    @property
    def moment_bytes(self) -> int:
        """Bytes per trained parameter for both AdamW moments."""
        return 2 * self.moment_item

    @property
    def eight_bits(self) -> bool:
        """Whether moments are in 8 bits, with a scale for each block, and weights have no float32 copy."""
        return self.moment_item == 1

    @property
    def factored(self) -> bool:
        """Whether rows and columns have a second moment, in float32, and elements have none."""
        return self.moment_item == 0

    @property
    def has_own_head(self) -> bool:
        """Whether the model has an output layer that can be quantized."""
        return any(parameter.name == HEAD_WEIGHT for parameter in parameters(self.config))

    def rows_of_head(self, shape: tuple[int, ...]) -> int:
        """Return how many rows of an output layer whose loss is in chunks are updated at a time; 0: all.

        shape: [hidden, vocabulary].
        """
        by_rows = self.in_backward and self.eight_bits and self.amp != "O1" and not self.float32_norms_and_head
        return rows_of_part(*shape) if by_rows else 0

    def update_bytes(self, shape: tuple[int, ...]) -> int:
        """Return what the update of a tensor takes on the device, beside parameter, gradient and states.

        Some elements are in float32 meanwhile (narrow_moments.py, eight_bit_moments.py and factored_moments.py of
        launch/training). Those that are in host memory come in pages, the next one beside the one in use.
        """
        if self.eight_bits:
            size = prod(shape)
            part = min(size, MOMENT_ELEMENTS)
            return NARROWEST * part + (self.offload.optimizer and (1 + (size > part)) * self.moments_of((part,)))
        if self.moment_item == ITEM[FLOAT32]:
            return 0
        row = prod(shape[1:])
        each = FACTORED[self.item] if self.factored else NARROW
        return each * rows_at_once(shape[0], row) * row

    def moments_of(self, shape: tuple[int, ...]) -> int:
        """Return the bytes of the moments of a trained tensor."""
        if self.factored:
            return ITEM[FLOAT32] * sum(shape)
        size = prod(shape)
        return size * self.moment_bytes + (2 * ITEM[FLOAT32] * -(-size // MOMENT_BLOCK) if self.eight_bits else 0)

    @property
    def masked(self) -> bool:
        """Whether flash attention reads a mask, too."""
        return self.dense_mask or self.family.always_masked

    @property
    def trains_all(self) -> bool:
        """Whether the whole model is trained, not an adapter."""
        return self.adapter is None

    @property
    def reward_model(self) -> bool:
        """It trains a reward model, which has no logits."""
        return gives_scores(self.config)

    @property
    def global_batch(self) -> int:
        """Samples of a step on all ranks."""
        return self.micro_batch * self.accumulation * self.layout.data_ranks

    @property
    def reads_unrelated(self) -> bool:
        """Whether a step begins with a pass over as many rows more, without gradients (launch/training/kto_loss.py)."""
        return self.loss_type == KTO

    @property
    def passes_beside(self) -> int:
        """Forward passes without gradients for a micro batch: by the reference, and by both over unrelated rows."""
        return self.compares + 2 * self.reads_unrelated

    @property
    def batch(self) -> int:
        """Rows of a micro batch."""
        return self.micro_batch * self.rows

    @property
    def weighed(self) -> bool:
        """Whether tokens weigh differently in the loss (launch/training/chunked_loss.py)."""
        return bool(self.loss_type or self.sampled_at_once)

    @property
    def drops_out(self) -> bool:
        """Whether the model's own dropout is on: not where its outputs are compared with others of it."""
        return not (self.loss_type or self.sampled_at_once)

    @property
    def compares(self) -> bool:
        """Whether each micro batch passes the reference, too."""
        return self.reference in (ADAPTER_OFF, SECOND_COPY)

    @property
    def compared(self) -> "Job":
        """The job of the reference's forward pass alone."""
        config = self.teacher or self.config
        return self.changed(config=config, teacher={}, reference=NONE, adapter=None, recompute="")

    @property
    def rank_length(self) -> int:
        """Tokens of a row on one rank: those of --sep_parallel_degree share it."""
        return -(-self.sequence_length // self.layout.sep_parallel_degree)

    @property
    def residual_bytes(self) -> int:
        """Bytes that one layer hands to the next on this rank, for one micro batch."""
        elements = self.batch * self.rank_length * self.config["hidden_size"]
        return elements * self.item // (self.layout.tensor_parallel_degree if self.sequence_parallel else 1)

    def loss_chunk(self, vocabulary: int, trained: bool) -> int:
        """Return the tokens of a micro batch whose logits exist at once; 0: all, or there are no logits.

        Args:
            vocabulary: Ids that a rank has.
            trained: Whether the gradient of the output layer's weight is computed.
        """
        if self.reward_model:
            return 0
        tokens = self.batch * self.rank_length
        chunk = loss_chunk(self.loss_chunk_tokens, tokens, vocabulary, self.config["hidden_size"], trained)
        return chunk or (tokens if isinstance(self.adapter, Lora) and self.adapter.tokens else 0)

    @property
    def slice_tokens(self) -> int:
        """Tokens of a micro batch that MLPs and norms compute at once; 0: all."""
        tokens = self.batch * self.rank_length
        size = tokens_of_slice(self.sequence_slices, tokens) if self.family.forward.slices_sequence else tokens
        return size if size < tokens else 0

    @property
    def cards(self) -> int:
        """Number of cards of a node."""
        return self.layout.processes // self.nodes

    @cached_property
    def groups(self) -> dict[str, Group]:
        """{dimension: its group of ranks}. Ranks are numbered in this order: tensor parallel neighbors first."""
        layout = self.layout
        inner, outer = (
            (BY_SHARDING, layout.sharding_parallel_degree),
            (BY_PIPELINE, layout.pipeline_parallel_degree),
        )
        if self.sharding_first:
            inner, outer = outer, inner
        degrees = ((BY_TENSOR, layout.tensor_parallel_degree), inner, outer, (BY_DATA, layout.data_parallel_degree))
        groups, stride = {}, 1
        for dimension, ranks in degrees:
            groups[dimension] = Group.of(ranks, stride, self.cards)
            stride *= ranks
        if layout.sep_parallel_degree > 1:
            groups[BY_SEQUENCE] = Group.of(layout.sep_parallel_degree, 1, self.cards)
        return groups

    @property
    def crossing(self) -> str:
        """The communication between nodes, such as "sharding over 8 nodes, pipeline parallel over 2 nodes"."""
        return ", ".join(f"{name} over {group.nodes} nodes" for name, group in self.groups.items() if group.nodes > 1)

    @property
    def between_steps(self) -> "Job":
        """The job without the values that only the work of a step depends on.

        It is the same for all jobs that have the same memory between two steps.
        """
        recompute = "full" if self.recompute else ""  # of that, whether there is any
        return self.changed(micro_batch=1, accumulation=1, sequence_length=1, eval_batch=0, recompute=recompute)

    def changed(self, **changes) -> "Job":
        """Return the job with other values, a what-if for advice."""
        return replace(self, **changes)

    @classmethod
    def from_flags(cls, script: str, words: Flags, processes: int, card: Card | None = None) -> "Job":
        """Return the job of a method's flags on `processes` processes. script: as in RunConfig."""
        return cls.from_run(RunConfig(script, words, processes=processes), card)

    @classmethod
    def from_run(cls, run: RunConfig, card: Card | None = None) -> "Job":
        """Return the job of a run.

        Args:
            run: Its configuration.
            card: The kind that it runs on; None: it is unknown, and its consequences (bfloat16, flash attention) are an
                A100's.

        Raises:
            UserError: If there is no such model or layout.
        """
        values = run.flags
        if not values.model_name_or_path:
            raise UserError("--model_name_or_path: not given; the plan needs a model's configuration.")
        config = as_reward_model(run_config(values)) if run.method.reward_model else run_config(values)
        on_gpu = not run.on_cpu
        capability = (card.compute_capability if card else (8, 0)) if on_gpu else None
        bf16, fp16 = precision.expected(values, capability)
        half = BFLOAT16 if bf16 else FLOAT16 if fp16 else FLOAT32
        level = values.fp16_opt_level if half != FLOAT32 else "O0"
        whole = level == "O2"
        layout = run.layout
        # A plan does not look at this machine's build of Paddle.
        dtype, build = precision.attention_dtype(bf16, fp16, level), "12.6" if capability else "cpu"
        case = case_of(values, config, capability, dtype, build)
        flash_attention = FLASH_ATTENTION.planned(values, case)
        return cls(
            config=config,
            layout=layout,
            micro_batch=values.per_device_train_batch_size,
            accumulation=values.gradient_accumulation_steps,
            sequence_length=getattr(values, run.method.length_flag),
            compute=half if whole else FLOAT32,
            amp=level if half != FLOAT32 else "",
            master_weights=whole and moment_item(values) > 1,
            master_gradients=whole and bool(values.amp_master_grad),
            sequence_parallel=bool(values.sequence_parallel) and layout.tensor_parallel_degree > 1,
            recompute=(values.recompute_granularity or "full") if values.recompute else "",
            flash_attention=flash_attention,
            dense_mask=case.packed and not (flash_attention and FLASH_MASK.planned(values, case)),
            fused_rms_norm=FUSED_RMS_NORM.planned(values, case),
            fused_rope=FUSED_ROPE.planned(values, case),
            tensor_parallel_overlap=OVERLAP.planned(values, case),
            adapter=_adapter(values, config),
            base=_base(values),
            offload=_offload(values),
            eval_batch=0 if values.sampled_at_once or not values.do_eval else values.per_device_eval_batch_size,
            data_workers=values.dataloader_num_workers or 0,
            checkpoints=checkpoints_at_once(values),
            on_gpu=on_gpu,
            own_loss=run.method.own_loss,
            rows=run.method.rows_per_sample(values),
            loss_type=values.loss_type or "",
            sampled_at_once=values.sampled_at_once or 0,
            prompt_length=(values.src_length or 0) if values.sampled_at_once else 0,
            rollout_steps=values.rollout_steps or 1,
            rollout_passes=values.rollout_passes or 1,
            sorts_ids=bool(values.sampled_at_once and values.top_p and values.top_p < 1 and not values.top_k),
            reference=reference_of_flags(values),
            teacher=_teacher(values),
            float32_norms_and_head=bool(values.fp32_norms_and_head),
            loss_chunk_tokens=values.loss_chunk_tokens,
            sequence_slices=values.sequence_slices,
            saves_in_background=bool(values.use_async_save),
            host_embedding=bool(values.offload_embedding),
            save_steps=values.save_steps if values.save_strategy == "steps" else 0,
            moment_item=moment_item(values),
            in_backward=bool(values.update_in_backward),
            nodes=run.nodes.count,
            network=network_of(run.network, card) if run.nodes.count > 1 else None,
            sharding_first=values.hybrid_parallel_topo_order == "sharding_first",
            whole_sends="disable_partial_send_recv" in values.words("pipeline_parallel_config"),
            engine=Engine(overlapped=_overlapped(values, layout)),
        )


def _overlapped(values: FlagValues, layout: Layout) -> frozenset[str]:
    """Return the communication that overlaps, by flags alone.

    Upstream ignores enable_stage1_overlap under pipeline parallel.
    """
    if layout.pipeline_parallel_degree > 1:
        overlaps = "enable_sharding_comm_overlap" in values.words("pipeline_parallel_config")
    else:
        overlaps = f"enable_{layout.sharding}_overlap" in values.words("sharding_parallel_config")
    return frozenset({GRADIENTS} if overlaps else ())


def moment_item(values: FlagValues) -> int:
    """Return Job.moment_item: float32 in every precision, unless the optimizer stores fewer."""
    items = {"adamw_16bit_moment": ITEM[BFLOAT16], "adamw_8bit": 1, "adafactor": 0}
    return items.get(values.optim or "", ITEM[FLOAT32])


def _adapter(values: FlagValues, config: dict) -> Lora | Prefix | None:
    if values.prefix_tuning:
        return Prefix(values.num_prefix_tokens or 128)
    if values.lora:
        targets = lora_targets(config, (values.lora_target_modules or "").split())
        tokens = len((values.trainable_token_indices or "").split())
        return Lora(values.lora_rank, targets, values.lora_dropout or 0.0, bool(values.dora), tokens)
    return None


def _teacher(values: FlagValues) -> dict:
    try:
        return load_config(values.teacher) if values.teacher else {}
    except UserError as error:
        raise UserError(str(error).replace("--model_name_or_path", "--teacher")) from None


def _base(values: FlagValues) -> Format | None:
    if not values.weight_quantize_algo:
        return None
    return Format(
        values.weight_quantize_algo,
        values.weight_blocksize,
        bool(values.weight_double_quant),
        values.weight_double_quant_block_size,
        bool(values.quantize_head),
    )


def _offload(values: FlagValues) -> Offload:
    """Return the offload.

    --offload_optim has the optimizer in host memory; `offload` beside a stage has the gradients of stage 2, and the
    parameters of stage 3, too.
    """
    words = values.words("sharding")
    sharded = "offload" in words
    return Offload(
        optimizer=bool(values.offload_optim) or sharded,
        returns=bool(values.offload_optim) and not sharded and values.optim != "adamw_8bit",
        gradients=sharded and "stage1" not in words,
        parameters=sharded and "stage3" in words,
        activations=values.offload == "activations",
    )


def checkpoints_at_once(values: FlagValues) -> int:
    """Return the largest number of checkpoints at once.

    One beyond --save_total_limit is removed only after the next one is written, the best one never.
    """
    strategy = values.save_strategy
    if strategy == "no":
        return 0
    if strategy == "epoch":
        saves = max(1, int(values.num_train_epochs))
    else:
        saves = values.max_steps // max(1, values.save_steps) if values.max_steps > 0 else 1
    limit = values.save_total_limit
    if not limit or limit < 0:
        return saves
    return min(saves, limit + (2 if values.metric_for_best_model else 1))
