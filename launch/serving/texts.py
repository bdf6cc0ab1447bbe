"""The texts of a server: those of a base, and of the adapters that share its weights."""

from collections.abc import Mapping
from dataclasses import dataclass

import paddle

from launch.adapters.adapter_files import LoRAModel
from launch.adapters.add import PrefixModel
from launch.adapters.lora_rows import LoraRows
from launch.cpu.kernels import replace_for_answers
from launch.devices.cpu_operators import compiled_operators
from launch.generation.key_values import BLOCK, Text
from launch.generation.packed import PackedModel
from launch.generation.packed_texts import PackedTexts


class Texts(PackedTexts):
    """The texts that a base and its adapters read.

    Attributes:
        models: By name (launch/serving/models.py: Served), the base first.
        memory_bytes: Of keys and values on this rank.
    """

    def __init__(self, models: Mapping, memory_bytes: int):
        base = next(iter(models.values())).predictor
        packed = PackedModel(base.model, base.family)
        if paddle.get_device() == "cpu":
            compiled = compiled_operators()
            replace_for_answers(base.model, compiled)
            packed.compute_on_cpu(compiled)
        adapters = {name: served.predictor.model for name, served in models.items()}
        loras = {name: model for name, model in adapters.items() if isinstance(model, LoRAModel)}
        self.loras = LoraRows(base.model, loras)
        self.prefixes = {name: _prefix(model) for name, model in adapters.items() if isinstance(model, PrefixModel)}
        super().__init__(packed, memory_bytes // packed.layout.token_bytes // BLOCK * BLOCK)

    def prefix_tokens(self, owner: str) -> int:
        """Return the tokens of a model's prefix, 0 without."""
        return self.prefixes[owner].tokens if owner in self.prefixes else 0

    def _begin(self, text: Text) -> None:
        if text.owner in self.prefixes:
            assert text.group is not None, "in memory"
            text.group.write(text, 0, text.prefix, self.prefixes[text.owner].layers)

    def _run(self, parts: list[tuple[Text, int]]) -> paddle.Tensor:
        with self.loras.chosen([(text.owner, count) for text, count in parts]):
            return super()._run(parts)


@dataclass(frozen=True)
class TrainedPrefix:
    """The trained keys and values of prefix tuning.

    Attributes:
        layers: As TextGroup.read() gives them.
    """

    tokens: int
    layers: list[paddle.Tensor]


@paddle.no_grad()
def _prefix(model: PrefixModel) -> TrainedPrefix:
    heads_first = model.keys_and_values().transpose([1, 2, 0, 3])
    keys, values = heads_first.reshape([2, len(heads_first) // 2, -1, heads_first.shape[-1]])
    tokens = model.prefix_config.num_prefix_tokens
    assert tokens is not None, "launch/adapters/adapter_files.py reads it"
    return TrainedPrefix(tokens, [paddle.concat(pair) for pair in zip(keys, values, strict=True)])
