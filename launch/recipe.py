"""What a recipe file does: run, print, plan or rehearse its command. Started by launch/recipe.sh, not by hand.

    ACTION=run       check what can be checked, start the ranks, watch them
    ACTION=print     print the whole command, to read or to paste into a shell
    ACTION=plan      print the memory and time that it needs, start nothing
    ACTION=rehearse  run it on this machine's CPU, a tiny model of the family

The user's variables, all optional: MODEL, DATA, OUTPUT, GPUS, DEVICES, GPU_MEMORY_GB, CARD, PROCESSES, ARGS, and for
several nodes NNODES, RANK, MASTER, RENDEZVOUS_MINUTES (docs/multi-node.md).
"""

import argparse
import os
import re
import shlex
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)  # the repository, not launch/

from data_tools.cli import Parser
from data_tools.language import localized
from launch.config.aliases import todays_flags
from launch.config.flag_values import Flags, flag_words, parse_flags
from launch.config.layout import Layout, LayoutError, keep_global_batch
from launch.config.recipe_file import Recipe
from launch.config.run_config import ONE_NODE, Nodes, RunConfig
from launch.config.variables import check_variables, given_variables
from launch.cpu.settings import threads_per_rank
from launch.errors import UserError
from launch.guard import guarded
from launch.nodes.connection import Link
from launch.nodes.place import read_nodes
from launch.plan.hardware import wished_card
from launch.preflight.help import flag_help
from launch.processes.command import COMMAND, DECIDE_THE_START, LaunchCommand
from launch.processes.orphans import end_with_make, make_above
from launch.reporting.announce import next_step

ROOT = Path(__file__).resolve().parent.parent

# Variables that are another way to write a flag, and that of DATA for each shared module.
FLAG_VARIABLES = {"MODEL": "model_name_or_path", "OUTPUT": "output_dir"}
DATA_FLAGS = {"run_pretrain": "input_dir", "finetune_generation": "dataset_name_or_path"}
# What recipes/tiny take from `make demo`, by their flags: the folder, a file in it; and the model's configuration.
OF_THE_DEMO = {"model_name_or_path": ("build/demo/model", "config.json"), "input_dir": ("build/demo/data", "*.idx")}
DEMO_CONFIG = "llama-tiny"
QUESTIONS = "build/demo-finetune/data"  # of `make demo-finetune`


@dataclass(frozen=True)
class Run:
    """A recipe with the user's wishes applied. gpu_memory_gb: wanted of each card; card: the kind that CARD names;
    own: the flags of ARGS; notes: lines to tell."""

    command: LaunchCommand
    gpu_memory_gb: int
    card: str
    own: Flags
    notes: tuple[str, ...]


def main(argv: list[str]) -> int:
    end_with_make()
    recipe = parse_recipe(argv)
    if "help" in recipe.flags:
        print(f"{recipe.path.read_text(encoding='utf-8')}\n{flag_help(recipe.script)}")
        return 0
    check_variables(os.environ)
    action = os.environ.get("ACTION") or "run"
    if action not in ACTIONS:
        raise UserError(f"ACTION: found {action!r}, allowed: {', '.join(ACTIONS)}.")
    # A rehearsal has the ranks of all nodes on this machine: their number is all it needs.
    nodes = Nodes(_number("NNODES", os.environ.get("NNODES")) or 1) if action == "rehearse" else read_nodes(os.environ)
    wished = apply_wishes(recipe, os.environ, nodes)
    return ACTIONS[action](recipe, known_model(wished) if action in ("plan", "rehearse") else wished)


def parse_recipe(argv: list[str]) -> Recipe:
    """The recipe, with the flags that stand behind its file as if it stated them."""
    parser = Parser("python launch/recipe.py", __doc__)
    parser.add_argument("recipe", type=Path, help="the recipe file")
    parser.add_argument("flags", nargs=argparse.REMAINDER, help="further flags of its shared module")
    given = parser.parse_args(argv)
    recipe = Recipe.load(given.recipe.resolve())
    return replace(recipe, flags=parse_flags(flag_words(recipe.flags) + given.flags))


def stated_layout(recipe: Recipe) -> Layout | None:
    """The layout without the user's variables; None where flags behind the recipe file are meant for more processes."""
    try:
        return Layout.from_flags(recipe.flags, recipe.ranks)
    except LayoutError:
        return None


def apply_wishes(recipe: Recipe, wishes: dict[str, str], nodes: Nodes = ONE_NODE) -> Run:
    """The recipe with the user's variables applied, on these nodes. Raises UserError where they cannot be met."""
    flags = dict(recipe.flags)
    for variable, name in (FLAG_VARIABLES | {"DATA": DATA_FLAGS[Path(recipe.script).stem]}).items():
        if wishes.get(variable):
            flags |= {name: [wishes[variable]]}
    own = _further_flags(wishes)
    flags, notes = todays_flags(parse_flags(flag_words(flags) + flag_words(own)))
    devices = choose_devices(recipe.gpus, wishes)
    processes = choose_processes(recipe, devices, wishes)
    stated, world_size = stated_layout(recipe), processes * nodes.count
    if stated and stated.processes != world_size:
        each = "GPUS" if devices else "PROCESSES"
        flags, note = keep_global_batch(flags, stated, world_size, f"NNODES x {each}" if nodes.count > 1 else each)
        notes.append(note)
    command = LaunchCommand(
        script=ROOT / recipe.script,
        flags=flags,
        log_dir=os.path.join(*(flags.get("output_dir") or ["."])[:1], "log"),
        devices=devices,
        processes=processes,
        nodes=nodes,
    )
    card, gpu_memory_gb = wishes.get("CARD") or "", _number("GPU_MEMORY_GB", wishes.get("GPU_MEMORY_GB"))
    if card:
        gpu_memory_gb = wished_card(card, gpu_memory_gb).named_gb
    return Run(command, gpu_memory_gb or recipe.gpu_memory_gb, card, todays_flags(own)[0], tuple(notes))


def known_model(run: Run) -> Run:
    """With the name of its configuration for the demo's model that is not made yet: a plan and a rehearsal need
    that."""
    if "model_name_or_path" not in lacking_of_the_demo(run):
        return run
    flags = run.command.flags | {"model_name_or_path": [DEMO_CONFIG]}
    return replace(run, command=replace(run.command, flags=flags))


def lacking_of_the_demo(run: Run) -> dict[str, str]:
    """{flag: folder} of what the run takes from the demo and is not there."""
    return {
        name: folder
        for name, (folder, file) in OF_THE_DEMO.items()
        if run.command.flags.get(name) == [folder] and not any(Path(folder).glob(file))
    }


def choose_devices(needed: int, wishes: dict[str, str]) -> tuple[str, ...]:
    """The cards to use: DEVICES as given, else the first GPUS (or `needed`) of those that are visible."""
    count = _number("GPUS", wishes.get("GPUS"))
    listed, visible = (_listed(wishes.get(variable)) for variable in ("DEVICES", "CUDA_VISIBLE_DEVICES"))
    if not needed:
        if count or listed or wishes.get("CARD"):
            raise UserError("GPUS, DEVICES, CARD: this recipe runs on the CPU. Leave them out.")
        return ()
    if listed:
        if count and count != len(listed):
            raise UserError(f"GPUS={count} does not agree with DEVICES={','.join(listed)}. Leave one out.")
        for device in listed:
            if not re.fullmatch(r"\d+|(GPU|MIG)-[\w/-]+", device):
                raise UserError(f"DEVICES: found {device!r}, expected numbers of cards with commas: DEVICES=0,1,2,3.")
        if len(set(listed)) != len(listed):
            raise UserError(f"DEVICES={','.join(listed)} names a card twice: each card takes one process.")
        return listed
    count = count or needed
    return visible[:count] if len(visible) >= count else tuple(str(number) for number in range(count))


def choose_processes(recipe: Recipe, devices: tuple[str, ...], wishes: dict[str, str]) -> int:
    """Ranks of one node: one a card; on a CPU PROCESSES, or as many as the recipe states."""
    wished = _number("PROCESSES", wishes.get("PROCESSES"))
    if wished and devices:
        raise UserError("PROCESSES: this recipe runs on cards, one process each. Say GPUS=N, or leave it out.")
    return len(devices) or wished or recipe.processes


def _further_flags(wishes: dict[str, str]) -> Flags:
    """Of ARGS."""
    try:
        return parse_flags(shlex.split(wishes.get("ARGS", "")))
    except (UserError, ValueError) as error:  # shlex's: a quotation that nothing closes
        raise UserError(f"ARGS={wishes['ARGS']}: {error}") from None


def _listed(value: str | None) -> tuple[str, ...]:
    """("0", "1") for "0, 1"."""
    return tuple(word.strip() for word in (value or "").split(",") if word.strip())


def _number(name: str, value: str | None) -> int | None:
    if not value:
        return None
    if not value.isdecimal() or int(value) == 0:
        raise UserError(f"{name}: found {value!r}, expected a whole number above 0.")
    return int(value)


def situation(recipe: Recipe, run: Run) -> RunConfig:
    """The run as the checks see it."""
    stated = stated_layout(recipe)
    return RunConfig(
        script=recipe.script,
        words=run.command.flags,
        devices=run.command.devices,
        gpu_memory_gb=run.gpu_memory_gb,
        card=run.card,
        processes=run.command.world_size,
        nodes=run.command.nodes,
        stated=stated if stated and stated.processes != run.command.world_size else None,
        own=run.own,
    )


def run(recipe: Recipe, run: Run) -> int:
    """Check, start the ranks, watch them; the exit code."""
    from launch import preflight
    from launch.checkpoint.state.output_lock import lock_start
    from launch.preflight.continuation import goes_on_from
    from launch.preflight.report import print_findings

    notes = [*run.notes, *_make_questions(run)]
    findings = preflight.run(situation(recipe, run), starts=run.command.nodes.rank == 0)
    faults = [finding for finding in findings if not finding.ok]
    print("\n".join(map(localized, notes)), end="\n" if notes else "")
    print_findings(findings, sys.stderr if faults else sys.stdout)
    if faults:
        told = [f"{recipe.target} cannot start here: {len(faults)} of {len(findings)} checks failed."]
        if any(finding.subject == "cards" for finding in faults):
            given = given_variables(os.environ)
            told.append(f"The same on this machine's CPU, with a tiny model: make rehearse-{recipe.target}{given}")
            if "lora" in run.command.flags and situation(recipe, run).finetunes:
                told.append("A LoRA that trains a small model on the CPU: make lora-tiny")
        for folder in lacking_of_the_demo(run).values():
            told.append(f"{folder} comes from the demo, which takes about 7 minutes: make demo")
        raise UserError("\n".join(told))
    os.environ[preflight.SHOWN] = "1"
    os.environ[COMMAND] = to_continue(recipe, run)
    if not run.command.devices:
        # Else the launcher, which imports Paddle, sets 1 and its ranks inherit that.
        os.environ.setdefault("OMP_NUM_THREADS", threads_per_rank(run.command.processes))
    from launch.processes.logs import BY_SIGNAL, HUNG
    from launch.processes.supervise import supervise

    started = time.time()
    if run.command.nodes.rank == 0:
        lock_start(run.command.flags["output_dir"][0])
    exit_code = supervise(run.command.words(), run.command.own_log_dir, run.command.processes, meet(run.command))
    if exit_code == 0 and run.command.nodes.rank == 0:
        for line in next_step(recipe.script, run.command.flags, started):
            print(line)
    if exit_code in (HUNG, *BY_SIGNAL) and (checkpoint := goes_on_from(situation(recipe, run))):
        print(f"the same command goes on from {checkpoint}", file=sys.stderr)
    return exit_code


def _make_questions(run: Run) -> list[str]:
    """Make the questions that recipes/tiny/lora.sh states where they are not there; the line that says so."""
    if run.command.flags.get("dataset_name_or_path") != [QUESTIONS] or Path(QUESTIONS).exists():
        return []
    from launch.demos.content import DEV_ROWS, TRAIN_ROWS, write_questions

    write_questions(Path(QUESTIONS), TRAIN_ROWS, DEV_ROWS)
    return [f"{QUESTIONS}: made, {TRAIN_ROWS} rows to train on, {DEV_ROWS} to evaluate on"]


def to_continue(recipe: Recipe, run: Run) -> str:
    """The command that a run which is stopped goes on by: that of make where make has started it."""
    if make_above() is None:
        return shlex.join(run.command.words())
    own = {name: words for name, words in run.own.items() if f"--{name}" not in DECIDE_THE_START}
    return f"make {recipe.target}{given_variables(os.environ | {'ARGS': shlex.join(flag_words(own))})}"


def meet(command: LaunchCommand) -> Link | None:
    """Wait for the other nodes, and say when all are there; what keeps this one connected with them."""
    if command.nodes.count == 1:
        return None
    from launch.nodes.meeting import meet_nodes

    link = meet_nodes(command.nodes, command.flags, command.processes)
    print(f"all {command.nodes.count} nodes are here; rank 0 reports on node 0, this one's logs: {command.own_log_dir}")
    return link


def show(recipe: Recipe, run: Run) -> int:
    """Print the command on stdout, what there is to say on stderr."""
    print("\n".join(map(localized, run.notes)), end="\n" if run.notes else "", file=sys.stderr)
    print(run.command.text())
    return 0


def rehearse(recipe: Recipe, run: Run) -> int:
    """Run the same on the CPU; the exit code."""
    from launch import preflight
    from launch.preflight.report import print_findings
    from launch.rehearsal.rehearse import rehearse

    faults = [finding for finding in preflight.run_on_flags(situation(recipe, run)) if not finding.ok]
    if faults:
        print_findings(faults, sys.stderr)
        raise UserError(f"{recipe.target} cannot be rehearsed with these flags.")
    print("\n".join(map(localized, run.notes)), end="\n" if run.notes else "")
    if os.environ.get("DATA") or DATA_FLAGS[Path(recipe.script).stem] in run.own:
        _check_own_data(recipe, run)
    output = os.environ.get("OUTPUT")  # the recipe's own --output_dir is for the real run
    command = replace(run.command, processes=run.command.world_size, nodes=ONE_NODE)
    real = f"make {recipe.target}{given_variables(os.environ)}"
    return rehearse(recipe.target, command, real, Path(output).absolute() if output else None)


def _check_own_data(recipe: Recipe, run: Run) -> None:
    """The user's data as the real run will read them: a rehearsal trains on its own."""
    from launch import preflight
    from launch.preflight.report import print_findings

    findings = preflight.run_on_data(situation(recipe, run))
    faults = [finding for finding in findings if not finding.ok]
    print(localized("your data, which the real run reads:"), file=sys.stderr if faults else sys.stdout)
    print_findings(findings, sys.stderr if faults else sys.stdout)
    if faults:
        raise UserError(
            f"{recipe.target} cannot start with these data: {len(faults)} of {len(findings)} checks failed."
        )


def plan(recipe: Recipe, run: Run) -> int:
    """Print the memory and time that it needs, whatever cards are here; FORMAT=json: as data."""
    from launch import preflight
    from launch.plan.hardware import card_named, card_of_memory
    from launch.plan.job import Job
    from launch.plan.report import FORMATS, TEXT, report
    from launch.preflight.machine.advice import lines_below_a_plan
    from launch.preflight.report import print_findings

    form = os.environ.get("FORMAT") or TEXT
    if form not in FORMATS:
        raise UserError(f"FORMAT: found {form!r}, allowed: {', '.join(FORMATS)}.")
    faults = [finding for finding in preflight.run_on_flags(situation(recipe, run)) if not finding.ok]
    if faults:
        print_findings(faults, sys.stderr)
        raise UserError(f"{recipe.target} cannot be planned with these flags.")
    print("\n".join(map(localized, run.notes)), end="\n" if run.notes else "", file=sys.stderr)
    card = card_named(run.card) if run.card else card_of_memory(run.gpu_memory_gb) if run.command.devices else None
    config = situation(recipe, run)
    job = Job.from_run(config, card)
    steps = max(0, config.flags.max_steps)
    print(report(job, card, form, steps))
    if form == TEXT:
        if run.command.nodes.count > 1:
            count = run.command.nodes.count
            print(localized(f"The network between the {count} nodes is not counted: all cards as in one machine."))
        for line in lines_below_a_plan(config, card):
            print(localized(line))
    return 0


ACTIONS = {"run": run, "print": show, "rehearse": rehearse, "plan": plan}


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))
