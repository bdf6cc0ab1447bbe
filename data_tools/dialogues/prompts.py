"""What reinforcement learns from: prompts whose answers can be checked, and the rows that hold them.

    {"question": "...", "answer": "... #### 42"}        GSM8K's; "problem", "solution" and "ground_truth" are known, too
    {"prompt": "..." or [messages], "answer": "42"}     TRL's; verl has "reward_model": {"ground_truth": "42"}
    {"messages": [...]}, {"src": ..., "tgt": ...}       all rows of fine-tuning: the last answer is the right one

Every other column is kept for the reward. Whatever is no text becomes JSON.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from data_tools.dialogues.datasets import Survey, left_out_lines
from data_tools.dialogues.dialogue import SCHEMAS, Schema, best_schema, listed, one_text, optional_text, spoken_dialogue
from data_tools.dialogues.encoding import Encoding, check_lengths
from data_tools.dialogues.messages import Dialogue, RowError, plain_dialogue
from data_tools.dialogues.questions import encode_question
from data_tools.dialogues.rows import FIRST_ROWS, Fault, Rows, check_faults, read_entries
from data_tools.dialogues.samples import SHOWN_OF, BlendedDialogues, Cuts
from data_tools.formats.errors import DataError
from data_tools.formats.plural import plural

ANSWERS = ("answer", "solution", "ground_truth", "target")


@dataclass(frozen=True)
class Asked:
    """A prompt of a row.

    Attributes:
        answer: The right one; "" where the row has none.
        row: As the file has it.
    """

    dialogue: Dialogue
    answer: str
    row: dict


@dataclass(frozen=True)
class PromptSchema(Schema[Asked]):
    """A form of rows with a prompt, all columns of which a reward may read.

    Attributes:
        also: A further condition for rows with these keys.
    """

    also: Callable[[dict], bool] = lambda row: True

    def fits(self, row: dict) -> bool:
        """Return whether a row has the keys and passes the further condition."""
        return super().fits(row) and self.also(row)

    def unused(self, row: dict) -> list[str]:
        """Return the keys that nothing reads, which are none."""
        return []


@dataclass(frozen=True)
class PromptColumns:
    """Keys of prompt and right answer, None where the first rows of each file tell."""

    prompt: str | None = None
    answer: str | None = None

    def read(self, file: Path) -> Rows[Asked]:
        """Return all prompts of a file.

        Raises:
            DataError: As read_entries.
        """
        return read_entries(file, self._find)

    def _find(self, rows: list[dict]) -> Schema[Asked]:
        return best_schema(rows, self._schemas(), "--prompt_column KEY")

    def _schemas(self) -> list[Schema[Asked]]:
        if self.prompt:
            return [*self._of_key(self.prompt, chat=False)]
        keyed = [schema for key in ("prompt", "question", "problem") for schema in self._of_key(key, key != "prompt")]
        return [*keyed, *(self._of_rows(schema) for schema in SCHEMAS if schema.ask)]

    def _of_key(self, key: str, chat: bool) -> list[Schema[Asked]]:
        def text(row: dict) -> Dialogue:
            return plain_dialogue((), optional_text(row, "system"), one_text(row, key))

        def messages(row: dict) -> Dialogue:
            return spoken_dialogue(row, listed(row, key), asks=True)

        return [
            PromptSchema(
                f"{key} of messages", (key,), True, partial(self._read, messages), also=partial(_is_list, key)
            ),
            PromptSchema(key, (key,), chat, partial(self._read, text)),
        ]

    def _of_rows(self, schema: Schema[Dialogue]) -> Schema[Asked]:
        def ask(row: dict) -> Dialogue:
            assert schema.ask, "chosen for it"
            return schema.ask(row)

        def last(row: dict) -> str:
            try:
                return schema.read(row).messages[-1].text
            except RowError:  # no answer behind the question
                return ""

        return PromptSchema(schema.name, schema.keys[:1], schema.chat, partial(self._read, ask, last=last))

    def _read(self, ask: Callable[[dict], Dialogue], row: dict, last: Callable[[dict], str] = lambda row: "") -> Asked:
        return Asked(ask(row), self._answer(row) or last(row), row)

    def _answer(self, row: dict) -> str:
        if self.answer:
            if self.answer not in row:
                raise RowError(f"no key {self.answer!r}, which --answer_column names")
            return as_text(row[self.answer])
        graded = row.get("reward_model")
        columns = row | graded if isinstance(graded, dict) else row
        return next((as_text(columns[key]) for key in ANSWERS if columns.get(key) is not None), "")


def _is_list(key: str, row: dict) -> bool:
    return isinstance(row.get(key), list)


def as_text(value: Any) -> str:
    """Return a value as text: texts as they are, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True)
class Prompt:
    """A prompt as ids, with what its rewards read."""

    ids: list[int]
    asked: Asked


class PromptDataset:
    """Prompts.

    Attributes:
        tokens, counted: int64 [samples], of each prompt.
    """

    def __init__(self, prompts: list[Prompt], cuts: Cuts):
        self._prompts, self.cuts = prompts, cuts
        self.tokens = self.counted = np.array([len(prompt.ids) for prompt in prompts], dtype=np.int64)
        self.largest_id = max((max(prompt.ids) for prompt in prompts), default=0)

    @property
    def longest(self) -> int:
        """Ids of the longest prompt."""
        return int(self.tokens.max())

    def identity(self) -> dict:
        """Return a dict that changes with any prompt, its columns, and their order."""
        digest = hashlib.sha256()
        for prompt in self._prompts:
            columns = [prompt.ids, prompt.asked.answer, prompt.asked.row]
            digest.update(json.dumps(columns, sort_keys=True, default=str).encode("utf-8", "surrogatepass"))
        return {"dialogues": digest.hexdigest(), "samples": len(self)}

    def __len__(self) -> int:
        return len(self._prompts)

    def __getitem__(self, i: int) -> Prompt:
        return self._prompts[i]


def encode_prompt_rows(rows: Rows[Asked], encoding: Encoding) -> tuple[PromptDataset, list[Fault]]:
    """Return the prompts of a file as ids, and its rows that the chat template cannot render.

    Raises:
        DataError: If the template renders none of the first rows, or the lengths leave no room for an answer.
    """
    check_lengths(encoding.src_length, encoding.max_length)
    prompts, faults, cuts = [], [], 0
    first = min(FIRST_ROWS, len(rows.entries))
    for number, (line, asked) in enumerate(zip(rows.lines, rows.entries, strict=True), 1):
        try:
            ids, cut = encode_question(asked.dialogue, encoding)
            if not ids:
                raise DataError("an empty prompt, and the tokenizer begins no text with a special token")
            prompts.append(Prompt(ids, asked))
            cuts += cut
        except DataError as error:
            faults.append(Fault(rows.file, line, str(error).rstrip(".")))
            if len(faults) == number == first:
                raise DataError(f"{rows.file}: none of the first rows can be rendered. Line {line}: {error}") from None
    return PromptDataset(prompts, Cuts(cuts, 0, 0)), faults


@dataclass(frozen=True)
class PromptSets:
    """The prompts of a run, None for a split that was not requested; lines: reports about them, to be printed."""

    train: PromptDataset | BlendedDialogues | None
    dev: PromptDataset | None
    lines: list[str]


def encode_prompt_survey(found: Survey[Asked], encoding_of: Callable[[bool], Encoding]) -> PromptSets:
    """Encode all prompts; sources with weights are blended.

    Args:
        encoding_of: Maps whether a schema is one of chats to the encoding of its rows.
        found: The rows.

    Raises:
        DataError: If there are more broken rows than allowed.
    """
    faults = list(found.faults)

    def of_files(files: list[Rows[Asked]]) -> PromptDataset:
        parts = []
        for rows in files:
            part, broken = encode_prompt_rows(rows, encoding_of(rows.schema.chat))
            parts.append(part)
            faults.extend(broken)
        return PromptDataset([prompt for part in parts for prompt in part], sum((p.cuts for p in parts), Cuts(0, 0, 0)))

    parts = [of_files(source) for source in found.train]
    dev = of_files([rows for source in found.dev for rows in source]) if found.dev else None
    check_faults(faults, found.allowed)
    weights = [source.weight for source in found.sources if source.weight is not None]
    train = None if not parts else parts[0] if len(parts) == 1 else BlendedDialogues(parts, weights)
    lines = [_line(name, data) for name, data in (("training", train), ("evaluation", dev)) if data is not None]
    return PromptSets(train, dev, [*lines, *left_out_lines(found, faults)])


def _line(name: str, data: Any) -> str:
    answered = sum(bool(data[i].asked.answer) for i in range(len(data)))
    return (
        f"{name} data: {plural(len(data), 'prompt')}, {answered:,} with a right answer, {data.tokens.sum():,} tokens, "
        f"{data.cuts}"
    )


def prompt_lines(dataset: Any, decode: Callable[[list[int]], str]) -> list[str]:
    """Return one of the first prompts, the shortest, as text lines, with its right answer between [[ and ]]."""
    number = min(range(min(len(dataset), SHOWN_OF)), key=lambda i: dataset.tokens[i])
    prompt = dataset[number]
    text = f"{decode(prompt.ids)}\n[[{prompt.asked.answer}]]"
    return ["a prompt; its right answer in [[ ]]:", *(f"    {line}" for line in text.split("\n"))]
