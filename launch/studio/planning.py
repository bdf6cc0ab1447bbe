"""A choice made on the page as the commands see it: its plan, what is refused and why, what would be better.

    choice = RecipeChoice.read({"recipe": "lora-qwen3-8b", "GPUS": "2", "ARGS": "--max_length 2048"})
    plan_of(choice)["plan"]["peak_bytes"]     # as make plan-lora-qwen3-8b GPUS=2 ... FORMAT=json prints it

Texts are in English here; launch/studio/app.py translates what it sends.
"""

import difflib
import os
import re
import shlex
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import psutil

from launch import preflight
from launch.config.flag_values import flag_arguments, known_flags, parse_flags
from launch.config.recipe_file import ROOT, Recipe, load_recipes
from launch.config.run_config import Nodes, RunConfig
from launch.config.variables import FLAG_VARIABLES, given_variables, number
from launch.devices.cards import driver, list_cards
from launch.devices.cuda import paddle_build
from launch.errors import UserError
from launch.families.named_configs import config_names
from launch.methods.registry import METHODS, method_of
from launch.plan.hardware import CARDS, kind_of
from launch.plan.interconnect import NETWORKS
from launch.plan.job import Job
from launch.plan.memory_model import PARTS, plan_memory
from launch.plan.plan_report import as_json, duration_of, mfu_of, speed_of, verdict, verdict_on_host
from launch.plan.plan_report import describe as describe_job
from launch.plan.time_plan import DAY, TimePlan, plan_time
from launch.preflight.flag_check import purposes_of
from launch.preflight.gpus import check_driver
from launch.preflight.proposals import Proposal, changes_that_fit, describe, faster_ways, layouts_on
from launch.preflight.report import Finding
from launch.preflight.requested import DEMO_FOLDERS, card_of_plan, make_questions, missing_demo_paths, requested_run
from launch.processes.command import LaunchCommand

VARIABLES = ("MODEL", "DATA", "OUTPUT", "GPUS", "CARD", "PROCESSES", "NNODES", "NETWORK", "ARGS")
FROM_HERE = ("CUDA_VISIBLE_DEVICES",)  # what a recipe also reads, from the environment that it is started in
LONGEST_VALUE = 10_000  # letters of a variable
SAMPLES = 1000  # whose time is shown where neither steps nor rows are known
OFFERED = 5  # changes that make a run fit
# The key in front of a message, which tells the control that it is about.
KEY = re.compile(r"(?:--)?(\w+)(?:=|: )")
# The value that a message has found, the name that it takes for the meant one, and those that it lists as allowed.
LISTED = re.compile(
    r"'([^'\n]+)'.*?(?:Did you mean (\S+)\? )?(?:allowed|known|Names): ((?:[\w.+-]+, )+[\w.+-]*\w)", re.DOTALL
)


@dataclass(frozen=True)
class RecipeChoice:
    """A recipe and the variables of make that are given for it."""

    recipe: Recipe
    variables: dict[str, str]

    @classmethod
    def read(cls, given: Mapping[str, object]) -> "RecipeChoice":
        """Return the choice of a request.

        Raises:
            UserError: For an unknown recipe or variable.
        """
        recipes = {recipe.target: recipe for recipe in load_recipes(ROOT)}
        name = given.get("recipe", "")
        if name not in recipes:
            raise UserError(f"recipe: found {name!r}, which is none. Did you mean {nearest(str(name), recipes, 0.0)}?")
        variables = {key: value for key, value in given.items() if key != "recipe" and value != ""}
        for key, value in variables.items():
            if key not in VARIABLES or not isinstance(value, str) or len(value) > LONGEST_VALUE or "\0" in value:
                raise UserError(f"{key}: found a value that no recipe takes. Allowed: {', '.join(VARIABLES)}.")
        return cls(recipes[str(name)], {key: os.path.expanduser(str(value)) for key, value in variables.items()})

    @property
    def command(self) -> str:
        """The target of make with its variables."""
        return f"{self.recipe.target}{given_variables(self.variables)}"

    def run(self, sizes_alone: bool) -> tuple[RunConfig, list[str]]:
        """Return the run as make has it, and notes.

        Args:
            sizes_alone: Enough for a plan or a rehearsal.
        """
        here = {name: os.environ[name] for name in FROM_HERE if name in os.environ}
        nodes = Nodes(number("NNODES", self.variables) or 1)  # for a plan they need not know where they meet
        return requested_run(self.recipe, here | self.variables, nodes, sizes_alone=sizes_alone)

    def without(self, controls: set[str]) -> "RecipeChoice | None":
        """Return the choice without the variables and flags of these controls; None where it has none of them."""
        names = FLAG_VARIABLES | {"DATA": method_of(self.recipe.script).data_flag}
        kept = {name: value for name, value in self.variables.items() if not {name, names.get(name)} & controls}
        with suppress(UserError, ValueError):  # ARGS that cannot be read, a fault of its own
            flags = parse_flags(shlex.split(kept.get("ARGS", "")))
            if controls & flags.keys():
                left = {name: words for name, words in flags.items() if name not in controls}
                kept["ARGS"] = shlex.join(flag_arguments(left))
        return replace(self, variables=kept) if kept != self.variables else None


def offered() -> dict:
    """Return the choices: recipes, names of models, kinds of cards, the devices of this machine, and the demos."""
    here = list_cards()
    fits = check_driver(driver(), here, paddle_build()) if here else None
    return {
        "recipes": [_described(recipe) for recipe in load_recipes(ROOT)],
        "models": [name for name in config_names() if not name.endswith(("-rehearsal", "-tiny"))],
        "cards": {name: card.named_gb for name, card in CARDS.items()},
        "networks": list(NETWORKS),
        "here": {"card": kind_of(here[0]).name, "count": len(here), "memory_gb": kind_of(here[0]).named_gb}
        | {"fault": {"found": fits.found, "fix": fits.fix} if fits and not fits.ok else None}
        if here
        else None,
        "demo_minutes": {folder: made.minutes for folder, made in DEMO_FOLDERS.items()},
        "demo_commands": {folder: made.command for folder, made in DEMO_FOLDERS.items()},
        "parts": PARTS,
        "flags": {
            method.name: {
                name: {"help": purposes_of(method.name)[name], "default": flag.default}
                for name, flag in known_flags(method.name).items()
            }
            for method in METHODS
        },
    }


def nearest(found: str, names: Iterable[str], cutoff: float = 0.6) -> str:
    """Return the name that was probably meant, whatever its case; "" where none is near."""
    known = {name.lower(): name for name in names}
    near = difflib.get_close_matches(found.lower(), known, n=1, cutoff=cutoff)
    return known[near[0]] if near else ""


def _described(recipe: Recipe) -> dict:
    return {
        "target": recipe.target,
        "summary": recipe.summary,
        "method": method_title(recipe),
        "flags": method_of(recipe.script).name,
        "length_flag": method_of(recipe.script).length_flag,
        "gpus": recipe.gpus,
        "gpu_memory_gb": recipe.gpu_memory_gb,
    }


def method_title(recipe: Recipe) -> str:
    """Return the name of a recipe's method, of a fine-tuning with what it trains."""
    flags, method = recipe.flags, method_of(recipe.script)
    if not method.full_title:
        return method.title
    if flags.get("prefix_tuning", ["0"]) != ["0"]:
        return "prefix tuning"
    if flags.get("lora", ["0"]) != ["0"]:
        return "LoRA on a base in 8 or 4 bits" if "weight_quantize_algo" in flags else "LoRA"
    return method.full_title


def plan_of(choice: RecipeChoice) -> dict:
    """Return the plan as `make plan-X` prints it; or all faults, and what empty controls mean without what is at fault.

    What is at fault is left out until the rest can be read: so faults behind the first are found, too.
    """
    head = {"command": choice.command, "recipe": choice.recipe.target}
    faults, rest = [], choice
    while rest:
        try:
            run, notes = rest.run(sizes_alone=True)
            found = [one for one in preflight.run_on_flags(run) if not one.ok]
            now = [_fault(one.subject.removeprefix("--"), one.found, one.fix) for one in found]
            if not now:
                job = Job.from_run(run, card_of_plan(run))
                return head | ({"faults": faults, "values": _values(run)} if faults else _planned(run, job, notes))
        except UserError as error:
            key = KEY.match(str(error))
            now = [_fault(key[1] if key else "", str(error), "")]
        faults += now
        rest = rest.without({fault["control"] for fault in now})
    return head | {"faults": faults, "values": {}}


def _planned(run: RunConfig, job: Job, notes: list[str]) -> dict:
    card, command = card_of_plan(run), LaunchCommand.of_run(run)
    memory, time, steps = plan_memory(job, card), plan_time(job, card), max(0, run.flags.max_steps)
    memory_here = psutil.virtual_memory().total
    fits = memory.fits is not False if run.devices else run.processes * memory.peak_bytes < memory_here
    return {
        "faults": [],
        "notes": notes,
        "plan": as_json(job, memory, time, steps) | {"peak_parts": [stage.peak.parts for stage in memory.stages]},
        "fits": fits,
        "memory_here": None if run.devices else memory_here // run.processes,
        "about": describe_job(job),
        "verdict": verdict(memory) if run.devices else verdict_on_host(run.processes * memory.peak_bytes, memory_here),
        "speed": speed_of(time),
        "mfu": mfu_of(time),
        "duration": duration_of(time, time.seconds(steps) if steps else time.days(SAMPLES) * DAY),
        "steps": steps,
        "rows": _rows(run, time) if not steps else None,
        "calibrated": time.calibrated,
        "shares": time.shares,
        "cards": run.processes if run.devices else 0,
        "values": _values(run),
        "launch": command.text() if run.nodes.count == 1 else command.script_text(),  # what all nodes start
    }


def _rows(run: RunConfig, time: TimePlan) -> dict | None:
    """Return what the rows of the data make of a run by epochs; None where they are not quickly counted."""
    files = [Path(run.flags.dataset_name_or_path or "", f"{split}.json") for split in ("train", "dev")]
    count, held_back = (_lines(str(file), file.stat().st_mtime_ns) if file.is_file() else 0 for file in files)
    if not count:
        return None
    epochs = run.flags.num_train_epochs or 1
    seconds = time.days(round(count * epochs)) * DAY
    found = {"count": count, "held_back": held_back, "epochs": epochs, "seconds": seconds}
    return found | {"duration": duration_of(time, seconds)}


@lru_cache(maxsize=64)
def _lines(path: str, changed: int) -> int:
    """Return the rows of a file with one a line, 0 of another. changed: so that a changed file is counted again."""
    with open(path, "rb") as file:
        first = file.read(1)
        return 1 + sum(piece.count(b"\n{") for piece in iter(lambda: file.read(1 << 20), b"")) if first == b"{" else 0


def _values(run: RunConfig) -> dict[str, str]:
    """Return the values of the controls that are left empty."""
    flags = run.flags
    return {
        "tokens": str(getattr(flags, run.method.length_flag)),
        "micro_batch": str(flags.per_device_train_batch_size),
        "accumulation": str(flags.gradient_accumulation_steps),
        "MODEL": flags.model_name_or_path or "",
        "DATA": " ".join(run.explicit.get(run.method.data_flag, [])),
        "OUTPUT": flags.output_dir or "",
        "learning_rate": f"{flags.learning_rate:g}" if flags.learning_rate else "",
        "epochs": f"{flags.num_train_epochs:g}" if flags.num_train_epochs and flags.max_steps <= 0 else "",
        "steps": str(flags.max_steps) if flags.max_steps > 0 else "",
        "rank": str(flags.lora_rank) if flags.lora else "",
        "GPUS": str(len(run.devices) or ""),
        "PROCESSES": str(run.processes // run.nodes.count),
        "NNODES": str(run.nodes.count),
    }


def _fault(control: str, found: str, fix: str) -> dict[str, str]:
    """Return a fault of a control; meant: the name that its message means, or the nearest of those that it lists."""
    listed = LISTED.search(f"{found}; {fix}")
    return {
        "control": control,
        "found": found,
        "fix": fix,
        "meant": (listed[2] or nearest(listed[1], listed[3].split(", "))) if listed else "",
    }


def advice_of(choice: RecipeChoice) -> list[dict]:
    """Return changes that make a run fit, or else faster, each with its ARGS."""
    run, _ = choice.run(sizes_alone=True)
    card = card_of_plan(run)
    if card is None or not run.flags.do_train:
        return []
    if plan_memory(Job.from_run(run, card), card).fits:
        return [_offer(way, f"x {1 / way.slowdown:.2f}") for way in faster_ways(run, card)]
    return [
        {
            "title": change.title,
            "result": change.result,
            "peak_bytes": change.candidate.peak_bytes,
            "speed": f"x {1 / change.slowdown:.2f}",
            "args": change.arguments,
        }
        for change in changes_that_fit(run, card, OFFERED)
    ]


def layouts_of(choice: RecipeChoice) -> list[dict]:
    """Return the fastest layouts that fit such cards, as `make fit` finds them.

    They have as many samples a step as the recipe has on its own cards: also where it cannot be dealt to the choice's
    cards as it stands.
    """
    others = {name: value for name, value in choice.variables.items() if name not in ("GPUS", "NNODES")}
    run, _ = replace(choice, variables=others).run(sizes_alone=True)
    card, cards = card_of_plan(run), number("GPUS", choice.variables) or len(run.devices)
    if card is None:
        return []
    _, ways = layouts_on(run, card, cards, Nodes(number("NNODES", choice.variables) or 1))
    return [_offer(way, "") for way in ways]


def _offer(way: Proposal, speed: str) -> dict:
    peak = way.candidate.peak_bytes
    return {"title": describe(way.candidate), "result": "", "peak_bytes": peak, "speed": speed, "args": way.arguments}


def checks_of(choice: RecipeChoice) -> list[dict]:
    """Return all checks that a start makes, of this machine, the model and the data, without starting anything."""
    try:
        run, _ = choice.run(sizes_alone=False)
        if run.nodes.count > 1:
            raise UserError(
                f"NNODES: found {run.nodes.count}, the studio starts a run on this machine alone. Copy the command and "
                "start it on each node with its RANK and the MASTER (docs/multi-node.md)."
            )
        make_questions(run)
        findings = preflight.run(run)
    except UserError as error:
        return [_shown(Finding(False, choice.recipe.target, str(error)))]
    demo = [
        Finding(False, f"--{flag}", f"{folder} comes from the demo, which takes {made.minutes} minutes", made.command)
        for flag, folder in missing_demo_paths(run).items()
        for made in (DEMO_FOLDERS[folder],)
    ]
    return [_shown(finding) for finding in [*findings, *demo]]


def _shown(finding: Finding) -> dict:
    """Return a finding for the page, on which weights that are not here are a fault: a button fetches them."""
    if finding.subject == "weights" and finding.warns:
        finding = replace(finding, ok=False, fix="Download")
    return {
        "ok": finding.ok,
        "warns": finding.warns,
        "subject": finding.subject,
        "found": finding.found,
        "fix": finding.fix,
    }
