"""Run, print, plan or rehearse the command of a recipe file. launch/recipe.sh starts this, not the user.

    ACTION=run       check machine, model and data, start the ranks
    ACTION=print     print the whole command, to read or to paste into a shell
    ACTION=plan      print the memory and time that it needs, start nothing
    ACTION=rehearse  run it on the CPU with a tiny model of the family
    ACTION=k8s       print a Kubernetes manifest that runs it

The user's variables, all optional: MODEL, DATA, OUTPUT, GPUS, DEVICES, GPU_MEMORY_GB, CARD, PROCESSES, CONFIG, ARGS,
FIT, of a plan FORMAT, MTBF_HOURS and CALIBRATION (docs/plan.md), and for several nodes NNODES, RANK, MASTER,
RENDEZVOUS_MINUTES, NETWORK (docs/multi-node.md). STOPPED_EXIT_CODE is the exit code of a run that was stopped before
its last step and saved (docs/resume.md).
"""

import argparse
import math
import os
import shlex
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TextIO

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)  # the repository, not launch/

from data_tools.cli import Parser
from data_tools.language import localized
from launch.config.flag_values import Flags, flag_arguments, parse_flags, with_flags_behind
from launch.config.recipe_file import Recipe
from launch.config.run_config import ONE_NODE, Nodes, RunConfig
from launch.config.typed import typed
from launch.config.variables import (
    check_variables,
    exit_code_of_stopped,
    given_variables,
    number,
)
from launch.cpu.settings import threads_per_rank
from launch.errors import UserError
from launch.families.named_configs import load_config
from launch.guard import guarded
from launch.nodes.network import Link
from launch.nodes.place import read_nodes
from launch.preflight.fitted import propose_record
from launch.preflight.flag_check import flag_help
from launch.preflight.requested import (
    DEMO_FOLDERS,
    card_of_plan,
    known_model,
    make_questions,
    missing_demo_paths,
    requested_run,
)
from launch.processes.command import COMMAND, DECIDE_THE_START, STOPPED_FILE, LaunchCommand
from launch.processes.orphans import end_with_make, make_above
from launch.reporting.announce import SHOWN, first_lines, next_step

ROOT = Path(__file__).resolve().parent.parent


def main(argv: list[str]) -> int:
    """Run the command."""
    end_with_make()
    recipe, own = parse_recipe(argv)
    if "help" in own:
        files = [path.read_text(encoding="utf-8") for path in (recipe.path, recipe.method) if path]
        print("\n".join([*files, flag_help(recipe.script)]))
        return 0
    check_variables(os.environ)
    action = os.environ.get("ACTION") or "run"
    if action not in ACTIONS:
        raise UserError(f"ACTION: found {action!r}, allowed: {', '.join(ACTIONS)}.")
    if action == "k8s" and own:
        raise UserError(
            f"--{next(iter(own))}: a manifest takes the flags of ARGS. Say ARGS={typed(shlex.join(argv[1:]))}."
        )
    # A rehearsal runs the ranks of all nodes on this machine, the pods of a manifest number themselves, and a plan asks
    # for no more than the number of nodes.
    count = number("NNODES", os.environ) if action in ("plan", "rehearse", "k8s") else None
    nodes = Nodes(count or 1) if count or action in ("rehearse", "k8s") else read_nodes(os.environ)
    run, notes = requested_run(recipe, os.environ, nodes, own, sizes_alone=action in ("plan", "rehearse"))
    return ACTIONS[action](recipe, run, notes)


def parse_recipe(argv: list[str]) -> tuple[Recipe, Flags]:
    """Return the recipe, with the command line's flags added to its own, and the command line's alone."""
    parser = Parser("python launch/recipe.py", __doc__)
    parser.add_argument("recipe", type=Path, help="the recipe file")
    parser.add_argument("flags", nargs=argparse.REMAINDER, help="further flags of its method")
    given = parser.parse_args(argv)
    recipe, own = Recipe.load(given.recipe.resolve()), parse_flags(given.flags)
    return replace(recipe, flags=with_flags_behind(recipe.flags, own)), own


def start(recipe: Recipe, run: RunConfig, notes: list[str]) -> int:
    """Check the run, start its ranks and watch them. Returns the exit code."""
    from launch import preflight
    from launch.checkpoint.continuation import Continuation
    from launch.checkpoint.output_directory import lock_start, note_output
    from launch.preflight.report import print_findings
    from launch.preflight.resume import already_done

    stopped_exit_code = exit_code_of_stopped(os.environ)
    if run.nodes.count > 1:
        from launch.nodes.meeting import await_master

        await_master(run.nodes)
    notes = [*notes, *make_questions(run)]
    continuation = Continuation.of(run.flags)
    findings = preflight.run(run, starts=run.nodes.rank == 0, continuation=continuation)
    faults = [finding for finding in findings if not finding.ok]
    _print_notes(notes)
    print_findings(findings, sys.stderr if faults else sys.stdout)
    if faults:
        lines = [f"{recipe.target} cannot start here: {len(faults)} of {len(findings)} checks failed."]
        if any(finding.subject == "cards" for finding in faults):
            given = given_variables(_rehearsable(run, os.environ))
            lines.append(f"The same on this machine's CPU, with a tiny model: make rehearse-{recipe.target}{given}")
            if "lora" in run.explicit and run.method.reads_rows:
                lines.append("A LoRA that trains a small model on the CPU: make lora-tiny")
        for folder in missing_demo_paths(run).values():
            made = DEMO_FOLDERS[folder]
            lines.append(f"{folder} comes from the demo, which takes {made.minutes} minutes: {made.command}")
        raise UserError("\n".join(lines))
    if done := already_done(run, continuation):
        print(localized(done))
        return 0
    command = LaunchCommand.of_run(run)
    os.environ[COMMAND] = to_continue(recipe, run, command)
    os.environ[SHOWN] = first_lines(findings)
    if not run.devices:
        # The launcher imports Paddle, which sets 1 otherwise, and its ranks would inherit that.
        os.environ.setdefault("OMP_NUM_THREADS", threads_per_rank(command.processes))
    from launch.processes.logs import BY_SIGNAL, HUNG
    from launch.processes.supervise import supervise

    started = time.time()
    if run.nodes.rank == 0:
        lock_start(run.explicit["output_dir"][0])
        note_output(run.explicit["output_dir"][0])
        propose_record(run, card_of_plan(run))
    os.environ[STOPPED_FILE] = os.path.abspath(os.path.join(command.own_log_dir, "stopped"))
    link = meet(command)  # first: in Kubernetes the address of node 0 may change until it is here
    with run.hand_over(os.environ):
        exit_code = supervise(command.arguments(), command.own_log_dir, command.processes, link)
    if exit_code == 0 and os.path.exists(os.environ[STOPPED_FILE]):
        return stopped_exit_code
    if exit_code == 0 and run.nodes.rank == 0:
        for line in next_step(run, started):
            print(line)
    stopped = exit_code in (HUNG, *BY_SIGNAL) and not continuation.named
    if stopped and (checkpoint := Continuation.of(run.flags).checkpoint):
        print(f"the same command goes on from {checkpoint}", file=sys.stderr)
    return exit_code


def _rehearsable(run: RunConfig, variables: Mapping[str, str]) -> Mapping[str, str]:
    """Return the variables, without a MODEL that a rehearsal would refuse like the run.

    The recipe's own then takes its place.
    """
    try:
        load_config(known_model(run).flags.model_name_or_path or "")
    except UserError:
        return {name: value for name, value in variables.items() if name != "MODEL"}
    return variables


def to_continue(recipe: Recipe, run: RunConfig, command: LaunchCommand) -> str:
    """Return the command that continues the run after it is stopped: the target of make if make has started it."""
    if make_above() is None:
        return shlex.join(command.arguments())
    own = {name: words for name, words in run.own.items() if f"--{name}" not in DECIDE_THE_START}
    return f"make {recipe.target}{given_variables(os.environ | {'ARGS': shlex.join(flag_arguments(own))})}"


def meet(command: LaunchCommand) -> Link | None:
    """Wait for the other nodes and say when all are there. Returns the link to them, None on one node."""
    if command.nodes.count == 1:
        return None
    from launch.nodes.meeting import meet_nodes

    link = meet_nodes(command.nodes, command.flags, command.processes)
    print(f"all {command.nodes.count} nodes are here; rank 0 reports on node 0, this one's logs: {command.own_log_dir}")
    return link


def show(recipe: Recipe, run: RunConfig, notes: list[str]) -> int:
    """Print the command on stdout and the notes on stderr."""
    _print_notes(notes, sys.stderr)
    print(LaunchCommand.of_run(run).text())
    return 0


def rehearse(recipe: Recipe, run: RunConfig, notes: list[str]) -> int:
    """Run the same on the CPU. Returns the exit code."""
    from launch.rehearsal.rehearse import rehearse

    _require_legal_flags(run, f"{recipe.target} cannot be rehearsed with these flags.")
    _print_notes(notes)
    if os.environ.get("DATA") or run.method.data_flag in run.own:
        _check_own_data(recipe, run)
    output = os.environ.get("OUTPUT")  # the recipe's own --output_dir is for the real run
    command = LaunchCommand.of_run(replace(run, nodes=ONE_NODE))
    real = f"make {recipe.target}{given_variables(os.environ)}"
    return rehearse(recipe.target, command, real, Path(output).absolute() if output else None)


def _check_own_data(recipe: Recipe, run: RunConfig) -> None:
    """Check the user's data, which the real run reads; a rehearsal trains on data of its own."""
    from launch import preflight
    from launch.preflight.report import print_findings

    findings = preflight.run_on_data(run)
    faults = [finding for finding in findings if not finding.ok]
    print(localized("your data, which the real run reads:"), file=sys.stderr if faults else sys.stdout)
    print_findings(findings, sys.stderr if faults else sys.stdout)
    if faults:
        raise UserError(
            f"{recipe.target} cannot start with these data: {len(faults)} of {len(findings)} checks failed."
        )


def plan(recipe: Recipe, run: RunConfig, notes: list[str]) -> int:
    """Print the memory and time that the run needs, whatever cards are here. FORMAT=json prints data.

    Returns 1 where it does not fit, unless --force 1 says that it is to start all the same.
    """
    from launch.plan.plan_report import FORMATS, TEXT
    from launch.preflight.proposals import exit_code_of_plan, lines_below_a_plan

    form = os.environ.get("FORMAT") or TEXT
    if form not in FORMATS:
        raise UserError(f"FORMAT: found {form!r}, allowed: {', '.join(FORMATS)}.")
    _require_legal_flags(run, f"{recipe.target} cannot be planned with these flags.")
    _print_notes(notes, sys.stderr)
    steps, lines = _steps_of_data(run)
    print(planned(run, form, number("MTBF_HOURS", os.environ), steps))
    if form == TEXT:
        _print_notes(lines)
        for line in lines_below_a_plan(run, card_of_plan(run)):
            print(localized(line))
    return exit_code_of_plan(run, card_of_plan(run))


def _steps_of_data(run: RunConfig) -> tuple[int, list[str]]:
    """Return the steps of fine-tuning that --num_train_epochs makes of the user's data, and lines about them.

    (0, []) where --max_steps says it, or there are no such data here.
    """
    flags = run.flags
    if flags.max_steps > 0 or not run.method.reads_rows:
        return 0, []
    try:
        from launch.preflight.dialogues import rows_to_train_on
    except ImportError:  # a plan needs no packages, data do
        return 0, []
    rows = rows_to_train_on(run)
    if not rows:
        return 0, []
    steps = math.ceil(flags.num_train_epochs * rows / run.global_batch) * (flags.rollout_passes or 1)
    data = " ".join(run.explicit["dataset_name_or_path"])
    lines = [f"steps: --num_train_epochs {flags.num_train_epochs:g} of the {rows:,} rows in {data}"]
    packed = ["steps: fewer, as a packed row holds several of the data"] if flags.zero_padding else []
    return steps, [*lines, *packed]


def planned(run: RunConfig, form: str, mtbf_hours: int | None = None, steps: int = 0) -> str:
    """Return the plan of a run.

    Args:
        run: Its configuration.
        form: One of launch.plan.plan_report.FORMATS.
        mtbf_hours: Of a card; None: as published.
        steps: Of a run without them.
    """
    from launch.plan.calibration import calibrated
    from launch.plan.goodput import MTBF_HOURS
    from launch.plan.job import Job
    from launch.plan.plan_report import report

    card = card_of_plan(run)
    if card and (file := os.environ.get("CALIBRATION")):
        card, line = calibrated(card, file)
        _print_notes([line], sys.stderr)
    return report(Job.from_run(run, card), card, form, max(steps, run.flags.max_steps), mtbf_hours or MTBF_HOURS)


def _print_notes(notes: list[str], file: TextIO | None = None) -> None:
    for note in notes:
        print(localized(note), file=file)


def _require_legal_flags(run: RunConfig, message: str) -> None:
    """Raise UserError with this message, after the findings, where the flags conflict."""
    from launch import preflight
    from launch.preflight.report import print_findings

    faults = [finding for finding in preflight.run_on_flags(run) if not finding.ok]
    if faults:
        print_findings(faults, sys.stderr)
        raise UserError(message)


def print_manifest(recipe: Recipe, run: RunConfig, notes: list[str]) -> int:
    """Print a Kubernetes manifest on stdout and the notes on stderr."""
    from launch.kubernetes import as_yaml, manifests

    objects = manifests(recipe, run, os.environ)
    _require_legal_flags(run, f"{recipe.target} cannot run with these flags.")
    _print_notes(notes, sys.stderr)
    print(as_yaml(objects), end="")
    return 0


ACTIONS = {"run": start, "print": show, "rehearse": rehearse, "plan": plan, "k8s": print_manifest}


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))
