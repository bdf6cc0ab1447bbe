"""Baichuan-13B: a LLaMA with ALiBi instead of rotary positions. Baichuan-7B is read here, too, and becomes a LLaMA."""

from dataclasses import replace

from launch.families.family import HuggingFace, TokenizerFiles, Values, taken, tokenizer_with_code, with_code
from launch.families.gated_decoder import CONFIG_KEYS, read_gated_config, read_scaling
from launch.families.llama import LLAMA


def _read_config(theirs: Values) -> dict:
    """Return our configuration of a published one: a LLaMA with rotary positions (7B) or ALiBi (13B).

    7B has a number of positions; 13B has only a length.
    """
    if theirs.get("max_position_embeddings"):
        return read_gated_config(theirs, "llama") | read_scaling(theirs)
    length = theirs.take("model_max_length")["model_max_length"]
    stated = Values(theirs.values | {"max_position_embeddings": length}, theirs.path)
    return read_gated_config(stated, "llama") | {"alibi": True}


def _write_config(ours: dict) -> dict:
    """Return the published configuration, 7B as a LLaMA."""
    stated = taken(ours, *(key for key in CONFIG_KEYS if key != "max_position_embeddings"))
    return with_code("baichuan", "BaichuanConfig", "BaichuanForCausalLM") | {
        "hidden_act": "silu",
        **stated,
        "model_max_length": ours["max_position_embeddings"],
    }


BAICHUAN = replace(
    LLAMA,
    name="baichuan",
    title="Baichuan-13B",
    chosen_by="alibi",
    rehearsal_config="baichuan-rehearsal",
    rotary=False,
    scales_positions=False,
    fused_rope=False,
    chat_template="baichuan",
    chat_template_by_token=(),
    alibi=True,
    reward_models=False,
    corrections=(*LLAMA.corrections, "llama_flash_alibi"),
    published=HuggingFace(
        model_type="baichuan",
        read_config=_read_config,
        write_config=_write_config,
        renamed=LLAMA.published.renamed,
        fused={"W_pack": ("q_proj", "k_proj", "v_proj")},
        unit_head=lambda theirs: "z_loss_weight" in theirs,  # Baichuan2 has a z-loss, and unit head rows
        own_code=True,
        tokenizer=TokenizerFiles(
            sentencepiece=("tokenizer.model", "sentencepiece.bpe.model"),
            published=tokenizer_with_code("baichuan", "BaichuanTokenizer"),
        ),
    ),
)
