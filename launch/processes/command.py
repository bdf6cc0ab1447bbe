"""The command that starts all ranks of a node: `python -m paddle.distributed.launch ... SCRIPT.py FLAGS`.

The launcher must not be led astray by a user's environment. Some variables override its own flags
(paddle/distributed/launch/context/args_envs.py and plugins/__init__.py). On AI Studio and in Kubernetes they are set;
what they say about nodes is in the flags already (launch/nodes). And the nodes talk over HTTP: with a proxy set, in
capitals, they wait for ever.

CUDA_VISIBLE_DEVICES makes the launcher believe in cards (context/device.py, Device.parse_device), also where ranks on
the CPU are requested: it then gives each rank one of the variable's words, and ends with an IndexError where it has
fewer words than ranks; an empty variable has one. And it looks for each of --gpus among the words, to the letter.
"""

import importlib.util
import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from launch.config.flag_values import Flags, flag_arguments, flag_lines
from launch.config.run_config import ONE_NODE, Nodes, RunConfig
from launch.nodes.network import address_towards, resolve, split_address

ROOT = Path(__file__).resolve().parents[2]
OVERRIDING = (
    "DISTRIBUTED_TRAINER_ENDPOINTS",
    "PADDLE_DEVICES",
    "PADDLE_IPS",
    "PADDLE_LOG_DIR",
    "PADDLE_MASTER",
    "PADDLE_NNODES",
    "PADDLE_NPROC_PER_NODE",
    "PADDLE_RANK",
    "PADDLE_TRAINER_ENDPOINTS",
    "PADDLE_TRAINER_ID",
    "POD_IP",
)
PROXIES = ("HTTP_PROXY", "ALL_PROXY", "all_proxy")  # http_proxy, https_proxy: the launcher forgets them by itself
WITHOUT_PROXY = ("no_proxy", "NO_PROXY")
CARDS = "CUDA_VISIBLE_DEVICES"


def environment_command(variables: Mapping[str, str], master_host: str | None, devices: tuple[str, ...]) -> list[str]:
    """Return the arguments before the launcher's command, such as ["env", "-u", "POD_IP", ...].

    [] where they are not needed.

    Args:
        variables: Of the environment.
        master_host: Where several nodes meet, which is reached without a proxy; None on one node.
        devices: The cards that --gpus names; empty: ranks on the CPU.
    """
    forgotten = [name for name in OVERRIDING if name in variables]
    if not devices and CARDS in variables:
        forgotten.append(CARDS)
    arguments = [word for name in forgotten for word in ("-u", name)]
    if master_host and any(variables.get(name) for name in PROXIES):
        exceptions = [variables[name] for name in WITHOUT_PROXY if variables.get(name)][:1]
        arguments.append(f"no_proxy={','.join([*exceptions, master_host])}")
    # The launcher must find all the cards; without the variable it knows them by numbers alone.
    visible = variables.get(CARDS)
    if visible is None:
        found = all(device.isdecimal() for device in devices)
    else:
        found = set(devices) <= set(visible.split(","))
    if not found:
        arguments.append(f"{CARDS}={','.join(devices)}")
    return ["env", *arguments] if arguments else []


LAUNCHER = "paddle.distributed.launch"
# Set by a recipe for its ranks: the command that started them, to be printed where they can be continued.
COMMAND = "LAUNCH_COMMAND"
# Set by a recipe for its ranks: a file that they make where the run is stopped before its last step.
STOPPED_FILE = "LAUNCH_STOPPED_FILE"
DECIDE_THE_START = ("--overwrite_output_dir", "--resume_from_checkpoint")  # no part of a command that continues


@dataclass(frozen=True)
class LaunchCommand:
    """One run of the launcher on each node.

    Attributes:
        script: Path of what is started; the launcher runs only a path that ends in .py as Python.
        flags: Of the script.
        log_dir: Where the launcher writes workerlog.N; each of several nodes has a folder of its own in it.
        devices: Numbers of each node's cards, one rank each; empty: ranks on the CPU.
        processes: How many ranks on each node.
        nodes: The nodes, and which of them this is.
        method: The word behind launch/train.py, nothing behind another script.
    """

    script: Path
    flags: Flags
    log_dir: str
    devices: tuple[str, ...]
    processes: int
    nodes: Nodes = ONE_NODE
    method: tuple[str, ...] = ()

    @classmethod
    def of_run(cls, run: RunConfig) -> "LaunchCommand":
        """Return the command of a run, whose logs are in the folder log of its output directory."""
        script, *method = run.method.program.split() if run.script == run.method.name else [run.script]
        return cls(
            script=ROOT / script,
            flags=run.explicit,
            log_dir=os.path.join(*(run.explicit.get("output_dir") or ["."])[:1], "log"),
            devices=run.devices,
            processes=run.processes // run.nodes.count,
            nodes=run.nodes,
            method=tuple(method),
        )

    @property
    def world_size(self) -> int:
        """Ranks of all nodes."""
        return self.processes * self.nodes.count

    @property
    def own_log_dir(self) -> str:
        """This node's: on a common file system the nodes' files have the same names."""
        return self._log_dir(self.nodes.rank)

    def arguments(self) -> list[str]:
        """Return the command to execute on this node."""
        head = self._head(self.nodes.rank, _without_current_folder())
        return [*head, str(self.script), *self.method, *flag_arguments(self.flags)]

    def text(self) -> str:
        """Return the command to read and to paste into a shell, one flag a line.

        Of several nodes, the command of each.
        """
        if self.nodes.count == 1:
            return self._text(0)
        titles = [self.nodes.name(rank) for rank in range(self.nodes.count)]
        titles[self.nodes.rank] += ", this one"
        return "\n\n".join(f"# {title}\n{self._text(rank)}" for rank, title in enumerate(titles))

    def _text(self, rank: int) -> str:
        return f"{shlex.join(self._head(rank, ['-m', LAUNCHER]))} \\\n    {self.script_text()}"

    def script_text(self) -> str:
        """Return the script and its flags, which are the same on all nodes, one a line."""
        return " \\\n    ".join(
            shlex.join(line) for line in [[_short(self.script), *self.method], *flag_lines(self.flags)]
        )

    def _head(self, rank: int, launcher: list[str]) -> list[str]:
        """Return the command up to the script, for the node with this number."""
        point = self._meeting_point()
        where = ["--nproc_per_node", str(self.processes)]
        if self.devices:
            where = ["--gpus", ",".join(self.devices)]
        return [
            *environment_command(os.environ, point[0] if point else None, self.devices),
            *[_python(), *launcher, *where],
            *self._node_arguments(rank),
            *["--log_dir", self._log_dir(rank)],
        ]

    def _node_arguments(self, rank: int) -> list[str]:
        """Return --host for a node.

        By itself the launcher takes the address of this machine's name, often 127.0.1.1; and node 0 opens the meeting
        point only if that is the master's address, to the letter.
        """
        point = self._meeting_point()
        if point is None:
            return []
        host, port = point
        arguments = ["--nnodes", str(self.nodes.count), "--rank", str(rank), "--master", f"{host}:{port}"]
        if rank == 0:
            return [*arguments, "--host", host]
        return [*arguments, "--host", address_towards(host)] if rank == self.nodes.rank else arguments

    def _meeting_point(self) -> tuple[str, int] | None:
        """Return the address, as numbers, and the port where several nodes meet; None on one node."""
        if self.nodes.count == 1:
            return None
        assert self.nodes.master is not None  # several nodes have one
        host, port = split_address(self.nodes.master)
        return resolve(host), port

    def _log_dir(self, rank: int) -> str:
        return self.log_dir if self.nodes.count == 1 else os.path.join(self.log_dir, f"node-{rank}")


def _without_current_folder() -> list[str]:
    """Return `-m LAUNCHER` without modules of the current folder, where a user's dl.py or signal.py may lie.

    Python 3.11 has a flag for that; before, the same is done by hand.
    """
    if sys.version_info >= (3, 11):
        return ["-P", "-m", LAUNCHER]
    run = f"runpy.run_module({LAUNCHER!r}, run_name='__main__', alter_sys=True)"
    return ["-c", f"import sys; sys.path.remove(''); import runpy; {run}"]


def _python() -> str:
    """Return this interpreter, by name where that finds it, else by path; without Paddle, the one of `make setup`."""
    if importlib.util.find_spec("paddle") is None:
        return ".venv/bin/python"
    return "python" if shutil.which("python") == sys.executable else _short(sys.executable)


def _short(path: str | Path) -> str:
    """Return the path relative to the current folder where that leads downwards, else absolute."""
    relative = os.path.relpath(path)
    return os.path.abspath(path) if relative.startswith("..") else relative
