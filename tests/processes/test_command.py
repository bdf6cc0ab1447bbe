"""The launcher's command on one node and on several."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from launch.config.run_config import Nodes, RunConfig
from launch.methods import registry
from launch.methods.rewards import REWARDS
from launch.processes import command
from launch.processes.command import CARDS, OVERRIDING, PROXIES, WITHOUT_PROXY, LaunchCommand, _without_current_folder
from tests.store import ROOT


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    for name in (*OVERRIDING, *PROXIES, *WITHOUT_PROXY, CARDS):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(command, "_python", lambda: "python")
    monkeypatch.setattr(command, "address_towards", lambda host: "10.0.0.2")


def words(nodes: Nodes, devices: tuple[str, ...] = ("0", "1")) -> list[str]:
    """Up to the script."""
    launch = LaunchCommand(Path("/r/train.py"), {"bf16": ["1"]}, "out/log", devices, 2, nodes)
    found = launch.arguments()
    return found[: found.index("/r/train.py")]


LAUNCH = ["python", *_without_current_folder(), "--gpus", "0,1"]
TWO = ["--nnodes", "2", "--rank"]
AT = ["--master", "10.0.0.1:8090", "--host"]


def test_one_node_says_nothing_of_nodes():
    assert words(Nodes()) == [*LAUNCH, "--log_dir", "out/log"]


def test_each_node_says_its_number_and_address():
    """Node 0's is the master's to the letter, the other's the one that leads there."""
    first, second = (words(Nodes(2, rank, "10.0.0.1:8090")) for rank in (0, 1))
    assert first == [*LAUNCH, *TWO, "0", *AT, "10.0.0.1", "--log_dir", "out/log/node-0"]
    assert second == [*LAUNCH, *TWO, "1", *AT, "10.0.0.2", "--log_dir", "out/log/node-1"]


def test_a_host_name_becomes_an_address():
    assert "127.0.0.1:8090" in words(Nodes(2, 0, "localhost:8090"))


def test_variables_that_win_over_the_flags_are_kept_from_the_launcher(monkeypatch):
    monkeypatch.setenv("PADDLE_TRAINER_ID", "1")
    monkeypatch.setenv("POD_IP", "10.0.0.7")
    assert words(Nodes())[:6] == ["env", "-u", "PADDLE_TRAINER_ID", "-u", "POD_IP", "python"]


@pytest.mark.parametrize("visible", ["0", "", "0,1"])
def test_ranks_on_the_cpu_hear_of_no_cards(monkeypatch, visible):
    """The launcher would give each of them a card, and fail where it counts fewer than ranks."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert words(Nodes(), devices=())[:4] == ["env", "-u", "CUDA_VISIBLE_DEVICES", "python"]


@pytest.mark.parametrize(
    ("visible", "devices", "found"),
    [
        (None, ("2", "3"), None),
        ("2,3", ("2", "3"), None),
        ("GPU-a,GPU-b", ("GPU-b",), None),
        ("0, 1", ("0", "1"), "CUDA_VISIBLE_DEVICES=0,1"),  # a blank is part of the launcher's word
        (None, ("GPU-a", "GPU-b"), "CUDA_VISIBLE_DEVICES=GPU-a,GPU-b"),  # which it knows by numbers alone
    ],
)
def test_the_launcher_finds_the_cards(monkeypatch, visible, devices, found):
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    expected = ["env", found, "python"] if found else ["python", *_without_current_folder()][:3]
    assert words(Nodes(), devices)[:3] == expected


def test_the_master_is_reached_without_a_proxy(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://proxy:3128")
    assert words(Nodes())[0] == "python"
    assert words(Nodes(2, 1, "10.0.0.1:8090"))[:3] == ["env", "no_proxy=10.0.0.1", "python"]
    monkeypatch.setenv("NO_PROXY", "localhost,.example.org")
    assert words(Nodes(2, 1, "10.0.0.1:8090"))[1] == "no_proxy=localhost,.example.org,10.0.0.1"


def test_ranks_of_all_nodes():
    launch = LaunchCommand(Path("train.py"), {}, "log", ("0", "1"), 2, Nodes(3, 1, "10.0.0.1:8090"))
    assert launch.world_size == 6


def test_a_method_without_a_script_is_started_by_its_name(monkeypatch):
    monkeypatch.setitem(registry._NAMED, "toy", replace(REWARDS, name="toy", script=""))
    launch = LaunchCommand.of_run(RunConfig("toy", {"seed": ["7"]}, processes=2))
    assert launch.script_text() == "launch/train.py toy \\\n    --seed 7"
    assert launch.arguments()[-4:] == [str(ROOT / "launch" / "train.py"), "toy", "--seed", "7"]


def test_the_text_has_the_command_of_every_node():
    nodes = Nodes(2, 1, "10.0.0.1:8090", hosts=("gpu01", "gpu02"))
    script = Path(os.getcwd()) / "train.py"
    assert LaunchCommand(script, {"bf16": ["1"]}, "log", (), 4, nodes).text().splitlines() == [
        "# node 0 (gpu01)",
        "python -m paddle.distributed.launch --nproc_per_node 4 --nnodes 2 --rank 0 --master 10.0.0.1:8090 "
        "--host 10.0.0.1 --log_dir log/node-0 \\",
        "    train.py \\",
        "    --bf16 1",
        "",
        "# node 1 (gpu02), this one",
        "python -m paddle.distributed.launch --nproc_per_node 4 --nnodes 2 --rank 1 --master 10.0.0.1:8090 "
        "--host 10.0.0.2 --log_dir log/node-1 \\",
        "    train.py \\",
        "    --bf16 1",
    ]
