"""Two nodes for real: two launchers of Paddle's on this machine, each started by a recipe with its own RANK."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from launch.checkpoint.continuation import newest_whole
from launch.checkpoint.manifest import checkpoints, read_manifest
from launch.commands import ledger
from launch.config.flag_values import flag_arguments
from launch.reporting.records import read_train_log
from tests.nodes.test_recipe import end
from tests.nodes.two_nodes import FIRST, free_port, start_node
from tests.processes.waiting import wait_for
from tests.recipes import machine
from tests.recipes.machine import ROOT
from tests.recipes.test_rendered import printed_flags

RECIPE = ROOT / "recipes" / "tiny" / "pretrain.sh"
TOLERANCE = 2e-6  # as of every layout (tests/distributed/parity.py)
STEPS = 64  # of which a node that is killed after its first checkpoint, of step 8, has made a part


@pytest.fixture
def material(runs) -> Path:
    return runs.material


def flags(material: Path, output: Path) -> list[str]:
    changed = {
        "model_name_or_path": material / "model",
        "continue_training": 1,
        "input_dir": material / "corpus",
        "output_dir": output,
        "split": "13,7,0",
        "max_seq_length": 32,
        "max_steps": 4,
        "logging_steps": 1,
        "cpu_fast": "off",
        "do_eval": 0,
        "report_to": "none",
    }
    return [word for name, value in changed.items() for word in (f"--{name}", str(value))]


def environment(**variables: str) -> dict[str, str]:
    return machine.environment(OMP_NUM_THREADS="1", PROCESSES="1", NNODES="2") | variables


def losses(output: Path) -> list[float]:
    return [record["loss"] for record in read_train_log(output) if "loss" in record]


def words_on_one_node(argv: list[str]) -> list[str]:
    """The flags of the same recipe with two processes here."""
    printed = subprocess.run(
        ["bash", RECIPE, *argv],
        env=environment(NNODES="1", PROCESSES="2", ACTION="print"),
        capture_output=True,
        text=True,
        check=True,
    )
    return flag_arguments(printed_flags(printed.stdout.replace("\\\n", " ").split()))


def losses_on_one_node(ranks, material: Path, tmp_path: Path) -> list[float]:
    output = tmp_path / "one"
    argv = words_on_one_node(flags(material, output))
    for said in ranks(2, "tests.training.run_ranks:pretrain", argv):
        assert said["exit_code"] == 0, said["stderr"]
    return losses(output)


@pytest.mark.long
def test_two_launchers_train_as_one_node_does(ranks, material, tmp_path):
    output = tmp_path / "two"
    variables = environment(MASTER=f"{FIRST}:{free_port()}", RENDEZVOUS_MINUTES="2")
    nodes = [start_node(rank, RECIPE, tmp_path, variables, *flags(material, output)) for rank in (0, 1)]
    (code, out, err), (second_code, _, second_err) = end(*nodes)
    assert (code, second_code) == (0, 0), err + second_err
    assert f"network: node 0 {FIRST} (lo), node 1 127.0.0.1 (lo); " in out
    assert "all-reduce: 64 MiB over 2 ranks in " in out
    assert losses(output) == pytest.approx(losses_on_one_node(ranks, material, tmp_path), abs=TOLERANCE)
    assert sorted(path.name for path in (output / "log").iterdir()) == ["node-0", "node-1"]


@pytest.fixture
def namespaces():
    """Two network namespaces with a cable between them, 10.77.0.1 and 10.77.0.2; skipped where not allowed."""
    if not shutil.which("ip"):
        pytest.skip("no `ip` here (package iproute2)")
    names = [f"recipes-{os.getpid()}-{rank}" for rank in (0, 1)]
    cable = ["link", "add", "cable0", "netns", names[0], "type", "veth", "peer", "name", "cable1", "netns", names[1]]
    commands = [["netns", "add", name] for name in names] + [cable]
    for rank, name in enumerate(names):
        commands += [
            ["-n", name, "addr", "add", f"10.77.0.{rank + 1}/24", "dev", f"cable{rank}"],
            ["-n", name, "link", "set", f"cable{rank}", "up"],
            ["-n", name, "link", "set", "lo", "up"],
        ]
    try:
        for command in commands:
            done = subprocess.run(["ip", *command], capture_output=True, text=True)
            if done.returncode:
                pytest.skip(f"network namespaces are not allowed here: ip {' '.join(command)}: {done.stderr.strip()}")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=60)


def start_inside(namespace: str, rank: int, folder: Path, argv: list[str], **variables: str) -> subprocess.Popen:
    """The recipe of a node."""
    inside = environment(MASTER="10.77.0.1:8090", RENDEZVOUS_MINUTES="2", RANK=str(rank)) | variables
    return subprocess.Popen(
        ["ip", "netns", "exec", namespace, "bash", RECIPE, *argv],
        cwd=folder,
        env=inside,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.long
def test_two_network_namespaces_train_as_one_node_does(ranks, material, tmp_path, namespaces):
    """The nodes share no interface, not even loopback: every address that is used must be one that leads there."""
    output = tmp_path / "two"
    nodes = [start_inside(name, rank, tmp_path, flags(material, output)) for rank, name in enumerate(namespaces)]
    (code, out, err), (second_code, _, second_err) = end(*nodes)
    assert (code, second_code) == (0, 0), err + second_err
    assert "network: node 0 10.77.0.1 (cable0), node 1 10.77.0.2 (cable1); " in out
    assert [line for line in out.splitlines() if "warning" in line and "reads each sample" not in line] == []
    assert losses(output) == pytest.approx(losses_on_one_node(ranks, material, tmp_path), abs=TOLERANCE)


def kill_all_of(node: subprocess.Popen) -> None:
    """As when a machine loses power, but that the kernel closes its connections."""
    above = psutil.Process(node.pid)
    processes = [above, *above.children(recursive=True)]
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for process in processes:
            process.send_signal(number)
    node.communicate()


@pytest.mark.nightly
def test_one_node_goes_on_where_another_was_killed(material, tmp_path, namespaces, capsys):
    """To the bit of a run by hand: one process, with flags of its own, in a copy of what the kill has left."""
    output, by_hand = tmp_path / "two", tmp_path / "by-hand"
    argv = [*flags(material, output), "--max_steps", str(STEPS), "--save_steps", "8"]
    first, second = (start_inside(name, rank, tmp_path, argv) for rank, name in enumerate(namespaces))
    wait_for(lambda: bool(checkpoints(output)) or first.poll() is not None)
    kill_all_of(second)
    ((code, _, err),) = end(first)
    assert code == 1 and "\nnode 1 is gone (closed by the other side)" in err, err
    shutil.copytree(output, by_hand)
    left = newest_whole(by_hand)
    assert 0 < read_manifest(left).global_step < STEPS

    again = start_inside(namespaces[0], 0, tmp_path, argv, NNODES="1")
    typed = ["--output_dir", by_hand, "--resume_from_checkpoint", left, "--gradient_accumulation_steps", "2"]
    command = [sys.executable, ROOT / "launch" / "run_pretrain.py", *words_on_one_node(argv), *typed]
    assert subprocess.run(command, env=environment(), capture_output=True).returncode == 0
    ((code, out, err),) = end(again)
    assert code == 0, err
    assert [record["global_step"] for record in read_train_log(output) if "loss" in record] == [*range(1, STEPS + 1)]
    assert losses(output) == losses(by_hand)
    last, last_by_hand = (read_manifest(folder / f"checkpoint-{STEPS}") for folder in (output, by_hand))
    assert last.files == last_by_hand.files
    assert ledger.main([str(output)]) == 0
    assert "2 data ranks" in (told := capsys.readouterr().out) and "1 data rank\n" in told and "each once" in told


@pytest.mark.long
def test_a_launcher_typed_by_hand_meets_and_refuses(material, tmp_path):
    """Without recipe and make: the ranks themselves compare their nodes, before they import Paddle."""
    script = ROOT / "launch" / "run_pretrain.py"
    port = free_port()
    nodes = []
    for rank in (0, 1):
        launcher = [sys.executable, "-W", "ignore", "-m", "paddle.distributed.launch", "--nproc_per_node", "1"]
        several = ["--nnodes", "2", "--rank", str(rank), "--master", f"{FIRST}:{port}", "--host", FIRST]
        own = ["--seed", str(rank), "--device", "cpu"]
        log = ["--log_dir", str(tmp_path / f"log{rank}")]
        command = [*launcher, *several, *log, script, *flags(material, tmp_path / "out"), *own]
        nodes.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    for rank, (code, _, _) in enumerate(end(*nodes)):
        assert code == 2
        log = (tmp_path / f"log{rank}" / "workerlog.0").read_text()
        assert f"  --seed: 0 on rank 0 of node 0 ({FIRST}); 1 on rank 1 of node 1 ({FIRST})\n" in log
