"""Qwen3-MoE: Qwen3's attention, and experts as launch/models/qwen3_moe_model.py has them."""

from functools import partial

from launch.families.family import Family, HuggingFace, TokenizerFiles, Values, native, taken
from launch.families.gated_decoder import (
    LINEAR_LAYERS,
    ROTARY_CORRECTIONS,
    gated_parameters,
    read_gated_sizes,
    read_scaling,
    write_gated_config,
)
from launch.families.mixtral import NO_SEQUENCE
from launch.families.parameters import head_size
from launch.families.qwen2_moe import NO_PIPELINE, experts
from launch.families.qwen3 import HEAD_SIZE, Qwen3Forward
from launch.families.sparse_decoder import SparseDecoder

PREFIX = "qwen2_moe"  # the names that parameters have from the class of paddlenlp
SIZES = ("moe_intermediate_size", "num_experts", "num_experts_per_tok")
ROUTING = (*SIZES, "norm_topk_prob", "output_router_logits", "router_aux_loss_coef")


class Qwen3MoeForward(Qwen3Forward, SparseDecoder):
    """The forward pass of Qwen3-MoE."""

    prefix = PREFIX


def _read_config(theirs: Values) -> dict:
    theirs.only(use_sliding_window=False, attention_bias=False, decoder_sparse_step=1, mlp_only_layers=[])
    theirs.only(tie_word_embeddings=False)  # Qwen2-MoE's class has a head of its own
    return read_gated_sizes(theirs, "qwen3_moe") | {
        "head_dim": theirs.get("head_dim", HEAD_SIZE),
        **theirs.take(*SIZES),
        "norm_topk_prob": theirs.get("norm_topk_prob", False),
        "output_router_logits": theirs.get("output_router_logits", False),
        "router_aux_loss_coef": theirs.get("router_aux_loss_coef", 0.001),
        **read_scaling(theirs),
    }


def _write_config(ours: dict) -> dict:
    own = {"decoder_sparse_step": 1, "mlp_only_layers": [], "use_sliding_window": False, "attention_bias": False}
    sizes = write_gated_config(ours) | taken(ours, *ROUTING)
    return native("qwen3_moe", "Qwen3MoeForCausalLM") | sizes | own | {"head_dim": head_size(ours)}


QWEN3_MOE = Family(
    name="qwen3_moe",
    title="Qwen3-MoE",
    model_type="qwen3_moe",
    config_class="Qwen3MoeConfig",
    model_class="Qwen3MoeForCausalLM",
    pipeline_class=None,
    tokenizer_class="Qwen2Tokenizer",
    rehearsal_config="qwen3-moe-rehearsal",
    linear_layers=LINEAR_LAYERS,
    prefix_postprocess="qwen_postprocess_past_key_value",
    chat_template="qwen3",
    odd_vocabulary=True,
    lacking={"pipeline_parallel": NO_PIPELINE, "sequence_parallel": NO_SEQUENCE},
    corrections=(
        *("newer_models_unknown", "qwen2_moe_experts", "generation_mask", "llama_flash_masks", "llama_mask_of_nothing"),
        *ROTARY_CORRECTIONS,
    ),
    parameters=partial(gated_parameters, prefix=PREFIX, head_norms=True, mlp=experts),
    forward=Qwen3MoeForward,
    published=HuggingFace(
        model_type="qwen3_moe",
        read_config=_read_config,
        write_config=_write_config,
        renamed=((rf"^{PREFIX}\.", "model."),),
        tokenizer=TokenizerFiles(byte_level="Qwen2Tokenizer"),
    ),
    fused_rms_norm=True,
    window_by_default=False,
    scales_positions=True,
)
