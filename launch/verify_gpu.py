"""Measure on cards what the plan says of a recipe: one file to send back.

    make verify-gpu RECIPE=pretrain-llama7b DATA=... MODEL=... GPUS=8
    python launch/verify_gpu.py pretrain-llama7b
    python launch/verify_gpu.py pretrain-llama7b --rehearse    # on a CPU, tiny

20 steps of the recipe as the user's variables have it: planned against measured memory of every rank, step time,
tokens/s, MFU, the first loss and its window. Then a tiny model of the same family with tensor parallel 1 and 2: their
losses. With versions, cards and driver all of it goes to build/verify-gpu/RECIPE.json; docs/plan.md says what becomes
of it. Nothing of this has been run on cards by us.
"""

import argparse
import ast
import json
import os
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)  # the repository, not launch/

from data_tools.cli import Parser
from launch.devices.cards import driver, list_cards
from launch.environment.machine import check_cpu
from launch.errors import UserError
from launch.guard import guarded
from launch.models.flag_values import load_schema
from launch.plan.hardware import CARDS, Card, card_named
from launch.reporting.records import read_summary
from launch.verify.report import arguments_of, compare_losses, report_lines, run_report

ROOT = Path(__file__).resolve().parent.parent
STEPS, PARALLEL_STEPS = 20, 3
# Nothing but training, every step logged; the framework's own operators on a CPU, which is what the plan knows.
MEASURED = (
    f"--max_steps {STEPS} --logging_steps 1 --save_strategy no --do_eval 0 --evaluation_strategy no "
    "--resume_from_checkpoint none --overwrite_output_dir 1 --cpu_fast off"
)
# Random numbers are drawn anew for each layout: the weights are read, and no adapter is added.
SAME_WEIGHTS = {
    "continue_training": "--continue_training 1",
    "lora": "--lora 0",
    "prefix_tuning": "--prefix_tuning 0",
}


def main(argv: list[str]) -> None:
    args = _parse(argv)
    recipe = find_recipe(args.recipe)
    directory = args.output or ROOT / "build" / "verify-gpu"
    action = "rehearse" if args.rehearse else "run"
    print(f"== 1 of 3: {STEPS} steps of {args.recipe}", flush=True)
    wishes = os.environ.get("ARGS", "")
    measured = train(recipe, action, directory / args.recipe / "run", ARGS=f"{wishes} {MEASURED}")
    script = script_of(recipe)
    card = None if args.rehearse else _card()
    report = {
        "recipe": args.recipe,
        "rehearsed": args.rehearse,
        "machine": _machine(),
        "versions": read_summary(measured)["versions"],
        "git_revision": read_summary(measured)["git_revision"],
        "run": run_report(measured, script, card),
        "tensor_parallel": _tensor_parallel(_unquantised(recipe), args.rehearse, directory / args.recipe),
    }
    file = directory / f"{args.recipe}.json"
    file.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print("\n".join(["", *report_lines(report), f"all of it: {os.path.relpath(file)}"]))


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = Parser("python launch/verify_gpu.py", __doc__)
    parser.add_argument("recipe", help="its target, such as pretrain-llama7b")
    parser.add_argument("--rehearse", action="store_true", help="on this machine's CPU, with tiny models")
    parser.add_argument("--output", type=Path, help="directory of the file and the runs; default build/verify-gpu")
    return parser.parse_args(argv)


def find_recipe(target: str) -> Path:
    """The file of a recipe. Raises UserError for an unknown one."""
    files = sorted((ROOT / "recipes").glob("*/*.sh"))
    listing = ["awk", "-f", ROOT / "launch" / "environment" / "list_recipes.awk", *files]
    lines = subprocess.run(listing, capture_output=True, text=True, check=True).stdout.splitlines()
    recipes = {target: Path(file) for target, file in (line.split("\t")[:2] for line in lines)}
    if target not in recipes:
        raise UserError(f"RECIPE: found {target!r}, known: {', '.join(sorted(recipes))}.")
    return recipes[target]


def script_of(recipe: Path) -> str:
    """The shared module that a recipe runs."""
    (line,) = [line for line in recipe.read_text(encoding="utf-8").splitlines() if line.startswith("run ")]
    return line.split()[1]


def train(recipe: Path, action: str, directory: Path, **variables: str) -> Path:
    """Run or rehearse a recipe; where its records are. Raises UserError where it fails, having shown why."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"ACTION": action, "OUTPUT": str(directory), "PATH": path} | variables
    done = subprocess.run(["bash", recipe], env=environment)
    if done.returncode:
        raise UserError(f"{recipe.relative_to(ROOT)} ended with exit code {done.returncode}; nothing was compared.")
    return directory / "output" if action == "rehearse" else directory


def _tensor_parallel(recipe: Path, rehearse: bool, directory: Path) -> dict | None:
    """Tensor parallel 1 against 2 with the tiny model of a rehearsal; None with fewer than 2 cards."""
    print("== 2 of 3: a tiny model, tensor parallel 1, on the CPU", flush=True)
    wishes = {"MODEL": "", "DATA": "", "DEVICES": ""}
    one = train(recipe, "rehearse", directory / "tp1", **wishes, **_alone(recipe, 1, accumulation=1))
    if not rehearse and len(list_cards()) < 2:
        return None
    arguments = arguments_of(read_summary(one))
    materials = ""
    if not rehearse:
        wishes, materials = wishes | rehearsed_with(arguments), same_materials(arguments)
        one = train(recipe, "run", directory / "tp1-card", **wishes, **_alone(recipe, 1, 1, materials))
    print("== 3 of 3: the same, tensor parallel 2", flush=True)
    # A recipe keeps its samples a step on another number of processes than its own; on its own it does as told.
    accumulation = arguments["gradient_accumulation_steps"] if processes_of(recipe) == 2 else 1
    action = "rehearse" if rehearse else "run"
    two = train(recipe, action, directory / "tp2", **wishes, **_alone(recipe, 2, accumulation, materials))
    return compare_losses(one, two, "float32" if rehearse else "half")


def _unquantised(recipe: Path) -> Path:
    """A quantised base is for adapters, which are left out in the comparison: full fine-tuning takes its place."""
    quantised = "--weight_quantize_algo" in recipe.read_text(encoding="utf-8")
    return find_recipe("finetune-llama7b") if quantised else recipe


def rehearsed_with(arguments: dict) -> dict[str, str]:
    """Variables that let a run on cards take the tiny model and the made-up data of a rehearsal."""
    data = arguments.get("input_dir") or arguments["dataset_name_or_path"]
    data = ast.literal_eval(data) if data.startswith("[") else [data]
    return {"MODEL": arguments["model_name_or_path"], "DATA": data[0], "GPU_MEMORY_GB": "1"}


def same_materials(arguments: dict) -> str:
    """Flags with which that model can be trained: its tokenizer, the rehearsal's lengths."""
    names = ("tokenizer_name_or_path", "max_seq_length", "max_length", "src_length")
    return " ".join(f"--{name} {arguments[name]}" for name in names if name in arguments)


def _alone(recipe: Path, degree: int, accumulation: int, further: str = "") -> dict[str, str]:
    """Variables of a recipe for tensor parallel and nothing else."""
    number, other = ("PROCESSES", "GPUS") if "GPUS=0" in recipe.read_text(encoding="utf-8") else ("GPUS", "PROCESSES")
    flags = [
        MEASURED,
        f"--max_steps {PARALLEL_STEPS} --gradient_accumulation_steps {accumulation} --loss_watch 0",
        f"--tensor_parallel_degree {degree} --pipeline_parallel_degree 1 --sequence_parallel 0",
        further,
        *(words for flag, words in SAME_WEIGHTS.items() if flag in load_schema(script_of(recipe))),
    ]
    return {number: str(degree), other: "", "ARGS": " ".join(filter(None, flags))}


def processes_of(recipe: Path) -> int:
    """How many a recipe states."""
    stated = dict(re.findall(r"\b(GPUS|PROCESSES)=(\d+)", recipe.read_text(encoding="utf-8")))
    return int(stated["GPUS"]) or int(stated["PROCESSES"])


def _card() -> Card | None:
    """The kind of the first card here; None for one that the catalogue does not have: its plan has no card."""
    name = list_cards()[0].name
    return card_named(name) if any(kind.partition("-")[0] in name for kind in CARDS) else None


def _machine() -> dict:
    found = driver()
    return {
        "processor": check_cpu().found,
        "cards": [asdict(card) for card in list_cards()],
        "driver": found._asdict() if found else None,
    }


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))
