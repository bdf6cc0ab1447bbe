"""The texts that a rank computes: their keys and values, the adapters that read them, and a step of all of them.

    texts = Texts(models, memory_bytes)
    if texts.add(0, [5, 9, 2], most=40, owner="poems", scored=0): ...
    parts, logits = texts.compute()
    texts.settle(failed=[])
    texts.append([(0, 17)])    # the token that follows
    texts.remove([0])

A model that is divided over several ranks needs the same calls on each of them, in the same order
(launch/serving/followers.py). So a text is known by a number, and what happens depends on the calls alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import paddle

from launch.adapters.adapter_files import LoRAModel
from launch.adapters.add import PrefixModel
from launch.adapters.lora_rows import LoraRows
from launch.cpu.kernels import replace_for_answers
from launch.devices.cpu_operators import compiled_operators
from launch.generation.key_values import BLOCK, KeyValues, Text
from launch.generation.packed import PackedModel

CHUNK = 256  # tokens of prompts in one step: others wait so long for their next token


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


class Texts:
    """The texts that a base and its adapters read.

    Attributes:
        models: By name (launch/serving/models.py: Served), the base first.
        memory_bytes: Of keys and values on this rank.
    """

    def __init__(self, models: Mapping, memory_bytes: int):
        base = next(iter(models.values())).predictor
        self.packed = PackedModel(base.model, base.family)
        if paddle.get_device() == "cpu":
            compiled = compiled_operators()
            replace_for_answers(base.model, compiled)
            self.packed.compute_on_cpu(compiled)
        self.tokens = memory_bytes // self.packed.layout.token_bytes // BLOCK * BLOCK
        adapters = {name: served.predictor.model for name, served in models.items()}
        loras = {name: model for name, model in adapters.items() if isinstance(model, LoRAModel)}
        self.loras = LoraRows(base.model, loras)
        self.prefixes = {name: _prefix(model) for name, model in adapters.items() if isinstance(model, PrefixModel)}
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
        return self.prefixes[owner].tokens if owner in self.prefixes else 0

    def add(self, number: int, ids: list[int], most: int, owner: str, scored: int) -> bool:
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
        with self.loras.chosen([(text.owner, count) for _, text, count in chosen]):
            logits = self.packed.run([(text, count) for _, text, count in chosen])
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
        chosen, room, begun = [], CHUNK, set()
        for number, text in self.texts.items():
            if not text.computed and text.owner in self.prefixes:
                assert text.group is not None, "in memory"
                text.group.write(text, 0, text.prefix, self.prefixes[text.owner].layers)
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
