"""ERNIE 4.5, dense: a LLaMA whose heads have a size of their own, and whose positions turn neighbors in float32."""

from functools import partial

from launch.families.family import Family, HuggingFace, TokenizerFiles, Values, native
from launch.families.forward import FLOAT32
from launch.families.gated_decoder import (
    LINEAR_LAYERS,
    GatedDecoder,
    gated_parameters,
    read_gated_sizes,
    rope_theta,
    write_gated_config,
)
from launch.families.parameters import head_size
from launch.families.qwen3 import HEAD_SIZE, PREFIX
from launch.models.rotary_scaling import require_plain_positions
from launch.tape.autograd import Tensor

ROPE_THETA, EPSILON = 500000.0, 1e-5  # where a config.json states none, as in transformers
TOKENIZER = TokenizerFiles(
    sentencepiece=("tokenizer.model", "sentencepiece.bpe.model"),
    settings={"add_bos_token": False},
    published={"tokenizer_class": "LlamaTokenizer"},
)


class Ernie4_5Forward(GatedDecoder):
    """The forward pass of ERNIE 4.5."""

    prefix = PREFIX  # of the class of paddlenlp that launch/models/ernie4_5_model.py extends

    def rotate(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Return queries and keys, each pair of neighbors turned in float32."""
        tables = [self.ops.new((self.batch, self.length, 1, self.head_size // 2), FLOAT32) for _ in range(2)]
        rotated = self._turn(query, tables), self._turn(key, tables)
        self.alive(query, key, *tables)
        return rotated

    def _turn(self, x: Tensor, tables: list[Tensor]) -> Tensor:
        """Return x turned. Four tensors of half the elements in float32 are made on the way, and the whole."""
        ops, wide = self.ops, x.nbytes // x.item * FLOAT32
        products = ops.new(x.shape, FLOAT32), ops.new(x.shape, FLOAT32)
        out = ops.record(ops.new(x.shape, x.item), [x], tables, temporary=2 * wide)
        self.alive(*products)
        return out


def read_ernie_sizes(theirs: Values, model_type: str) -> dict:
    """Return our configuration from a published one, without what only one of the two families has."""
    require_plain_positions(theirs.values, theirs.path)
    theirs.only(use_bias=False, compression_ratio=1.0, use_rmsnorm=True)
    return read_gated_sizes(theirs, model_type) | {
        "head_dim": theirs.get("head_dim", HEAD_SIZE),
        "rms_norm_eps": theirs.get("rms_norm_eps", EPSILON),
        "rope_theta": rope_theta(theirs, ROPE_THETA),
        "tie_word_embeddings": theirs.get("tie_word_embeddings", True),
    }


def write_ernie_sizes(ours: dict) -> dict:
    """Return what both families write into a published configuration, without its model type."""
    tied = bool(ours.get("tie_word_embeddings"))  # transformers takes true where nothing is stated
    return write_gated_config(ours) | {"head_dim": head_size(ours), "use_bias": False, "tie_word_embeddings": tied}


def _read_config(theirs: Values) -> dict:
    return read_ernie_sizes(theirs, "ernie4_5")


def _write_config(ours: dict) -> dict:
    return native("ernie4_5", "Ernie4_5ForCausalLM") | write_ernie_sizes(ours)


ERNIE4_5 = Family(
    name="ernie4_5",
    title="ERNIE 4.5",
    model_type="ernie4_5",
    config_class="Ernie4_5Config",
    model_class="Ernie4_5ForCausalLM",
    pipeline_class="Ernie4_5ForCausalLMPipe",
    tokenizer_class="LlamaTokenizer",
    rehearsal_config="ernie4_5-rehearsal",
    linear_layers=LINEAR_LAYERS,
    prefix_postprocess="qwen_postprocess_past_key_value",
    chat_template="ernie4_5",
    odd_vocabulary=True,
    row_ends=True,
    corrections=(
        *("newer_models_unknown", "generation_mask", "llama_flash_masks", "llama_mask_of_nothing"),
        "rotary_tables_of_every_layer",
    ),
    parameters=partial(gated_parameters, prefix=PREFIX),
    forward=Ernie4_5Forward,
    published=HuggingFace(
        model_type="ernie4_5",
        read_config=_read_config,
        write_config=_write_config,
        renamed=((rf"^{PREFIX}\.", "model."),),
        tokenizer=TOKENIZER,
    ),
    fused_rms_norm=True,
    window_by_default=False,
)
