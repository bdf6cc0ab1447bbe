"""One forward pass for the next tokens of many texts: of some the newest token, of new ones a part of the prompt.

    packed = Packed(model, family)
    memory = KeyValues(packed.layout, limit=65536)  # has the texts and their places
    logits = packed.run([(text, 12), (other, 1)])  # tokens to compute of each; logits behind the last token of each

All tokens lie in one row, without padding, so that linear layers compute nothing in vain. Attention alone knows which
token belongs to which text: it takes the place of paddlenlp's (launch/generation/packed_attention.py), writes keys and
values to their places (launch/generation/key_values.py) and lets a token see those before it in its text. Positions are
those in the texts, not in the row.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any, cast

import numpy as np
import paddle

from launch.cpu.attention import ROTARY_ATTENTIONS, half_rotation, replace_rotary, spread, stock_rotary
from launch.families.family import Family
from launch.families.parameters import attention_heads, head_size, key_value_heads, layers
from launch.generation.key_values import Group, Layout, Text
from launch.generation.packed_attention import TAKE_OVER
from launch.models.alibi_columns import slopes_of
from launch.models.rotary_scaling import scaled_by_length

UNSEEN = -1e9  # is added to scores of what a token does not see


def packs(family: Family, config: dict) -> bool:
    """Whether texts of this model can be computed in one row. config: of the model."""
    in_the_row = config.get("use_long_sequence_strategies")  # layers of paddlenlp that know positions in the row alone
    return family.name in TAKE_OVER and not scaled_by_length(config) and not in_the_row


@dataclass(frozen=True)
class Written:
    """Where a step's keys and values go. tokens: of the row, all that belong to the group. rows: of its tensors, for
    each token and head."""

    group: Group
    tokens: paddle.Tensor
    rows: paddle.Tensor


@dataclass(frozen=True)
class Newest:
    """Texts of a group of which one token is computed. tokens: that of each place, any where there is none. bias: is
    added to the scores [places, heads, queries a head, capacity]."""

    group: Group
    tokens: paddle.Tensor
    bias: paddle.Tensor


@dataclass(frozen=True)
class Chunk:
    """Several tokens of a text: those of the row from start to end. rows: of the group's tensors, what they see, for
    each head. bias: [heads, queries a head x tokens, seen]."""

    group: Group
    start: int
    end: int
    rows: paddle.Tensor
    bias: paddle.Tensor


@dataclass
class Step:
    """What attention needs to know in one forward pass.

    order: for each token of the row, where it is among the results of `newest` and `chunks`. layer: the next one to
    attend. rotary: cosines and sines of the row's tokens, once a layer has computed them. spread: these for each head,
    by the number of heads.
    """

    positions: paddle.Tensor
    written: list[Written]
    newest: list[Newest]
    chunks: list[Chunk]
    order: paddle.Tensor
    layer: int = 0
    rotary: list[paddle.Tensor] | None = None
    spread: dict[int, tuple[paddle.Tensor, ...]] = field(default_factory=dict)


class Packed:
    """model: of a family that packs()."""

    def __init__(self, model, family: Family):
        config = model.config.to_dict()
        assert packs(family, config), family.name
        self.model = model
        self.step: Step | None = None
        self.heads = key_value_heads(config) // max(model.config.tensor_parallel_degree, 1)
        self.queries = attention_heads(config) // key_value_heads(config)  # a head of the keys
        self.layout = Layout(layers(config), self.heads, head_size(config), _dtype(model))
        self.slopes = None
        if family.alibi:
            slopes = slopes_of(attention_heads(config), model.config.tensor_parallel_degree, _rank(model))
            self.slopes = np.array(slopes, dtype=np.float32).reshape([self.heads, self.queries, 1])
        self.head = attrgetter(family.head.path)(model)
        self.flash_only = family.name == "mistral"  # see launch/generation/packed_attention.py
        TAKE_OVER[family.name](model, self)

    def rotate_by_products(self) -> None:
        """Compute rotary embeddings of float32 from products of equal shapes, which are quicker than paddlenlp's on a
        CPU. Their results are the same to the last bit."""
        if self.layout.dtype != "float32":
            return
        rotation = half_rotation(self.layout.size)
        for layer in self.model.sublayers():
            if type(layer).__name__ in ROTARY_ATTENTIONS:
                ours = partial(self._rotated, rotation)
                replace_rotary(layer, self.within(ours, stock_rotary(type(layer))))

    def within(self, ours: Callable, stock: Callable) -> Callable:
        """Calls ours within a run, stock outside one."""
        return lambda *args, **kwargs: (stock if self.step is None else ours)(*args, **kwargs)

    @paddle.no_grad()
    def run(self, parts: Sequence[tuple[Text, int]]) -> paddle.Tensor:
        """Compute the next tokens of texts. Returns logits [rows, vocabulary]: behind the last one of each text, and
        behind all of them where the text's tokens are scored."""
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

    def _plan(self, parts: Sequence[tuple[Text, int]]) -> tuple[Step, np.ndarray]:
        """The step, and the ids of its row."""
        ids, positions, starts = [], [], []
        for text, count in parts:
            starts.append(len(ids))
            ids += text.ids[text.computed : text.computed + count]
            positions += range(text.computed, text.computed + count)
        written, newest, chunks, order = [], [], [], np.empty(len(ids), dtype=np.int64)
        groups: dict[Group, list[tuple[Text, int, int]]] = {}
        for (text, count), start in zip(parts, starts, strict=True):
            assert text.group is not None, "has no place"
            groups.setdefault(text.group, []).append((text, start, count))
        results = 0
        for group, members in groups.items():
            written.append(_written(group, members))
            singles = [(text, start) for text, start, count in members if count == 1]
            if singles:
                newest.append(self._newest(group, singles))
                for text, start in singles:
                    order[start] = results + text.place
                results += group.places
        for group, members in groups.items():
            for text, start, count in members:
                if count > 1:
                    chunks.append(self._chunk(group, text, start, count))
                    order[start : start + count] = np.arange(results, results + count)
                    results += count
        tensor = paddle.to_tensor
        step = Step(tensor(np.array(positions)), written, newest, chunks, tensor(order))
        return step, np.array(ids, dtype=np.int64)

    def _newest(self, group: Group, singles: list[tuple[Text, int]]) -> Newest:
        tokens = np.zeros(group.places, dtype=np.int64)
        seen = np.zeros(group.places, dtype=np.int64)
        for text, start in singles:
            tokens[text.place] = start
            seen[text.place] = text.prefix + text.computed + 1
        columns = np.arange(group.capacity)
        bias = np.where(columns < seen[:, None], np.float32(0), np.float32(UNSEEN))[:, None, None]
        if self.slopes is not None:
            bias = bias + self.slopes * columns.astype(np.float32)
        bias = np.broadcast_to(bias, [group.places, self.heads, self.queries, group.capacity])
        return Newest(group, paddle.to_tensor(tokens), paddle.to_tensor(np.ascontiguousarray(bias)))

    def _chunk(self, group: Group, text: Text, start: int, count: int) -> Chunk:
        before = text.prefix + text.computed
        columns = np.arange(before + count)
        bias = np.where(columns <= before + np.arange(count)[:, None], np.float32(0), np.float32(UNSEEN))
        bias = bias[None, None]
        if self.slopes is not None:
            bias = bias + (self.slopes * columns.astype(np.float32))[:, :, None]
        bias = np.broadcast_to(bias, [self.heads, self.queries, count, len(columns)])
        bias = np.ascontiguousarray(bias).reshape([self.heads, self.queries * count, len(columns)])
        rows = paddle.to_tensor(group.rows(text, 0, len(columns)).reshape(-1))
        return Chunk(group, start, start + count, rows, paddle.to_tensor(bias))

    @property
    def positions(self) -> paddle.Tensor:
        """int64 [tokens]: of each token of the row, in its text."""
        assert self.step is not None, "called outside run()"
        return self.step.positions

    def attend(self, query: paddle.Tensor, key: paddle.Tensor, value: paddle.Tensor) -> paddle.Tensor:
        """query [1, tokens, heads, size], key and value with their own heads or, repeated, with those of the query ->
        [1, tokens, heads x size]."""
        step = self.step
        assert step is not None, "called outside run()"
        layer, size, heads = step.layer, self.layout.size, self.heads
        step.layer += 1
        key, value = (self._own_heads(tensor) for tensor in (key, value))
        for part in step.written:
            for tensors, new in ((part.group.keys, key), (part.group.values, value)):
                paddle.scatter_(tensors[layer], part.rows, new.index_select(part.tokens).reshape([-1, size]))
        query = query[0] * (1 / math.sqrt(size))
        results = []
        for part in step.newest:
            shape = [part.group.places, heads, -1, size]
            rows = query.index_select(part.tokens).reshape(shape)
            keys, values = (tensors[layer].reshape(shape) for tensors in (part.group.keys, part.group.values))
            out = _weighted(rows, keys, values, part.bias)
            results.append(out.reshape([part.group.places, -1]))
        for part in step.chunks:
            count = part.end - part.start
            rows = query[part.start : part.end].reshape([count, heads, self.queries, size])
            rows = rows.transpose([1, 2, 0, 3]).reshape([heads, -1, size])
            both = (part.group.keys, part.group.values)
            keys, values = (tensors[layer].index_select(part.rows).reshape([heads, -1, size]) for tensors in both)
            out = _weighted(rows, keys, values, part.bias).reshape([heads, self.queries, count, size])
            results.append(out.transpose([2, 0, 1, 3]).reshape([count, -1]))
        return paddle.concat(results).index_select(step.order).unsqueeze(0)

    def _own_heads(self, tensor: paddle.Tensor) -> paddle.Tensor:
        """[tokens, heads, size] of keys or values that paddlenlp may have repeated for each head of the queries."""
        tensor = tensor[0]
        return tensor if tensor.shape[1] == self.heads else tensor[:, :: self.queries]

    def rotary(self, tables: Callable, x: paddle.Tensor, seq_len: int) -> list[paddle.Tensor]:
        """Cosines and sines of the row's tokens, in the order of the row. tables: the layer's own forward pass."""
        step = self.step
        assert step is not None, "called outside run()"
        if step.rotary is None:
            length = int(step.positions.max()) + 1
            both = tables(x, seq_len=length)
            step.rotary = [paddle.index_select(table, step.positions, axis=int(table.ndim == 4)) for table in both]
        return step.rotary

    def _rotated(self, rotation: paddle.Tensor, query, key, cos, sin, _) -> tuple[paddle.Tensor, ...]:
        """query and key [1, tokens, heads, size], cos and sin [1, tokens, 1, size]. rotation: see half_rotation()."""
        step = self.step
        assert step is not None, "called outside run()"
        found = []
        for x in (query, key):
            if x.shape[2] not in step.spread:
                step.spread[x.shape[2]] = spread(cos, sin, tuple(x.shape))
            cosines, sines = step.spread[x.shape[2]]
            found.append(x * cosines + paddle.matmul(x, rotation) * sines)
        return tuple(found)


def _written(group: Group, members: list[tuple[Text, int, int]]) -> Written:
    tokens = np.concatenate([np.arange(start, start + count) for _, start, count in members])
    rows = [group.rows(text, at := text.prefix + text.computed, at + count).T for text, _, count in members]
    return Written(group, paddle.to_tensor(tokens), paddle.to_tensor(np.concatenate(rows).reshape(-1)))


def _weighted(query, keys, values, bias) -> paddle.Tensor:
    """Values weighted by how well their keys fit: softmax(query x keys + bias) x values, the softmax in float32."""
    scores = paddle.matmul(query, keys, transpose_y=True).astype("float32") + bias
    return paddle.matmul(paddle.nn.functional.softmax(scores, axis=-1).astype(values.dtype), values)


def _choose(rows: paddle.Tensor, _, arguments: tuple) -> tuple:
    """Before the output layer: only tokens whose logits are wanted."""
    hidden, *others = arguments
    hidden = hidden.reshape([-1, hidden.shape[-1]]).index_select(rows)
    return (hidden.unsqueeze(0), *others)


def _dtype(model) -> Any:
    return str(model.config.dtype or "float32")


def _rank(model) -> int:
    return max(model.config.tensor_parallel_rank, 0)
