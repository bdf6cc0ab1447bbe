"""Attention of one step of many texts in one row: composed of Paddle's operators, or one compiled operator for a CPU.

Both write keys and values to their places first (launch/generation/key_values.py), and let a token see itself and those
before it in its text.

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

from launch.generation.key_values import Text, TextGroup

UNSEEN = -1e9  # is added to scores of what a token does not see

# Of each group: texts, where their tokens start in the row, and how many each has there.
Members = Mapping[TextGroup, list[tuple[Text, int, int]]]


@dataclass(frozen=True)
class AttentionHeads:
    """The heads of attention on this rank.

    Attributes:
        keys: Heads of keys and values.
        queries: Queries that share one of them.
        size: Of a head.
        slopes: Of ALiBi [keys, queries, 1, 1]; None without.
    """

    keys: int
    queries: int
    size: int
    slopes: paddle.Tensor | None

    def bias(self, seen: paddle.Tensor, columns: int) -> paddle.Tensor:
        """Return the bias of scores [texts, keys, queries, rows, columns], made on the device.

        On cards heads share the bias where they have no slopes; a CPU is slow where shapes differ.

        Args:
            seen: How many columns a row sees, int64 [texts, 1, 1, rows, 1].
            columns: Of the scores.
        """
        places = paddle.arange(columns)
        bias = (places >= seen).astype("float32") * UNSEEN
        if self.slopes is not None:
            bias = bias + self.slopes * places.astype("float32")
        if bias.place.is_cpu_place():
            bias = bias.expand([seen.shape[0], self.keys, self.queries, seen.shape[3], columns]).contiguous()
        return bias


@dataclass(frozen=True)
class Written:
    """The places of a step's keys and values.

    Attributes:
        tokens: Of the row, all that belong to the group.
        rows: Of its tensors, for each token and head.
    """

    group: TextGroup
    tokens: paddle.Tensor
    rows: paddle.Tensor


@dataclass(frozen=True)
class Newest:
    """Texts of a group of which one token is computed.

    Attributes:
        tokens: The token of each place, any where there is none.
        bias: See AttentionHeads.bias().
    """

    group: TextGroup
    tokens: paddle.Tensor
    bias: paddle.Tensor


@dataclass(frozen=True)
class Chunk:
    """Several tokens of a text, from start to end in the row.

    They see at most `seen` tokens of the text's place.

    Attributes:
        bias: See AttentionHeads.bias().
    """

    group: TextGroup
    place: int
    start: int
    end: int
    seen: int
    bias: paddle.Tensor


class ComposedAttention:
    """Attention of Paddle's operators, on every device and in every dtype."""

    def __init__(self, heads: AttentionHeads, members: Members):
        self.heads = heads
        self.written: list[Written] = []
        for group, texts in members.items():
            tokens = np.concatenate([np.arange(start, start + count) for _, start, count in texts])
            rows = [group.rows(text, at := text.prefix + text.computed, at + count).T for text, _, count in texts]
            places = paddle.to_tensor(np.concatenate(rows).reshape(-1))
            self.written.append(Written(group, paddle.to_tensor(tokens), places))
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
                    seen = text.prefix + text.computed + count
                    places = paddle.arange(seen - count + 1, seen + 1).reshape([1, 1, 1, -1, 1])
                    bias = heads.bias(places, seen)
                    self.chunks.append(Chunk(group, text.place, start, start + count, seen, bias))
                    order[start : start + count] = np.arange(results, results + count)
                    results += count
        self.order = paddle.to_tensor(order)

    def __call__(self, layer: int, query: paddle.Tensor, key: paddle.Tensor, value: paddle.Tensor) -> paddle.Tensor:
        """Return the attention of a layer. query, key, value: [1, tokens, heads, size]; the result merges heads."""
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
            out = _weighted(rows, *part.group.by_place(layer), part.bias)
            results.append(out.reshape([part.group.places, -1]))
        for part in self.chunks:
            count = part.end - part.start
            rows = query[part.start : part.end].reshape([count, heads, queries, size])
            rows = rows.transpose([1, 2, 0, 3]).reshape([heads, -1, size])
            keys, values = (tensor[part.place, :, : part.seen] for tensor in part.group.by_place(layer))
            out = _weighted(rows, keys, values, part.bias).reshape([heads, queries, count, size])
            results.append(out.transpose([2, 0, 1, 3]).reshape([count, -1]))
        return paddle.concat(results).index_select(self.order).unsqueeze(0)

    def _newest(self, group: TextGroup, singles: list[tuple[Text, int]]) -> Newest:
        tokens = np.zeros(group.places, dtype=np.int64)
        seen = np.zeros(group.places, dtype=np.int64)
        for text, start in singles:
            tokens[text.place] = start
            seen[text.place] = text.prefix + text.computed + 1
        bias = self.heads.bias(paddle.to_tensor(seen.reshape([-1, 1, 1, 1, 1])), group.capacity)
        return Newest(group, paddle.to_tensor(tokens), bias)


class CompiledAttention:
    """One operator, for float32 on a CPU.

    Attributes:
        compiled: The module that `make custom-ops` builds.
    """

    def __init__(self, heads: AttentionHeads, members: Members, compiled: ModuleType):
        self.heads, self.compiled, self.groups = heads, compiled, list(members)
        table = [
            (number, text.place, group.capacity, start, count, text.prefix + text.computed)
            for number, (group, texts) in enumerate(members.items())
            for text, start, count in texts
        ]
        self.texts = paddle.to_tensor(np.array(table, dtype=np.int64))
        self.slopes = paddle.zeros([heads.keys * heads.queries]) if heads.slopes is None else heads.slopes.flatten()

    def __call__(self, layer: int, query: paddle.Tensor, key: paddle.Tensor, value: paddle.Tensor) -> paddle.Tensor:
        """Return the attention of a layer. query, key, value: [1, tokens, heads, size]; the result merges heads."""
        keys, values = [group.keys[layer] for group in self.groups], [group.values[layer] for group in self.groups]
        scale = 1 / math.sqrt(self.heads.size)
        out = self.compiled.packed_attention(query, key, value, keys, values, self.texts, self.slopes, scale)
        return out.reshape([1, out.shape[1], -1])


def _weighted(query, keys, values, bias) -> paddle.Tensor:
    """Return softmax(query x keys + bias) x values, the softmax in float32."""
    scores = paddle.matmul(query, keys, transpose_y=True).astype("float32")
    biased = scores.reshape([bias.shape[0], keys.shape[-3], -1, bias.shape[3], bias.shape[4]]) + bias
    weights = paddle.nn.functional.softmax(biased, axis=-1).reshape(scores.shape)
    return paddle.matmul(weights.astype(values.dtype), values)
