"""One forward pass for the next tokens of many texts: of some the newest token, of new ones a part of the prompt.

    packed = Packed(model, family)
    memory = KeyValues(packed.layout, limit=65536)  # has the texts and their places
    logits = packed.run([(text, 12), (other, 1)])  # tokens to compute of each; logits behind the last token of each

All tokens lie in one row, without padding, so that linear layers compute nothing in vain. Attention alone knows which
token belongs to which text: launch/generation/row_attention.py takes the place of paddlenlp's where
launch/generation/packed_attention.py says. Positions are those in the texts, not in the row.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from types import ModuleType
from typing import Any, cast

import numpy as np
import paddle

from launch.cpu.attention import ROTARY_ATTENTIONS, half_rotation, replace_rotary, spread
from launch.families.family import Family
from launch.families.parameters import attention_heads, head_size, key_value_heads, layers
from launch.generation.key_values import CacheLayout, Text, TextGroup
from launch.generation.packed_attention import TAKE_OVER
from launch.generation.row_attention import AttentionHeads, CompiledAttention, ComposedAttention
from launch.models.alibi_columns import slopes_of
from launch.models.rotary_scaling import scaled_by_length


def packs(family: Family, config: dict) -> bool:
    """Return whether texts of this model can be computed in one row.

    Args:
        config: Of the model.
        family: Of the model.
    """
    in_the_row = config.get("use_long_sequence_strategies")  # layers of paddlenlp that know positions in the row alone
    return family.name in TAKE_OVER and not scaled_by_length(config) and not in_the_row


@dataclass
class PackedStep:
    """The values that layers need in one forward pass.

    Attributes:
        length: Positions, from 0 to the last.
        layer: The next one to attend.
        rotary: Cosines and sines of the row's tokens, once a layer has computed them.
        spread: These for each head, by the number of heads.
    """

    positions: paddle.Tensor
    length: int
    attention: ComposedAttention | CompiledAttention
    layer: int = 0
    rotary: list[paddle.Tensor] | None = None
    spread: dict[int, tuple[paddle.Tensor, ...]] = field(default_factory=dict)


class PackedModel:
    """A model that computes many texts in one row.

    Attributes:
        model: Of a family that packs().
    """

    def __init__(self, model, family: Family):
        config = model.config.to_dict()
        assert packs(family, config), family.name
        self.model = model
        self.step: PackedStep | None = None
        keys = key_value_heads(config) // max(model.config.tensor_parallel_degree, 1)
        queries = attention_heads(config) // key_value_heads(config)  # a head of the keys
        dtype: Any = str(model.config.dtype or "float32")
        self.layout = CacheLayout(layers(config), keys, head_size(config), dtype)
        slopes = None
        if family.alibi:
            rank = max(model.config.tensor_parallel_rank, 0)
            slopes = slopes_of(attention_heads(config), model.config.tensor_parallel_degree, rank)
            slopes = paddle.to_tensor(slopes, "float32").reshape([keys, queries, 1, 1])
        self.heads = AttentionHeads(keys, queries, self.layout.size, slopes)
        self.compiled: ModuleType | None = None
        self.head = attrgetter(family.head.path)(model)
        self.flash_only = family.name == "mistral"  # see launch/generation/packed_attention.py
        TAKE_OVER[family.name](model, self)

    def compute_on_cpu(self, compiled: ModuleType | None = None) -> None:
        """Compute float32 in ways that are quicker on a CPU than paddlenlp's.

        Rotary embeddings come from products of equal shapes, to the last bit the same. Where the module with the
        compiled operators is given, both rotary embeddings and attention use it.
        """
        if self.layout.dtype != "float32":
            return
        if compiled and self.layout.size % compiled.HEAD_SIZES == 0:
            self.compiled = compiled
        rotation = half_rotation(self.layout.size)
        for layer in self.model.sublayers():
            if type(layer).__name__ in ROTARY_ATTENTIONS:
                ours, current = partial(self._rotated, rotation), layer.forward.__globals__["apply_rotary_pos_emb"]
                replace_rotary(layer, self.within(ours, current))

    def within(self, ours: Callable, stock: Callable) -> Callable:
        """Return a function that calls ours within a run, stock outside one."""
        return lambda *args, **kwargs: (stock if self.step is None else ours)(*args, **kwargs)

    @paddle.no_grad()
    def run(self, parts: Sequence[tuple[Text, int]]) -> paddle.Tensor:
        """Compute the next tokens of texts.

        Returns logits [rows, vocabulary]: behind the last one of each text, and behind all of them where the text's
        tokens are scored.
        """
        self.step, ids = self._plan(parts)
        ends = np.cumsum([count for _, count in parts])
        wanted = zip(parts, ends, strict=True)
        rows = np.concatenate([np.arange(end - text.logits_of(count), end) for (text, count), end in wanted])
        choose = partial(_choose, paddle.to_tensor(rows))
        hook = self.head.register_forward_pre_hook(cast(Any, choose))  # its stub knows one tensor only
        row = paddle.arange(len(ids)).unsqueeze(0)
        config, flash = self.model.config, self.model.config.use_flash_attention
        config.use_flash_attention = flash or self.flash_only
        try:
            outputs = self.model(input_ids=paddle.to_tensor(ids).unsqueeze(0), position_ids=row)
        finally:
            hook.remove()
            self.step = None
            config.use_flash_attention = flash
        for text, count in parts:
            text.computed += count
        logits = outputs[0] if isinstance(outputs, tuple) else outputs
        return logits.reshape([len(rows), -1])

    def _plan(self, parts: Sequence[tuple[Text, int]]) -> tuple[PackedStep, np.ndarray]:
        """Return the step, and the ids of its row."""
        ids, positions = [], []
        members: dict[TextGroup, list[tuple[Text, int, int]]] = {}
        for text, count in parts:
            assert text.group is not None, "has no place"
            members.setdefault(text.group, []).append((text, len(ids), count))
            ids += text.ids[text.computed : text.computed + count]
            positions += range(text.computed, text.computed + count)
        if self.compiled:
            attention = CompiledAttention(self.heads, members, self.compiled)
        else:
            attention = ComposedAttention(self.heads, members)
        step = PackedStep(paddle.to_tensor(np.array(positions)), max(positions) + 1, attention)
        return step, np.array(ids, dtype=np.int64)

    @property
    def positions(self) -> paddle.Tensor:
        """int64 [tokens]: of each token of the row, in its text."""
        assert self.step is not None, "called outside run()"
        return self.step.positions

    @property
    def length(self) -> int:
        """Positions of the row's texts, from 0 to the last."""
        assert self.step is not None, "called outside run()"
        return self.step.length

    def attend(self, query: paddle.Tensor, key: paddle.Tensor, value: paddle.Tensor) -> paddle.Tensor:
        """Return the attention of the row's tokens, [1, tokens, heads x size].

        query is [1, tokens, heads, size]; key and value have their own heads or, repeated, the query's.
        """
        step = self.step
        assert step is not None, "called outside run()"
        step.layer += 1
        if key.shape[2] != self.heads.keys:  # without paddlenlp's repetition for the queries' heads
            key, value = (tensor[:, :, :: self.heads.queries] for tensor in (key, value))
        return step.attention(step.layer - 1, query, key, value)

    def rotary(self, tables: Callable, x: paddle.Tensor, seq_len: int) -> list[paddle.Tensor]:
        """Return cosines and sines of the row's tokens, in the order of the row.

        tables: the layer's own forward pass.
        """
        step = self.step
        assert step is not None, "called outside run()"
        if step.rotary is None:
            both = tables(x, seq_len=step.length)
            step.rotary = [paddle.index_select(table, step.positions, axis=int(table.ndim == 4)) for table in both]
        return step.rotary

    def _rotated(self, rotation: paddle.Tensor, query, key, cos, sin, _) -> tuple[paddle.Tensor, ...]:
        """Return query and key [1, tokens, heads, size], rotated.

        cos and sin: [1, tokens, 1, size]. rotation: see half_rotation().
        """
        step = self.step
        assert step is not None, "called outside run()"
        if self.compiled:
            return tuple(self.compiled.rotary_embedding(x, cos, sin) for x in (query, key))
        found = []
        for x in (query, key):
            if x.shape[2] not in step.spread:
                step.spread[x.shape[2]] = spread(cos, sin, tuple(x.shape))
            cosines, sines = step.spread[x.shape[2]]
            found.append(x * cosines + paddle.matmul(x, rotation) * sines)
        return tuple(found)


def _choose(rows: paddle.Tensor, _, arguments: tuple) -> tuple:
    """Choose the tokens whose logits are needed, before the output layer."""
    hidden, *others = arguments
    hidden = hidden.reshape([-1, hidden.shape[-1]]).index_select(rows)
    return (hidden.unsqueeze(0), *others)
