"""A corpus of real text that every machine has: the sources of Python's standard library, as JSONL.

    python -m data_tools.stdlib_corpus --output text

writes train.jsonl and heldout.jsonl with {"text", "module"} on each line, about 9 MB and 0.5 MB. The same
interpreter gives the same files. Tests, site-packages and tables (encodings, _sysconfigdata) are left out:
their near-copies of one another would make the held-out modules too easy.
"""

import ast
import hashlib
import io
import json
import os
import sysconfig
import tokenize
import warnings
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path

from data_tools.cli import BEGINS_ANEW, Parser, amount, run
from data_tools.formats.atomic import written_aside
from data_tools.formats.errors import DataError

LEFT_OUT = {
    "site-packages",
    "dist-packages",
    "test",
    "tests",
    "idlelib",
    "lib2to3",
    "encodings",
    "__pycache__",
}
HELDOUT_PERCENT = 5
TRAIN_QUESTIONS, DEV_QUESTIONS = 4000, 128  # rows
TRAIN_PAIRS, DEV_PAIRS = 4000, 256  # rows
LONGEST_ANSWER = 100  # characters
LINES_BEFORE = 3  # of a line of code that is a pair
PAIRS_OF_A_MODULE = 20


def modules(root: str | Path, heldout: bool) -> Iterator[tuple[str, str]]:
    """Yield (name, source) of the modules that are held out, or that are not, in the order of their names' hashes.

    Modules that are not UTF-8 are skipped.
    """
    found = {}
    for folder, subfolders, files in os.walk(root):
        subfolders[:] = [name for name in subfolders if name not in LEFT_OUT]
        for file in files:
            if file.endswith(".py") and not file.startswith("_sysconfigdata"):
                path = Path(folder, file)
                name = ".".join(path.relative_to(root).with_suffix("").parts)
                if is_heldout(name) == heldout:
                    found[name] = path
    for name in sorted(found, key=name_hash):
        try:
            source = found[name].read_bytes().decode("utf-8")
        except UnicodeDecodeError:
            continue
        if source:
            yield name, source


def name_hash(module: str) -> str:
    """Return the SHA-256 of a module's name."""
    return hashlib.sha256(module.encode()).hexdigest()


def is_heldout(module: str) -> bool:
    """Return whether a module is held out: one in twenty, by its name alone, the same in every version of Python."""
    return int(name_hash(module)[-8:], 16) % 100 < HELDOUT_PERCENT


def write_corpus(output: str | Path, root: str | Path, max_mb: float = float("inf")) -> dict[Path, tuple[int, int]]:
    """Write train.jsonl and heldout.jsonl to `output` and return (modules, bytes of text) of each file.

    Each takes modules until it has its part of `max_mb` MB (10^6 bytes); its modules are a random sample.
    """
    written = {}
    for name, heldout, percent in (("train.jsonl", False, 100), ("heldout.jsonl", True, HELDOUT_PERCENT)):
        count = size = 0
        path = Path(output, name)
        with written_aside(path) as file:
            for module, source in modules(root, heldout):
                if size >= max_mb * 1e6 * percent / 100:
                    break
                line = json.dumps({"text": source, "module": module}, ensure_ascii=False)
                file.write(f"{line}\n".encode())
                count += 1
                size += len(source.encode())
            if not count:
                raise DataError(f"{root}: no Python sources for {name}. Use a Python with its standard library.")
        written[path] = (count, size)
    return written


def write_questions(directory: Path, train: int = TRAIN_QUESTIONS, dev: int = DEV_QUESTIONS) -> None:
    """Write train.json and dev.json, at most `train` and `dev` rows for fine-tuning, about functions of the library.

        {"src": "How is textwrap.dedent called?", "tgt": "def dedent(text)"}

    Rows of dev.json are about held-out modules, which pretraining on the corpus has not seen either.
    """
    _write_rows(directory, questions, (train, dev))


def write_preferences(directory: Path, train: int = TRAIN_PAIRS, dev: int = DEV_PAIRS) -> None:
    r"""Write train.json and dev.json, pairs of a line of code in two quote styles: double quotes are chosen.

    Both have as many characters; rows of dev.json are of held-out modules.

        {"prompt": "        raise ValueError(", "chosen": "\"not a number\")", "rejected": "'not a number')"}
    """
    _write_rows(directory, lambda module, source: islice(quote_pairs(source), PAIRS_OF_A_MODULE), (train, dev))


def _write_rows(directory: Path, rows: Callable[[str, str], Iterable[dict]], counts: tuple[int, int]) -> None:
    """Write train.json and dev.json.

    rows: makes rows of a module's name and source. counts: the largest numbers of rows.
    """
    for name, heldout, count in (("train.json", False, counts[0]), ("dev.json", True, counts[1])):
        found = modules(sysconfig.get_path("stdlib"), heldout)
        lines = (row for module, source in found for row in rows(module.removesuffix(".__init__"), source))
        with written_aside(directory / name) as file:
            for row in islice(lines, count):
                file.write((json.dumps(row, ensure_ascii=False) + "\n").encode("utf-8"))


def questions(module: str, source: str) -> Iterator[dict]:
    """Yield a row about each function and method of a module that has a docstring."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="invalid escape sequence")  # of the library's old strings
        tree = ast.parse(source)
    for name, function in _functions(tree, module):
        text = (ast.get_docstring(function) or "").strip().partition("\n")[0].strip()
        call = f"def {function.name}({ast.unparse(function.args)})"
        if text and len(text) <= LONGEST_ANSWER and len(call) <= LONGEST_ANSWER:
            yield {"src": f"What does {name} do?", "tgt": text}
            yield {"src": f"How is {name} called?", "tgt": call}


def quote_pairs(source: str) -> Iterator[dict]:
    """Yield a pair for each line of a module that has one plain string, in one of both styles of quotes."""
    lines = source.split("\n")
    strings: dict[int, list[tokenize.TokenInfo]] = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.STRING:
            strings.setdefault(token.start[0], []).append(token)
    for number, (token, *_) in strings.items():
        line, text, (_, begin), (_, end) = lines[number - 1], token.string[1:-1], token.start, token.end
        if token.string[0] not in "\"'" or sum(map(line.count, "\"'\\")) != 2:  # prefixed, or not the line's only one
            continue
        if text and len(line) <= LONGEST_ANSWER and line[:begin].strip():
            before = lines[max(0, number - 1 - LINES_BEFORE) : number - 1]
            chosen, rejected = (f"{quote}{text}{quote}{line[end:]}" for quote in "\"'")
            yield {"prompt": "\n".join([*before, line[:begin]]), "chosen": chosen, "rejected": rejected}


def _functions(tree: ast.AST, place: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield f"{place}.{node.name}", node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{place}.{node.name}")


def main() -> None:
    """Run the command."""
    parser = Parser("python -m data_tools.stdlib_corpus", __doc__)
    parser.add_argument("--output", required=True, metavar="DIR", help="folder for train.jsonl and heldout.jsonl")
    parser.add_argument(
        "--max_mb", type=amount, default=float("inf"), help="stop at this much training text (10^6 bytes)"
    )
    args = parser.parse_args()
    for path, (count, size) in write_corpus(args.output, sysconfig.get_path("stdlib"), args.max_mb).items():
        print(f"{path}: {count} modules, {size / 1e6:.2f} MB")


if __name__ == "__main__":
    run(main, BEGINS_ANEW)
