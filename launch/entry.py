"""The start of every entry point that trains: checks and settings before Paddle is imported."""

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import MutableMapping
from pathlib import Path

from data_tools.language import localized
from launch import preflight
from launch.checkpoint.continuation import Continuation
from launch.config.run_config import RunConfig
from launch.cpu.settings import prepare
from launch.devices.paddle_flags import set_card_flags, set_switches
from launch.errors import UserError
from launch.nodes.meeting import compare_flags, meet_ranks
from launch.preflight.flag_check import flag_help
from launch.preflight.report import print_findings
from launch.preflight.resume import already_done
from launch.processes.orphans import die_with_parent
from launch.reporting.quiet import import_paddle_quietly
from launch.upstream import correct


def prepare_process(script: str, argv: list[str]) -> tuple[RunConfig, list[str]]:
    """Check the run and prepare this process for training. Returns the run and lines for the user.

    A process that has imported Paddle already (a forked rank) keeps its settings: they are inherited.

    Raises:
        UserError: If a check fails.
    """
    die_with_parent()
    if "--help" in argv:
        print(flag_help(script))
        sys.exit(0)
    run, lines, checked = RunConfig.of_rank(script, argv, os.environ)
    lines = [localized(line) for line in lines]
    if not checked:
        check(run)
    on_cpu = run.flags.device == "cpu"
    lines += meet_ranks(run.explicit, on_cpu)
    if not on_cpu and run.flags.deterministic:
        lines.append(set_switches())
    lines += start_paddle(on_cpu, run.flags.cpu_fast or "off")  # a switch that is off is False
    compare_flags(run.explicit)
    return run, lines


def start_paddle(on_cpu: bool, cpu_fast: str = "auto") -> list[str]:
    """Import Paddle with its settings, its corrections and, on a CPU, collectives for several processes.

    Returns lines for the user. A process that has imported Paddle already keeps its settings.
    """
    lines = []
    if on_cpu and "paddle" not in sys.modules:
        lines.append(prepare(cpu_fast, _variable("PADDLE_LOCAL_SIZE", 1)))
    if not on_cpu:
        set_card_flags(os.environ)
    if "paddlenlp" not in sys.modules:
        _give_home(os.environ)
    import_paddle_quietly()
    correct()
    if on_cpu:
        from launch.rehearsal.collectives import install_loss_scaling

        install_loss_scaling()
    if on_cpu and _variable("PADDLE_TRAINERS_NUM", 1) > 1:
        from launch.rehearsal.collectives import install

        install()
    return lines


def _give_home(environment: MutableMapping[str, str]) -> None:
    """Name empty folders where paddlenlp and visualdl cannot make theirs in HOME, as they do when they are imported.

    Raises:
        UserError: If a folder is named by PPNLP_HOME and cannot be written.
    """
    named = environment.get("PPNLP_HOME")
    for name, folder in (("PPNLP_HOME", named or "~/.paddlenlp"), ("HOME", "~/.visualdl")):
        path = Path(folder).expanduser()
        if os.access(next(found for found in (path, *path.absolute().parents) if found.exists()), os.W_OK | os.X_OK):
            continue
        if named and name == "PPNLP_HOME":
            raise UserError(f"PPNLP_HOME={named}: cannot be written. Name a folder you may write to.")
        environment[name] = tempfile.mkdtemp(prefix="home-")
        atexit.register(shutil.rmtree, environment[name], ignore_errors=True)


def check(run: RunConfig) -> None:
    """Check the run by launch.preflight, shown on rank 0.

    Faults are shown by the first rank of every node: each has its own cards, data and disk.
    """
    shows = _variable("PADDLE_TRAINER_ID", 0) == 0
    # Several ranks look when they have met: one of them holds the directory by then.
    continuation = Continuation.of(run.flags)
    findings = preflight.run(run, starts=run.processes == 1, shows=shows, continuation=continuation)
    faults = [finding for finding in findings if not finding.ok]
    if faults and _variable("PADDLE_LOCAL_RANK", 0) == 0:
        print_findings(findings, sys.stderr)
    if faults:
        raise UserError(f"{run.script} cannot start: see the faults above")
    if shows:
        print_findings(findings, sys.stdout)
    if done := already_done(run, continuation):
        if shows:
            print(localized(done))
        sys.exit(0)


def _variable(name: str, default: int) -> int:
    """Return an integer variable that the launcher has set for this rank."""
    return int(os.environ.get(name, default))
