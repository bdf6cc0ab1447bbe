"""Two pretended nodes: the same recipe started twice on this machine, with another RANK each."""

import socket
import subprocess
import textwrap
from pathlib import Path

from tests.recipes.machine import ROOT, Machine

FIRST = "127.0.0.2"  # node 0's address; loopback has many, the other node's is 127.0.0.1


def free_port(host: str = FIRST) -> int:
    with socket.socket() as one:
        one.bind((host, 0))
        return one.getsockname()[1]


def start_node(rank: int, recipe: str | Path, folder: Path, environment: dict[str, str], *flags: str):
    """One node's recipe, as a process whose output can be read."""
    return subprocess.Popen(
        ["bash", str(recipe), *flags],
        cwd=folder,
        env=environment | {"RANK": str(rank)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


class TwoNodes:
    """A recipe of one rank a node, whose script is `worker`, under a launcher like Paddle's."""

    def __init__(self, tmp_path: Path, worker: str, minutes: str = "1"):
        self.machine = Machine(tmp_path)
        self.folder = self.machine.folder
        script = tmp_path / "run_pretrain.py"
        script.write_text("import os, sys, time\nnode = os.environ['RANK']\n" + textwrap.dedent(worker))
        self.recipe = tmp_path / "recipe.sh"
        self.recipe.write_text(
            f"source {ROOT}/launch/recipe.sh\nPROCESSES=2\n"
            f'run {script} --model_name_or_path llama-7b --input_dir data --output_dir out --device cpu "$@"\n'
        )
        self.variables = {
            "NNODES": "2",
            "MASTER": f"{FIRST}:{free_port()}",
            "RENDEZVOUS_MINUTES": minutes,
            "PROCESSES": "1",
        }

    def start(self, rank: int, *flags: str, **variables: str) -> subprocess.Popen:
        environment = self.machine.environment(**(self.variables | variables))
        return start_node(rank, self.recipe, self.folder, environment, *flags)

    def log(self, rank: int) -> str:
        """What the node's rank has written."""
        path = self.folder / "out" / "log" / f"node-{rank}" / "workerlog.0"
        return path.read_text() if path.exists() else ""
