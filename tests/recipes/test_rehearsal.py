"""Rehearsals of pretraining recipes: ranks that train together in the recipe's layout; and what is refused before."""

import json
import math
import re

import pytest

from launch.reporting.records import read_summary, read_train_log
from tests.recipes.machine import Machine
from tests.recipes.rehearsing import rehearse

LAYOUTS = {  # the number of processes, their layout, the degrees that are not 1
    "pretrain-tiny": (2, "sharding stage2 2", {"sharding": 2}),
    "pretrain-llama7b": (8, "sharding stage2 8", {"sharding": 8}),
    "pretrain-llama7b-4d": (
        8,
        "sharding stage1 2, tensor and sequence parallel 2, pipeline parallel 2",
        {"sharding": 2, "tensor": 2, "pipeline": 2},
    ),
}


@pytest.mark.parametrize(
    "target", [pytest.param(one, marks=[pytest.mark.long] * (LAYOUTS[one][0] > 2)) for one in LAYOUTS]
)
def test_a_rehearsal(rehearsals, target):
    rehearsed = rehearsals(target)
    processes, layout, degrees = LAYOUTS[target]
    said = rehearsed.done.stdout
    assert f"rehearsing {target}: {processes} processes on the CPU" in said
    assert re.search(r"^  --max_steps \d+ -> 20  \(a minute or so\)$", said, re.M)
    changed = "  --fp16_opt_level O2 -> O1  (fp32, but for fp16's loss scale: the CPU" in said
    assert changed == (target != "pretrain-tiny")
    assert f", {processes} processes ({layout})" in said
    degrees = {"data": 1, "sharding": 1, "tensor": 1, "pipeline": 1} | degrees
    topology = {f"{kind}_parallel_degree": degree for kind, degree in degrees.items()}
    assert read_summary(rehearsed.output)["topology"] == {"processes": processes} | topology
    logs = sorted(path.name for path in (rehearsed.directory / "log").iterdir())
    assert logs == [f"workerlog.{rank}" for rank in range(processes)]
    steps = [record for record in read_train_log(rehearsed.output) if "loss" in record]
    assert [record["global_step"] for record in steps] == list(range(1, 21))
    # ln V + h sigma^2 / 2 = 6.944, within the spread of text.
    assert steps[0]["loss"] == pytest.approx(math.log(1024) + 64 * 0.02**2 / 2, rel=0.03)
    assert said.splitlines()[-1].endswith(f"; the real run: make {target} OUTPUT={rehearsed.directory}")


@pytest.mark.parametrize(
    ("recipe", "data", "told"),
    [
        ("llama-7b/lora", "rows", r"✗ data +2 broken rows, .*rows/train.json:2: no key 'tgt', only src"),
        ("llama-7b/instruct", "chats", r"✗ --chat_template +.*mine.jinja: it says: no"),
        ("llama-7b/pretrain", "cut", "✗ data +cut/corpus.idx is truncated"),
    ],
)
def test_your_data_are_checked_though_it_trains_on_its_own(tmp_path, recipe, data, told):
    machine = Machine(tmp_path)
    for name in ("rows", "chats", "cut"):
        (machine.folder / name).mkdir()
    pair = {"src": "Q", "tgt": "A"}
    chat = {"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}]}
    for name, rows in (("rows", [pair, {"src": "Q"}]), ("chats", [chat])):
        for split in ("train", "dev"):
            (machine.folder / name / f"{split}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (machine.folder / "cut" / "corpus.idx").write_bytes(b"MMIDIDX\0\0")
    (machine.folder / "cut" / "corpus.bin").touch()
    (machine.folder / "mine.jinja").write_text("{{ raise_exception('no') }}")
    template = ("--chat_template", "mine.jinja") if data == "chats" else ()
    done = machine.run(recipe, *template, ACTION="rehearse", DATA=data)
    assert done.returncode == 2 and done.stdout == ""
    assert re.search(told, " ".join(done.stderr.split())), done.stderr
    assert "cannot start with these data: 1 of " in done.stderr


def test_flag_at_fault_is_told_before_anything_starts(tmp_path):
    done = rehearse("pretrain-llama7b", tmp_path, "--max_steps", "many", "--sharding_stage", "2").done
    assert done.returncode == 2
    assert "✗ --max_steps" in done.stderr and "✗ --sharding_stage" in done.stderr
    assert done.stderr.endswith("error: pretrain-llama7b cannot be rehearsed with these flags.\n")
    assert done.stdout == ""
