"""The ranks of a command whose model is sharded over cards of this machine.

    if starts_ranks(args.tensor_parallel_degree):
        return run_ranks(Path(__file__), argv, args.tensor_parallel_degree, on_cpu=args.device == "cpu")

The command then runs once a rank, with the same flags. Started by `python -m paddle.distributed.launch` it is a rank
already.
"""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from data_tools.cli import cards
from launch.cpu.settings import threads_per_rank
from launch.devices.cards import visible_devices
from launch.errors import UserError
from launch.processes.command import LaunchCommand
from launch.processes.supervise import supervise

FLAG = "--tensor_parallel_degree"
WITH_ENVIRONMENT = ("envlog*", "backup_env*", "default.*.log")  # files in which the launcher writes all variables
SECONDS_TO_END = 60.0  # for ranks between a signal and their end


def add_degree(add: Callable) -> None:
    """Add the flag of the degree.

    Args:
        add: Of a parser's add_argument.
    """
    add(FLAG, type=cards, default=1, help="cards that share the model, one process each; default %(default)s")


def starts_ranks(degree: int) -> bool:
    """Return whether this process is to start the ranks.

    Args:
        degree: The flag's value; 1: there is one process, or a launcher has started several.

    Raises:
        UserError: If a launcher has started another number of ranks, or ranks on several nodes.
    """
    started = int(os.environ.get("PADDLE_TRAINERS_NUM", 1))
    if started == 1:
        return degree > 1
    if degree not in (1, started):
        raise UserError(f"{FLAG}: found {degree}, but the launcher has started {started} ranks. Leave the flag out.")
    here = int(os.environ.get("PADDLE_LOCAL_SIZE", started))
    if here != started:
        raise UserError(f"{started} ranks, {here} of them on this machine. A model takes the cards of one machine.")
    return False


def is_follower() -> bool:
    """Return whether this process is another rank than the first."""
    return int(os.environ.get("PADDLE_TRAINERS_NUM", 1)) > 1 and int(os.environ.get("PADDLE_TRAINER_ID", 0)) > 0


def run_ranks(script: Path, argv: list[str], degree: int, on_cpu: bool) -> int:
    """Run a command on `degree` ranks, show the output of rank 0, and return the exit code.

    Logs of all ranks are kept where one has failed.

    Args:
        script: The command's file.
        argv: Its arguments.
        degree: Number of ranks.
        on_cpu: Whether they have no cards.

    Raises:
        UserError: If there are fewer cards.
    """
    devices = () if on_cpu else tuple(visible_devices()[:degree])
    if not on_cpu and len(devices) < degree:
        raise UserError(f"{FLAG}: found {degree}, but cards here: {len(devices)}.")
    if on_cpu:  # the launcher imports Paddle, which sets 1 otherwise, and its ranks would inherit that
        os.environ.setdefault("OMP_NUM_THREADS", threads_per_rank(degree))
    folder = tempfile.mkdtemp(prefix=f"{script.stem}-")
    logs = Path(folder, "log")
    arguments = LaunchCommand(script, {}, str(logs), devices, degree).arguments()
    try:
        exit_code = supervise([*arguments, *argv], logs, degree, grace=SECONDS_TO_END)
    finally:
        for pattern in WITH_ENVIRONMENT:  # a key may be in it, and logs are sent to others
            for file in logs.glob(pattern):
                file.unlink()
    if exit_code == 0:
        shutil.rmtree(folder, ignore_errors=True)
    return exit_code
