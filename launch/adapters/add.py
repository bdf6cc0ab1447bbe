"""The adapter that the flags ask for, on a model that is frozen for it."""

from launch.adapters import lora, prefix


def add_adapter(model, model_args, adapter_args, seed: int):
    """(the model with its adapter, one line about it); the model as it is and no line where none is asked for.

    Raises UserError where the adapter does not fit the model's family.
    """
    if adapter_args.lora:
        adapter = lora.add_lora(model, model_args, adapter_args, seed)
        return adapter, [lora.describe(adapter)]
    if adapter_args.prefix_tuning:
        adapter = prefix.add_prefix(model, adapter_args, seed)
        return adapter, [prefix.describe(adapter)]
    return model, []
