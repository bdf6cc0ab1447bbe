"""Killed at every single step of its work on disk, then started again: the same bytes, and nothing left over."""

import contextlib
import itertools
import json
import multiprocessing
import os
import resource
import signal
from pathlib import Path

import numpy as np
import pytest

from data_tools import tokenize
from data_tools.formats.errors import DataError
from data_tools.formats.tokens import resumable
from data_tools.formats.tokens.indexed import IndexedDataset
from data_tools.formats.tokens.resumable import ResumableWriter
from data_tools.text import blocks
from data_tools.tokenize import tokenize_files
from tests.data_tools.dying import contents, die_at, forked


@pytest.fixture(autouse=True)
def small_steps(monkeypatch):
    """Blocks of a few lines, each committed."""
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 1500)
    monkeypatch.setattr(tokenize, "SECONDS_BETWEEN_COMMITS", 0.0)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # no power cut here, and it takes time


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "texts.jsonl"
    lines = [json.dumps({"text": f"document {i} " + "word " * (i * 7 % 40)}) for i in range(60)]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.fixture
def undisturbed(texts, tokenizer_dir, tmp_path):
    """The files of the corpus that no crash has met, by suffix."""
    tokenize_files([texts], tokenizer_dir, tmp_path / "undisturbed" / "a", workers=0)
    return contents(tmp_path / "undisturbed")


def tokenize_and_die(step: int, texts: str, tokenizer_dir, prefix: Path, workers: int) -> None:
    """Tokenize; the `step`-th call that changes something on disk is done by half and kills the process."""
    write = resumable.write_all
    die_at(
        step,
        (resumable, "write_all"),
        *((os, name) for name in ("fsync", "replace", "ftruncate")),
        (Path, "unlink"),
        before={"write_all": lambda file, content: write(file, memoryview(content)[: len(content) // 2])},
    )
    tokenize_files([texts], tokenizer_dir, prefix, workers=workers)


@pytest.mark.parametrize("stride", [9, pytest.param(1, marks=pytest.mark.long)])
def test_killed_at_every_step(texts, tokenizer_dir, tmp_path, undisturbed, stride):
    """Also after a first and second crash in a row, with another number of workers each time."""
    for step in itertools.count(1, stride):
        prefix = tmp_path / f"killed{step}" / "a"
        arguments = (texts, tokenizer_dir, prefix)
        exit_code = forked(tokenize_and_die, step, *arguments, 0)
        if exit_code == 0:
            break
        assert exit_code == -signal.SIGKILL
        forked(tokenize_and_die, step // 2 + 3, *arguments, 0)
        tokenize_files([texts], tokenizer_dir, prefix, workers=step % 3)
        assert contents(prefix.parent) == undisturbed, f"killed at step {step}"
    assert step > 40


def test_killed_again_and_again_with_workers(texts, tokenizer_dir, tmp_path, undisturbed):
    """Each time some steps further, until a run gets through."""
    prefix = tmp_path / "killed" / "a"
    exit_codes = []
    while not exit_codes or exit_codes[-1]:
        step, workers = 15 + 4 * len(exit_codes), 1 + len(exit_codes) % 2
        exit_codes.append(forked(tokenize_and_die, step, texts, tokenizer_dir, prefix, workers))
    assert len(exit_codes) > 3 and set(exit_codes[:-1]) == {-signal.SIGKILL}
    assert contents(prefix.parent) == undisturbed


def test_what_is_done_is_not_done_again(texts, tokenizer_dir, tmp_path, undisturbed, monkeypatch, capsys):
    prefix = tmp_path / "a" / "a"
    encoded = []
    original = tokenize.block_encoder

    def interrupted_after(limit):
        def make(*args):
            encode = original(*args)

            def counting(block):
                if len(encoded) == limit:
                    raise KeyboardInterrupt
                encoded.append(block.line)
                return encode(block)

            return counting

        monkeypatch.setattr(tokenize, "block_encoder", make)

    for limit in (2, 4, 1000):
        interrupted_after(limit)
        with contextlib.suppress(KeyboardInterrupt):
            done = tokenize_files([texts], tokenizer_dir, prefix, workers=0)
    assert done.input_bytes == os.path.getsize(texts)
    assert encoded == sorted(set(encoded))
    assert "going on after " in capsys.readouterr().err
    assert contents(prefix.parent) == undisturbed


def interrupt(texts: str, tokenizer_dir, prefix: Path) -> None:
    assert forked(tokenize_and_die, 30, texts, tokenizer_dir, prefix, 0) == -signal.SIGKILL


def test_unfinished_work_on_other_input_is_not_mixed_in(write, texts, tokenizer_dir, tmp_path, undisturbed):
    prefix = Path(write("a/a", [[1, 2, 3]]))
    interrupt(texts, tokenizer_dir, prefix)
    assert IndexedDataset(prefix)[0].tolist() == [1, 2, 3], "the earlier corpus stays until the end"
    before = contents(prefix.parent)
    with pytest.raises(DataError, match="unfinished work of .* made with other eos. .*--restart"):
        tokenize_files([texts], tokenizer_dir, prefix, eos=False, workers=0)
    os.utime(texts, (1, 1))
    with pytest.raises(DataError, match="made with other input"):
        tokenize_files([texts], tokenizer_dir, prefix, workers=0)
    assert contents(prefix.parent) == before
    tokenize_files([texts], tokenizer_dir, prefix, workers=0, restart=True)
    assert contents(prefix.parent) == undisturbed


def test_a_record_without_a_checksum_is_refused(texts, tokenizer_dir, tmp_path):
    """Damage may have taken the checksum and changed another key besides."""
    prefix = tmp_path / "a" / "a"
    interrupt(texts, tokenizer_dir, prefix)
    path = Path(f"{prefix}.progress.json")
    record = json.loads(path.read_text())
    del record["record_sha256"]
    path.write_text(json.dumps(record))
    with pytest.raises(DataError, match="a.progress.json is damaged, or .* Begin anew: --restart"):
        tokenize_files([texts], tokenizer_dir, prefix, workers=0)


def test_a_second_process_is_refused(texts, tokenizer_dir, tmp_path):
    with ResumableWriter(tmp_path / "a", np.uint16, {"input": "x"}):
        with pytest.raises(DataError, match="another process is writing it"):
            tokenize_files([texts], tokenizer_dir, tmp_path / "a", workers=0)
    tokenize_files([texts], tokenizer_dir, tmp_path / "a", workers=0)


def tokenize_with_little_room(texts, tokenizer_dir, prefix, size, queue) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))  # a write beyond fails with EFBIG
    try:
        tokenize_files([texts], tokenizer_dir, prefix, workers=0)
    except DataError as error:
        queue.put(str(error))


@pytest.mark.parametrize(
    "words, size, kept",
    [
        ("a text of a few words, and a few more", 60, "nothing is kept"),
        ("a text of a few words, and a few more", 3000, "is kept: "),
        ("x", 3000, "is kept: 200 documents, "),  # the .idx is the largest file
    ],
)
def test_a_full_disk(tokenizer_dir, tmp_path, words, size, kept):
    """Full at once; in the middle; at the end, where the .idx is written."""
    texts = tmp_path / "texts.jsonl"
    texts.write_text(f'{{"text": "{words}"}}\n' * 200)
    tokenize_files([texts], tokenizer_dir, tmp_path / "roomy" / "a", workers=0)
    prefix = tmp_path / "full" / "a"
    queue = multiprocessing.get_context("fork").SimpleQueue()
    assert forked(tokenize_with_little_room, texts, tokenizer_dir, prefix, size, queue) == 0
    message = queue.get()
    assert message.startswith(f"no room for {prefix}.bin (File too large): ")
    assert kept in message and "give the same command again" in message
    tokenize_files([texts], tokenizer_dir, prefix, workers=2)
    assert contents(prefix.parent) == contents(tmp_path / "roomy")
