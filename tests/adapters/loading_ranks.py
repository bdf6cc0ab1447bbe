"""How much memory a quantized base takes while it is loaded, for test_loading.py."""

from tests.checkpoint.loading_memory import ResidentMemory


def peak(warm_up: str, directory: str, algo: str) -> dict[str, int]:
    """Bytes of loading a model with a LoRA beside its base: "tensors" by Paddle's allocator, what stands for a card
    included, and "anonymous" of the process, both at most; "quantized", "other", "largest": of the linear layers in
    their codes, of all other tensors, of one linear weight in float32."""
    from paddle.base import core

    from launch.adapters.quantization import Format

    format = Format(algo, double_quant=algo == "nf4")
    _load(warm_up, format)
    before = core.host_memory_stat_current_value("Allocated", 0)
    core.host_memory_stat_reset_peak_value("Allocated", 0)
    with ResidentMemory() as memory:
        model = _load(directory, format)
    layers = [layer for layer in model.sublayers() if hasattr(layer, "packed")]
    own = {id(one): one.size * one.element_size() for one in model.parameters()}
    return {
        "tensors": core.host_memory_stat_peak_value("Allocated", 0) - before,
        "anonymous": memory.anonymous_peak,
        "quantized": sum(layer.packed.nbytes for layer in layers),
        "other": sum(own.values()),
        "largest": max(4 * layer.packed.shape[0] * layer.packed.shape[1] for layer in layers),
    }


def _load(directory: str, format):
    import paddlenlp.transformers as transformers

    from launch.adapters.quantized_layers import quantize_filled, use_quantized
    from launch.checkpoint.model_loader import load_model
    from launch.families.named_configs import load_config
    from launch.families.registry import FAMILIES
    from launch.training.model import family_config
    from tests.families.family_ranks import with_lora

    family, config = FAMILIES["llama"], family_config(load_config(directory))
    filled = quantize_filled(family, format)
    model = load_model(transformers.LlamaForCausalLM, config, "float32", directory, filled)
    lora = with_lora(model, rank=2)
    use_quantized(lora.model, format)
    return lora
