"""A model that computes with less memory than its weights take: each transformer layer is read when it is used.

    model = open_layerwise(LlamaForCausalLM, config, "checkpoints/llama-7b")
    logits = model(input_ids)

For one forward pass on one process, in float32, as a check wants it. Memory: embeddings, head and the largest layer.
"""

import paddle

from launch.checkpoint.read import plan_fills, run_fills, without_values
from launch.families.parameters import layers


def open_layerwise(model_class, config, directory):
    """Raises UserError where the weights are damaged or do not fit the model."""
    config.dtype = "float32"
    model = without_values(model_class, config, "float32")
    fills = {id(fill.parameter): fill for fill in plan_fills(model, directory)}
    for layer in _transformer_layers(model):
        own = [fills.pop(id(parameter)) for parameter in layer.parameters()]
        layer.register_forward_pre_hook(lambda *_, own=own: run_fills(directory, own))
        layer.register_forward_post_hook(lambda *_, own=own: [fill.release() for fill in own] and None)
    run_fills(directory, list(fills.values()))
    model.eval()
    return model


def _transformer_layers(model) -> list[paddle.nn.Layer]:
    count = layers(model.config.to_dict())
    return [
        layer
        for container in model.sublayers()
        if isinstance(container, paddle.nn.LayerList) and len(container) == count
        for layer in container
    ]
