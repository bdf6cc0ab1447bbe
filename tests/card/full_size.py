"""Run a few steps of a recipe at full size; compare memory of every rank, step time and first loss with the plan.

Weights are drawn on the cards from the seed (--continue_training 0), data and tokenizer are generated: nothing is
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
from dataclasses import replace
from functools import cache, partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_tools.formats.tokens.indexed import IndexedWriter
from launch.certify.bench import ROOT, Bench, CheckFailed, as_flags, make_materials, tiny_pretraining
from launch.config.flag_values import Flags, flag_arguments
from launch.config.recipe_file import Recipe, load_recipes
from launch.devices.cards import list_cards, visible_devices
from launch.errors import UserError
from launch.families.named_configs import load_config
from launch.families.registry import family_of_config
from launch.plan.hardware import GIB, Card, card_named, card_of_memory
from launch.plan.job import Job
from launch.plan.memory_model import plan_memory
from launch.plan.plan_report import duration_of
from launch.plan.time_plan import plan_time
from launch.processes.orphans import signal_at_parents_end
from tests.card.measured import run_report

PRETRAIN = "launch/run_pretrain.py"
PREFERENCES = ("launch/run_dpo.py", "launch/run_reward.py")
STEPS = 6
ACCUMULATION = 2  # at most, in a pipeline for each stage twice as much: its first and last micro batches run alone
MEMORY_TOLERANCE = 0.10
# Flags on which neither memory nor time depends.
NOT_PLANNED = ("dataset_name_or_path", "input_dir", "output_dir", "report_to", "disable_tqdm", "logging_steps")
LACKING = ("✗ host memory", "✗ disk")  # faults of the machine, not of its cards
SECONDS_TO_START = 50.0  # of a recipe: its checks, its ranks' imports, random weights
ESTIMATED_FOR = "A100-80G"
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


# Each method, each kind of base, LoRA and prefix, offload, and three layouts; FULL=1 has all recipes.
OF_EACH_KIND = (
    "pretrain-llama7b-4d",
    "finetune-llama7b-pipeline",
    "finetune-llama7b-stage2",
    "finetune-llama3-8b-1gpu",
    "lora-1gpu",
    "lora-chatglm6b-int8",
    "prefix-llama7b",
    "qlora-qwen3-8b",
    "dpo-lora-qwen2.5-7b",
    "grpo-lora-qwen3-0.6b",
    "reward-lora-qwen2.5-7b",
)


def recipes_for_cards() -> dict[str, int]:
    """{target: number of cards} of the recipes for cards, the smallest number first."""
    cards = {recipe.target: recipe.gpus for recipe in load_recipes(ROOT) if recipe.gpus}
    return dict(sorted(cards.items(), key=lambda item: (item[1], item[0])))


def read_recipe(target: str) -> Recipe:
    """Raises UserError for an unknown one."""
    recipes = {recipe.target: recipe for recipe in load_recipes(ROOT)}
    if target not in recipes:
        raise UserError(f"recipe: found {target!r}, known: {', '.join(sorted(recipes))}.")
    return recipes[target]


def expected_seconds(target: str) -> float:
    """Seconds of a recipe's check on such cards as ESTIMATED_FOR, by its plan."""
    recipe, card = read_recipe(target), card_named(ESTIMATED_FOR)
    flags = recipe.flags | as_flags(MEASURED | _accumulation(recipe.flags))
    return (
        SECONDS_TO_START + STEPS * plan_time(Job.from_flags(recipe.script, flags, recipe.gpus, card), card).step_seconds
    )


def _recipe_checks() -> Iterator[Any]:
    """Yield a parameter for each recipe. No two that offload run at once: they share the host's memory."""
    for target, cards in recipes_for_cards().items():
        apart = any("offload" in " ".join([name, *words]) for name, words in read_recipe(target).flags.items())
        seconds = cache(partial(expected_seconds, target))
        mark = pytest.mark.card(seconds=seconds, cards=cards, apart=apart, full=target not in OF_EACH_KIND)
        yield pytest.param(target, id=f"recipe-{target}", marks=mark)


@pytest.mark.card(
    seconds=120,
    pretended=5,
    limit=600,
    expected=f"memory within {MEMORY_TOLERANCE:.0%} of the plan, a step within {TIME_TOLERANCE:.0%}",
    at_fault="plans for this card are wrong near its limit: what `make X` lets start may run out of memory, or be "
    "slower",
)
def test_largest(bench: Bench) -> None:
    """Full pretraining of LLaMA-7B's layers, as many as fit on one card: the plan close to the card's limit."""
    card, memory = (None, GIB) if bench.pretend else card_here()
    base = load_config("llama-rehearsal" if bench.pretend else "llama-7b")
    flags = tiny_pretraining(bench.materials, STEPS, **_one_card_flags(bench))
    count, planned = layers_that_fit(base, flags, card, memory)
    if not count:
        bench.row("layers", "one or more fit", f"{planned / GIB:.1f} GiB are planned for one layer", None)
        return
    _measure_layers(bench, "LLaMA-7B", base, count, flags, 1)


FEW_LAYERS = 4


@pytest.mark.card(
    seconds=60,
    pretended=5,
    limit=300,
    quick=True,
    expected=f"memory within {MEMORY_TOLERANCE:.0%} of the plan, a step within {TIME_TOLERANCE:.0%}",
    at_fault="plans of LoRA for this card are wrong: give the JSON file to `make plan-X CALIBRATION=FILE`",
)
def test_lora_step(bench: Bench) -> None:
    """LoRA on a few layers of the shape of LLaMA-3-8B."""
    _few_layers(bench, 1, lora="1", lora_rank="16")


@pytest.mark.card(
    seconds=60,
    pretended=8,
    limit=400,
    quick=True,
    several=40,
    expected=f"memory within {MEMORY_TOLERANCE:.0%} of the plan, a step within {TIME_TOLERANCE:.0%}",
    at_fault="plans of training all parameters are wrong for this card: give the JSON file to `make plan-X "
    "CALIBRATION=FILE`",
)
def test_full_step(bench: Bench) -> None:
    """All parameters of a few layers of the shape of LLaMA-3-8B, on two cards by sharding stage 1."""
    cards = min(bench.cards, 2)
    _few_layers(bench, cards, **({"sharding": "stage1"} if cards > 1 else {}))


def _few_layers(bench: Bench, cards: int, **changes: str) -> None:
    base = load_config("llama-rehearsal" if bench.pretend else "llama-3-8b")
    flags = tiny_pretraining(bench.materials, STEPS, **_one_card_flags(bench) | changes)
    card, memory = (None, GIB) if bench.pretend else card_here()
    count, planned = layers_that_fit(base, flags, card, memory, FEW_LAYERS)
    if not count:
        bench.row("layers", "one or more fit", f"{planned / GIB:.1f} GiB are planned for one layer", None)
        return
    _measure_layers(bench, "LLaMA-3-8B", base, count, flags, cards)


def _measure_layers(bench: Bench, named: str, base: dict, count: int, flags: Flags, cards: int) -> None:
    model = write_model(bench.directory / "model", base | {"num_hidden_layers": count}, bench.materials)
    name = f"{count} layers of {'a tiny model' if bench.pretend else named}"
    flags |= {"model_name_or_path": [str(model)], "input_dir": [str(_tokens(bench.directory / "data", flags, cards))]}
    card = None if bench.pretend else card_here()[0]
    report(bench, bench.train("run", flags, cards), name, PRETRAIN, card)


def layers_that_fit(base: dict, flags: Flags, card: Card | None, memory: int, most: int = 999) -> tuple[int, int]:
    """(how many layers fit in 92 % of the memory, at most those of the model; bytes planned for them or for one)."""
    planned = {}
    for count in range(1, min(base["num_hidden_layers"], most) + 1):
        job = Job.from_flags(PRETRAIN, flags | {"model_name_or_path": ["llama-7b"]}, 1, card)
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


@pytest.mark.parametrize("target", list(_recipe_checks()))
@pytest.mark.card(
    pretended=1,
    limit=900,
    expected=f"memory of each rank within {MEMORY_TOLERANCE:.0%} of the plan, a step within {TIME_TOLERANCE:.0%}, the "
    "first loss of random weights",
    at_fault="this recipe: the row says what differs; of a run that failed, the end of its log is shown",
)
def test_recipe(bench: Bench, target: str) -> None:
    """Plan and measure one recipe on as many cards as it states."""
    recipe = read_recipe(target)
    changes = MEASURED | _accumulation(recipe.flags)
    shortened = replace(recipe, flags=recipe.flags | as_flags(changes))
    if bench.pretend:
        _plan_alone(bench, shortened)
        return
    if not bench.needs_cards(recipe.gpus):
        return
    card, memory = card_here()
    job = Job.from_flags(recipe.script, shortened.flags, recipe.gpus, card)
    plan = plan_memory(job, card)
    needed = max(plan.peak_bytes, drawn_bytes(job))
    if needed > memory:
        found = f"{needed / GIB:.1f} GiB are planned, the card has {memory / GIB:.1f}: not run"
        bench.row("memory", "fits on the card", found, None)
        return
    if output := _run(bench, recipe, changes, card, memory):
        report(bench, output, target, recipe.script, card, shortened)


# ---- the run


def _run(bench: Bench, recipe: Recipe, changes: dict[str, str], card: Card | None, memory: int) -> Path | None:
    """Run the recipe itself, with its checks and its launcher. Returns its output directory; None, after a row, where
    this machine lacks host memory or disk space."""
    variables = prepare(bench.directory, recipe, changes, card, memory) | {
        "DEVICES": ",".join(visible_devices()[: recipe.gpus]),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    log = bench.directory / "recipe.log"
    with open(log, "wb") as file:
        # SIGTERM at the end of this process: the recipe passes it on to its ranks.
        done = subprocess.run(
            ["bash", recipe.path],
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
        raise CheckFailed(f"{recipe.target} ended with exit code {done.returncode}: {said}")
    return bench.directory / "run"


def prepare(directory: Path, recipe: Recipe, changes: dict[str, str], card: Card | None, memory: int) -> dict[str, str]:
    """Make model and data in a folder. Returns the recipe's variables for training on them."""
    config = load_config(recipe.flags["model_name_or_path"][0])
    materials = make_materials(family_of_config(config).rehearsal_config)
    model = write_model(directory / "model", config, materials)
    arguments = as_flags(changes | {"tokenizer_name_or_path": str(model)})
    return {
        "ACTION": "run",
        "MODEL": str(model),
        "DATA": str(write_data(directory / "data", replace(recipe, flags=recipe.flags | as_flags(changes)))),
        "OUTPUT": str(directory / "run"),
        "ARGS": shlex.join(flag_arguments(arguments)),
        **({"CARD": card.name} if card else {"GPU_MEMORY_GB": str(int(memory / GIB))}),
    }


def report(bench: Bench, output: Path, name: str, script: str, card: Card | None, recipe: Recipe | None = None) -> None:
    """Rows of what was planned and measured. recipe: as it was run, for a line of benchmarks/published.py."""
    for weights in output.glob("*.safetensors"):  # random weights, 13 GB
        weights.unlink()
    found = run_report(output, script, card)
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
    if card and recipe:
        numbers["published"] = published_line(recipe, card, speed["measured_tokens_per_second"] / recipe.gpus)
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
    """The lines of the run about precision, flash attention and fused RMSNorm."""
    log = (output / "log" / "workerlog.0").read_text(encoding="utf-8", errors="replace")
    subjects = ("precision:", "flash attention:", "fused RMSNorm:", "base:")
    return "; ".join(line for line in log.splitlines() if line.startswith(subjects)) or "nothing"


def published_line(recipe: Recipe, card: Card, tokens_per_second: float) -> str:
    """A row of benchmarks/published.py: the job, and tokens a second on each card."""
    words = shlex.join(flag_arguments({name: value for name, value in recipe.flags.items() if name not in NOT_PLANNED}))
    what = f'"{recipe.target}", "{card.name}", {tokens_per_second:.1f}, "{Path(recipe.script).stem}", {recipe.gpus}'
    return f"    _d({what}, {words!r}),"


def _plan_alone(bench: Bench, recipe: Recipe) -> None:
    """A pretended run: the plan for the card that the recipe's header names."""
    card = card_of_memory(recipe.gpu_memory_gb)
    job = Job.from_flags(recipe.script, recipe.flags, recipe.gpus, card)
    plan, time = plan_memory(job, card), plan_time(job, card)
    memory = f"{plan.peak_bytes / GIB:.1f} of {card.memory_bytes / GIB:.1f} GiB"
    found = f"planned: {memory}, {duration_of(time, time.step_seconds)} a step"
    bench.row(recipe.target, f"fits on {recipe.gpus} x {card.name}", found, plan.fits)


# ---- cards and recipes


def card_here() -> tuple[Card | None, int]:
    """(the first card in the catalogue, None where it is not there; bytes of its memory)."""
    found = list_cards()[0]
    try:
        return card_named(found.name), found.memory_bytes
    except UserError:
        return None, found.memory_bytes


def drawn_bytes(job: Job) -> int:
    """Bytes of all random weights of a rank while they are drawn, before offload moves them; 0 for a quantized base,
    which is drawn weight by weight."""
    if job.base or not job.offload.parameters:
        return 0
    from launch.families.arithmetic import ModelShape

    return ModelShape.from_config(job.config).parameters * job.item


def _accumulation(flags: Flags) -> dict[str, str]:
    stated = int(flags.get("gradient_accumulation_steps", ["1"])[0])
    stages = int(flags.get("pipeline_parallel_degree", ["1"])[0])
    return {"gradient_accumulation_steps": str(min(stated, ACCUMULATION * (2 * stages if stages > 1 else 1)))}


# ---- generated model and data


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


def write_data(directory: Path, recipe: Recipe) -> Path:
    """Enough samples, each at least as long as the recipe's lengths: what is planned is what is computed."""
    if recipe.script == PRETRAIN:
        return _tokens(directory, recipe.flags, recipe.gpus)
    directory.mkdir(parents=True)
    words = 2 * int(recipe.flags["max_length"][0])
    for name, count in (("train", _samples(recipe.flags, recipe.gpus)), ("dev", 16)):
        rows = islice(_rows(words, recipe), count)
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (directory / f"{name}.json").write_text(text, encoding="utf-8")
    return directory


def _rows(words: int, recipe: Recipe) -> Iterator[dict]:
    """Endless dialogues or preferences; each text of theirs has so many words."""
    alphabet = cycle("bdfgklmnprstvz")
    while True:
        question, answer, other = (" ".join(next(alphabet) + "a" for _ in range(words)) for _ in range(3))
        if recipe.script in PREFERENCES:
            yield {"prompt": question, "chosen": answer, "rejected": other}
        elif "chat_template" in recipe.flags:
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
    """More samples than the steps read."""
    names = ("per_device_train_batch_size", "gradient_accumulation_steps")
    micro_batch, accumulation = (int(flags.get(name, ["1"])[0]) for name in names)
    return (STEPS + 1) * micro_batch * accumulation * cards
