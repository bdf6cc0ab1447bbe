"""Where flash attention can be used: each row is a reason against it, for Paddle 3.3.1 and paddlenlp 3.0.0b4.

    reason = obstacle(Case(compute_capability=(7, 0), dtype="float16", head_size=128))

Most rows are no error in Paddle: F.scaled_dot_product_attention then silently takes another kernel (memory efficient,
or plain), which may need as much memory as exact attention. On cards before 8.0 the memory efficient kernel
is what --use_flash_attention means: it is exact, and keeps no scores either.

The sources are files of the installed packages, or of the kernels' repository, PaddlePaddle/flash-attention.
"""

from collections.abc import Callable
from dataclasses import dataclass

from launch.devices.cuda import paddle_build
from launch.families.family import Family
from launch.families.parameters import ALIBI_COLUMNS, head_size
from launch.families.registry import family_of, family_of_config

HALF = ("float16", "bfloat16")
OWN_KERNEL = (8, 0)  # of flash attention: A100, 3090 and newer; Volta and Turing have the memory efficient one alone


@dataclass(frozen=True)
class AttentionCase:
    """One use of flash attention in training.

    Attributes:
        compute_capability: (major, minor) of the card, None without one.
        dtype: The dtype of attention.
        head_size: Elements of a head, with the ones that ALiBi adds.
        mask: "causal" where none is needed, "dense": [queries, keys] of each sample.
        dropout: Of attention's weights.
        model_type: As in config.json.
        lacking: Why the model family has no flash attention at all, "" where it has.
        level: --fp16_opt_level: under O1 the weights are float32.
        build: The CUDA version that Paddle was built for, "12.6", or "cpu"; None where unknown.
    """

    compute_capability: tuple[int, int] | None
    dtype: str
    head_size: int
    mask: str = "causal"
    dropout: float = 0.0
    model_type: str = "llama"
    lacking: str = ""
    level: str = "O2"
    build: str | None = None

    @property
    def capability(self) -> tuple[int, int]:
        """The compute capability of the card, where there is one."""
        assert self.compute_capability is not None
        return self.compute_capability

    @property
    def card(self) -> str:
        """The card, as text."""
        return "compute capability " + ".".join(map(str, self.capability))

    @property
    def masked(self) -> bool:
        """Whether attention has a mask."""
        return self.mask == "dense" or family_of(self.model_type).always_masked

    @property
    def kernel(self) -> str:
        """Name of the kernel on cards that have the memory efficient one only, else ""."""
        old = self.compute_capability is not None and self.compute_capability < OWN_KERNEL
        return f"by the memory efficient kernel, the one for {self.card}" if old else ""

    @property
    def cuda(self) -> tuple[int, ...] | None:
        """The CUDA version of the build, None where it is unknown."""
        return tuple(map(int, self.build.split("."))) if self.build else None


@dataclass(frozen=True)
class AttentionObstacle:
    """An obstacle to flash attention.

    Attributes:
        when: Whether it cannot be used; {case.X} in the reason is replaced by a value of the case.
    """

    when: Callable[[AttentionCase], bool]
    reason: str
    source: str


# In the order in which they are checked: those below "no GPU" may count on a card.
ROWS = (
    AttentionObstacle(
        lambda case: bool(case.lacking),
        "{case.lacking}",
        "launch/families, the family's module",
    ),
    AttentionObstacle(
        lambda case: case.compute_capability is None,
        "no GPU",
        "paddle/nn/functional/sdpa.py, check_all_tensors_on_device",
    ),
    AttentionObstacle(
        lambda case: case.build == "cpu",
        "Paddle is the CPU build",
        "paddle/nn/functional/sdpa.py, check_cuda_is_available",
    ),
    AttentionObstacle(
        lambda case: case.capability < (7, 0),
        "{case.card}, it needs 7.0 (V100, T4) or newer",
        "PaddlePaddle/flash-attention csrc/capi/flash_attn.cu, CHECK_FWD_EXECUTABLE: is_sm8x || is_sm90; "
        "memory_efficient_attention/generate_kernels.py: no tensor cores below 70",
    ),
    AttentionObstacle(
        lambda case: case.capability < OWN_KERNEL and case.masked,
        "{case.card} has the memory efficient kernel alone, which needs a copy of the mask for each head",
        "paddle/nn/functional/sdpa.py, scaled_dot_product_attention: attn_mask.expand; init_config: "
        "MINIMUM_SM_VERSION of flash_attn",
    ),
    AttentionObstacle(
        lambda case: case.capability > (12, 1),
        "{case.card}, newer than this Paddle knows (12.1)",
        "paddle/nn/functional/sdpa.py, init_config: MAXIMUM_SM_VERSION",
    ),
    AttentionObstacle(
        lambda case: case.capability >= (10, 0) and case.cuda is not None and case.cuda < (12, 8),
        "{case.card} needs a Paddle for CUDA 12.8 or newer, this one is for {case.build}",
        "CUDA toolkit release notes: Blackwell since 12.8; PaddlePaddle/flash-attention pull request 72",
    ),
    AttentionObstacle(
        lambda case: case.dtype not in HALF,
        "{case.dtype}, it needs --fp16 1 or --bf16 1",
        "paddle/nn/functional/sdpa.py, init_config: support_dtypes",
    ),
    AttentionObstacle(
        lambda case: case.level == "O1" and family_of(case.model_type).weights_dtype_rotary,
        "under --fp16_opt_level O1 queries and keys are float32, values {case.dtype}: Paddle takes exact attention; O2 "
        "has it",
        "paddlenlp/transformers/chatglm/modeling.py, RotaryEmbeddings.forward: cast to the default dtype; chatglm_v2/"
        "modeling.py, RotaryEmbedding.forward_impl; paddle/nn/functional/sdpa.py, check_dtypes_low_precision_fa",
    ),
    AttentionObstacle(
        lambda case: case.head_size > 256,
        "heads of {case.head_size}, at most 256 are possible",
        "csrc/capi/flash_attn.cu, CHECK_FWD_EXECUTABLE: head_size <= 256; sdpa.py, check_head_dim_size_flash",
    ),
    AttentionObstacle(
        lambda case: case.head_size % 8 != 0,
        "heads of {case.head_size}, it needs a multiple of 8",
        "csrc/capi/flash_attn.cu, CHECK_FWD_EXECUTABLE: head_size % 8 == 0; sdpa.py, check_head_dim_size_flash",
    ),
    AttentionObstacle(
        lambda case: case.head_size > 192 and (8, 0) < case.capability < (9, 0),
        "heads of {case.head_size} on {case.card}: their gradient needs an A100 (8.0) or H100 (9.0)",
        "csrc/capi/flash_attn.cu, CHECK_BWD_EXECUTABLE: head_size > 192 asserts is_sm80 || is_sm90, which sdpa.py does "
        "not look at; Paddle pull request 67547",
    ),
    AttentionObstacle(
        lambda case: case.dropout > 0 and not family_of(case.model_type).flash_dropout,
        "attention dropout {case.dropout}, which paddlenlp does not hand over: there would be none",
        "paddlenlp/transformers/llama/fusion_ops.py, fusion_flash_attention: no dropout; qwen2/modeling.py, "
        "scaled_dot_product_attention: the exact branch has it",
    ),
)


def obstacle(case: AttentionCase) -> str:
    """Return the first reason against flash attention, or ""."""
    return next((row.reason.format(case=case) for row in ROWS if row.when(case)), "")


def mask_of(values) -> str:
    """Return the mask of a run: "dense" for packed samples and left-padded prompts, else "causal".

    Args:
        values: Has the flags.
    """
    masked = getattr(values, "zero_padding", None) or getattr(values, "eval_with_do_generation", None)
    return "dense" if masked else "causal"


def packs(values) -> bool:
    """Return whether a run packs samples into rows.

    Args:
        values: Has the flags.
    """
    return bool(getattr(values, "zero_padding", None))


def row_ends_obstacle(case: AttentionCase, family: Family, pipeline: bool) -> str:
    """Return why packed rows need a mask, [length, length] of each, beside flash attention; "" with FlashMask.

    Sources: paddle/nn/functional/flash_attention.py, flashmask_attention, whose kernel is flash attention's own
    (PaddlePaddle/flash-attention, csrc/capi/flash_attn.cu, Is_sparse_attn_mask); paddlenlp, llama/fusion_ops.py.
    """
    if not family.row_ends:
        return "paddlenlp's code of this family does not call it"
    if case.compute_capability is None or case.compute_capability < OWN_KERNEL:
        return "no card with flash attention's own kernel (8.0 or newer)"
    return "a pipeline tells the masks it sends apart by their dtypes alone" if pipeline else ""


def case_of(
    config: dict,
    compute_capability: tuple[int, int] | None,
    dtype: str,
    mask: str = "causal",
    build: str | None = None,
    level: str = "O2",
) -> AttentionCase:
    """Return the case of training a model, by its config.json.

    Args:
        config: Of the model.
        compute_capability: Of the card, None without one.
        dtype: Of attention.
        mask: As mask_of gives it.
        build: None for the installed Paddle's.
        level: --fp16_opt_level.

    Raises:
        UserError: For a family that is not in launch/families.
    """
    dropouts = ("attention_dropout", "attention_probs_dropout_prob", "attention_dropout_prob")
    family = family_of_config(config)
    return AttentionCase(
        compute_capability=compute_capability,
        dtype=dtype,
        head_size=head_size(config) + (ALIBI_COLUMNS if family.alibi else 0),
        mask=mask,
        dropout=next((config[name] for name in dropouts if config.get(name)), 0.0),
        model_type=config["model_type"],
        lacking=family.lacking.get("flash_attention", ""),
        level=level,
        build=build or paddle_build(),
    )
