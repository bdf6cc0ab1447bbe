"""Qwen2: a LLaMA whose queries, keys and values have a bias."""

from functools import partial

from launch.families.family import Family, HuggingFace, TokenizerFiles, Values, native
from launch.families.gated_decoder import (
    LINEAR_LAYERS,
    ROTARY_CORRECTIONS,
    GatedDecoder,
    gated_parameters,
    read_gated_config,
    read_scaling,
    write_gated_config,
)


def _read_config(theirs: Values) -> dict:
    theirs.only(use_sliding_window=False)
    return read_gated_config(theirs, "qwen2") | read_scaling(theirs)


def _write_config(ours: dict) -> dict:
    return native("qwen2", "Qwen2ForCausalLM") | write_gated_config(ours) | {"use_sliding_window": False}


QWEN2 = Family(
    name="qwen2",
    title="Qwen2",
    model_type="qwen2",
    config_class="Qwen2Config",
    model_class="Qwen2ForCausalLM",
    pipeline_class="Qwen2ForCausalLMPipe",
    tokenizer_class="Qwen2Tokenizer",
    rehearsal_config="qwen2-rehearsal",
    linear_layers=LINEAR_LAYERS,
    prefix_postprocess="qwen_postprocess_past_key_value",
    chat_template="qwen2",
    odd_vocabulary=True,
    row_ends=True,
    corrections=("generation_mask", "llama_flash_masks", "llama_mask_of_nothing", *ROTARY_CORRECTIONS),
    parameters=partial(gated_parameters, prefix="qwen2", qkv_bias=True),
    forward=GatedDecoder,
    published=HuggingFace(
        model_type="qwen2",
        read_config=_read_config,
        write_config=_write_config,
        renamed=((r"^qwen2\.", "model."),),
        tokenizer=TokenizerFiles(byte_level="Qwen2Tokenizer"),
    ),
    fused_rms_norm=True,
    fused_rope=True,
    window_by_default=False,
    scales_positions=True,
    reward_models=True,
)
