"""Run a recipe on this machine's CPU: the same flags, as many processes, a tiny model of the same family."""

import hashlib
import importlib
import os
import sys
from functools import partial
from pathlib import Path

from data_tools.formats.plural import plural
from launch.checkpoint.output_directory import lock_start
from launch.config.flag_values import Flags, flag_words
from launch.cpu.settings import prepare
from launch.families.named_configs import find_config, load_config
from launch.families.registry import family_of_config
from launch.processes.command import COMMAND, LaunchCommand
from launch.processes.fork import run_ranks
from launch.processes.logs import print_failure
from launch.rehearsal.scale_down import describe, scale_down
from launch.reporting.quiet import import_paddle_quietly

DIRECTORY = Path(__file__).resolve().parents[2] / "build" / "rehearsal"


def rehearse(target: str, command: LaunchCommand, real: str, directory: Path | None = None) -> int:
    """Rehearse a recipe's command; the exit code. Must be called before Paddle is imported.

    real: the command of the real run, for the last line. directory: for output/ and log/; default:
    build/rehearsal/<target>
    """
    directory = directory or DIRECTORY / target
    lock_start(directory)
    family = family_of_config(load_config(command.flags["model_name_or_path"][0]))
    materials_directory = find_materials(family.rehearsal_config)
    flags, changes = scale_down(
        command.flags,
        materials=materials_directory,
        output=directory / "output",
    )
    os.environ[COMMAND] = f"make rehearse-{target}"  # what ranks print where they are stopped
    processes = plural(command.processes, "process")
    print(f"rehearsing {target}: {processes} on the CPU, all as in the recipe except")
    print(describe(changes))
    print(import_paddle(command.flags, command.processes), flush=True)

    from launch.rehearsal.materials import make_materials  # imports NumPy: not before the settings are made

    make_materials(materials_directory, family.rehearsal_config)
    train = partial(train_rank, command.script.stem, flag_words(flags), command.processes)
    log_dir = directory / "log"
    outcome = run_ranks(command.processes, train, log_dir, tee=True)
    if outcome.failed_rank is not None:
        print_failure(outcome.failed_rank, outcome.exit_code, log_dir, shown=outcome.failed_rank == 0)
    if outcome.exit_code == 0:
        print(f"rehearsed. Logs of all ranks: {os.path.relpath(log_dir)}; the real run: {real}")
    return outcome.exit_code


def find_materials(configuration: str) -> Path:
    """Where the materials of a configuration are kept: elsewhere once what they are made from has changed."""
    made_from = [find_config(configuration), Path(__file__).with_name("materials.py")]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in made_from)).hexdigest()
    return DIRECTORY / "materials" / f"{configuration}-{digest[:8]}"


def import_paddle(flags: Flags, processes: int) -> str:
    """Import what every rank needs, once, after the settings that count only before; the line about them.

    With Paddle's GPU build this process must see no card: its import asks CUDA for the devices, and what is forked
    afterwards, to make the tiny model and to train it, could not use CUDA ("initialization error").
    """
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    line = prepare(flags.get("cpu_fast", ["auto"])[0], processes)
    import_paddle_quietly()
    import paddlenlp.trainer  # noqa: F401
    import paddlenlp.transformers  # noqa: F401

    return line


def train_rank(module: str, argv: list[str], processes: int, rank: int) -> None:
    """What each rank does: the shared module's main, as the launcher would start it."""
    from launch.guard import guarded

    exit_code = guarded(importlib.import_module(f"launch.{module}").main, argv)
    if exit_code:
        sys.exit(exit_code)
    import paddle.distributed as dist

    if processes > 1 and not dist.is_initialized() or dist.get_world_size() != processes:
        raise RuntimeError(f"expected {processes} ranks that train together, found {dist.get_world_size()}")
