"""The adapter that the flags ask for, on a model that is frozen for it."""

from launch.adapters import lora, prefix
from launch.adapters.quantized.base import use_quantized
from launch.adapters.quantized.quantization import Format


def add_adapter(model, model_args, adapter_args, seed: int):
    """(the model with its adapter, lines about it); the model as it is where none is asked for.

    Raises UserError where the adapter does not fit the model's family.
    """
    adapter, lines = model, []
    if adapter_args.lora:
        adapter = lora.add_lora(model, model_args, adapter_args, seed)
        lines.append(lora.describe(adapter))
    elif adapter_args.prefix_tuning:
        adapter = prefix.add_prefix(model, adapter_args, seed)
        lines.append(prefix.describe(adapter))
    base = base_format(adapter_args)
    if base:
        lines.append(use_quantized(model, base))
    return adapter, lines


def base_format(adapter_args) -> Format | None:
    """That of the frozen weights; None where they stay as they are."""
    if not adapter_args.weight_quantize_algo:
        return None
    return Format(
        algo=adapter_args.weight_quantize_algo,
        block=adapter_args.weight_blocksize,
        double_quant=adapter_args.weight_double_quant,
        double_block=adapter_args.weight_double_quant_block_size,
    )
