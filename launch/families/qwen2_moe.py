"""Qwen2-MoE: Qwen2's attention, experts, and one more for all tokens (launch/upstream/qwen2_moe_experts.py)."""

from collections.abc import Iterator
from functools import partial

from launch.families.family import Family, HuggingFace, TokenizerFiles, Values, native, taken
from launch.families.gated_decoder import LINEAR_LAYERS, gated_parameters, write_gated_config
from launch.families.mistral import read_plain_config
from launch.families.mixtral import NO_SEQUENCE
from launch.families.parameters import ROUTER, Parameter, linear
from launch.families.sparse_decoder import SparseDecoder
from launch.tape.autograd import Tensor

NO_PIPELINE = "paddlenlp's pipeline class drops the auxiliary loss; tensor_parallel_degree works instead"
SIZES = ("moe_intermediate_size", "shared_expert_intermediate_size", "num_experts", "num_experts_per_tok")
ROUTING = (*SIZES, "norm_topk_prob", "output_router_logits", "router_aux_loss_coef")


class Qwen2MoeForward(SparseDecoder):
    """The forward pass of Qwen2-MoE."""

    def shared(self, name: str, x: Tensor, mixed: Tensor) -> Tensor:
        """Add the output of the expert for all tokens, times its gate."""
        gate = self.ops.sigmoid(self.product(f"{name}.shared_expert_gate", x))
        out = self.ops.add(mixed, self.ops.multiply(self.expert(f"{name}.shared_expert", x), gate))
        self.alive(mixed)
        return out


def experts(config: dict, layer: str) -> Iterator[Parameter]:
    """Yield the router and the experts of a layer."""
    hidden, block = config["hidden_size"], f"{layer}.mlp"
    yield Parameter(f"{block}.gate.weight", (hidden, config["num_experts"]), ROUTER)
    for number in range(config["num_experts"]):
        yield from gated(f"{block}.experts.{number}", hidden, config["moe_intermediate_size"])


def _with_shared_expert(config: dict, layer: str) -> Iterator[Parameter]:
    yield from experts(config, layer)
    yield from gated(f"{layer}.mlp.shared_expert", config["hidden_size"], config["shared_expert_intermediate_size"])
    yield Parameter(f"{layer}.mlp.shared_expert_gate.weight", (config["hidden_size"], 1), ROUTER)


def gated(name: str, hidden: int, ffn: int) -> Iterator[Parameter]:
    """Yield the three matrices of an MLP."""
    yield from linear(f"{name}.gate_proj", hidden, ffn, bias=False)
    yield from linear(f"{name}.up_proj", hidden, ffn, bias=False)
    yield from linear(f"{name}.down_proj", ffn, hidden, bias=False)


def _read_config(theirs: Values) -> dict:
    theirs.only(use_sliding_window=False, decoder_sparse_step=1, mlp_only_layers=[], qkv_bias=True)
    return read_plain_config(theirs, "qwen2_moe") | {
        **theirs.take(*SIZES),
        "norm_topk_prob": theirs.get("norm_topk_prob", False),
        "output_router_logits": theirs.get("output_router_logits", False),
        "router_aux_loss_coef": theirs.get("router_aux_loss_coef", 0.001),
    }


def _write_config(ours: dict) -> dict:
    own = {"decoder_sparse_step": 1, "mlp_only_layers": [], "use_sliding_window": False}
    return native("qwen2_moe", "Qwen2MoeForCausalLM") | write_gated_config(ours) | taken(ours, *ROUTING) | own


QWEN2_MOE = Family(
    name="qwen2_moe",
    title="Qwen2-MoE",
    model_type="qwen2_moe",
    config_class="Qwen2MoeConfig",
    model_class="Qwen2MoeForCausalLM",
    pipeline_class=None,
    tokenizer_class="Qwen2Tokenizer",
    rehearsal_config="qwen2-moe-rehearsal",
    linear_layers=LINEAR_LAYERS,
    prefix_postprocess="qwen_postprocess_past_key_value",
    chat_template="qwen2",
    odd_vocabulary=True,
    lacking={"pipeline_parallel": NO_PIPELINE, "sequence_parallel": NO_SEQUENCE},
    corrections=(
        *("qwen2_moe_experts", "generation_mask", "llama_flash_masks", "llama_mask_of_nothing"),
        "rotary_tables_of_every_layer",
    ),
    parameters=partial(gated_parameters, prefix="qwen2_moe", qkv_bias=True, mlp=_with_shared_expert),
    forward=Qwen2MoeForward,
    published=HuggingFace(
        model_type="qwen2_moe",
        read_config=_read_config,
        write_config=_write_config,
        renamed=((r"^qwen2_moe\.", "model."),),
        tokenizer=TokenizerFiles(byte_level="Qwen2Tokenizer"),
    ),
    fused_rms_norm=True,
    window_by_default=False,
)
