"""Keys and values of many texts at once, which come and go one by one, within a stated memory.

    memory = KeyValues(Layout(layers=32, heads=8, size=128, dtype="bfloat16"), limit=65536)
    if memory.has_room(text): memory.add(text)
    memory.prepare()          # before each step: every text has its place
    memory.reuse(text)        # what other texts have computed of its beginning
    memory.keep(text)         # for others
    memory.remove(text)
    memory.discard(text)      # where its keys and values are no numbers

Texts that need about the same room share a group, whose tensors have a row for each of them. Their rows are dense, as
products want them: reading them by a table of blocks costs more than the attention itself (CPU, 64 texts of 192 tokens:
2.6 ms a layer for the copies, 1.0 for the products). Room is counted in blocks. A text reserves all that it may ever
need, so that what has begun can end. A group reserves for each row what the longest of its texts needs, and its rows
are a power of two. The needs of its texts have the same power of two above them, so that this is less than four times
what they need. What is left holds blocks of texts that were computed, for those that begin alike; the least recently
used go first, of a text its end before its beginning.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from itertools import count
from typing import Literal

import numpy as np
import paddle

from launch.families.arithmetic import TEXTS_TOGETHER

BLOCK = 32  # tokens


@dataclass(frozen=True)
class CacheLayout:
    """The layout of one rank's cache.

    Attributes:
        heads: Heads of keys and values.
        size: Elements of a head.
    """

    layers: int
    heads: int
    size: int
    dtype: Literal["float32", "bfloat16", "float16"]

    @property
    def token_bytes(self) -> int:
        """Keys and values of one token in all layers."""
        return 2 * self.layers * self.heads * self.size * (4 if self.dtype == "float32" else 2)


@dataclass(eq=False)
class Text:
    """A prompt and its answer so far.

    Attributes:
        most: Tokens of prompt and answer, at most.
        owner: Name of the model or adapter that reads it.
        prefix: Trained keys and values of prefix tuning before it, as tokens.
        scored: Number of its first tokens that have logits in the steps that compute them.
        computed: Tokens of `ids` with stored keys and values.
        group, place: Where they are stored.
        chain: Keys of the stored blocks of its beginning.
        last_block: The block that the next one follows.
    """

    ids: list[int]
    most: int
    owner: str = ""
    prefix: int = 0
    scored: int = 0
    computed: int = 0
    group: "TextGroup | None" = field(default=None, repr=False)
    place: int = -1
    chain: list[tuple] = field(default_factory=list, repr=False)
    last_block: "int | str" = field(default="", repr=False)

    def __post_init__(self):
        self.last_block = self.owner  # adapters compute other keys and values of the same tokens

    @property
    def need(self) -> int:
        """Tokens of memory. The last token of an answer is never read."""
        return whole_blocks(self.prefix + self.most)

    @property
    def held(self) -> int:
        """Tokens of memory with the next one, which is computed now."""
        return self.prefix + len(self.ids)

    def logits_of(self, count: int) -> int:
        """Return how many of the last of its next `count` tokens have logits."""
        return count if self.computed < self.scored else 1

    @property
    def next_block(self) -> tuple | None:
        """The key of the next block of its beginning.

        It is None where there is no whole block before the last token, which is computed in any case.
        """
        start = len(self.chain) * BLOCK
        if start + BLOCK >= len(self.ids):
            return None
        return self.last_block, tuple(self.ids[start : start + BLOCK])


def whole_blocks(tokens: int) -> int:
    """Return the tokens rounded up to whole blocks."""
    return -(-tokens // BLOCK) * BLOCK


class TextGroup:
    """Texts that share tensors.

    Attributes:
        keys, values: For each layer [places x heads x capacity, size], a row for each head and token of a place.
    """

    def __init__(self, layout: CacheLayout):
        self.layout = layout
        self.texts: list[Text | None] = []  # by place
        self.places = self.capacity = 0  # of the tensors
        self.keys: list[paddle.Tensor] = []
        self.values: list[paddle.Tensor] = []

    @property
    def members(self) -> list[Text]:
        """The texts of the group."""
        return [text for text in self.texts if text is not None]

    @property
    def size(self) -> int:
        """Tokens: what each of its texts needs, rounded up to a power of two."""
        return _power_of_two(self.members[0].need)

    def reserved(self, *more: Text) -> int:
        """Return the largest number of tokens of memory, with these texts, too."""
        members = [*self.members, *more]
        need = max((text.need for text in members), default=0)
        return max(len(self.texts), _power_of_two(len(members))) * max(self.capacity, need)

    def add(self, text: Text) -> None:
        """Add a text at a free place."""
        text.group = self
        if None not in self.texts:
            self.texts += [None] * max(len(self.texts), 1)
        text.place = self.texts.index(None)
        self.texts[text.place] = text

    def fit(self) -> None:
        """Have tensors as its texts need them now; some larger, so that they are copied rarely."""
        used = max(text.held for text in self.members)
        most = max(text.need for text in self.members)
        capacity = self.capacity
        if used > capacity or 2 * used < capacity:
            capacity = max(min(whole_blocks(used + used // 4), most), whole_blocks(used))
        fewer = 4 * len(self.members) <= len(self.texts)
        self._shape(_power_of_two(len(self.members)) if fewer else len(self.texts), capacity)

    def compact(self) -> None:
        """Give back the rows of texts that have ended, and what was allocated ahead."""
        used = max(text.held for text in self.members)
        self._shape(_power_of_two(len(self.members)), min(self.capacity, whole_blocks(used)))

    def _shape(self, places: int, capacity: int) -> None:
        """Copy what is used into tensors of this shape, where it is another one."""
        if (places, capacity) == (self.places, self.capacity):
            return
        kept = list(range(self.places))
        if places < len(self.texts):  # the texts move together
            kept = [text.place for text in self.members if text.place < self.places]
            self.texts = [*self.members, *[None] * (places - len(self.members))]
        for tensors in (self.keys, self.values):
            for layer in range(self.layout.layers):
                new = self._copied(tensors[layer] if self.places else None, kept, places, capacity)
                tensors[layer : layer + 1] = [new]
                release_idle_memory()  # before the next layer: else a card would hold the whole group twice
        for place, text in enumerate(self.texts):
            if text is not None:
                text.place = place
        self.places, self.capacity = places, capacity

    def _copied(self, old: paddle.Tensor | None, kept: list[int], places: int, capacity: int) -> paddle.Tensor:
        layout = self.layout
        used = min(capacity, self.capacity)
        if old is None or not kept or not used:
            return paddle.zeros([places * layout.heads * capacity, layout.size], layout.dtype)
        rows = old.reshape([-1, layout.heads, self.capacity, layout.size])
        rows = rows.index_select(paddle.to_tensor(kept))[:, :, :used]
        for axis, more in ((2, capacity - used), (0, places - len(kept))):
            if more:
                shape = [*rows.shape[:axis], more, *rows.shape[axis + 1 :]]
                rows = paddle.concat([rows, paddle.zeros(shape, layout.dtype)], axis=axis)
        return rows.reshape([-1, layout.size])

    def by_place(self, layer: int) -> tuple[paddle.Tensor, paddle.Tensor]:
        """Return a layer's keys and values, [places, heads, capacity, size]."""
        shape = [self.places, self.layout.heads, self.capacity, self.layout.size]
        return self.keys[layer].reshape(shape), self.values[layer].reshape(shape)

    def rows(self, text: Text, start: int, end: int) -> np.ndarray:
        """Return int64 [heads, tokens]: the rows of the tensors with a text's tokens."""
        heads = (text.place * self.layout.heads + np.arange(self.layout.heads)) * self.capacity
        return heads[:, None] + np.arange(start, end)

    def read(self, text: Text, start: int, end: int) -> list[paddle.Tensor]:
        """Return for each layer keys and values of some tokens, [2 x heads x tokens, size]."""
        rows = paddle.to_tensor(self.rows(text, start, end).reshape(-1))
        both = zip(self.keys, self.values, strict=True)
        return [paddle.concat([keys.index_select(rows), values.index_select(rows)]) for keys, values in both]

    def write(self, text: Text, start: int, end: int, layers: list[paddle.Tensor]) -> None:
        """Write keys and values in the form of read()."""
        rows = paddle.to_tensor(self.rows(text, start, end).reshape(-1))
        for keys, values, both in zip(self.keys, self.values, layers, strict=True):
            for tensor, part in zip((keys, values), both.chunk(2), strict=True):
                paddle.scatter_(tensor, rows, part)

    def clear(self, text: Text) -> None:
        """Zero the text's place: even unseen, NaN would make the next text's results NaN."""
        rows = paddle.to_tensor(self.rows(text, 0, self.capacity).reshape(-1))
        zeros = paddle.zeros([rows.shape[0], self.layout.size], self.layout.dtype)
        for tensor in (*self.keys, *self.values):
            paddle.scatter_(tensor, rows, zeros)


def release_idle_memory() -> None:
    """Give the driver back what Paddle holds for tensors to come: what it keeps of a smaller tensor fits no larger."""
    if paddle.get_device().startswith("gpu"):
        paddle.device.cuda.empty_cache()


def _power_of_two(count: int) -> int:
    return 1 << max(count - 1, 0).bit_length()


@dataclass(frozen=True)
class CachedBlock:
    """Keys and values of BLOCK tokens, as TextGroup.read() gives them. number: names it for following blocks."""

    number: int
    layers: list[paddle.Tensor]


class KeyValues:
    """The keys and values of all texts.

    Attributes:
        limit: Tokens of the texts and of the stored blocks.
    """

    def __init__(self, layout: CacheLayout, limit: int):
        self.layout = layout
        self.limit = limit
        self.groups: list[TextGroup] = []
        self.kept: OrderedDict[tuple, CachedBlock] = OrderedDict()  # the least recently used first
        self.numbers = count()

    @property
    def reserved(self) -> int:
        """Tokens of memory that the texts may come to need."""
        return sum(group.reserved() for group in self.groups)

    def has_room(self, text: Text) -> bool:
        """Return whether there is room for a text. Stored blocks make room where it is needed."""
        if self._with(text) > self.limit:
            for group in self.groups:
                group.compact()
        needed = self._with(text)
        if needed <= self.limit:
            self._forget(self.limit - needed)
        return needed <= self.limit

    def _with(self, text: Text) -> int:
        group = self._group_for(text)
        return self.reserved + (group.reserved(text) - group.reserved() if group else text.need)

    def _forget(self, tokens: int) -> None:
        """Drop the oldest blocks until no more than `tokens` tokens are stored."""
        while len(self.kept) * BLOCK > tokens:
            self.kept.popitem(last=False)

    def _group_for(self, text: Text) -> TextGroup | None:
        """Return a group whose texts need about the same room.

        Return None, for a new one, where there is none or it would grow too large.
        """
        size = _power_of_two(text.need)
        free = [group for group in self.groups if len(group.members) < TEXTS_TOGETHER and group.size == size]
        if not free or self.reserved + free[0].reserved(text) - free[0].reserved() > self.limit:
            return None
        return free[0]

    def add(self, text: Text) -> None:
        """Add a text to a group."""
        group = self._group_for(text)
        if group is None:
            group = TextGroup(self.layout)
            self.groups.append(group)
        group.add(text)

    def remove(self, text: Text) -> None:
        """Remove a text, and its group if that is empty."""
        group = text.group
        assert group is not None, "in no group"
        group.texts[text.place] = None
        text.group = None
        if not group.members:
            self.groups.remove(group)

    def discard(self, text: Text) -> None:
        """Remove a text and all that is known of it."""
        assert text.group is not None, "in no group"
        for key in text.chain:
            self.kept.pop(key, None)
        text.group.clear(text)
        self.remove(text)

    def prepare(self) -> None:
        """Make the tensors of all groups fit their texts."""
        for group in self.groups:
            group.fit()

    def reuse(self, text: Text) -> None:
        """Take over what is kept of the text's next tokens."""
        assert text.group is not None, "in no group"
        while text.computed == len(text.chain) * BLOCK and (key := text.next_block) and (block := self.kept.get(key)):
            start = text.prefix + text.computed
            text.group.write(text, start, start + BLOCK, block.layers)
            _follow(text, key, block)
            text.computed += BLOCK
        self._touch(text)

    def keep(self, text: Text) -> None:
        """Store the computed blocks of a text, as far as there is room beside what is reserved.

        Its beginning is stored where there is no room for all.
        """
        assert text.group is not None, "in no group"
        room = (self.limit - self.reserved) // BLOCK
        # Blocks that have been forgotten leave the text's chain: nothing could be found behind them.
        found = next((place for place, key in enumerate(text.chain) if key not in self.kept), len(text.chain))
        del text.chain[found:]
        text.last_block = self.kept[text.chain[-1]].number if text.chain else text.owner
        self._touch(text)  # others go first
        while len(text.chain) < min(room, text.computed // BLOCK) and (key := text.next_block):
            if key not in self.kept:
                start = text.prefix + len(text.chain) * BLOCK
                self._forget((room - 1) * BLOCK)
                self.kept[key] = CachedBlock(next(self.numbers), text.group.read(text, start, start + BLOCK))
            self.kept.move_to_end(key)
            _follow(text, key, self.kept[key])
        self._touch(text)

    def _touch(self, text: Text) -> None:
        """Mark the text's blocks as most recently used.

        Each comes after the blocks that follow it and cannot be found without it.
        """
        for key in reversed(text.chain):
            if key in self.kept:
                self.kept.move_to_end(key)


def _follow(text: Text, key: tuple, block: CachedBlock) -> None:
    """Make a block the text's last one."""
    text.chain.append(key)
    text.last_block = block.number
