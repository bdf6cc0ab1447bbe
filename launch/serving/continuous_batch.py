"""Rows that come and go one by one: a place is refilled at once, prompts are computed in chunks between the tokens of
others, and a base and its adapters answer together.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import paddle

from launch.adapters.adapter_files import LoRAModel
from launch.adapters.add import PrefixModel
from launch.adapters.lora_rows import LoraRows, reads_sorted
from launch.cpu.kernels import replace_rms_norms
from launch.generation.key_values import BLOCK, KeyValues, Text
from launch.generation.packed import Packed, packs
from launch.serving.models import fail_damaged
from launch.serving.request import Row
from launch.serving.whole_batches import Batch, WholeBatches

CHUNK = 256  # tokens of prompts in one step: others wait so long for their next token


class ContinuousBatch:
    """models: by name (launch/serving/models.py: Served), the base first. largest: rows in work. memory_bytes: of keys
    and values."""

    gathers = 0.0

    def __init__(self, models: Mapping, largest: int, memory_bytes: int):
        base = next(iter(models.values())).predictor
        self.models = models
        self.largest = largest
        self.known_ids = base.known_ids
        self.packed = Packed(base.model, base.family)
        if paddle.get_device() == "cpu":
            replace_rms_norms(base.model)  # a sixth of a step's time
            self.packed.rotate_by_products()  # a tenth
        self.tokens = memory_bytes // self.packed.layout.token_bytes // BLOCK * BLOCK
        self.description = (
            f"refilled at once; keys and values: {self.tokens:,} tokens of {self.packed.layout.token_bytes:,} bytes"
        )
        adapters = {name: served.predictor.model for name, served in models.items()}
        loras = {name: model for name, model in adapters.items() if isinstance(model, LoRAModel)}
        self.loras = LoraRows(base.model, loras)
        self.prefixes = {name: _prefix(model) for name, model in adapters.items() if isinstance(model, PrefixModel)}
        self.clear()

    def clear(self) -> None:
        self.memory = KeyValues(self.packed.layout, self.tokens)
        self.texts: dict[Row, Text] = {}

    @property
    def rows(self) -> list[Row]:
        return list(self.texts)

    def room(self, model: str) -> float:
        return self.tokens - self._prefix_tokens(model)

    def take(self, waiting: Iterable[Row]) -> list[Row]:
        taken = []
        for row in waiting:
            text = self._text(row)
            if len(self.texts) == self.largest or not self.memory.has_room(text):
                break  # and those behind it wait, too: a long text would otherwise never find room
            self.memory.add(text)
            self.texts[row] = text
            taken.append(row)
        return taken

    def _text(self, row: Row) -> Text:
        owner = row.group[0]
        return Text(row.prompt + row.tokens, len(row.prompt) + row.max_tokens, owner, self._prefix_tokens(owner))

    def _prefix_tokens(self, model: str) -> int:
        return self.prefixes[model].tokens if model in self.prefixes else 0

    @paddle.no_grad()
    def step(self) -> None:
        self._read_prompts()
        self._leave()
        if not self.texts:
            return
        self.memory.prepare()
        parts = self._parts()
        with self.loras.chosen([(text.owner, count) for _, text, count in parts]):
            logits = self.packed.run([(text, count) for _, text, count in parts])
        failed = fail_damaged([row for row, _, _ in parts], logits, self.known_ids)
        for row in failed:
            self.memory.discard(self.texts.pop(row))
        for row, text, count in parts:
            if count > 1 and row not in failed:
                self.memory.keep(text)
        self._choose(parts, logits)

    def _read_prompts(self) -> None:
        """Of new rows that want likelihoods of their prompts, which are not computed in chunks. Those of a model go
        together, with a prefix those of a length."""
        wanting: dict[tuple, list[Row]] = {}
        for row in self.texts:
            if row.options.scores_prompt is not None and not row.tokens and not row.done:
                wanting.setdefault(row.group, []).append(row)
        for (name, *_), rows in wanting.items():
            self.models[name].read_prompts(rows)
            for row in rows:
                self.texts[row].ids += row.tokens

    def _leave(self) -> None:
        for row in self.rows:
            if row.done:
                text = self.texts.pop(row)
                self.memory.keep(text)
                self.memory.remove(text)

    def _parts(self) -> list[tuple[Row, Text, int]]:
        """Rows and how many tokens of each are computed now: the newest one, or as much of its prompt as there is time
        for. Of rows that go on alike the first one computes what the others take over in the next step."""
        parts, room, begun = [], CHUNK, set()
        for row, text in self.texts.items():
            if not text.computed and text.owner in self.prefixes:
                assert text.group is not None, "in memory"
                text.group.write(text, 0, text.prefix, self.prefixes[text.owner].layers)
            self.memory.reuse(text)
            count = len(text.ids) - text.computed
            if count > 1:
                block = text.next_block
                if block in begun:
                    continue
                begun |= {block} if block else set()
                count = min(count, room // BLOCK * BLOCK) if count > room else count
                room -= count
            if count:
                parts.append((row, text, count))
        return parts

    def _choose(self, parts: list[tuple[Row, Text, int]], logits: paddle.Tensor) -> None:
        """The next token of each row whose text is computed to its end."""
        for name, served in self.models.items():
            found = [
                (number, row, text)
                for number, (row, text, _) in enumerate(parts)
                if text.owner == name and text.computed == len(text.ids) and row in self.texts
            ]
            if not found:
                continue
            numbers, rows, texts = map(list, zip(*found, strict=True))
            own = logits if len(found) == len(parts) else logits.index_select(paddle.to_tensor(numbers))
            served.choose(rows, own)
            for row, text in zip(rows, texts, strict=True):
                text.ids += row.tokens[len(text.ids) - len(row.prompt) :]


@dataclass(frozen=True)
class Prefix:
    """The trained keys and values of prefix tuning. layers: as Group.read() gives them."""

    tokens: int
    layers: list[paddle.Tensor]


@paddle.no_grad()
def _prefix(model: PrefixModel) -> Prefix:
    heads_first = model.keys_and_values().transpose([1, 2, 0, 3])
    keys, values = heads_first.reshape([2, len(heads_first) // 2, -1, heads_first.shape[-1]])
    tokens = model.prefix_config.num_prefix_tokens
    assert tokens is not None, "launch/adapters/adapter_files.py reads it"
    return Prefix(tokens, [paddle.concat(pair) for pair in zip(keys, values, strict=True)])


def batch_for(models: Mapping, largest: int, memory_bytes: int) -> Batch:
    """What a base and its adapters are served with. largest, memory_bytes: see ContinuousBatch."""
    base = next(iter(models.values())).predictor
    loras = [served.predictor.model for served in models.values() if isinstance(served.predictor.model, LoRAModel)]
    if packs(base.family, base.config.to_dict()) and not any(map(reads_sorted, loras)):
        return ContinuousBatch(models, largest, memory_bytes)
    return WholeBatches(models, largest)
