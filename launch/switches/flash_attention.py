"""Where flash attention can be used, for Paddle 3.3.1 and paddlenlp 3.0.0b4.

Most reasons are no error in Paddle: F.scaled_dot_product_attention then silently takes another kernel (memory
efficient, or plain), which may need as much memory as exact attention. On cards before 8.0 the memory efficient kernel
is what --use_flash_attention means: it is exact, and keeps no scores either.

The sources are files of the installed packages, or of the kernels' repository, PaddlePaddle/flash-attention.
"""

import os
from dataclasses import replace
from typing import Any

from launch.switches.switch import Decision, Obstacle, Switch, SwitchCase

HALF = ("float16", "bfloat16")
HOPPER = (9, 0)
OWN_KERNEL = (8, 0)  # of flash attention: A100, 3090 and newer; Volta and Turing have the memory efficient one alone


class FlashAttention(Switch):
    """The switch of flash attention."""

    flag = "use_flash_attention"
    subject = "attention"
    feature = "flash attention"
    instead = "exact attention"
    # Those below "no GPU" may count on a card.
    cases = (
        Obstacle(
            lambda case: "flash_attention" in case.family.lacking,
            "{case.family.lacking[flash_attention]}",
            "launch/families, the family's module",
        ),
        Obstacle(
            lambda case: case.compute_capability is None,
            "no GPU",
            "paddle/nn/functional/sdpa.py, check_all_tensors_on_device",
        ),
        Obstacle(
            lambda case: case.build == "cpu",
            "Paddle is the CPU build",
            "paddle/nn/functional/sdpa.py, check_cuda_is_available",
        ),
        Obstacle(
            lambda case: case.capability < (7, 0),
            "{case.card}, it needs 7.0 (V100, T4) or newer",
            "PaddlePaddle/flash-attention csrc/capi/flash_attn.cu, CHECK_FWD_EXECUTABLE: is_sm8x || is_sm90; "
            "memory_efficient_attention/generate_kernels.py: no tensor cores below 70",
        ),
        Obstacle(
            lambda case: case.capability < OWN_KERNEL and case.masked,
            "{case.card} has the memory efficient kernel alone, which needs a copy of the mask for each head",
            "paddle/nn/functional/sdpa.py, scaled_dot_product_attention: attn_mask.expand; init_config: "
            "MINIMUM_SM_VERSION of flash_attn",
        ),
        Obstacle(
            lambda case: case.capability > (12, 1),
            "{case.card}, newer than this Paddle knows (12.1)",
            "paddle/nn/functional/sdpa.py, init_config: MAXIMUM_SM_VERSION",
        ),
        Obstacle(
            lambda case: case.capability >= (10, 0) and case.cuda is not None and case.cuda < (12, 8),
            "{case.card} needs a Paddle for CUDA 12.8 or newer, this one is for {case.build}",
            "CUDA toolkit release notes: Blackwell since 12.8; PaddlePaddle/flash-attention pull request 72",
        ),
        Obstacle(
            lambda case: case.dtype not in HALF,
            "{case.dtype}, it needs --fp16 1 or --bf16 1",
            "paddle/nn/functional/sdpa.py, init_config: support_dtypes",
        ),
        Obstacle(
            lambda case: case.level == "O1" and case.family.weights_dtype_rotary,
            "under --fp16_opt_level O1 queries and keys are float32, values {case.dtype}: Paddle takes exact "
            "attention; O2 has it",
            "paddlenlp/transformers/chatglm/modeling.py, RotaryEmbeddings.forward: cast to the default dtype; "
            "chatglm_v2/modeling.py, RotaryEmbedding.forward_impl; paddle/nn/functional/sdpa.py, "
            "check_dtypes_low_precision_fa",
        ),
        Obstacle(
            lambda case: case.head_size > 256,
            "heads of {case.head_size}, at most 256 are possible",
            "csrc/capi/flash_attn.cu, CHECK_FWD_EXECUTABLE: head_size <= 256; sdpa.py, check_head_dim_size_flash",
        ),
        Obstacle(
            lambda case: case.head_size % 8 != 0,
            "heads of {case.head_size}, it needs a multiple of 8",
            "csrc/capi/flash_attn.cu, CHECK_FWD_EXECUTABLE: head_size % 8 == 0; sdpa.py, check_head_dim_size_flash",
        ),
        Obstacle(
            lambda case: case.head_size > 192 and (8, 0) < case.capability < (9, 0),
            "heads of {case.head_size} on {case.card}: their gradient needs an A100 (8.0) or H100 (9.0)",
            "csrc/capi/flash_attn.cu, CHECK_BWD_EXECUTABLE: head_size > 192 asserts is_sm80 || is_sm90, which sdpa.py "
            "does not look at; Paddle pull request 67547",
        ),
        Obstacle(
            lambda case: case.dropout > 0 and not case.family.flash_dropout,
            "attention dropout {case.dropout}, which paddlenlp does not hand over: there would be none",
            "paddlenlp/transformers/llama/fusion_ops.py, fusion_flash_attention: no dropout; qwen2/modeling.py, "
            "scaled_dot_product_attention: the exact branch has it",
        ),
    )

    def planned(self, values: Any, case: SwitchCase) -> bool:
        """Return True if a plan counts on it.

        It does not count on the memory efficient kernel of older cards: only a run sees whether its build has it.
        """
        old = case.compute_capability is not None and case.compute_capability < OWN_KERNEL
        return not old and super().planned(values, case)

    def trial(self, case: SwitchCase) -> str:
        """Try the attention of the run, and look whether Paddle has the kernel."""
        from launch.switches import kernel_checks

        return kernel_checks.kernel_missing(case.capability) or kernel_checks.attention_fault(
            kernel_checks.flash_attention_of(case.family),
            kernel_checks.heads_of(case, case.family.alibi),
            case.dtype,
            kernel_checks.shapes(case.masked, case.prefix),
        )

    def decide(self, setting: str, obstacle: str, case: SwitchCase) -> Decision:
        """Return the decision, with the name of the kernel where it is not flash attention's own."""
        decision = super().decide(setting, obstacle, case)
        if not decision.enabled or case.capability >= OWN_KERNEL:
            return decision
        kernel = f"by the memory efficient kernel, the one for {case.card}"
        return replace(decision, reason=f"{decision.reason}, {kernel}")


FLASH_ATTENTION = FlashAttention()


class FlashMask(Switch):
    """Flash attention of packed rows without a mask, [length, length] of each, beside it.

    Its kernel is flash attention's own: paddle/nn/functional/flash_attention.py, flashmask_attention;
    PaddlePaddle/flash-attention, csrc/capi/flash_attn.cu, Is_sparse_attn_mask.
    """

    flag = "zero_padding"
    feature = "FlashMask for packed rows"
    instead = "a mask of each row"
    needs = FLASH_ATTENTION
    cases = (
        Obstacle(
            lambda case: not case.family.row_ends,
            "paddlenlp's code of this family does not call it",
            "launch/families, the family's module: row_ends; paddlenlp, llama/fusion_ops.py",
        ),
        Obstacle(
            lambda case: case.compute_capability is None or case.compute_capability < OWN_KERNEL,
            "no card with flash attention's own kernel (8.0 or newer)",
            "paddle/nn/functional/flash_attention.py, flashmask_attention",
        ),
        Obstacle(
            lambda case: case.pipeline,
            "a pipeline tells the masks it sends apart by their dtypes alone",
            "paddlenlp/transformers/llama/modeling_pp.py, parse_args and return_args",
        ),
    )

    def concerns(self, case: SwitchCase) -> bool:
        """Return True where rows are packed."""
        return case.packed

    def setting(self, values: Any) -> str:
        """Return auto: it has no flag of its own."""
        return "auto"

    def trial(self, case: SwitchCase) -> str:
        """Try the attention of packed rows."""
        from launch.switches import kernel_checks

        attend = kernel_checks.flash_attention_of(case.family)
        heads = kernel_checks.heads_of(case, case.family.alibi)
        return kernel_checks.attention_fault(attend, heads, case.dtype, kernel_checks.packed_shapes())


FLASH_MASK = FlashMask()
VERSION, DETERMINISTIC = "FLAGS_flash_attn_version", "FLAGS_cudnn_deterministic"


class FlashAttention3(Switch):
    """Version 3 of flash attention's kernels, made for Hopper (H100, H200), where no mask is needed.

    paddle/nn/functional/sdpa.py, scaled_dot_product_attention, takes version 2 on every card. Plans count on version 2:
    the rate of version 3 was not measured with Paddle.
    """

    flag = "use_flash_attention"
    feature = "flash attention 3"
    instead = "flash attention 2"
    needs = FLASH_ATTENTION
    cases = (
        Obstacle(
            lambda case: case.capability != HOPPER,
            "{case.card}, it is for 9.0 alone",
            "paddle/phi/kernels/gpu/flash_attn_v3_kernel.cu: only supports Hopper GPUs",
        ),
        Obstacle(
            lambda case: os.environ.get(VERSION) == "2",
            "FLAGS_flash_attn_version=2",
            "paddle/nn/functional/flash_attention.py, flash_attention",
        ),
        Obstacle(
            lambda case: os.environ.get(DETERMINISTIC, "0") not in ("0", "False", "false"),
            "--deterministic 1",
            "paddle/nn/functional/flash_attention.py, flash_attention: version 2 where this flag is set",
        ),
        Obstacle(
            lambda case: case.masked or case.prefix > 0,
            "it has neither masks nor a prefix",
            "paddle/nn/functional/flash_attention.py, flash_attention: no attn_mask",
        ),
        Obstacle(
            lambda case: case.head_size not in (64, 128),
            "heads of {case.head_size}, it is used for 64 and 128",
            "paddle/include/paddle/phi/kernels/gpu/flash_attn_v3_utils.h, round_up_headdim",
        ),
    )

    def concerns(self, case: SwitchCase) -> bool:
        """Return True on Hopper, for models that call the attention which is corrected."""
        return case.compute_capability == HOPPER and case.family.row_ends

    def setting(self, values: Any) -> str:
        """Return auto: it has no flag of its own."""
        return "auto"

    def trial(self, case: SwitchCase) -> str:
        """Try the attention of the run by version 3. It stays in use only if a run says so."""
        from launch.switches import kernel_checks
        from launch.upstream import llama_flash_masks

        attend = kernel_checks.flash_attention_of(case.family)
        llama_flash_masks.use_version_3(True)
        try:
            heads = kernel_checks.heads_of(case, case.family.alibi)
            return kernel_checks.version_3_missing() or kernel_checks.attention_fault(
                attend, heads, case.dtype, kernel_checks.shapes()
            )
        finally:
            llama_flash_masks.use_version_3(False)


FLASH_ATTENTION_3 = FlashAttention3()
