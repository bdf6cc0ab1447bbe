r"""Dialogues of any known form to checked files for fine-tuning: train.json and dev.json, as JSON lines.

    python -m data_tools.sft --input AdvertiseGen/train.json --output data \
        --tokenizer tokenizer --max_length 288

Files are JSON lines, one JSON list, CSV with names in its first row (RFC 4180), or Parquet. Known forms, found by
themselves: pairs (src/tgt, content/summary, question/answer, or --prompt_column and --response_column), Alpaca,
ShareGPT, messages. Pairs become {"src", "tgt"}, which training reads without a chat template; the others {"messages":
[{"role", "content"}, ...]}, which it reads with the model's. A broken row stops the command, unless --max_broken_rows
allows some; repeated dialogues are dropped.

--dev_percent of the questions go to dev.json, chosen by the hash of the question: one with several answers is on one
side, and more data moves none. --dev_exact 1 takes exactly that share, of few rows one at least. With --tokenizer, a
histogram says how many tokens the dialogues have, and what --src_length and --max_length will cut; a sample is shown as
the model sees it, target tokens in [[ ]]. --against apply_chat_template compares the ids with those of transformers and
names the first that differs.
"""

import hashlib
import json
import math
import shlex
from collections.abc import Collection, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from rich.console import Console
from rich.table import Table

from data_tools.cli import BEGINS_ANEW, Parser, above_zero, not_negative, percent, run
from data_tools.dialogues.against import difference_line
from data_tools.dialogues.chat_template import (
    ChatTemplate,
    directory_template,
    load_template,
    special_tokens,
)
from data_tools.dialogues.datasets import files_inside, files_named, input_files
from data_tools.dialogues.encoding import Encoding, check_lengths, encode_dialogues
from data_tools.dialogues.messages import Dialogue, Message, row_json
from data_tools.dialogues.rows import check_faults, read_rows, unused_line
from data_tools.dialogues.samples import DialogueDataset, sample_lines
from data_tools.formats.atomic import check_not_input, written_aside
from data_tools.formats.errors import DataError
from data_tools.formats.plural import plural
from data_tools.inspect import length_histogram
from data_tools.language import localized
from data_tools.text.encoders import load_encoder

HASH_SCALE = 1 << 64
UNLIMITED = 1 << 30
FEWEST = 20  # dialogues whose loss says something
EXACT_HELP = "1: exactly that share, at least one; default: 0, about it"
SRC_LENGTH = 1024  # that of training, where it is not given


@dataclass(frozen=True)
class Sides:
    """The dialogues that go to train.json and dev.json, each by its JSON row.

    Attributes:
        repeated: Number of dropped repeated ones.
        chat: Whether they are chats, which training reads with a template.
        unused: A line about unused keys.
        forms: The forms of the files.
    """

    train: dict[str, Dialogue]
    dev: dict[str, Dialogue]
    repeated: int
    broken: int
    chat: bool
    unused: str
    forms: tuple[str, ...]


def read_dialogues(
    files: list[str],
    dev_percent: float,
    prompt_column: str | None,
    response_column: str | None,
    max_broken_rows: int,
    dev_exact: bool = False,
) -> Sides:
    """Read files of dialogues, each of its own form. dev_exact: as dev_limit has it.

    Raises:
        DataError: If one cannot be read, or has too many broken rows.
    """
    train, dev, faults, repeated, chat, every = {}, {}, [], 0, None, []
    for file in files:
        rows = read_rows(file, prompt_column, response_column)
        if chat not in (None, rows.schema.chat):
            raise DataError(
                f"{file} has {rows.schema.name}, the files before it are of the other kind: pairs, or chats. Training "
                "reads these differently: give them to two runs of this command."
            )
        chat = rows.schema.chat
        faults += rows.faults
        every.append(rows)
    limit = dev_limit(dev_percent, (dialogue for rows in every for dialogue in rows.entries), dev_exact)
    for rows in every:
        for dialogue in rows.entries:
            row = row_of(dialogue, rows.schema.chat)
            side = dev if place_of(dialogue) < limit else train
            repeated += row in side
            side.setdefault(row, dialogue)
    check_faults(faults, max_broken_rows)
    if not train:
        raise DataError(
            f"all questions of {', '.join(files)} go to dev.json. Give a smaller --dev_percent, or more data."
        )
    return Sides(
        train,
        dev,
        repeated,
        len(faults),
        bool(chat),
        unused_line(every),
        tuple(dict.fromkeys(rows.schema.name for rows in every)),
    )


def dev_limit(percent: float, dialogues: Iterable[Dialogue], exact: bool, seed: int = 0) -> float:
    """Return the place below which a dialogue goes to dev.json.

    Args:
        percent: Of the questions.
        dialogues: All of them, of which only `exact` asks.
        exact: Count the questions: at least one goes to dev.json, and one stays.
        seed: Of the places.
    """
    if not exact or not percent:
        return percent / 100 * HASH_SCALE
    places = sorted({place_of(dialogue, seed) for dialogue in dialogues})
    return places[min(max(1, round(percent / 100 * len(places))), len(places) - 1)]


def place_of(dialogue: Dialogue, seed: int = 0) -> int:
    """Return the place of a dialogue from 0 to HASH_SCALE, by its first question and the seed alone."""
    texts = {message.role: message.text for message in reversed(dialogue.messages)}  # the first ones
    question = f"{texts.get('system', '')}\0{texts['user']}".encode()
    key = str(seed).encode() if seed else b""
    return int.from_bytes(hashlib.blake2b(question, digest_size=8, key=key).digest(), "little")


def row_of(dialogue: Dialogue, chat: bool) -> str:
    """Return the JSON row of a dialogue: messages for chats and for more than questions and answers, else src, tgt."""
    messages = dialogue.messages
    plain = all(message == Message(message.role, message.content) for message in messages)
    if chat or messages[0].role != "user" or not plain:
        return json.dumps(row_json(dialogue), ensure_ascii=False)
    questions, answers = [one.text for one in messages[0::2]], [one.text for one in messages[1::2]]
    row = {"src": questions[0], "tgt": answers[0]} if len(answers) == 1 else {"src": questions, "tgt": answers}
    return json.dumps(row, ensure_ascii=False)


def write_sides(folder: Path, sides: Mapping[str, Collection[str]], inputs: list[str]) -> None:
    """Write FOLDER/train.json and dev.json, which take their names when both are whole.

    Args:
        sides: The rows of each split, by its name; one without rows is not written.
        inputs: The files that the rows are from.
        folder: Made where missing.

    Raises:
        DataError: If that would replace an input, or where training would read another file of the folder beside
            the written ones, or instead of a dev.json that is not written: its rows may be among the rows of
            train.json.
    """
    written = {folder / f"{split}.json": rows for split, rows in sides.items() if rows}
    for path in written:
        check_not_input(path, inputs)
    beside = [file for split in sides for file in files_named(folder, split) if file not in written]
    beside += [file for split, rows in sides.items() if not rows for file in files_inside(folder, split)]
    if beside:
        raise DataError(
            f"{folder}: {beside[0].relative_to(folder)} is there, which training would read together with what is "
            f"written now: {', '.join(file.name for file in written)}. Name another folder: --output; or move the file "
            "away."
        )
    with ExitStack() as stack:
        for path, rows in written.items():
            write_rows(stack.enter_context(written_aside(path)), rows)


def write_rows(file: BinaryIO, rows: Iterable[str]) -> None:
    """Write rows as lines."""
    for row in rows:
        file.write(f"{row}\n".encode())


def encoding_of(tokenizer_dir: str, template: ChatTemplate | None, src_length: int, max_length: int) -> Encoding:
    """Return the encoding that training will use with a tokenizer's directory."""
    encoder = load_encoder(tokenizer_dir)
    if encoder.eos_id is None:
        raise DataError(f"{encoder.path} names no end-of-sequence token: add eos_token to tokenizer_config.json.")
    return Encoding(
        template=template,
        encode=encoder.encode_chat,
        locate=encoder.locate_chat,
        begin=(),
        eos=encoder.eos_id,
        src_length=src_length,
        max_length=max_length,
    )


def report_lengths(
    dialogues: Iterable[Dialogue], tokenizer_dir: str, template: ChatTemplate | None, src_length: int, max_length: int,
    console: Console,
) -> None:  # fmt: skip
    """Print a histogram of tokens, and what the lengths allowed will cut.

    Raises:
        DataError: If the template renders none of the dialogues.
    """
    dialogues = list(dialogues)
    found = list(encode_dialogues(dialogues, encoding_of(tokenizer_dir, template, UNLIMITED, UNLIMITED)))
    refused = [result for result in found if isinstance(result, DataError)]
    if len(refused) == len(found):
        raise refused[0]
    if refused:
        console.print(f"{len(refused):,} that training will refuse, the first: {refused[0]}", highlight=False)
    dialogues = [
        dialogue for dialogue, encoded in zip(dialogues, found, strict=True) if not isinstance(encoded, DataError)
    ]
    sizes = np.array([len(one.ids) for samples in found if not isinstance(samples, DataError) for one in samples])
    allowed = encoding_of(tokenizer_dir, template, src_length, max_length)
    encoded = (found for found in encode_dialogues(dialogues, allowed) if not isinstance(found, DataError))
    cut = DialogueDataset(sample for samples in encoded for sample in samples)
    table = Table("tokens", "dialogues", "", box=None)
    for low, high, count in length_histogram(sizes):
        beyond = " beyond --max_length" if low > max_length else ""
        table.add_row(f"{low:,} - {high:,}", f"{count:,}", f"{count / len(sizes):.1%}{beyond}")
    console.print(table)
    console.print(
        f"--src_length {src_length} --max_length {max_length}: {cut.cuts}; nothing is cut from --max_length "
        f"{int(sizes.max())} on, 99 % are whole at {int(np.percentile(sizes, 99, method='higher'))}",
        highlight=False,
    )
    for line in sample_lines(cut, load_encoder(tokenizer_dir).decode_chat):
        console.print(line, highlight=False)


def dev_warning(dev: int, train: int, dev_percent: float) -> list[str]:
    """Return a line where too few dialogues are set aside for an evaluation to say anything."""
    if not dev_percent or dev >= FEWEST:
        return []
    more = min(50, math.ceil(100 * FEWEST / (dev + train)))
    found = f"{plural(dev, 'dialogue')} in dev.json" if dev else "no dev.json, which an evaluation needs"
    return [f"warning: {found}: of so few rows set more aside, --dev_percent {more}"]


def template_of(args, chat: bool) -> ChatTemplate | None:
    """Return the template of --chat_template; else, for chats, the tokenizer's own."""
    directory = Path(args.tokenizer) if args.tokenizer else None
    if args.chat_template:
        return load_template(args.chat_template, special_tokens(directory) if directory else None)
    return directory_template(directory) if directory and chat else None


def add_lengths(parser: Parser) -> None:
    """Add the flags for lengths."""
    default = f"(default: {SRC_LENGTH}, or half of --max_length where that is less)"
    parser.add_argument("--src_length", type=above_zero, help=f"as in training {default}")
    parser.add_argument("--max_length", type=above_zero, default=2048, help="as in training (default: 2048)")


def choose_lengths(args) -> None:
    """Set --src_length where it is not given.

    Raises:
        DataError: If the two leave no room for an answer.
    """
    if args.src_length is None:
        args.src_length = max(1, min(SRC_LENGTH, args.max_length // 2))
    check_lengths(args.src_length, args.max_length)


def main() -> None:
    """Run the command."""
    parser = Parser("python -m data_tools.sft", __doc__)
    parser.add_argument("--input", required=True, nargs="+", metavar="FILE", help="JSON, CSV or Parquet")
    parser.add_argument("--output", required=True, metavar="DIR", help="folder for train.json and dev.json")
    parser.add_argument("--dev_percent", type=percent, default=2, help="of the questions (default: 2; 0: no dev.json)")
    parser.add_argument("--dev_exact", type=int, choices=[0, 1], default=0, help=EXACT_HELP)
    parser.add_argument("--prompt_column", metavar="KEY", help="key of the question")
    parser.add_argument("--response_column", metavar="KEY", help="key of the answer")
    allowed = ("--max_broken_rows", "--max_bad_lines")
    parser.add_argument(*allowed, type=not_negative, default=0, metavar="N", help="drop up to N broken rows")
    parser.add_argument("--tokenizer", metavar="DIR", help="count tokens with this tokenizer")
    parser.add_argument("--chat_template", metavar="FILE", help="count its tokens; default: chats, the tokenizer's")
    parser.add_argument("--against", choices=("apply_chat_template",), help="compare ids with those of transformers")
    add_lengths(parser)
    args = parser.parse_args()
    choose_lengths(args)
    if args.against and not args.tokenizer:
        parser.error("--against needs --tokenizer DIR")
    args.input = input_files(args.input)
    columns = args.prompt_column, args.response_column
    sides = read_dialogues(args.input, args.dev_percent, *columns, args.max_broken_rows, bool(args.dev_exact))
    template = template_of(args, sides.chat)
    written = {"train": sides.train, "dev": sides.dev}
    write_sides(Path(args.output), written, args.input)
    for name, rows in written.items():
        if rows:
            print(localized(f"{args.output}/{name}.json: {plural(len(rows), 'dialogue')}"))
    for line in [*dev_warning(len(sides.dev), len(sides.train), args.dev_percent), f"form: {', '.join(sides.forms)}"]:
        print(localized(line))
    left_out = [(sides.repeated, "repeated dialogues dropped"), (sides.broken, "broken rows left out")]
    for count, what in left_out:
        if count:
            print(localized(f"{count:,} {what}"))
    if sides.unused:
        print(localized(sides.unused))
    if args.tokenizer:
        dialogues = [*sides.train.values(), *sides.dev.values()]
        console = Console(soft_wrap=True, markup=False)
        report_lengths(dialogues, args.tokenizer, template, args.src_length, args.max_length, console)
    if args.against:
        directory, whole = Path(args.tokenizer), encoding_of(args.tokenizer, template, UNLIMITED, 2 * UNLIMITED)
        decode = load_encoder(directory).decode_chat
        print(difference_line([*sides.train.values()], directory, special_tokens(directory), whole, decode))
    folder = shlex.quote(args.output.replace("$", "$$"))
    model = "MODEL=models/Qwen3-8B"
    print(localized(f"next, on a card: make lora-qwen3-8b {model} DATA={folder}; here: make lora-tiny DATA={folder}"))


if __name__ == "__main__":
    run(main, BEGINS_ANEW)
