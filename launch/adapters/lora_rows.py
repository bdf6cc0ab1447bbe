"""Several LoRA adapters on one model, each for some tokens of the same batch.

    rows = LoraRows(base, {"poems": poems, "law": law})
    with rows.chosen([("poems", 3), ("base", 1)]):  # three tokens are the adapter's, the next has none
        base(input_ids=...)  # [1, 4]

The adapters of a layer lie side by side as one of all their ranks, x A B. Between the two products, what is not of a
token's own adapter is multiplied by 0, which costs less than matrices gathered for each token.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
from paddle.distributed.fleet.layers.mpu import mp_ops

from launch.adapters.adapter_files import LoRAModel
from launch.adapters.lora_files import TOKEN_IDS
from launch.families.sparse_decoder import EXPERT


@dataclass(frozen=True)
class SideBySide:
    """The adapters of a layer.

    Attributes:
        a: [inputs, ranks].
        b: [ranks, outputs], scaled.
        stretches: [ranks, outputs], for the first rank of a DoRA what its outputs are multiplied by, less 1; else 0.
            None where no adapter is one.
        owners: Names, one a rank.
        group: Of tensor parallelism, where each process has some of the inputs alone, so that x A is summed.
    """

    a: paddle.Tensor
    b: paddle.Tensor
    owners: tuple[str, ...]
    group: Any = None
    stretches: paddle.Tensor | None = None

    def __call__(self, layer, x: paddle.Tensor, output: paddle.Tensor, mask: paddle.Tensor) -> paddle.Tensor:
        """Return the layer's output for x [..., inputs] with the adapters. mask: [tokens, ranks]."""
        product = paddle.matmul(x, self.a)
        mask = mask.reshape(product.shape)
        product = product * mask
        if self.group:
            product = mp_ops._mp_allreduce(product, group=self.group)
        output = output + paddle.matmul(product, self.b)
        if self.stretches is None:
            return output
        return output + (output if layer.bias is None else output - layer.bias) * paddle.matmul(mask, self.stretches)


class LoraRows:
    """Added to the base's layers as long as the base lives.

    Attributes:
        adapters: By name; they share the base's weights, and their own are copied.
    """

    def __init__(self, base, adapters: Mapping[str, LoRAModel]):
        self.dtype = base.config.dtype
        self.tokens: Sequence[tuple[str, int]] = ()
        self.masks: dict[tuple[str, ...], paddle.Tensor | None] = {}
        own = {name: dict(adapter.model.named_sublayers()) for name, adapter in adapters.items()}
        for path, layer in base.named_sublayers():
            found = {name: layers[path] for name, layers in own.items() if hasattr(layers.get(path), "lora_A")}
            if found:
                layer.register_forward_post_hook(self._adding(_side_by_side(found)))

    @contextmanager
    def chosen(self, tokens: Sequence[tuple[str, int]]) -> Iterator[None]:
        """Set the adapters of the row's tokens within the block.

        Names of no adapter get none.

        Args:
            tokens: (name of the adapter, number of tokens) in order.
        """
        self.tokens = tokens
        try:
            yield
        finally:
            self.tokens = ()
            self.masks.clear()

    def _adding(self, adapters: SideBySide):
        def add(layer, inputs, output):
            if not self.tokens:  # the base alone, outside chosen()
                return output
            mask = self._mask(adapters.owners)
            return output if mask is None else adapters(layer, inputs[0], output, mask)

        return add

    def _mask(self, owners: tuple[str, ...]) -> paddle.Tensor | None:
        """Return [tokens, ranks], 1 where a rank is of the token's adapter; None where no token has one."""
        if owners not in self.masks:
            of_tokens = np.array([name for name, count in self.tokens for _ in range(count)])
            mask = of_tokens[:, None] == np.array(owners)
            self.masks[owners] = paddle.to_tensor(mask).astype(self.dtype) if mask.any() else None
        return self.masks[owners]


def runs_alone(adapter: LoRAModel) -> bool:
    """Return whether LoraRows cannot serve an adapter.

    Layers of experts read a step's tokens in their own order, and rows of tokens are in weights of the adapter's own.
    """
    layers = adapter.model.named_sublayers()
    has_experts = any(hasattr(layer, "lora_A") and EXPERT.match(path) for path, layer in layers)
    return has_experts or bool(getattr(adapter.lora_config, TOKEN_IDS, None))


def _side_by_side(layers: Mapping[str, paddle.nn.Layer]) -> SideBySide:
    with paddle.no_grad():
        a = paddle.concat([layer.lora_A for layer in layers.values()], axis=1)
        b = paddle.concat([layer.lora_B * layer.scaling for layer in layers.values()], axis=0)
    owners = tuple(name for name, layer in layers.items() for _ in range(layer.lora_A.shape[1]))
    sharded = (layer for layer in layers.values() if layer.lora_A.is_distributed)
    group = next((layer.model_parallel_group for layer in sharded), None)
    return SideBySide(a, b, owners, group, _stretches(list(layers.values()), b))


@paddle.no_grad()
def _stretches(layers: Sequence[paddle.nn.Layer], b: paddle.Tensor) -> paddle.Tensor | None:
    """Return SideBySide.stretches."""
    if not any(hasattr(layer, "stretch") for layer in layers):
        return None
    stretches, first = paddle.zeros_like(b), 0
    for layer in layers:
        if hasattr(layer, "stretch"):
            stretches[first] = layer.stretch.change(layer).astype(b.dtype)
        first += layer.lora_A.shape[1]
    return stretches
