"""ERNIE 4.5 with experts, in every layer but the first ones (launch/models/ernie4_5_moe_model.py)."""

from collections.abc import Iterator
from functools import partial

from launch.families.ernie4_5 import TOKENIZER, Ernie4_5Forward, read_ernie_sizes, write_ernie_sizes
from launch.families.family import Family, HuggingFace, Values, native, taken
from launch.families.forward import FLOAT32
from launch.families.gated_decoder import LINEAR_LAYERS, gated_mlp, gated_parameters
from launch.families.mixtral import NO_SEQUENCE
from launch.families.parameters import CORRECTION, Parameter
from launch.families.qwen2_moe import NO_PIPELINE, experts, gated
from launch.families.qwen3_moe import PREFIX
from launch.families.sparse_decoder import SparseDecoder
from launch.tape.autograd import Tensor

KEPT = (
    "moe_intermediate_size",
    "moe_layer_start_index",
    "moe_norm_min",
    "output_router_logits",
    "router_aux_loss_coef",
)


class Ernie4_5_MoeForward(Ernie4_5Forward, SparseDecoder):
    """The forward pass of ERNIE 4.5 with experts."""

    prefix = PREFIX
    normalizes = True

    def mlp(self, name: str, x: Tensor) -> Tensor:
        """Return the output of the experts, or in a first layer of the MLP."""
        return super().mlp(name, x) if f"{name}.gate.weight" in self.weights else self.expert(name, x)

    def shared(self, name: str, x: Tensor, mixed: Tensor) -> Tensor:
        """Add the output of the shared experts."""
        return self.ops.add(mixed, self.expert(f"{name}.shared_expert", x))

    def router_logits(self, name: str, x: Tensor) -> Tensor:
        """Return the logits of the router, computed in float32."""
        ops = self.ops
        return ops.matmul(ops.cast(x, FLOAT32), ops.cast(self.weights[f"{name}.weight"], FLOAT32))


def _mlp(config: dict, layer: str) -> Iterator[Parameter]:
    if int(layer.rpartition(".")[2]) < config.get("moe_layer_start_index", 1):
        yield from gated_mlp(config, layer)
        return
    yield from experts(config, layer)
    yield Parameter(f"{layer}.mlp.moe_statics.e_score_correction_bias", (1, config["num_experts"]), CORRECTION)
    yield from gated(f"{layer}.mlp.shared_expert", config["hidden_size"], config["shared_expert_intermediate_size"])


def _read_config(theirs: Values) -> dict:
    """Return ours, which has Qwen2-MoE's names for sizes. The layers of multi-token prediction are left out."""
    config = read_ernie_sizes(theirs, "ernie4_5_moe")
    last = config["num_hidden_layers"] - 1
    if theirs.get("moe_layer_end_index", last) != -1:
        theirs.only(moe_layer_end_index=last)
    theirs.only(moe_layer_interval=1)
    sizes = theirs.take("moe_intermediate_size", "moe_num_experts", "moe_k")
    return config | {
        "moe_intermediate_size": sizes["moe_intermediate_size"],
        "num_experts": sizes["moe_num_experts"],
        "num_experts_per_tok": sizes["moe_k"],
        "shared_expert_intermediate_size": sizes["moe_intermediate_size"] * theirs.get("moe_num_shared_experts", 2),
        "moe_layer_start_index": theirs.get("moe_layer_start_index", 1),
        "moe_norm_min": theirs.get("moe_norm_min", 1e-12),
        "output_router_logits": theirs.get("output_router_logits", False),
        "router_aux_loss_coef": theirs.get("router_aux_loss_coef", 0.001),
    }


def _write_config(ours: dict) -> dict:
    return {
        **native("ernie4_5_moe", "Ernie4_5_MoeForCausalLM"),
        **write_ernie_sizes(ours),
        **taken(ours, *KEPT),
        "moe_num_experts": ours["num_experts"],
        "moe_k": ours["num_experts_per_tok"],
        "moe_num_shared_experts": ours["shared_expert_intermediate_size"] // ours["moe_intermediate_size"],
        "moe_layer_end_index": ours["num_hidden_layers"] - 1,
        "moe_layer_interval": 1,
        "num_nextn_predict_layers": 0,  # PaddleFormers takes 1 where there is none
    }


ERNIE4_5_MOE = Family(
    name="ernie4_5_moe",
    title="ERNIE 4.5 MoE",
    model_type="ernie4_5_moe",
    config_class="Ernie4_5_MoeConfig",
    model_class="Ernie4_5_MoeForCausalLM",
    pipeline_class=None,
    tokenizer_class="LlamaTokenizer",
    rehearsal_config="ernie4_5-moe-rehearsal",
    linear_layers=LINEAR_LAYERS,
    prefix_postprocess="qwen_postprocess_past_key_value",
    chat_template="ernie4_5",
    odd_vocabulary=True,
    lacking={"pipeline_parallel": NO_PIPELINE, "sequence_parallel": NO_SEQUENCE},
    corrections=(
        *("newer_models_unknown", "qwen2_moe_experts", "generation_mask", "llama_flash_masks", "llama_mask_of_nothing"),
        "rotary_tables_of_every_layer",
    ),
    parameters=partial(gated_parameters, prefix=PREFIX, mlp=_mlp),
    forward=Ernie4_5_MoeForward,
    published=HuggingFace(
        model_type="ernie4_5_moe",
        read_config=_read_config,
        write_config=_write_config,
        renamed=((rf"^{PREFIX}\.", "model."), (r"\.shared_expert\.", ".shared_experts.")),
        tokenizer=TOKENIZER,
        left_out=r"(model\.)?mtp_",
    ),
    fused_rms_norm=True,
    window_by_default=False,
)
