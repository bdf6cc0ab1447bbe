"""Qwen3, dense: a Qwen2 without biases, whose heads have a size of their own and normalize queries and keys."""

from functools import partial

from launch.families.family import Family, HuggingFace, TokenizerFiles, Values, native
from launch.families.gated_decoder import (
    LINEAR_LAYERS,
    ROTARY_CORRECTIONS,
    GatedDecoder,
    gated_parameters,
    read_gated_sizes,
    read_scaling,
    write_gated_config,
)
from launch.families.parameters import head_size
from launch.tape.autograd import Tensor

HEAD_SIZE = 128  # where a config.json states none, as in transformers
PREFIX = (
    "qwen2"  # the names that parameters have from the class of paddlenlp which launch/models/qwen3_model.py extends
)


class Qwen3Forward(GatedDecoder):
    """The forward pass of Qwen3."""

    prefix = PREFIX

    def norm_heads(self, name: str, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Return queries and keys, normed by head."""
        return self.rms_norm(f"{name}.q_norm", query), self.rms_norm(f"{name}.k_norm", key)


def _read_config(theirs: Values) -> dict:
    theirs.only(use_sliding_window=False, attention_bias=False)
    return read_gated_sizes(theirs, "qwen3") | {"head_dim": theirs.get("head_dim", HEAD_SIZE)} | read_scaling(theirs)


def _write_config(ours: dict) -> dict:
    own = {"head_dim": head_size(ours), "attention_bias": False, "use_sliding_window": False}
    return native("qwen3", "Qwen3ForCausalLM") | write_gated_config(ours) | own


QWEN3 = Family(
    name="qwen3",
    title="Qwen3",
    model_type="qwen3",
    config_class="Qwen3Config",
    model_class="Qwen3ForCausalLM",
    pipeline_class="Qwen3ForCausalLMPipe",
    tokenizer_class="Qwen2Tokenizer",
    rehearsal_config="qwen3-rehearsal",
    linear_layers=LINEAR_LAYERS,
    prefix_postprocess="qwen_postprocess_past_key_value",
    chat_template="qwen3",
    odd_vocabulary=True,
    row_ends=True,
    corrections=(
        *("newer_models_unknown", "generation_mask", "llama_flash_masks", "llama_mask_of_nothing"),
        *ROTARY_CORRECTIONS,
    ),
    parameters=partial(gated_parameters, prefix=PREFIX, head_norms=True),
    forward=Qwen3Forward,
    published=HuggingFace(
        model_type="qwen3",
        read_config=_read_config,
        write_config=_write_config,
        renamed=((rf"^{PREFIX}\.", "model."),),
        tokenizer=TokenizerFiles(byte_level="Qwen2Tokenizer"),
    ),
    fused_rms_norm=True,
    window_by_default=False,
    scales_positions=True,
    reward_models=True,
)
