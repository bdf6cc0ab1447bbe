"""Three nodes for real, each in a network namespace of its own: they fail, and the run goes on with nothing lost.

The losses are those of ranks on one node that were stopped after the same steps and continued by hand.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from launch.checkpoint.checkpoint_writer import FAULT_VARIABLE
from launch.checkpoint.manifest import RUN, checkpoints, read_manifest
from launch.commands import ledger
from launch.config.flag_values import flag_words
from launch.processes.logs import KILLED
from launch.reporting.records import read_train_log
from tests.distributed.test_two_nodes import RECIPE, TOLERANCE, environment, flags
from tests.processes.waiting import gone
from tests.recipes.machine import ROOT
from tests.recipes.test_rendered import printed_flags

STEPS, SAVE_STEPS = 64, 8
# The recipe, with shorter times: what they are otherwise is tested by a clock that tests turn (tests/nodes).
SCRIPT = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from launch.nodes import membership
from launch.processes import elastic
membership.LAST_CALL_SECONDS = 1.0
membership.LOST_SECONDS = elastic.LOST_SECONDS = 8.0
from launch import recipe
from launch.guard import guarded
sys.exit(guarded(recipe.main, sys.argv[1:]))
"""


class Nodes:
    """Three namespaces, 10.78.0.1 to 10.78.0.3, each with a cable to a switch. logs: what each node has printed."""

    def __init__(self, folder: Path, material: Path, most: int = 3):
        self.folder, self.output = folder, folder / "out"
        self.name = f"recipes-{os.getpid()}"
        self.steps = STEPS
        self.flags = flags(material, self.output)
        self.processes: dict[int, subprocess.Popen] = {}
        self.logs = {number: folder / f"node{number}.txt" for number in range(most)}
        self.script = folder / "elastic_recipe.py"
        self.script.write_text(SCRIPT)

    @property
    def argv(self) -> list[str]:
        kept = ["--save_steps", str(SAVE_STEPS), "--save_total_limit", "0"]
        batch = ["--per_device_train_batch_size", "1", "--gradient_accumulation_steps", "6"]
        return [*self.flags, "--max_steps", str(self.steps), *kept, *batch]

    def build(self) -> str | None:
        """Why there are none here; None where there are."""
        if not shutil.which("ip"):
            return "no `ip` here (package iproute2)"
        switch = f"{self.name}-switch"
        commands = [["netns", "add", switch]]
        commands += [["-n", switch, "link", *words.split()] for words in ("add br0 type bridge", "set br0 up")]
        for number in self.logs:
            name, port = f"{self.name}-{number}", f"port{number}"
            pair = ["type", "veth", "peer", "name", port, "netns", switch]
            commands += [
                ["netns", "add", name],
                ["link", "add", "cable", "netns", name, *pair],
                ["-n", switch, "link", "set", port, "master", "br0", "up"],
                ["-n", name, "addr", "add", f"10.78.0.{number + 1}/24", "dev", "cable"],
                ["-n", name, "link", "set", "cable", "up"],
                ["-n", name, "link", "set", "lo", "up"],
            ]
        for command in commands:
            done = subprocess.run(["ip", *command], capture_output=True, text=True)
            if done.returncode:
                return f"network namespaces are not allowed here: ip {' '.join(command)}: {done.stderr.strip()}"
        return None

    def remove(self) -> None:
        for number in self.processes:
            self.kill(number)
        for name in [*(f"{self.name}-{number}" for number in self.logs), f"{self.name}-switch"]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=60)

    def start(self, *numbers: int, **variables: str) -> None:
        for number in numbers:
            inside = environment(RENDEZVOUS_MINUTES="2", RANK=str(number), MASTER="10.78.0.1:8090", ELASTIC="2:3")
            del inside["NNODES"]
            command = ["ip", "netns", "exec", f"{self.name}-{number}", sys.executable, self.script, RECIPE, *self.argv]
            with open(self.logs[number], "a") as log:
                self.processes[number] = subprocess.Popen(
                    command, cwd=self.folder, env=inside | variables, stdout=log, stderr=log, start_new_session=True
                )

    def all_of(self, number: int) -> list[psutil.Process]:
        """The processes of a node."""
        if gone(self.processes[number].pid):
            return []
        above = psutil.Process(self.processes[number].pid)
        return [above, *above.children(recursive=True)]

    def signal(self, number: int, which: int) -> None:
        for process in self.all_of(number):
            with suppress(psutil.NoSuchProcess):  # the first of them may have ended it meanwhile
                process.send_signal(which)

    def kill(self, number: int) -> None:
        """All at once, as when a machine loses power; the kernel closes its connections."""
        self.signal(number, signal.SIGSTOP)
        self.signal(number, signal.SIGKILL)
        self.processes[number].wait(60)

    def cable(self, number: int, state: str) -> None:
        subprocess.run(["ip", "-n", f"{self.name}-switch", "link", "set", f"port{number}", state], check=True)

    def log(self, number: int = 0) -> str:
        return self.logs[number].read_text()

    def wait_for(self, condition) -> None:
        end = time.monotonic() + 300
        while not condition():
            assert time.monotonic() < end, "\n".join(f"--- {path}\n{path.read_text()}" for path in self.logs.values())
            time.sleep(0.02)

    def wait_for_step(self, step: int) -> None:
        self.wait_for(lambda: any(read_manifest(path).global_step >= step for path in checkpoints(self.output)))

    def generation(self, number: int, *nodes: int) -> None:
        line = f"generation {number}: nodes {', '.join(map(str, nodes))} train"
        self.wait_for(lambda: line in self.log(0))

    def end(self, *numbers: int) -> list[int]:
        """Their exit codes."""
        self.wait_for(lambda: all(self.processes[number].poll() is not None for number in numbers))
        return [self.processes[number].returncode for number in numbers]


@pytest.fixture(scope="module")
def material(ranks, tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("material")
    ranks(1, "tests.distributed.training_ranks:make_material", str(directory), 4)
    return directory


@pytest.fixture
def nodes(material, tmp_path):
    made = Nodes(tmp_path, material)
    try:
        if why := made.build():
            pytest.skip(why)
        yield made
    finally:
        made.remove()


def losses(output: Path) -> dict[int, float]:
    return {record["global_step"]: record["loss"] for record in read_train_log(output) if "loss" in record}


def continued_at(output: Path) -> list[tuple[int, int]]:
    """(step at which a generation began, its ranks), by what the checkpoints say: of the ledger of the last one."""
    run = json.loads((ledger.find_checkpoint(output) / RUN).read_text())
    return [(part["first_step"], part["data_ranks"]) for part in run["ledger"]["ranges"]]


def losses_by_hand(ranks, nodes: Nodes, parts: list[tuple[int, int]]) -> dict[int, float]:
    """Of the same run on one node, stopped after those steps and continued with so many ranks. parts: continued_at."""
    output = nodes.folder / "by-hand"
    argv = [*nodes.argv, "--output_dir", str(output)]
    for number, (_, count) in enumerate(parts):
        printed = subprocess.run(
            ["bash", RECIPE, *argv],
            env=environment(NNODES="1", PROCESSES=str(count), ACTION="print"),
            capture_output=True,
            text=True,
            check=True,
        )
        words = flag_words(printed_flags(printed.stdout.replace("\\\n", " ").split()))
        stop = parts[number + 1][0] if number + 1 < len(parts) else nodes.steps
        fault = {FAULT_VARIABLE: f"after-rename@{stop}:0"}
        outcome = ranks.outcome(
            count,
            "tests.training.run_ranks:pretrain",
            [*words, "--save_steps", str(stop)],
            directory=nodes.folder / f"by-hand-{number}",
            environment=fault if stop < nodes.steps else None,
        )
        assert outcome.exit_code == (KILLED if stop < nodes.steps else 0), outcome
    return losses(output)


def check_nothing_is_lost(ranks, nodes: Nodes, capsys, counts: list[int]) -> None:
    """counts: ranks of the generations that made steps, in their order."""
    parts = continued_at(nodes.output)
    assert [count for _, count in parts] == counts
    found = losses(nodes.output)
    assert list(found) == list(range(1, nodes.steps + 1))
    assert found == pytest.approx(losses_by_hand(ranks, nodes, parts), abs=TOLERANCE)
    assert ledger.main([str(nodes.output)]) == 0
    assert "each once" in capsys.readouterr().out


@pytest.mark.long
def test_a_node_that_dies_in_the_middle_of_a_save(ranks, nodes, capsys):
    """Its rank writes a file of checkpoint-24, and is killed."""
    nodes.start(0, 1)
    nodes.start(2, **{FAULT_VARIABLE: "after-first-file@24:2"})
    assert nodes.end(2, 0, 1) == [KILLED, 0, 0]
    assert "elastic: node 2 leaves the run: its ranks failed" in nodes.log(2)
    assert read_manifest(nodes.output / "checkpoint-24").topology["processes"] == 2
    check_nothing_is_lost(ranks, nodes, capsys, [3, 2])


@pytest.mark.long
def test_a_node_that_is_stopped_and_goes_on(ranks, nodes, capsys):
    nodes.steps = 160  # which are not over when it is back
    nodes.start(0, 1, 2)
    nodes.wait_for_step(16)
    nodes.signal(1, signal.SIGSTOP)
    nodes.wait_for(lambda: "node 1 is gone (silent for 8 seconds)" in nodes.log(0))
    nodes.generation(2, 0, 2)
    step = max(losses(nodes.output))
    nodes.wait_for_step(step + 2 * SAVE_STEPS)
    nodes.signal(1, signal.SIGCONT)
    nodes.generation(3, 0, 1, 2)
    assert nodes.end(0, 1, 2) == [0, 0, 0]
    check_nothing_is_lost(ranks, nodes, capsys, [3, 2, 3])


@pytest.mark.long
def test_a_node_that_is_cut_off_and_a_master_that_dies(ranks, nodes, capsys):
    nodes.start(0, 1, 2)
    nodes.wait_for_step(16)
    nodes.cable(2, "down")
    nodes.generation(2, 0, 1)
    nodes.wait_for(lambda: "node 0 is gone (silent for 8 seconds)" in nodes.log(2))
    nodes.kill(2)
    step = max(losses(nodes.output))
    nodes.wait_for_step(step + 2 * SAVE_STEPS)
    nodes.kill(0)
    nodes.start(0)
    nodes.generation(3, 0, 1)
    assert nodes.end(0, 1) == [0, 0]
    check_nothing_is_lost(ranks, nodes, capsys, [3, 2])
