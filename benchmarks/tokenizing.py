"""Speed of text to token files: ours, the bare tokenizer library, and the loops of Megatron-LM and PaddleNLP.

    python benchmarks/tokenizing.py [--workers 2] [--megabytes 40] [--rounds 5] [--output FILE]
    python benchmarks/tokenizing.py --markdown    # writes benchmarks/results/tokenizing.md

All rows encode the same text with the same tokenizer and as many processes, and the ids must be the same. They take
turns, so that a change in the machine's speed meets all of them. "per core" is MB of input a second of CPU time, of all
processes together; "of bare" the median over the rounds of that number against the bare library's in the same round.

The text: pieces of Python's standard library, and as much Chinese, drawn from jieba's word frequencies; a document has
200 to 6000 characters. The tokenizers: BPE of 8000 ids trained on it, as a sentencepiece model and as a byte-level
tokenizer.json. "Megatron-LM's loop" and "PaddleNLP's loop" are written by us after their programs (see
tokenizing_worker.py); PaddleNLP's runs paddlenlp's own tokenizer, which reads no tokenizer.json of this kind.
"""

import datetime
import json
import platform
import random
import shlex
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path[0] = str(ROOT)  # the repository, not benchmarks/

from rich.console import Console
from rich.table import Table

from benchmarks.cpu_training import machine_facts
from benchmarks.page import conditions, put, stored_parser
from data_tools.text.workers import available_cores
from launch.errors import UserError
from launch.guard import guarded
from launch.reporting.markdown import markdown

RESULTS = ROOT / "benchmarks" / "results" / "tokenizing.json"
WORKER = ROOT / "benchmarks" / "tokenizing_worker.py"
HEADINGS = ("tokenizer", "", "MB/s", "documents/s", "MB/s per core", "of bare", "ours is")
ROWS = {
    "bare": "the bare library",
    "ours": "data_tools.tokenize",
    "megatron": "Megatron-LM's loop",
    "paddlenlp": "PaddleNLP's loop",
}
KINDS = {"sentencepiece": tuple(ROWS), "tokenizer.json": ("bare", "ours", "megatron")}
BAR, PEER_BAR, SLOW_PEER = 0.8, 3.0, 0.25
VOCABULARY = 8000


def write_text(path: Path, megabytes: float) -> None:
    """Write JSON lines of English code and Chinese in turn.

    No text begins or ends with a space: PaddleNLP's loop strips.
    """
    import sysconfig

    from data_tools.stdlib_corpus import modules

    source = random.Random(0)
    sources = [text for _, text in modules(sysconfig.get_path("stdlib"), heldout=False)]
    words, weights = chinese_words()
    size = 0
    with open(path, "w", encoding="utf-8") as file:
        while size < megabytes * 1e6:
            length = source.randrange(200, 6000)
            whole = source.choice(sources)
            start = source.randrange(max(1, len(whole) - length))
            chinese = "".join(source.choices(words, weights, k=length // 2))
            for text in (whole[start : start + length].strip(), chinese.strip()):
                if text:
                    line = json.dumps({"text": text}, ensure_ascii=False) + "\n"
                    file.write(line)
                    size += len(line.encode())


def chinese_words() -> tuple[list[str], list[int]]:
    """Return Chinese words and their weights."""
    import jieba

    lines = Path(jieba.__file__).with_name("dict.txt").read_text(encoding="utf-8").splitlines()
    entries = [line.split(" ")[:2] for line in lines]
    words, weights = [word for word, _ in entries], [int(count) for _, count in entries]
    return [*words, "，", "。\n"], [*weights, sum(weights) // 12, sum(weights) // 25]


def make_tokenizers(text: Path, folder: Path) -> dict[str, Path]:
    """Return a directory with a tokenizer of each kind."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    from data_tools.text.sources import read_documents
    from data_tools.tokenizer import save_tokenizer, train_tokenizer

    texts = [document.text for document in read_documents([str(text)])][:3000]
    directories = {kind: folder / kind for kind in KINDS}
    save_tokenizer(directories["sentencepiece"], train_tokenizer(texts, VOCABULARY))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    directories["tokenizer.json"].mkdir()
    tokenizer.save(str(directories["tokenizer.json"] / "tokenizer.json"))
    (directories["tokenizer.json"] / "tokenizer_config.json").write_text('{"eos_token": "<|endoftext|>"}')
    return directories


def turn(row: str, kind: str, text: Path, directory: Path, folder: Path, workers: int) -> dict:
    """Return one run of a row.

    Raises:
        UserError: If it fails.
    """
    output = folder / "output" / f"{kind}-{row}"
    output.parent.mkdir(exist_ok=True)
    job = {
        "row": row, "input": str(text), "tokenizer": str(directory), "output": str(output), "workers": workers,
    }  # fmt: skip
    done = subprocess.run([sys.executable, "-W", "ignore", WORKER, json.dumps(job)], capture_output=True, text=True)
    if done.returncode:
        raise UserError(f"{kind}, {row}: {WORKER} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def measure(megabytes: float, workers: int, rounds: int, console: Console) -> dict:
    """Return {"bytes", "documents", "turns": {kind: {row: [a turn of each round]}}}."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = folder / "text.jsonl"
        write_text(text, megabytes)
        directories = make_tokenizers(text, folder)
        turns = {kind: {row: [] for row in rows} for kind, rows in KINDS.items()}
        for number in range(rounds):
            for kind, rows in KINDS.items():
                for row in rows:
                    console.print(f"round {number + 1} of {rounds}: {kind}, {ROWS[row]}")
                    turns[kind][row].append(turn(row, kind, text, directories[kind], folder, workers))
        with open(text, "rb") as lines:
            return {"bytes": text.stat().st_size, "documents": sum(1 for _ in lines), "turns": turns}


def of_bare(turns: dict[str, list[dict]], row: str) -> float:
    """Return the row's speed against the bare library's, by CPU seconds: the median over the rounds."""
    return median(bare["cpu_seconds"] / one["cpu_seconds"] for bare, one in zip(turns["bare"], turns[row], strict=True))


def lines(report: dict) -> list[tuple[str, ...]]:
    """Return the lines of the table, without its headings."""
    found = []
    for kind, turns in report["turns"].items():
        for row, times in turns.items():
            wall = median(turn["seconds"] for turn in times)
            cpu = median(turn["cpu_seconds"] for turn in times)
            ratio = of_bare(turns, "ours") / of_bare(turns, row)
            found.append((
                kind, ROWS[row], f"{report['bytes'] / 1e6 / wall:.2f}", f"{report['documents'] / wall:,.0f}",
                f"{report['bytes'] / 1e6 / cpu:.2f}", f"{of_bare(turns, row):.0%}",
                "" if row == "ours" else f"{ratio:.2f} x",
            ))  # fmt: skip
    return found


def table(report: dict) -> Table:
    """Return the table for the terminal."""
    documents = f"{report['documents']:,} documents"
    shown = Table(title=f"{report['bytes'] / 1e6:.0f} MB, {documents}, {report['workers']} processes")
    for heading in HEADINGS:
        shown.add_column(heading, justify="left" if heading in ("tokenizer", "") else "right", overflow="fold")
    for line in lines(report):
        shown.add_row(*line)
    return shown


def page(report: dict) -> str:
    """Return the page of a report."""
    return f"{markdown(HEADINGS, lines(report), range(2, len(HEADINGS)))}\n\n{conditions(report)}"


def check(report: dict) -> list[str]:
    """Return where the results miss the bars."""
    short = []
    for kind, turns in report["turns"].items():
        hashes = {turn["sha256"] for times in turns.values() for turn in times}
        if len(hashes) > 1:
            short.append(f"{kind}: the rows' ids differ")
        if of_bare(turns, "ours") < BAR:
            short.append(f"{kind}: ours is {of_bare(turns, 'ours'):.0%} of the bare library, bar {BAR:.0%}")
        for row in set(turns) - {"bare", "ours"}:
            ratio = of_bare(turns, "ours") / of_bare(turns, row)
            if of_bare(turns, row) < SLOW_PEER and ratio < PEER_BAR:
                short.append(f"{kind}: ours is {ratio:.2f} x {ROWS[row]}, bar {PEER_BAR} x")
    return short


def main(argv: list[str]) -> None:
    """Run the command."""
    parser = stored_parser(__doc__)
    parser.add_argument("--workers", type=int, default=available_cores(), help="processes of each row")
    parser.add_argument("--megabytes", type=float, default=40, help="size of the text")
    parser.add_argument("--rounds", type=int, default=5, help="turns that each row gets")
    args = parser.parse_args(argv)
    if args.markdown:
        return put("tokenizing", "data", page(json.loads(RESULTS.read_text())))
    report = {
        "command": shlex.join(["python", "benchmarks/tokenizing.py", *argv]),
        "date": datetime.date.today().isoformat(),
        "machine": machine_facts(args.workers),
        "versions": {
            "Python": platform.python_version(),
            **{name: version(name) for name in ("sentencepiece", "tokenizers", "numpy", "paddlenlp")},
        },
        "workers": args.workers,
        **measure(args.megabytes, args.workers, args.rounds, Console(stderr=True)),
    }
    if args.output:
        args.output.write_text(json.dumps(report, indent=1) + "\n")
    console = Console(soft_wrap=True)
    console.print(table(report))
    console.print(conditions(report), highlight=False)
    console.print(report["command"], highlight=False)
    if short := check(report):
        raise UserError("; ".join(short))


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))
