"""A few steps of a recipe at full size, planned and measured: memory of every rank, time of a step, first loss.

Weights are drawn on the cards from the seed (--continue_training 0), data and tokenizer are made up: nothing is
downloaded. A pretended run only plans. No Paddle here.
"""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import cycle, islice
from pathlib import Path

import numpy as np

from data_tools.formats.tokens.indexed import IndexedWriter
from launch.certify.bench import ROOT, Bench, CheckFailed, make_materials, tiny_pretraining, visible_devices
from launch.certify.measured import run_report
from launch.config.flag_values import Flags, flag_words
from launch.config.recipe_file import load_recipes
from launch.devices.cards import list_cards
from launch.errors import UserError
from launch.families.named_configs import load_config
from launch.families.registry import family_of_config
from launch.plan.hardware import GIB, Card, card_named, card_of_memory
from launch.plan.job import Job
from launch.plan.memory_model import plan_memory
from launch.plan.time_plan import plan_time
from launch.processes.orphans import signal_at_parents_end

STEPS = 8
ACCUMULATION = 2  # at most, but in a pipeline, where the number of micro batches decides the time
MEMORY_TOLERANCE = 0.10
# Flags that say nothing of memory and time.
OF_NO_JOB = ("dataset_name_or_path", "input_dir", "output_dir", "report_to", "disable_tqdm", "logging_steps")
LACKING = ("✗ host memory", "✗ disk")  # checks of a recipe that tell of the machine, not of its cards
TIME_TOLERANCE = 0.40  # docs/plan.md: small fine-tuning batches are up to 37 % off
MEASURED = {
    "continue_training": "0",
    "max_steps": str(STEPS),
    "logging_steps": "1",
    "save_strategy": "no",
    "evaluation_strategy": "no",
    "do_eval": "0",
    "loss_watch": "0",
    "resume_from_checkpoint": "none",
    "overwrite_output_dir": "1",
    "dataloader_num_workers": "0",
    "report_to": "none",
}


@dataclass(frozen=True)
class Stated:
    """What a recipe states. cards: it is made for so many, of memory_gb each."""

    target: str
    file: Path
    script: str
    flags: Flags
    cards: int
    memory_gb: int

    @property
    def config(self) -> str:
        """The name of the model's configuration."""
        return self.flags["model_name_or_path"][0]


def recipes_for_cards() -> dict[str, int]:
    """How many cards each recipe needs that runs on cards, those that need the fewest first."""
    cards = {recipe.target: recipe.gpus for recipe in load_recipes(ROOT) if recipe.gpus}
    return dict(sorted(cards.items(), key=lambda item: (item[1], item[0])))


def recipe(bench: Bench, target: str) -> None:
    """Plan and measure one recipe on as many cards as it states."""
    stated = read_recipe(target)
    if not bench.pretend and not bench.needs_cards(stated.cards):
        return
    card, memory = (card_of_memory(stated.memory_gb), 0) if bench.pretend else card_here()
    changes = MEASURED | _accumulation(stated.flags)
    job = Job.from_flags(f"launch/{stated.script}.py", stated.flags | _flags(changes), stated.cards, card)
    plan = plan_memory(job, card)
    if bench.pretend:
        _planned_row(bench, stated, job, card, plan)
        return
    needed = max(plan.peak_bytes, drawn_bytes(job))
    if needed > memory:
        found = f"{needed / GIB:.1f} GiB are planned, the card has {memory / GIB:.1f}: not run"
        bench.row("memory", "fits on the card", found, None)
        return
    output = _run(bench, stated, changes, card, memory)
    if output is None:
        return
    report(bench, output, stated, card, stated.flags | _flags(changes))


def largest(bench: Bench) -> None:
    """Full pretraining of LLaMA-7B's layers, as many as fit on one card: the plan close to the card's limit."""
    card, memory = (None, GIB) if bench.pretend else card_here()
    base = load_config("llama-rehearsal" if bench.pretend else "llama-7b")
    flags = tiny_pretraining(bench.materials, STEPS, **_one_card_flags(bench))
    count, planned = layers_that_fit(base, flags, card, memory)
    if not count:
        bench.row("layers", "one or more fit", f"{planned / GIB:.1f} GiB are planned for one layer", None)
        return
    model = write_model(bench.directory / "model", base | {"num_hidden_layers": count}, bench.materials)
    name = f"{count} layers of {'a tiny model' if bench.pretend else 'LLaMA-7B'}"
    flags |= {"model_name_or_path": [str(model)], "input_dir": [str(_tokens(bench.directory / "data", flags, 1))]}
    output = bench.train_well("run", "run_pretrain", flags)
    report(bench, output, Stated(name, output, "run_pretrain", flags, 1, 0), card)


def layers_that_fit(base: dict, flags: Flags, card: Card | None, memory: int) -> tuple[int, int]:
    """(how many layers fit in 92 % of the memory, at most those of the model; bytes planned for them or for one)."""
    planned = {}
    for count in range(1, base["num_hidden_layers"] + 1):
        job = Job.from_flags("launch/run_pretrain.py", flags | {"model_name_or_path": ["llama-7b"]}, 1, card)
        job = job.changed(config=base | {"num_hidden_layers": count})
        planned[count] = plan_memory(job, card).peak_bytes
    fitting = [count for count, size in planned.items() if size <= 0.92 * memory]
    return (fitting[-1], planned[fitting[-1]]) if fitting else (0, planned[1])


def _one_card_flags(bench: Bench) -> dict[str, str]:
    if bench.pretend:
        return MEASURED | {"gradient_accumulation_steps": "1", "per_device_train_batch_size": "8", "device": "cpu"}
    half = {"bf16": "auto", "fp16_opt_level": "O2", "scale_loss": "1024"}
    shape = {"max_seq_length": "2048", "recompute": "1", "gradient_accumulation_steps": str(ACCUMULATION)}
    return MEASURED | half | shape | {"use_flash_attention": "auto", "use_fused_rms_norm": "auto"}


# ---- the run


def _run(bench: Bench, stated: Stated, changes: dict[str, str], card: Card | None, memory: int) -> Path | None:
    """The recipe itself, with its checks and its launcher; its output directory. None, and a row, where its checks say
    that this machine has no room for it."""
    variables = prepare(bench.directory, stated, changes, card, memory) | {
        "DEVICES": ",".join(visible_devices()[: stated.cards]),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    log = bench.directory / "recipe.log"
    with open(log, "wb") as file:
        # SIGTERM at the end of this process: the recipe passes it on to its ranks.
        done = subprocess.run(
            ["bash", stated.file],
            env=os.environ | variables,
            stdout=file,
            stderr=subprocess.STDOUT,
            preexec_fn=lambda: signal_at_parents_end(signal.SIGTERM),
        )
    if done.returncode:
        faults = [line for line in log.read_text(errors="replace").splitlines() if "✗" in line]
        if faults and all(any(part in line for part in LACKING) for line in faults):
            bench.row("room", "host memory and disk suffice", "; ".join(line.strip() for line in faults), None)
            return None
        said = "; ".join(line.strip() for line in faults) or bench.log_end("run")
        raise CheckFailed(f"{stated.target} ended with exit code {done.returncode}: {said}")
    return bench.directory / "run"


def prepare(directory: Path, stated: Stated, changes: dict[str, str], card: Card | None, memory: int) -> dict[str, str]:
    """Make model and data in a folder; the recipe's variables with which it trains on them."""
    config = load_config(stated.config)
    materials = make_materials(family_of_config(config).rehearsal_config)
    model = write_model(directory / "model", config, materials)
    arguments = _flags(changes | {"tokenizer_name_or_path": str(model)})
    return {
        "ACTION": "run",
        "MODEL": str(model),
        "DATA": str(write_data(directory / "data", replace(stated, flags=stated.flags | _flags(changes)))),
        "OUTPUT": str(directory / "run"),
        "ARGS": shlex.join(flag_words(arguments)),
        **({"CARD": card.name} if card else {"GPU_MEMORY_GB": str(int(memory / GIB))}),
    }


def report(bench: Bench, output: Path, stated: Stated, card: Card | None, published: Flags | None = None) -> None:
    """Rows of what was planned and measured. published: flags with which benchmarks/published.py can plan the run."""
    for weights in output.glob("*.safetensors"):  # random numbers of this check, 13 GB of them
        weights.unlink()
    found, name = run_report(output, f"launch/{stated.script}.py", card), stated.target
    for row in found["memory"]:
        planned, measured = row["planned_bytes"] / GIB, row["measured_bytes"] / GIB
        bench.row(
            f"{name}: memory of tensors on rank {row['rank']}",
            f"{planned:.2f} GiB, within {MEMORY_TOLERANCE:.0%}",
            f"{measured:.2f} GiB",
            abs(row["error"]) <= MEMORY_TOLERANCE,
            unit="GiB",
            planned=planned,
            measured=measured,
        )
    speed = found["speed"]
    numbers = {"unit": "s", "planned": speed["planned_step_seconds"], "measured": speed["measured_step_seconds"]}
    rate = f"{speed['measured_tokens_per_second']:,.0f} tokens/s, MFU {speed['measured_mfu']:.1%}"
    if card and published:
        per_card = speed["measured_tokens_per_second"] / stated.cards
        numbers["published"] = published_line(stated, card, per_card, published)
    bench.row(
        f"{name}: time of a step",
        f"{numbers['planned']:.2f} s, within {TIME_TOLERANCE:.0%}",
        f"{numbers['measured']:.2f} s, {rate}",
        abs(speed["error"]) <= TIME_TOLERANCE if card else None,
        **numbers,
    )
    first = found["first_loss"]
    window = first["window"]
    expected = f"{window[0]:.2f} to {window[1]:.2f}" if window else "nothing is known"
    bench.row(f"{name}: first loss", expected, f"{first['measured']:.4f}", first["ok"], losses=found["losses"])
    bench.row(f"{name}: gate decisions", "", decisions(output), None)


def decisions(output: Path) -> str:
    """What the run said of precision, flash attention and fused RMSNorm."""
    log = (output / "log" / "workerlog.0").read_text(encoding="utf-8", errors="replace")
    subjects = ("precision:", "flash attention:", "fused RMSNorm:", "base:")
    return "; ".join(line for line in log.splitlines() if line.startswith(subjects)) or "nothing"


def published_line(stated: Stated, card: Card, tokens_per_second: float, flags: Flags) -> str:
    """A row of benchmarks/published.py: the same job, and tokens a second of each card."""
    words = shlex.join(flag_words({name: value for name, value in flags.items() if name not in OF_NO_JOB}))
    what = f'"{stated.target}", "{card.name}", {tokens_per_second:.1f}, "{stated.script}", {stated.cards}'
    return f"    _d({what}, {words!r}),"


def _planned_row(bench: Bench, stated: Stated, job: Job, card: Card, plan) -> None:
    """A pretended run: the plan for the card that the recipe's header names."""
    memory = f"{plan.peak_bytes / GIB:.1f} of {card.memory_bytes / GIB:.1f} GiB"
    found = f"planned: {memory}, {plan_time(job, card).step_seconds:.2f} s a step"
    bench.row(stated.target, f"fits on {stated.cards} x {card.name}", found, plan.fits)


# ---- what it runs on


def card_here() -> tuple[Card | None, int]:
    """(the catalogue's row of the first card, None for one that it does not have; bytes of its memory)."""
    found = list_cards()[0]
    try:
        return card_named(found.name), found.memory_bytes
    except UserError:
        return None, found.memory_bytes


def drawn_bytes(job: Job) -> int:
    """Of random weights while they are drawn: all that a rank has, before offload takes them; a quantized base is drawn
    weight by weight."""
    if job.base or not job.offload.parameters:
        return 0
    from launch.families.arithmetic import ModelShape

    return ModelShape.from_config(job.config).parameters * job.item


def read_recipe(target: str) -> Stated:
    """What a recipe states. Raises UserError for an unknown one."""
    recipes = {recipe.target: recipe for recipe in load_recipes(ROOT)}
    if target not in recipes:
        raise UserError(f"recipe: found {target!r}, known: {', '.join(sorted(recipes))}.")
    recipe = recipes[target]
    script = Path(recipe.script).stem
    return Stated(target, recipe.path, script, recipe.flags, recipe.gpus, recipe.gpu_memory_gb)


def _accumulation(flags: Flags) -> dict[str, str]:
    stated = int(flags.get("gradient_accumulation_steps", ["1"])[0])
    pipeline = int(flags.get("pipeline_parallel_degree", ["1"])[0]) > 1
    return {} if pipeline else {"gradient_accumulation_steps": str(min(stated, ACCUMULATION))}


def _flags(values: dict[str, str]) -> Flags:
    return {name: [value] for name, value in values.items()}


# ---- made-up model and data


def write_model(directory: Path, config: dict, materials: Path) -> Path:
    """A model directory without weights: the configuration at full size, the tiny model's tokenizer and its ids."""
    directory.mkdir(parents=True)
    for path in (materials / "model").iterdir():
        if path.suffix != ".safetensors":
            shutil.copy(path, directory)
    tiny = json.loads((materials / "model" / "config.json").read_text(encoding="utf-8"))
    ids = {name: value for name, value in tiny.items() if name.endswith("_token_id")}
    (directory / "config.json").write_text(json.dumps(config | ids, indent=1) + "\n", encoding="utf-8")
    return directory


def write_data(directory: Path, stated: Stated) -> Path:
    """Enough samples, each at least as long as the recipe's lengths: what is planned is what is computed."""
    if stated.script == "run_pretrain":
        return _tokens(directory, stated.flags, stated.cards)
    directory.mkdir(parents=True)
    words = 2 * int(stated.flags["max_length"][0])
    for name, count in (("train", _samples(stated.flags, stated.cards)), ("dev", 16)):
        rows = islice(_dialogues(words, "chat_template" in stated.flags), count)
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (directory / f"{name}.json").write_text(text, encoding="utf-8")
    return directory


def _dialogues(words: int, chats: bool) -> Iterator[dict]:
    """Questions and answers of so many words each."""
    alphabet = cycle("bdfgklmnprstvz")
    while True:
        question, answer = (" ".join(next(alphabet) + "a" for _ in range(words)) for _ in range(2))
        if chats:
            roles = (("user", question), ("assistant", answer))
            yield {"messages": [{"role": role, "content": text} for role, text in roles]}
        else:
            yield {"src": question, "tgt": answer}


def _tokens(directory: Path, flags: Flags, cards: int) -> Path:
    """A corpus of random ids, in a folder for --input_dir."""
    length = int(flags["max_seq_length"][0])
    draw = np.random.default_rng(0)
    directory.mkdir(parents=True)
    with IndexedWriter(directory / "corpus", vocab_size=1000) as writer:
        for _ in range(2 * _samples(flags, cards) + 64):
            writer.add_document(draw.integers(3, 1000, length + 1))
    return directory


def _samples(flags: Flags, cards: int) -> int:
    """More than the steps read."""
    names = ("per_device_train_batch_size", "gradient_accumulation_steps")
    micro_batch, accumulation = (int(flags.get(name, ["1"])[0]) for name in names)
    return (STEPS + 1) * micro_batch * accumulation * cards
