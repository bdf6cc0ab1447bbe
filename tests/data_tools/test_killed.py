"""The tools that write a whole file at a time, killed at every step of their work on disk and started again."""

import importlib
import json
import os
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

from data_tools.formats.atomic import written_aside
from data_tools.formats.tokens.indexed import IndexedWriter
from tests.data_tools.dying import contents, die_at, forked

# tool: its arguments, where IN and OUT are folders
TOOLS = {
    "clean": "--input IN/texts.jsonl --output OUT/clean.jsonl --dropped OUT/dropped.jsonl --exact --workers 0",
    "merge": "IN/a IN/b --output OUT/both",
    "preference": "split --input IN/pairs.jsonl --output OUT --dev_percent 30",
    "sft": "--input IN/rows.jsonl --output OUT --dev_percent 30",
    "split": "IN/a --output OUT --shares 50,30,20",
}


@pytest.fixture(scope="module")
def material(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("in")
    texts = [{"text": f"document {number % 20} of words"} for number in range(40)]
    rows = [{"src": f"question {number}", "tgt": f"answer {number}"} for number in range(40)]
    pairs = [{"prompt": f"question {number}", "chosen": "yes", "rejected": "no"} for number in range(40)]
    for name, lines in (("texts", texts), ("rows", rows), ("pairs", pairs)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    draw = np.random.RandomState(0)
    for name in ("a", "b"):
        with IndexedWriter(folder / name, vocab_size=100) as writer:
            for _ in range(30):
                writer.add_document(draw.randint(0, 100, 20).tolist())
    return folder


def start(tool: str, material: Path, output: Path, step: int) -> int:
    """The exit code of a tool whose `step`-th change of a file's name kills it; negative: the signal."""

    def run_and_die() -> None:
        die_at(step, (os, "fsync"), (os, "replace"))
        words = TOOLS[tool].replace("IN", str(material)).replace("OUT", str(output)).split()
        sys.argv = [tool, *words]
        sys.stdout = sys.stderr = open(os.devnull, "w")
        importlib.import_module(f"data_tools.{tool}").main()

    return forked(run_and_die)


@pytest.mark.parametrize("tool", ["sft", *(pytest.param(one, marks=pytest.mark.long) for one in TOOLS if one != "sft")])
def test_what_a_kill_leaves_is_whole_and_the_next_run_completes_it(tool, material, tmp_path):
    assert start(tool, material, tmp_path / "undisturbed", step=0) == 0
    undisturbed = contents(tmp_path / "undisturbed")
    step, killed = 1, tmp_path / "killed"
    while (code := start(tool, material, killed / str(step), step)) != 0:
        assert code == -signal.SIGKILL
        left = {name: data for name, data in contents(killed / str(step)).items() if ".partial-" not in name}
        assert left.items() <= undisturbed.items(), f"killed at step {step}"
        assert start(tool, material, killed / str(step), step=0) == 0
        assert contents(killed / str(step)) == undisturbed, f"killed at step {step}"
        step += 1
    assert step > len(undisturbed)


def test_a_file_that_another_writer_is_at_work_on_stays(tmp_path):
    path = tmp_path / "a"
    (tmp_path / "a.partial-notes").write_text("mine")
    (tmp_path / "a.partial-0123456789ab").write_text("of a writer that was killed")
    with written_aside(path) as first:
        first.write(b"first")
        with written_aside(path) as second:
            second.write(b"second")
        assert path.read_bytes() == b"second"
    assert path.read_bytes() == b"first"
    assert contents(tmp_path).keys() == {"a", "a.partial-notes"}
