"""Mixtral: paddlenlp/transformers/mixtral/modeling.py, with experts as launch/upstream/mixtral_experts.py has them."""

from collections.abc import Iterator
from functools import partial

from launch.families.family import NO_PIPELINE, Family, HuggingFace, TokenizerFiles, Values, native
from launch.families.gated_decoder import gated_parameters, write_gated_config
from launch.families.mistral import MistralForward, read_plain_config
from launch.families.parameters import ROUTER, Parameter, linear
from launch.families.sparse_decoder import SparseDecoder
from launch.tape.autograd import Tensor

NO_SEQUENCE = (
    "each rank would send the tokens of its own part of the sequence to experts that all ranks share; "
    "tensor_parallel_degree without it works"
)
ROUTING = ("num_local_experts", "num_experts_per_tok", "output_router_logits", "router_aux_loss_coef")


class MixtralForward(SparseDecoder):
    """Mixtral's forward pass."""

    tiles_for_flash_attention = True
    mlp_name = "block_sparse_moe"
    normalizes = True
    rms_norm = MistralForward.rms_norm  # written alike

    def expert(self, name: str, x: Tensor) -> Tensor:
        """Return the output of one expert."""
        inner = self.ops.multiply(self.ops.silu(self.column(f"{name}.w1", x)), self.column(f"{name}.w3", x))
        out = self.row(f"{name}.w2", inner)
        self.alive(x)
        return out


def _experts(config: dict, layer: str) -> Iterator[Parameter]:
    hidden, ffn, block = config["hidden_size"], config["intermediate_size"], f"{layer}.block_sparse_moe"
    yield Parameter(f"{block}.gate.weight", (hidden, config["num_local_experts"]), ROUTER)
    for number in range(config["num_local_experts"]):
        yield from linear(f"{block}.experts.{number}.w1", hidden, ffn, bias=False)
        yield from linear(f"{block}.experts.{number}.w2", ffn, hidden, bias=False)
        yield from linear(f"{block}.experts.{number}.w3", hidden, ffn, bias=False)


def _read_config(theirs: Values) -> dict:
    """Return our configuration. router_jitter_noise, random factors of the router's inputs in training, must be 0."""
    theirs.only(router_jitter_noise=0.0, sliding_window=None)
    return read_plain_config(theirs, "mixtral") | {
        "num_local_experts": theirs.get("num_local_experts", 8),
        "num_experts_per_tok": theirs.get("num_experts_per_tok", 2),
        "output_router_logits": theirs.get("output_router_logits", False),
        "router_aux_loss_coef": theirs.get("router_aux_loss_coef", 0.001),
    }


def _write_config(ours: dict) -> dict:
    routing = {key: ours[key] for key in ROUTING if key in ours}
    return native("mixtral", "MixtralForCausalLM") | write_gated_config(ours) | routing | {"sliding_window": None}


MIXTRAL = Family(
    name="mixtral",
    title="Mixtral",
    model_type="mixtral",
    config_class="MixtralConfig",
    model_class="MixtralForCausalLM",
    pipeline_class=None,
    tokenizer_class="LlamaTokenizer",
    rehearsal_config="mixtral-rehearsal",
    linear_layers=("q_proj", "k_proj", "v_proj", "o_proj", "w1", "w2", "w3"),
    prefix_postprocess="qwen_postprocess_past_key_value",
    chat_template="mistral",
    odd_vocabulary=True,
    lacking={"pipeline_parallel": NO_PIPELINE, "sequence_parallel": NO_SEQUENCE},
    corrections=("mixtral_experts", "generation_mask", "llama_flash_masks", "rotary_tables_of_every_layer"),
    parameters=partial(gated_parameters, prefix="mixtral", mlp=_experts),
    forward=MixtralForward,
    published=HuggingFace(
        model_type="mixtral",
        read_config=_read_config,
        write_config=_write_config,
        renamed=((r"^mixtral\.", "model."),),
        tokenizer=TokenizerFiles(
            sentencepiece=("tokenizer.model", "sentencepiece.bpe.model"),
            published={"tokenizer_class": "LlamaTokenizer"},
        ),
    ),
    always_masked=True,
)
