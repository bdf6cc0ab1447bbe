"""The flags that all methods have, and the argument objects of a run, made from its RunConfig here alone.

Names are PaddleNLP's. `TrainingArguments` is upstream's and starts process groups when it is constructed: install
whatever must be in place before that (launch/rehearsal) first.
"""

import contextlib
import io
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Literal

from paddlenlp.trainer import IntervalStrategy, TrainingArguments
from paddlenlp.trainer.trainer_utils import OptimizerNames

from launch.config.flag_values import LOWER_IS_BETTER
from launch.config.run_config import SENDS_SHAPES, RunConfig
from launch.errors import UserError
from launch.methods.bounds import AT_LEAST_ONE, NOT_NEGATIVE, POSITIVE, SHARE_BELOW_ONE, STEPS, UNSTATED_OR_STEPS
from launch.methods.method import Method, flag
from launch.switches.precision import PRECISIONS, products_in_bfloat16, resolve, stated
from launch.training.device import compute_capability
from launch.training.eight_bit_moments import AdamW8Bit
from launch.training.factored_moments import Adafactor

Switch = Literal["auto", "on", "off", "required"]
OWN_OPTIMIZERS = {"adamw_8bit": AdamW8Bit, "adafactor": Adafactor}  # all others are paddlenlp's
OPTIMIZERS = list(dict.fromkeys([*(member.value for member in OptimizerNames), *OWN_OPTIMIZERS]))
ALONE = {"nargs": "?", "const": "on"}  # a switch that has two states in PaddleNLP, where --name alone means on


@dataclass(frozen=True)
class ModelArguments:
    """Flags of the model."""

    model_name_or_path: str = flag(
        MISSING, help="Model directory, or the name of a configuration in launch/families/configs."
    )
    tokenizer_name_or_path: str | None = flag(None, help="Tokenizer directory or name. Default: the model's.")
    continue_training: bool = flag(True, help="Start from the model's weights (1) or from random ones (0).")
    use_flash_attention: Switch = flag(
        "auto", help="auto: where card and model can; required: an error where they cannot.", **ALONE
    )
    use_fused_rms_norm: Switch = flag(
        "auto",
        help="auto: the module fused_ln where it is built, else on cards Paddle's own; required: fused_ln or an error.",
        **ALONE,
    )
    use_fused_rope: Switch = flag(
        "auto", help="auto: rotary embeddings by one kernel, where card and model can; required: or an error.", **ALONE
    )
    tensor_parallel_overlap: Switch = flag(
        "auto",
        help="auto: under tensor parallel, sum gradients over the ranks while those of weights are computed, on cards; "
        "required: or an error.",
        **ALONE,
    )
    recompute_granularity: str = flag(
        "full", help="What --recompute saves memory on.", choices=["full", "full_attn", "core_attn"]
    )
    fp32_norms_and_head: bool = flag(
        False, help="Compute norms and the output layer in float32 where the rest is in half precision."
    )


@dataclass(frozen=True)
class AdapterArguments:
    """Flags of adapters."""

    lora: bool = flag(False, help="Train low-rank adapters, the model's own weights frozen.")
    lora_rank: int = flag(8, bounds={"least": 1, "most": 65_536}, help="Rank r of the adapters.")
    lora_alpha: float | None = flag(
        None,
        bounds=POSITIVE,
        help="Their product counts alpha / r times. Default: PaddleNLP's own, 2 r, or 4 with --rslora.",
    )
    lora_dropout: float = flag(0.0, bounds=SHARE_BELOW_ONE, help="Dropout on what the adapters read.")
    lora_plus_scale: float = flag(
        1.0,
        bounds=POSITIVE,
        help="LoRA+: the learning rate of lora_B is so many times that of lora_A; the paper takes 16.",
    )
    rslora: bool = flag(False, help="rsLoRA: the adapters' product counts alpha / sqrt(r) times, not alpha / r.")
    pissa: bool = flag(
        False,
        help="PiSSA: start the adapters from the r largest singular values of the weights, which keep the rest. The "
        "adapter is written as a plain LoRA of rank 2 r.",
    )
    dora: bool = flag(
        False, help="DoRA: train the lengths of the weights' columns, too, apart from what the adapters' product turns."
    )
    lora_target_modules: list[str] | None = flag(
        None,
        help="Linear layers with adapters, as PEFT names them: q_proj v_proj, regular expressions, or all-linear. "
        "Default: all.",
    )
    trainable_token_indices: list[int] | None = flag(
        None,
        bounds=STEPS,
        help="Ids of tokens whose embeddings, and rows of an untied output layer, are trained beside the adapters, as "
        "in PEFT. launch/commands/add_tokens.py adds tokens to a model and prints their ids.",
    )
    prefix_tuning: bool = flag(
        False, help="Train keys and values before the first token's, the model's weights frozen."
    )
    num_prefix_tokens: int = flag(128, bounds=AT_LEAST_ONE, help="How many of them in each layer.")
    weight_quantize_algo: str | None = flag(
        None,
        help="Keep the frozen weights of linear layers in 8 or 4 bits.",
        choices=["weight_only_int8", "weight_only_int4", "nf4", "fp4", "llm.int8"],
    )
    weight_blocksize: int = flag(64, bounds=AT_LEAST_ONE, help="Weights that share a scale in nf4 and fp4.")
    weight_double_quant: bool = flag(False, help="Keep the scales of nf4 and fp4 in 8 bits, not in 32.")
    weight_double_quant_block_size: int = flag(
        256, bounds=AT_LEAST_ONE, help="Scales that share a scale with --weight_double_quant."
    )
    quantize_head: bool = flag(
        False, help="Keep the output layer in the format of --weight_quantize_algo, too, where it has its own weight."
    )


@dataclass
class RunArguments(TrainingArguments):
    """Flags of all methods: upstream's TrainingArguments, and our own additions."""

    min_learning_rate: float = flag(
        0.0, bounds={"least": 0, "most": 10}, help="Where a cosine or linear schedule ends."
    )
    decay_steps: int = flag(
        -1, bounds=UNSTATED_OR_STEPS, help="Steps until min_learning_rate is reached. Default: max_steps."
    )
    logging_first_step: bool = flag(True, help="Log step 1, too.")
    optim: str = flag(
        "adamw",
        help="The optimizer. adamw_16bit_moment and adamw_8bit keep its moments in so many bits, adafactor a second "
        "moment for each row and column; the last two without a float32 copy of weights in bfloat16.",
        choices=OPTIMIZERS,
    )
    update_in_backward: bool = flag(
        False,
        help="Update each parameter within the backward pass, so that one gradient is in memory at a time; clipping "
        "uses the norm of the step before.",
    )
    cpu_fast: Switch = flag("auto", help="Faster settings and operators on a CPU; off: stock Paddle.")
    loss_watch: bool = flag(True, help="Stop where the loss goes wrong, before the next checkpoint is written.")
    loss_first: str = flag(
        "auto",
        help="Where the first loss of trained weights belongs, in nats, such as 1.8-2.5; auto: anywhere; off. "
        "For random weights (pretraining) it is ln V + h sigma^2/2 within 5 per cent, unless off.",
    )
    loss_collapse: float = flag(
        0.01,
        bounds=SHARE_BELOW_ONE,
        help="Stop at less than this share of the first loss, in the first 100 steps and first epoch; 0: never.",
    )
    loss_spike: float = flag(
        2.0,
        bounds=NOT_NEGATIVE,
        help="Stop at a loss so many nats above the median of the last 20 logged ones; 0: never.",
    )
    loss_chunk_tokens: str = flag(
        "auto",
        help="Compute output layer and loss for so many tokens at a time, never the logits of a whole batch; auto: "
        "where this takes less than half of the memory, a sixteenth of a batch; off: all at once.",
    )
    sequence_slices: str = flag(
        "off",
        help="Compute MLPs and norms over so many slices of a micro batch's tokens, each computed again in the "
        "backward pass; auto: slices of 8192 tokens; off: whole. For long texts.",
    )
    hang_factor: float = flag(
        20,
        bounds=NOT_NEGATIVE,
        help="End the run, with every rank's stack in its log, after this many median steps without one.",
    )
    hang_seconds: float = flag(
        300, bounds=POSITIVE, help="The least time without a step that counts as hung; six times that at first."
    )
    bf16: Switch | bool = flag(
        "off",
        help="Compute in bfloat16. auto: where the card has it, float16 on older cards. On a CPU products of matrices "
        "alone, auto: where it has AVX512-bf16 or AMX, and after make custom-ops.",
        **ALONE,
    )

    precision: str | None = flag(
        None,
        help="What to compute in, instead of --bf16 and --fp16. auto: bfloat16 from A100 on and as --bf16 auto on a "
        "CPU, float16 on older cards, else float32; says why.",
        choices=list(PRECISIONS),
    )
    offload: str | None = flag(
        None,
        help="activations: the inputs of layers that --recompute computes again are in host memory between their "
        "forward and backward pass.",
        choices=["activations"],
    )
    offload_embedding: bool = flag(
        False, help="Keep the frozen word embedding in host memory, beside an adapter; a batch's rows are copied."
    )
    loss_scale_window: int = flag(
        1000, bounds=AT_LEAST_ONE, help="fp16: the loss scale doubles after so many steps without an overflow."
    )
    loss_scale_hysteresis: int = flag(
        2, bounds=AT_LEAST_ONE, help="fp16: overflows since it last doubled, from which on each halves the loss scale."
    )
    min_loss_scale: float = flag(1.0, bounds=POSITIVE, help="fp16: the loss scale never falls below it.")
    resume_from_checkpoint: str = flag(
        "auto",
        help="auto: continue from the newest whole checkpoint in --output_dir, if there is one; none: start at "
        "step 0; a path: continue from that checkpoint.",
    )
    resume_changed: list[str] = field(
        default_factory=list,
        metadata={
            "help": "What may differ from the run that is continued, else an error: batch (samples a step), data, "
            "model.",
            "choices": ["batch", "data", "model"],
        },
    )
    force: bool = flag(False, help="Start though the plan says that memory will not suffice.")
    deterministic: bool = flag(
        False, help="On GPUs: equal runs are equal to the bit, at some cost in speed. On a CPU they always are."
    )
    max_run_minutes: float = flag(
        0, bounds=NOT_NEGATIVE, help="Save and end after the step in which this time is over; 0: no limit."
    )

    def __post_init__(self):
        requested = stated(self.precision, str(self.bf16), self.fp16)  # upstream types bf16 as a bool
        # auto, on or required where products are to be in bfloat16, "" where not
        self.bfloat16_products = requested[0] if self.device == "cpu" and products_in_bfloat16(self) else ""
        self.bf16, self.fp16 = resolve(*requested, compute_capability(self.device), self.cpu_fast)
        words = self.sharding.split()
        self.host_offload = "offload" in words  # by launch/offload, so upstream does not see the word
        # Moments in 8 bits stay in host memory: upstream would bring all states back for a step.
        self.paged_moments = OWN_OPTIMIZERS.get(self.optim) is AdamW8Bit and bool(self.offload_optim)
        self.offload_optim = bool(self.offload_optim) and not self.paged_moments
        # The ranks that share a sample are of data parallel or sharding (launch/training/sequence_ranks.py).
        self.sequence_ranks, self.sep_parallel_degree = max(self.sep_parallel_degree, 1), -1
        own, self.optim = self.optim, "adamw" if self.optim in OWN_OPTIMIZERS else self.optim
        self.sharding = " ".join(word for word in words if word != "offload")
        if self.do_eval and IntervalStrategy(self.evaluation_strategy) == IntervalStrategy.NO:
            self.evaluation_strategy = IntervalStrategy.STEPS  # upstream does so, too, with a warning
        if self.greater_is_better is None and self.metric_for_best_model:  # upstream: of all metrics but the loss
            self.greater_is_better = self.metric_for_best_model.removeprefix("eval_") not in LOWER_IS_BETTER
        super().__post_init__()
        self.optim = own if own in OWN_OPTIMIZERS else self.optim

    @property
    def global_batch(self) -> int:
        """Samples an optimizer step, over all data ranks."""
        return self.per_device_train_batch_size * self.gradient_accumulation_steps * self.data_ranks

    @property
    def data_ranks(self) -> int:
        """Groups of processes that read different samples."""
        return self.dataset_world_size // self.sequence_ranks

    @property
    def data_rank(self) -> int:
        """The group of this process."""
        return self.dataset_rank // self.sequence_ranks


def argument_classes(method: Method) -> tuple[type, ...]:
    """Return the argument classes of a method: each field is a flag."""
    return (ModelArguments, AdapterArguments, *method.arguments, RunArguments)


def make_arguments(run: RunConfig) -> Any:
    """Return an object of each of its method's argument classes, from the run's explicit, checked flags.

    Raises:
        UserError: For values that upstream refuses.
    """
    explicit = dict(run.flags.explicit)
    if "skip_data_intervals" in explicit:
        explicit["skip_data_intervals"] = [explicit["skip_data_intervals"]]  # upstream takes a list of intervals
    if run.sends_shapes:
        words = {*run.flags.words("pipeline_parallel_config"), SENDS_SHAPES}
        explicit["pipeline_parallel_config"] = " ".join(sorted(words))
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # where Paddle lists "modified flags" when it meets its peers
            return tuple(
                kind(**{field.name: explicit[field.name] for field in fields(kind) if field.name in explicit})
                for kind in argument_classes(run.method)
            )
    except (ValueError, AssertionError) as error:
        raise UserError(str(error)) from error
