"""LLaMA 1, 2 and 3, and Baichuan-7B, which differs from it only in how its weights are published."""

from functools import partial

from launch.errors import UserError
from launch.families.family import Family, HuggingFace, TokenizerFiles, Values, native
from launch.families.gated_decoder import (
    LINEAR_LAYERS,
    GatedDecoder,
    gated_parameters,
    read_gated_config,
    rope_scaling,
    write_gated_config,
)


def _read_config(theirs: Values) -> dict:
    theirs.only(attention_bias=False, mlp_bias=False, pretraining_tp=1)
    return read_gated_config(theirs, "llama") | _read_rope_scaling(theirs)


def _read_rope_scaling(theirs: Values) -> dict:
    kind, scaling = rope_scaling(theirs)
    if kind == "default":
        return {}
    stated = Values(scaling, f"{theirs.path}: rope scaling")
    if kind == "linear":
        return {"rope_scaling_type": "linear", "rope_scaling_factor": stated.take("factor")["factor"]}
    if kind == "llama3":
        keys = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
        return {"rope_scaling": {"rope_type": "llama3", **stated.take(*keys)}}
    raise UserError(f"{theirs.path}: rope scaling: found {kind!r}, allowed: linear, llama3.")


def _write_config(ours: dict) -> dict:
    fixed = {"attention_bias": False, "mlp_bias": False}
    return native("llama", "LlamaForCausalLM") | write_gated_config(ours) | fixed | _write_rope_scaling(ours)


def _write_rope_scaling(ours: dict) -> dict:
    if ours.get("rope_scaling_type") == "linear":
        return {"rope_scaling": {"rope_type": "linear", "type": "linear", "factor": ours["rope_scaling_factor"]}}
    return {"rope_scaling": ours["rope_scaling"]} if ours.get("rope_scaling") else {}


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
    corrections=("generation_mask", "llama_flash_masks", "llama_mask_of_nothing", "rotary_tables_of_every_layer"),
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
)
