"""Attention of one step of many texts whose tokens lie in one row: composed of Paddle's operators, or one compiled
operator for a CPU. Both write keys and values to their places first (launch/generation/key_values.py), and let a token
see itself and those before it in its text.

    attention = ComposedAttention(heads, members)       # heads: Heads; members: by group, (text, start, count)
    attention = CompiledAttention(heads, members, fused_ln.cpu)
    attention(layer, query, key, value)     # [1, tokens, heads, size] -> [1, tokens, heads x size]
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import paddle

from launch.generation.key_values import Group, Text

UNSEEN = -1e9  # is added to scores of what a token does not see

# Of each group: texts, where their tokens start in the row, and how many each has there.
Members = Mapping[Group, list[tuple[Text, int, int]]]


@dataclass(frozen=True)
class Heads:
    """keys: heads of keys and values on this rank. queries: that share one of them. size: of a head. slopes: of ALiBi
    [keys, queries, 1]; None without."""

    keys: int
    queries: int
    size: int
    slopes: np.ndarray | None


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


class ComposedAttention:
    """Of Paddle's operators: on every device, in every dtype."""

    def __init__(self, heads: Heads, members: Members):
        self.heads = heads
        self.written = [_written(group, texts) for group, texts in members.items()]
        self.newest: list[Newest] = []
        self.chunks: list[Chunk] = []
        # For each token of the row, where it is among the results of `newest` and `chunks`.
        order = np.empty(sum(count for texts in members.values() for _, _, count in texts), dtype=np.int64)
        results = 0
        for group, texts in members.items():
            singles = [(text, start) for text, start, count in texts if count == 1]
            if singles:
                self.newest.append(self._newest(group, singles))
                for text, start in singles:
                    order[start] = results + text.place
                results += group.places
        for group, texts in members.items():
            for text, start, count in texts:
                if count > 1:
                    self.chunks.append(self._chunk(group, text, start, count))
                    order[start : start + count] = np.arange(results, results + count)
                    results += count
        self.order = paddle.to_tensor(order)

    def __call__(self, layer: int, query: paddle.Tensor, key: paddle.Tensor, value: paddle.Tensor) -> paddle.Tensor:
        heads, size, queries = self.heads.keys, self.heads.size, self.heads.queries
        key, value = key[0], value[0]
        for part in self.written:
            for tensors, new in ((part.group.keys, key), (part.group.values, value)):
                paddle.scatter_(tensors[layer], part.rows, new.index_select(part.tokens).reshape([-1, size]))
        query = query[0] * (1 / math.sqrt(size))
        results = []
        for part in self.newest:
            shape = [part.group.places, heads, -1, size]
            rows = query.index_select(part.tokens).reshape(shape)
            keys, values = (tensors[layer].reshape(shape) for tensors in (part.group.keys, part.group.values))
            out = _weighted(rows, keys, values, part.bias)
            results.append(out.reshape([part.group.places, -1]))
        for part in self.chunks:
            count = part.end - part.start
            rows = query[part.start : part.end].reshape([count, heads, queries, size])
            rows = rows.transpose([1, 2, 0, 3]).reshape([heads, -1, size])
            both = (part.group.keys, part.group.values)
            keys, values = (tensors[layer].index_select(part.rows).reshape([heads, -1, size]) for tensors in both)
            out = _weighted(rows, keys, values, part.bias).reshape([heads, queries, count, size])
            results.append(out.transpose([2, 0, 1, 3]).reshape([count, -1]))
        return paddle.concat(results).index_select(self.order).unsqueeze(0)

    def _newest(self, group: Group, singles: list[tuple[Text, int]]) -> Newest:
        tokens = np.zeros(group.places, dtype=np.int64)
        seen = np.zeros(group.places, dtype=np.int64)
        for text, start in singles:
            tokens[text.place] = start
            seen[text.place] = text.prefix + text.computed + 1
        columns = np.arange(group.capacity)
        bias = np.where(columns < seen[:, None], np.float32(0), np.float32(UNSEEN))[:, None, None]
        if self.heads.slopes is not None:
            bias = bias + self.heads.slopes * columns.astype(np.float32)
        bias = np.broadcast_to(bias, [group.places, self.heads.keys, self.heads.queries, group.capacity])
        return Newest(group, paddle.to_tensor(tokens), paddle.to_tensor(np.ascontiguousarray(bias)))

    def _chunk(self, group: Group, text: Text, start: int, count: int) -> Chunk:
        before, heads, queries = text.prefix + text.computed, self.heads.keys, self.heads.queries
        columns = np.arange(before + count)
        bias = np.where(columns <= before + np.arange(count)[:, None], np.float32(0), np.float32(UNSEEN))
        bias = bias[None, None]
        if self.heads.slopes is not None:
            bias = bias + (self.heads.slopes * columns.astype(np.float32))[:, :, None]
        bias = np.broadcast_to(bias, [heads, queries, count, len(columns)])
        bias = np.ascontiguousarray(bias).reshape([heads, queries * count, len(columns)])
        rows = paddle.to_tensor(group.rows(text, 0, len(columns)).reshape(-1))
        return Chunk(group, start, start + count, rows, paddle.to_tensor(bias))


class CompiledAttention:
    """One operator, for float32 on a CPU. compiled: the module that `make custom-ops` builds."""

    def __init__(self, heads: Heads, members: Members, compiled: ModuleType):
        self.heads, self.compiled, self.groups = heads, compiled, list(members)
        table = [
            (number, text.place, group.capacity, start, count, text.prefix + text.computed)
            for number, (group, texts) in enumerate(members.items())
            for text, start, count in texts
        ]
        self.texts = paddle.to_tensor(np.array(table, dtype=np.int64))
        slopes = np.zeros([heads.keys, heads.queries]) if heads.slopes is None else heads.slopes
        self.slopes = paddle.to_tensor(slopes.reshape(-1).astype(np.float32))

    def __call__(self, layer: int, query: paddle.Tensor, key: paddle.Tensor, value: paddle.Tensor) -> paddle.Tensor:
        keys, values = [group.keys[layer] for group in self.groups], [group.values[layer] for group in self.groups]
        scale = 1 / math.sqrt(self.heads.size)
        out = self.compiled.packed_attention(query, key, value, keys, values, self.texts, self.slopes, scale)
        return out.reshape([1, out.shape[1], -1])


def _written(group: Group, members: list[tuple[Text, int, int]]) -> Written:
    tokens = np.concatenate([np.arange(start, start + count) for _, start, count in members])
    rows = [group.rows(text, at := text.prefix + text.computed, at + count).T for text, _, count in members]
    return Written(group, paddle.to_tensor(tokens), paddle.to_tensor(np.concatenate(rows).reshape(-1)))


def _weighted(query, keys, values, bias) -> paddle.Tensor:
    """Values weighted by how well their keys fit: softmax(query x keys + bias) x values, the softmax in float32."""
    scores = paddle.matmul(query, keys, transpose_y=True).astype("float32") + bias
    return paddle.matmul(paddle.nn.functional.softmax(scores, axis=-1).astype(values.dtype), values)
