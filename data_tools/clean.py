r"""Leave out texts: too short or long, of few letters, the same as an earlier one, or nearly the same.

    python -m data_tools.clean --input texts --output clean.jsonl \
        --min_chars 200 --exact --near 0.8

Only what is asked for is done, in this order: --min_chars --max_chars --min_letters --max_digits --exact --near. What
is kept is written as it was, line for line, while reading: `--input -` and `--output -` make it part of a pipe. The
counts of each rule, with examples of what it dropped, are on stderr; --dropped writes all of it to a file.

Memory does not grow with the input, except by some 200 bytes a document with --exact, 6 KB a document with --near.
"""

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np

from data_tools.cli import BEGINS_ANEW, Parser, not_negative, run, share
from data_tools.formats.atomic import check_not_input, written_aside
from data_tools.formats.errors import DataError
from data_tools.progress import progress
from data_tools.text.blocks import LINES, STDIN, Block, read_blocks
from data_tools.text.sources import BadLine, BadLines, documents, find_files, total_bytes
from data_tools.text.workers import Workers, at_most_cores

SHOWN = 60
LETTER = re.compile(r"[^\W\d_]")  # of any script: Chinese characters, too
DIGIT = re.compile(r"\d")
SPACE = re.compile(r"\s")


@dataclass(frozen=True)
class CleaningRule:
    """A rule of cleaning.

    Attributes:
        name: The flag that requests it.
        keeps: Returns whether a text passes.
    """

    name: str
    keeps: Callable[[str], bool]


def rules(
    min_chars: int | None = None,
    max_chars: int | None = None,
    min_letters: float | None = None,
    max_digits: float | None = None,
) -> list[CleaningRule]:
    """Return the requested rules, cheap ones first.

    Lengths are in characters without surrounding space; letters and digits are shares of the characters that are no
    space.
    """
    selected = []
    if min_chars is not None:
        selected.append(CleaningRule("min_chars", lambda text: len(text.strip()) >= min_chars))
    if max_chars is not None:
        selected.append(CleaningRule("max_chars", lambda text: len(text.strip()) <= max_chars))
    if min_letters is not None:
        selected.append(CleaningRule("min_letters", lambda text: proportion(LETTER, text) >= min_letters))
    if max_digits is not None:
        selected.append(CleaningRule("max_digits", lambda text: proportion(DIGIT, text) <= max_digits))
    return selected


def proportion(kind: re.Pattern, text: str) -> float:
    """Return the part of the characters that are of this kind, spaces not counted; 0 for a text of spaces."""
    characters = len(SPACE.sub("", text))
    return len(kind.findall(text)) / characters if characters else 0.0


@dataclass(frozen=True)
class Judged:
    """A document after the rules that look at it alone.

    Attributes:
        rule: The first it does not pass, else None.
        line: As it is written out.
        digest, signature: Of its text, where duplicates are looked for.
    """

    where: str
    line: bytes
    text: str
    rule: str | None
    digest: bytes = b""
    signature: np.ndarray | None = None


@dataclass(frozen=True)
class Dropped:
    """A dropped document.

    Attributes:
        rule: The rule that dropped it.
        like: The place of the first text that it repeats.
    """

    rule: str
    where: str
    text: str
    like: str | None = None

    def __str__(self) -> str:
        text = " ".join(self.text[: 2 * SHOWN].split())[:SHOWN]
        return f"{self.where}{f' (as {self.like})' if self.like else ''}: {text}"


@dataclass
class Report:
    """The documents that each rule dropped: their number and the first examples."""

    examples: int
    kept: int = 0
    empty: int = 0
    dropped: Counter = field(default_factory=Counter)
    shown: dict[str, list[Dropped]] = field(default_factory=dict)

    def add(self, dropped: Dropped) -> None:
        """Count a dropped document and keep it as an example while there is room."""
        self.dropped[dropped.rule] += 1
        examples = self.shown.setdefault(dropped.rule, [])
        if len(examples) < self.examples:
            examples.append(dropped)

    def lines(self, requested: list[str]) -> Iterator[str]:
        """Yield the lines of the report, one block a requested rule."""
        total = self.kept + self.empty + self.dropped.total()
        yield f"kept {self.kept:,} of {total:,} documents"
        if self.empty:
            yield f"empty: {self.empty:,}"
        for rule in requested:
            yield f"{rule}: {self.dropped[rule]:,} dropped"
            yield from (f"    {example}" for example in self.shown.get(rule, []))


def block_judge(
    alone: list[CleaningRule], text_key: str, exact: bool, near: bool
) -> Callable[[Block], tuple[list[Judged], list[str]]]:
    """Return the function that workers apply to blocks: (documents, reasons of bad lines)."""
    if near:
        from data_tools.text.duplicates import signature
    if exact or near:
        from data_tools.text.duplicates import text_digest

    def judge(block: Block) -> tuple[list[Judged], list[str]]:
        judged, bad_lines = [], []
        content = block.content if isinstance(block.content, bytes) and block.kind == LINES else b""
        lines = dict(enumerate(content.split(b"\n"), start=block.line))
        for document in documents(block, text_key):
            if isinstance(document, BadLine):
                bad_lines.append(document.reason)
                continue
            text = document.text
            line = lines.get(document.line) or json.dumps({text_key: text}, ensure_ascii=False).encode()
            rule = next((rule.name for rule in alone if not rule.keeps(text)), None)
            if rule or not text:
                judged.append(Judged(document.where, line, text, rule))
            else:
                digest = text_digest(text) if exact or near else b""
                judged.append(Judged(document.where, line, text, None, digest, signature(text) if near else None))
        return judged, bad_lines

    return judge


def clean_files(
    inputs: list[str],
    output: BinaryIO,
    alone: list[CleaningRule],
    exact: bool = False,
    near: float | None = None,
    text_key: str = "text",
    max_bad_lines: int = 0,
    workers: int | None = None,
    examples: int = 3,
    on_drop: Callable[[Dropped], object] = lambda dropped: None,
) -> Report:
    """Write the lines of the documents that pass; empty texts do not.

    near: the similarity from which on a text repeats another.

    Raises:
        DataError: For input that cannot be read.
    """
    if exact or near is not None:
        from data_tools.text.duplicates import ExactDuplicates, NearDuplicates
    same = ExactDuplicates() if exact else None
    alike = NearDuplicates(near) if near is not None else None
    files, bad_lines, report = find_files(inputs), BadLines(max_bad_lines), Report(examples)

    def verdict(judgement: Judged) -> Dropped | None:
        if judgement.rule:
            return Dropped(judgement.rule, judgement.where, judgement.text)
        if same and (like := same.find(judgement.digest, judgement.where)):
            return Dropped("exact", judgement.where, judgement.text, like)
        if alike and judgement.signature is not None and (like := alike.find(judgement.signature, judgement.where)):
            return Dropped("near", judgement.where, judgement.text, like)
        return None

    with (
        Workers(block_judge(alone, text_key, exact, near is not None), workers) as pool,
        progress("cleaning", total_bytes(files)) as advance,
    ):
        for block, (judged, reasons) in pool.in_order(read_blocks(files, text_key)):
            bad_lines.add(reasons)
            for judgement in judged:
                if not judgement.text:
                    report.empty += 1
                elif dropped := verdict(judgement):
                    report.add(dropped)
                    on_drop(dropped)
                else:
                    report.kept += 1
                    output.write(judgement.line.rstrip(b"\r\n") + b"\n")
            advance(block.size, len(judged))
    return report


@contextmanager
def opened_output(named: str) -> Iterator[BinaryIO]:
    """Open the output file, or stdout for "-"."""
    if named == STDIN:  # the same sign stands for stdout
        if sys.__stdout__ is None:
            raise DataError("--output -: the standard output is closed. Open it, or name a file.")
        yield sys.stdout.buffer
        sys.stdout.flush()
        return
    with written_aside(named) as file:
        yield file


def main() -> None:
    """Run the command."""
    parser = Parser("python -m data_tools.clean", __doc__)
    parser.add_argument("--input", required=True, nargs="+", metavar="FILE", help="files, folders, patterns; -: stdin")
    parser.add_argument("--output", required=True, metavar="FILE", help="JSON lines; -: stdout")
    parser.add_argument("--min_chars", type=not_negative, metavar="N", help="drop texts of fewer characters")
    parser.add_argument("--max_chars", type=not_negative, metavar="N", help="drop texts of more characters")
    parser.add_argument("--min_letters", type=share, metavar="SHARE", help="drop where fewer are letters, such as 0.5")
    parser.add_argument("--max_digits", type=share, metavar="SHARE", help="drop where more are digits, such as 0.3")
    parser.add_argument("--exact", action="store_true", help="drop texts that came before")
    parser.add_argument("--near", type=float, metavar="SIMILARITY", help="drop near copies, such as 0.8 (word 5-grams)")
    parser.add_argument("--dropped", metavar="FILE", help="write what is dropped, with rule and place, as JSON lines")
    parser.add_argument("--examples", type=not_negative, default=3, metavar="N", help="shown of each rule (default: 3)")
    parser.add_argument("--text_key", default="text", help="the key, or column, that holds the text (default: text)")
    parser.add_argument(
        "--max_bad_lines", type=not_negative, default=0, metavar="N", help="drop up to N lines that are no documents"
    )
    parser.add_argument("--workers", type=not_negative, help="processes (default: as many as help)")
    args = parser.parse_args()
    if args.near is not None and not 0 < args.near <= 1:
        parser.error(f"--near {args.near}: a similarity above 0, up to 1")
    alone = rules(args.min_chars, args.max_chars, args.min_letters, args.max_digits)
    requested = [rule.name for rule in alone] + ["exact"] * args.exact + ["near"] * (args.near is not None)
    if not requested:
        flags = "--min_chars, --max_chars, --min_letters, --max_digits, --exact, --near"
        parser.error(f"no rule is given: at least one of {flags}")
    files, workers = find_files(args.input), at_most_cores(args.workers)
    written = [file for file in (args.output, args.dropped) if file]
    if len(written) > len({os.path.realpath(file) for file in written}):
        parser.error(f"--output and --dropped: found {args.output} for both, name two files")
    for file in written:
        check_not_input(file, files)
    with opened_output(args.output) as output, _opened_dropped(args.dropped) as on_drop:
        report = clean_files(
            files, output, alone, args.exact, args.near, args.text_key, args.max_bad_lines, workers, args.examples,
            on_drop,
        )  # fmt: skip
    for line in report.lines(requested):
        print(line, file=sys.stderr)


@contextmanager
def _opened_dropped(named: str | None) -> Iterator[Callable[[Dropped], object]]:
    if not named:
        yield lambda dropped: None
        return
    with written_aside(named) as file:
        yield lambda dropped: file.write(json.dumps(vars(dropped), ensure_ascii=False).encode() + b"\n")


if __name__ == "__main__":
    run(main, BEGINS_ANEW)
