"""The commands as a user runs them: text to a verified corpus, and mistakes on the way."""

import hashlib
import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from data_tools.formats.errors import DataError
from data_tools.formats.tokens.indexed import IndexedDataset
from data_tools.stdlib_corpus import write_corpus
from data_tools.text.encoders import load_encoder
from data_tools.tokenize import tokenize_files
from data_tools.verify import compare_with_source
from tests.data_tools.conftest import ROOT, run_module

COMMANDS = (
    "stdlib_corpus", "clean", "tokenizer", "tokenize", "verify", "inspect", "merge", "split", "blend", "sft",
    "preference",
)  # fmt: skip


@pytest.fixture
def corpus(text, tokenizer_dir, tmp_path):
    prefix = tmp_path / "corpus"
    tokenize_files([str(text / "train.jsonl")], tokenizer_dir, prefix, workers=0)
    return prefix


def test_from_the_standard_library_to_a_verified_corpus(tmp_path):
    text, tokenizer, prefix = tmp_path / "text", tmp_path / "tokenizer", tmp_path / "data" / "corpus"
    steps = [
        run_module("stdlib_corpus", "--output", text, "--max_mb", 0.3),
        run_module("tokenizer", "--input", text / "train.jsonl", "--output", tokenizer, "--vocab_size", 800),
        run_module("tokenize", "--input", text / "train.jsonl", "--tokenizer", tokenizer, "--output", prefix),
        run_module("verify", prefix, "--tokenizer", tokenizer, "--against", text / "train.jsonl"),
    ]
    assert [(step.returncode, step.stderr) for step in steps if step is not steps[1]] == [(0, "")] * 3
    assert steps[1].returncode == 0
    documents = len((text / "train.jsonl").read_bytes().splitlines())
    tokens = IndexedDataset(prefix).tokens.size
    sha256 = hashlib.sha256(Path(f"{prefix}.bin").read_bytes()).hexdigest()
    assert steps[3].stdout.splitlines() == [
        f"✓ {prefix}: {documents} documents, {tokens:,} tokens, uint16",
        f"✓ SHA-256 of the .bin {sha256}, as when it was written",
        f"✓ every id is below 800; the largest is {IndexedDataset(prefix).largest_id()}",
        "✓ every document decodes to its source, 1 file(s)",
    ]


def test_the_standard_library_split(tmp_path):
    root = os.path.dirname(json.__path__[0])
    written = write_corpus(tmp_path / "all", root)
    (_, train_bytes), (_, heldout_bytes) = written.values()
    assert train_bytes >= 5e6
    assert 0.2e6 < heldout_bytes < 0.1 * train_bytes
    write_corpus(tmp_path / "small", root, max_mb=0.5)
    write_corpus(tmp_path / "again", root, max_mb=0.5)
    modules = {}
    for name in ("train.jsonl", "heldout.jsonl"):
        content, small = ((tmp_path / folder / name).read_bytes() for folder in ("all", "small"))
        assert small == (tmp_path / "again" / name).read_bytes() and content.startswith(small)
        modules[name] = {json.loads(line)["module"] for line in content.splitlines()}
    assert not modules["train.jsonl"] & modules["heldout.jsonl"]
    everything = modules["train.jsonl"] | modules["heldout.jsonl"]
    assert {"json.decoder", "argparse", "email.message"} <= everything
    assert not any(name.startswith(("test.", "encodings.", "site-packages")) for name in everything)


def test_sources_that_are_not_utf8_or_empty_are_skipped(tmp_path):
    (tmp_path / "root" / "tests").mkdir(parents=True)
    for name, content in {"a.py": b"x = 1\n", "b.py": b"\xff", "c.py": b"", "tests/d.py": b"y = 2\n"}.items():
        (tmp_path / "root" / name).write_bytes(content)
    with pytest.raises(DataError, match="root: no Python sources for heldout.jsonl"):
        write_corpus(tmp_path, tmp_path / "root")
    assert (tmp_path / "train.jsonl").read_text() == '{"text": "x = 1\\n", "module": "a"}\n'


def test_eos_follows_each_document_and_empty_ones_are_left_out(tokenizer_dir, write_rows, tmp_path):
    file = write_rows("a.jsonl", [{"body": "one"}, {"body": ""}, {"body": "two"}])
    encoder = load_encoder(tokenizer_dir)
    for eos, end in ((True, [2]), (False, [])):
        done = tokenize_files([file], tokenizer_dir, tmp_path / "a", "body", eos, workers=0)
        dataset = IndexedDataset(tmp_path / "a")
        expected = [ids.tolist() + end for ids in encoder.encode(["one", "two"])]
        assert [ids.tolist() for ids in dataset] == expected
        assert (done.documents, done.empty, done.tokens) == (2, 1, dataset.tokens.size)
        compare_with_source(dataset, tokenizer_dir, [file], "body")
    file = write_rows("b.jsonl", [{"text": ""}])
    with pytest.raises(DataError, match="b.jsonl: no text in them, 1 empty documents"):
        tokenize_files([file], tokenizer_dir, tmp_path / "b", workers=0)
    assert [path.name for path in tmp_path.glob("b*")] == ["b.jsonl"]


def test_a_broken_line_leaves_the_earlier_corpus(command, corpus, tokenizer_dir):
    before = {path.name: path.read_bytes() for path in corpus.parent.iterdir()}
    broken = corpus.parent / "broken.jsonl"
    broken.write_text('{"text": "fine"}\n{"text": \n')
    failed = command("tokenize", "--input", broken, "--tokenizer", tokenizer_dir, "--output", corpus)
    assert (failed.returncode, failed.stdout) == (2, "")
    assert failed.stderr.startswith(f"error: {broken}:2: not JSON, ") and failed.stderr.count("\n") == 1
    broken.unlink()
    assert {path.name: path.read_bytes() for path in corpus.parent.iterdir()} == before


def test_bad_lines_up_to_a_limit(command, tokenizer_dir, tmp_path):
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"text": "one"}\n{"text": \n[]\n{"text": "two"}\n')
    arguments = ("--input", broken, "--tokenizer", tokenizer_dir, "--output", tmp_path / "a", "--max_bad_lines")
    failed = command("tokenize", *arguments, 1)
    assert f"error: {broken}:3: a JSON list" in failed.stderr and "--max_bad_lines N" in failed.stderr
    done = command("tokenize", *arguments, 2)
    assert done.returncode == 0 and "2 documents, 2 bad lines left out" in done.stdout
    reported = [line.split(": ")[:2] for line in done.stderr.splitlines()]
    assert reported == [["left out", f"{broken}:2"], ["left out", f"{broken}:3"]]
    broken.write_text('{"text": "one"}\n[]\n')
    assert "1 document, 1 bad line left out, " in command("tokenize", *arguments, 2).stdout


def test_text_from_stdin_and_a_bar_on_a_terminal(tokenizer_dir, text, corpus, tmp_path):
    main, terminal = pty.openpty()
    words = ("--input", "-", "--tokenizer", tokenizer_dir, "--output", tmp_path / "piped", "--workers", "1")
    with open(text / "train.jsonl", "rb") as stdin:
        environment = {**os.environ, "TERM": "xterm", "NO_COLOR": "1"}
        done = run_module("tokenize", *words, stdin=stdin, stderr=terminal, env=environment)
    os.close(terminal)
    shown = os.read(main, 1 << 16).decode()
    os.close(main)
    assert done.returncode == 0 and "tokenizing" in shown and "━" in shown
    assert Path(f"{tmp_path}/piped.bin").read_bytes() == Path(f"{corpus}.bin").read_bytes()


def test_verify_finds_other_ids_and_another_text(command, corpus, tokenizer_dir, text, tmp_path):
    failed = command("verify", corpus, "--vocab_size", 500)
    assert failed.returncode == 2
    assert failed.stderr.startswith(f"error: {corpus}.bin: token id ") and "the ids 0 to 499" in failed.stderr
    lines = (text / "train.jsonl").read_bytes().splitlines(keepends=True)

    def compare(changed):
        (tmp_path / "other.jsonl").write_bytes(b"".join(changed))
        compare_with_source(IndexedDataset(corpus), tokenizer_dir, [str(tmp_path / "other.jsonl")])

    compare(lines)
    changed = json.loads(lines[3])
    changed["text"] = changed["text"][:100] + "X" + changed["text"][101:]
    with pytest.raises(DataError, match=r"document 3: decodes to .* at character 100, but .*other.jsonl:4 has 'X"):
        compare([*lines[:3], json.dumps(changed).encode() + b"\n", *lines[4:]])
    with pytest.raises(DataError, match=rf"has {len(lines)} documents, its source only {len(lines) - 1}"):
        compare(lines[:-1])
    with pytest.raises(DataError, match=rf"its source has more: .*other.jsonl:{len(lines) + 1} is not in it"):
        compare([*lines, lines[0]])


def test_help(command):
    for name in COMMANDS:
        shown = command(name, "--help")
        assert (shown.returncode, shown.stderr) == (0, "") and f"python -m data_tools.{name}" in shown.stdout, name


@pytest.mark.parametrize(
    "words, message",
    [
        ("verify x --vocab_siz 3", "unknown argument --vocab_siz, did you mean --vocab_size?"),
        ("verify x --vocab_siz=3", "unknown argument --vocab_siz, did you mean --vocab_size?"),
        ("tokenize --tokenizr tok", "unknown argument --tokenizr, did you mean --tokenizer?"),
        ("tokenize -- --tokenizer", "the following arguments are required: --input, --tokenizer, --output"),
        ("tokenize --input x.jsonl", "the following arguments are required: --tokenizer, --output"),
        ("verify x", "x.idx is missing"),
        ("verify x --against y", "--against needs --tokenizer"),
        ("tokenizer --input x.txt --output y --vocab_size 9", "x.txt is not a file"),
        ("clean --input x.jsonl --output y", "no rule is given: at least one of --min_chars"),
        ("clean --input x.jsonl --output y --near 1.5", "--near 1.5: a similarity above 0"),
        ("clean --input - --output . --exact", "cannot write .: it is a folder. Name a file."),
        (
            "clean --input - --output y.jsonl.gz --exact",
            "cannot write y.jsonl.gz: files are written unpacked. Name one",
        ),
        (
            "clean --input - --output /dev/null --exact",
            "cannot write /dev/null: it is a pipe or a device. Name a file.",
        ),
        (
            "clean --input - --output y --dropped ./y --exact",
            "--output and --dropped: found y for both, name two files",
        ),
        ("stdlib_corpus --output /dev/null/x", "cannot write /dev/null/x/train.jsonl: Not a directory"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(command, words, message):
    failed = command(*words.split())
    assert (failed.returncode, failed.stdout) == (2, "")
    assert failed.stderr.startswith(f"error: {message}") and failed.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("tokenize --workers 0 --tokenizer TOKENIZER --output", "the same command goes on"),
        ("tokenize --workers 0 --restart --tokenizer TOKENIZER --output", "the same command without --restart goes on"),
        ("clean --exact --output", "nothing unfinished was left behind; the same command begins anew"),
    ],
)
def test_after_ctrl_c_it_is_said_what_is_left(tokenizer_dir, tmp_path, words, said):
    output = tmp_path / "out" / "corpus"
    words = words.replace("TOKENIZER", str(tokenizer_dir)).split()
    process = subprocess.Popen(
        [sys.executable, "-m", f"data_tools.{words[0]}", *words[1:], str(output), "--input", "-"],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    process.stdin.write(b'{"text": "a text"}\n' * 20_000)  # returns when most of it has been read
    process.stdin.flush()
    process.send_signal(signal.SIGINT)
    stderr = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 130 and stderr.splitlines()[-1] == f"interrupted: {said}"
    left = {path.name for path in output.parent.iterdir()}
    unfinished = {"corpus.bin.partial", "corpus.sizes.partial", "corpus.progress.json"}
    assert left <= (unfinished if "tokenize" in words else set())


def test_names_and_numbers_are_not_cut_in_tables(command, corpus, tmp_path, monkeypatch):
    """Nor is what stands in brackets taken for a colour."""
    monkeypatch.setenv("COLUMNS", "80")
    folder = tmp_path / "[red]" / ("a-long-name-of-a-folder-" * 3)
    folder.mkdir(parents=True)
    for suffix in (".bin", ".idx"):
        os.link(f"{corpus}{suffix}", folder / f"english{suffix}")
    words = ("0.5", folder / "english", "0.5", corpus, "--sequence_length", "64", "--tokens", "123456789e3")
    done = command("blend", *words)
    table = [line for line in done.stdout.splitlines() if line.startswith("│")]
    columns = [
        "".join(cell.strip(" │") for cell in column)
        for column in zip(*(row[1:-1].split("│") for row in table), strict=True)
    ]
    assert (done.returncode, done.stderr) == (0, "") and max(map(len, table)) <= 80
    assert columns[0] == f"{folder / 'english'}{corpus}"
    assert columns[4] == "61,728,394,496" * 2
