"""The texts that a rank computes: their keys and values, and a step of all of them.

    texts = PackedTexts(PackedModel(model, family), tokens=65536)
    if texts.add(0, [5, 9, 2], most=40): ...
    parts, logits = texts.compute()
    texts.settle(failed=[])
    texts.append([(0, 17)])    # the token that follows
    texts.remove([0])

A model that is divided over several ranks needs the same calls on each of them, in the same order
(launch/serving/followers.py). So a text is known by a number, and what happens depends on the calls alone.
"""

from dataclasses import dataclass

import paddle

from launch.families.arithmetic import PROMPT_CHUNK
from launch.generation.key_values import BLOCK, KeyValues, Text
from launch.generation.packed import PackedModel


@dataclass(frozen=True)
class ComputedPart:
    """The tokens that a step has computed of the text with this number: `count` tokens from `start` on.

    Attributes:
        rows: Of the logits, the text's rows; the last one is of the last token.
        complete: Whether that is the text's last token, too.
    """

    number: int
    start: int
    count: int
    rows: range
    complete: bool


class PackedTexts:
    """The texts that a model reads.

    Attributes:
        tokens: Of keys and values that there is memory for.
    """

    def __init__(self, packed: PackedModel, tokens: int):
        self.packed, self.tokens = packed, tokens
        self.clear()

    def clear(self) -> None:
        """Forget all texts, and what was kept of them."""
        self.memory = KeyValues(self.packed.layout, self.tokens)
        self.texts: dict[int, Text] = {}
        self.computed: list[int] = []  # the numbers of a step, until settle()

    @property
    def compiled(self) -> bool:
        """Whether attention is one compiled operator."""
        return self.packed.compiled is not None

    @property
    def token_bytes(self) -> int:
        """Bytes of a token's keys and values on this rank."""
        return self.packed.layout.token_bytes

    def prefix_tokens(self, owner: str) -> int:
        """Return the tokens of a model's prefix, 0 without."""
        return 0

    def add(self, number: int, ids: list[int], most: int, owner: str = "", scored: int = 0) -> bool:
        """Add a text, unless it has no room now; return whether it was added.

        Args:
            most: Of its tokens with the answer.
            owner: The model that reads it.
            scored: Number of its first tokens that have logits in the steps that compute them.
            number: Of the text.
            ids: Of its prompt.
        """
        text = Text(ids, most, owner, self.prefix_tokens(owner), scored)
        if not self.memory.has_room(text):
            return False
        self.memory.add(text)
        self.texts[number] = text
        return True

    def append(self, tokens: list[tuple[int, int]]) -> None:
        """Append a token to texts that continue.

        Args:
            tokens: (number, id) of each.
        """
        for number, token in tokens:
            self.texts[number].ids.append(token)

    def remove(self, numbers: list[int]) -> None:
        """Remove texts. What was computed of them is stored for others, as long as there is room."""
        for number in numbers:
            text = self.texts.pop(number)
            self.memory.keep(text)
            self.memory.remove(text)

    @paddle.no_grad()
    def compute(self) -> tuple[list[ComputedPart], paddle.Tensor]:
        """Compute of each text the newest token, or a chunk of its prompt. Returns logits [rows, vocabulary]."""
        self.memory.prepare()
        chosen = self._chosen()
        parts, first = [], 0
        for number, text, count in chosen:
            rows = text.logits_of(count)
            complete = text.computed + count == len(text.ids)
            parts.append(ComputedPart(number, text.computed, count, range(first, first + rows), complete))
            first += rows
        logits = self._run([(text, count) for _, text, count in chosen])
        self.computed = [part.number for part in parts if part.count > 1]
        return parts, logits

    def settle(self, failed: list[int]) -> None:
        """Forget the texts whose logits were no numbers in a step, and store the computed parts of other prompts."""
        for number in failed:
            self.memory.discard(self.texts.pop(number))
        for number in self.computed:
            if number in self.texts:
                self.memory.keep(self.texts[number])

    def _chosen(self) -> list[tuple[int, Text, int]]:
        """Return texts and how many tokens of each are computed now: the newest one, or what time allows of its prompt.

        Of texts that continue alike the first one computes what the others take over in the next step. One whose prompt
        is scored takes nothing over: stored blocks have no logits.
        """
        chosen, room, begun = [], PROMPT_CHUNK, set()
        for number, text in self.texts.items():
            if not text.computed:
                self._begin(text)
            if not text.scored:
                self.memory.reuse(text)
            count = len(text.ids) - text.computed
            if count > 1:
                block = text.next_block
                if block in begun and not text.scored:
                    continue
                begun |= {block} if block else set()
                count = min(count, room // BLOCK * BLOCK) if count > room else count
                room -= count
            if count:
                chosen.append((number, text, count))
        return chosen

    def _begin(self, text: Text) -> None:
        """Write what stands before a text."""

    def _run(self, parts: list[tuple[Text, int]]) -> paddle.Tensor:
        """Return the logits of a step."""
        return self.packed.run(parts)
