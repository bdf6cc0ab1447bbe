"""LLaMA 1, 2 and 3, and Baichuan-7B, which differs from it only in how its weights are published."""

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
    theirs.only(attention_bias=False, mlp_bias=False, pretraining_tp=1)
    return read_gated_config(theirs, "llama") | read_scaling(theirs)


def _write_config(ours: dict) -> dict:
    fixed = {"attention_bias": False, "mlp_bias": False}
    return native("llama", "LlamaForCausalLM") | write_gated_config(ours) | fixed


LLAMA = Family(
    name="llama",
    title="LLaMA 1, 2, 3; Baichuan-7B",
    model_type="llama",
    config_class="LlamaConfig",
    model_class="LlamaForCausalLM",
    pipeline_class="LlamaForCausalLMPipe",
    tokenizer_class="LlamaTokenizer",
    rehearsal_config="llama-rehearsal",
    linear_layers=LINEAR_LAYERS,
    prefix_postprocess="llama_postprocess_past_key_value",
    chat_template="llama",
    odd_vocabulary=True,
    row_ends=True,
    corrections=("generation_mask", "llama_flash_masks", "llama_mask_of_nothing", *ROTARY_CORRECTIONS),
    parameters=partial(gated_parameters, prefix="llama"),
    forward=GatedDecoder,
    published=HuggingFace(
        model_type="llama",
        read_config=_read_config,
        write_config=_write_config,
        renamed=((r"^llama\.", "model."),),
        tokenizer=TokenizerFiles(
            sentencepiece=("tokenizer.model", "sentencepiece.bpe.model"),
            published={"tokenizer_class": "LlamaTokenizer"},
        ),
    ),
    # LLaMA 3, whose turns look different. Its base models come without a template.
    chat_template_by_token=(("<|start_header_id|>", "llama3"),),
    fused_rms_norm=True,
    fused_rope=True,
    scales_positions=True,
    reward_models=True,
)
