"""The bytes that checkpoints will take: by their formula, as saved, and against the free space; and the point where
several nodes meet."""

import re
import socket

import pytest

from launch.checkpoint.continuation import Continuation
from launch.config.flag_values import FlagValues
from launch.config.run_config import ONE_NODE, Nodes, RunConfig
from launch.families.arithmetic import ModelShape
from launch.families.named_configs import load_config
from launch.preflight import host
from launch.preflight.host import bytes_each, check_disk, check_meeting_point
from tests.preflight.test_continuation import make_checkpoint
from tests.training.run_ranks import make_corpus

FLAGS = {
    "model_name_or_path": "facebook/llama-7b",  # 6,738,415,616 parameters
    "output_dir": "out",
    "do_train": 1,
    "fp16": 1,
    "fp16_opt_level": "O2",
    "max_steps": 10000,
    "save_steps": 5000,
}


@pytest.fixture
def told(monkeypatch):
    """told(free GB, **changes of FLAGS): the findings."""

    def check(free_gb: float, **changes) -> list[tuple[bool, str, str]]:
        monkeypatch.setattr(host, "free_bytes", lambda directory: int(free_gb * 1e9))
        stated = {name: [str(value)] for name, value in (FLAGS | changes).items()}
        run = RunConfig("launch/run_pretrain.py", stated)
        findings = check_disk(run, Continuation.of(run.flags))
        return [(one.ok, one.found, one.fix) for one in findings]

    return check


def checkpoints(count: int, gb: float = 94.3, model: float = 13.5, there: int = 0) -> str:
    """What is needed, in GB of 10^9 bytes."""
    each, more = {94.3: 94.3378, 80.9: 80.861, 13.5: 13.4768}[gb], f"; {there} more are there" if there else ""
    total = count * each + {13.5: 13.4768, 27.0: 26.9537}[model]
    return f"{total:.1f} GB needed ({count} x {gb} GB of checkpoints + {model} GB model{more})"


def test_room_against_the_arithmetic(told):
    assert checkpoints(2) == "202.2 GB needed (2 x 94.3 GB of checkpoints + 13.5 GB model)"
    assert told(203) == [(True, f"{checkpoints(2)}, 203 GB free at out", "")]
    [(ok, found, fix)] = told(200)
    assert not ok
    assert found == (
        f"{checkpoints(2)}, 200 GB free at out; a checkpoint is 6.74 billion parameters x 14 bytes "
        "(2 weight + 4 float32 copy + 8 AdamW)"
    )
    assert fix == "OUTPUT=FOLDER on a larger disk; --ignore_save_lr_and_optim 1 saves what cannot be resumed"
    [(ok, found, _)] = told(0.003, model_name_or_path="llama-rehearsal")
    assert not ok and re.match(
        r"0\.0\d+ GB needed \(2 x 0\.00\d+ GB of checkpoints .* 0\.0030 GB free at out", found
    ), found
    [(_, _, fix)] = told(1, save_steps=1000)
    assert "--save_total_limit 1 keeps one beside the one being written" in fix
    for changes in ({"do_train": 0}, {"model_name_or_path": "nowhere"}):  # nothing is saved, or known
        assert told(0, **changes) == []


@pytest.mark.parametrize(
    ("changes", "needed"),
    [
        ({"fp16": 0}, checkpoints(2, 80.9, 27.0)),
        ({"fp16": 0, "bf16": 1}, checkpoints(2)),
        ({"fp16_opt_level": "O1"}, checkpoints(2, 80.9, 27.0)),
        ({"ignore_save_lr_and_optim": 1}, checkpoints(2, 13.5)),
        ({"save_steps": 1000}, checkpoints(10)),
        ({"save_steps": 1000, "save_total_limit": 1}, checkpoints(2)),
        ({"save_steps": 1000, "save_total_limit": -1}, checkpoints(10)),
        ({"save_steps": 1000, "save_total_limit": 3}, checkpoints(4)),
        ({"save_steps": 1000, "save_total_limit": 1, "metric_for_best_model": "loss"}, checkpoints(3)),  # and the best
        ({"save_steps": 20000}, checkpoints(0)),
        ({"save_strategy": "no"}, checkpoints(0)),
    ],
)
def test_what_is_kept_at_once(told, changes, needed):
    [(ok, found, _)] = told(1000, **changes)
    assert ok and found == f"{needed}, 1,000 GB free at out"


@pytest.fixture
def output(tmp_path):
    """Of a run that was killed in the save of step 4000, with checkpoints after each 1000 steps before."""
    for step in (1000, 2000, 3000):
        make_checkpoint(tmp_path, step)
    (tmp_path / "partial-checkpoint-4000").mkdir()
    with open(tmp_path / "partial-checkpoint-4000" / "model-00001-of-00001.safetensors", "wb") as file:
        file.truncate(10**9)
    return tmp_path


@pytest.mark.parametrize(
    ("changes", "needed"),
    [
        ({}, checkpoints(1, there=3)),
        ({"max_steps": 3999}, checkpoints(0, there=3)),
        ({"max_steps": 9000}, checkpoints(6, there=3)),
        ({"max_steps": 9000, "save_total_limit": 1}, checkpoints(1, there=3)),
        ({"max_steps": 9000, "save_total_limit": 4}, checkpoints(2, there=3)),
        ({"overwrite_output_dir": 1}, checkpoints(4)),
        ({"ignore_load_lr_and_optim": 1}, checkpoints(4)),
    ],
)
def test_a_run_that_goes_on_needs_room_for_what_is_to_come(told, output, changes, needed):
    """What the kill left, 1 GB, is free space: the next start removes it."""
    [(ok, found, _)] = told(999, **{"output_dir": output, "save_steps": 1000, "max_steps": 4000} | changes)
    assert ok and found == f"{needed}, 1,000 GB free at {output}"


def test_a_run_that_goes_on_is_not_told_to_start_anew(told, output):
    [(ok, _, fix)] = told(100, output_dir=output, save_steps=1000, max_steps=5000)
    assert not ok and fix == (
        f"free space on the disk of {output}, or move {output} to a larger one and name it there by OUTPUT=; "
        "--save_total_limit 1 removes older ones as new ones are whole"
    )
    path = output / "checkpoint-2000"
    [(_, found, _)] = told(999, output_dir=output, resume_from_checkpoint=path, save_steps=1000, max_steps=4000)
    assert found.startswith(checkpoints(2, there=2))


def test_free_space_of_a_folder_to_come_is_that_of_its_disk(tmp_path):
    assert host.free_bytes(str(tmp_path / "a" / "b")) == pytest.approx(host.free_bytes(str(tmp_path)), rel=0.01)


def test_a_saved_checkpoint_has_the_bytes_of_the_formula(ranks, tmp_path):
    make_corpus(str(tmp_path / "corpus"), vocab_size=1024, largest_id=1023)
    words = (
        f"--model_name_or_path llama-rehearsal --continue_training 0 --input_dir {tmp_path}/corpus "
        f"--output_dir {tmp_path}/out --max_seq_length 32 --max_steps 1 --save_steps 1 --unified_checkpoint 1 "
        "--do_train 1 --device cpu"
    )
    [said] = ranks(1, "tests.training.run_ranks:pretrain", words.split())
    assert said["exit_code"] == 0, said["stderr"]
    saved = sum(path.stat().st_size for path in (tmp_path / "out" / "checkpoint-1").iterdir())
    parameters = ModelShape.from_config(load_config("llama-rehearsal")).parameters
    each = bytes_each(FlagValues("run_pretrain", {}), half=False)
    assert saved == pytest.approx(each * parameters, rel=0.02)


def met(master: str, rank: int = 0) -> tuple[bool, str, str]:
    """The only finding for a node of two: whether ok, what was found, the fix."""
    (finding,) = check_meeting_point(Nodes(2, rank, master, "NNODES, RANK, MASTER"))
    assert finding.subject == "nodes"
    return finding.ok, finding.found, finding.fix


def test_used_port():
    with socket.socket() as used:
        used.bind(("127.0.0.1", 0))
        used.listen()
        port = used.getsockname()[1]
        ok, found, fix = met(f"127.0.0.1:{port}")
        assert met(f"127.0.0.1:{port}", rank=1)[0], "node 0 may be waiting there already"
    assert (ok, found) == (False, f"port {port} on 127.0.0.1 is used by another process")
    assert fix.startswith("another port: MASTER=127.0.0.1:") and fix.endswith(", on all nodes")
    description = f"2, this is 0, they meet at 127.0.0.1:{port} (NNODES, RANK, MASTER)"
    assert met(f"127.0.0.1:{port}") == (True, description, "")


def test_masters_that_cannot_be_met_at():
    assert check_meeting_point(ONE_NODE) == []
    for master in ("8090", "host", "127.0.0.1:http", "127.0.0.1:99999", "http://10.0.0.1:8090"):
        ok, found, _ = met(master)
        assert (ok, found) == (False, f"MASTER: found {master!r}, expected HOST:PORT such as 10.0.0.1:8090.")
    ok, found, _ = met("no-such-host.invalid:8090", rank=1)
    assert not ok and found.startswith("MASTER: no host named 'no-such-host.invalid' is known here")
    ok, found, fix = met("192.0.2.199:8090")
    assert not ok and found.startswith("192.0.2.199 is not an address of this machine, which has ")
    assert fix == "MASTER= names the node with RANK=0, or RANK= is another"
    assert met("192.0.2.199:8090", rank=1)[0]
