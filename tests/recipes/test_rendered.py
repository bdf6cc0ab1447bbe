"""Every recipe: its printed command against its own lines, and that it is valid shell."""

import math
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from launch.models.arithmetic import ModelShape, lora_parameters, prefix_parameters
from launch.models.families import family_of_config
from launch.models.layout import Layout
from launch.models.named_configs import load_config
from launch.models.parameters import LINEAR, parameters
from launch.plan.hardware import card_of_memory
from launch.plan.job import Job
from launch.plan.memory import plan_memory
from launch.preflight.flags import check_flags
from launch.processes.flags import parse_flags
from tests.recipes.machine import ROOT, Machine

RECIPES = sorted((ROOT / "recipes").glob("*/*.sh"))


def script(recipe: Path) -> str:
    """The shared module that a recipe runs."""
    return re.search(r"^run (\S+)", recipe.read_text(), re.MULTILINE)[1]


PRETRAINING = [recipe for recipe in RECIPES if script(recipe).endswith("run_pretrain.py")]
FINE_TUNING = [recipe for recipe in RECIPES if script(recipe).endswith("finetune_generation.py")]


def name(recipe: Path) -> str:
    return f"{recipe.parent.name}/{recipe.stem}"


def stated_flags(recipe: Path) -> dict[str, list[str]]:
    """The flags as its lines have them; a line begins with --flag, ends with ` \\` and may hold several
    flags."""
    flags = {}
    for line in recipe.read_text().splitlines():
        if line.startswith("    --"):
            assert line.endswith(" \\"), f"no space and backslash at the end of: {line}"
            flags |= parse_flags(shlex.split(line[:-1]))
    return flags


def printed_flags(words: list[str]) -> dict[str, list[str]]:
    script = next(number for number, word in enumerate(words) if word.endswith(".py"))
    return parse_flags(words[script + 1 :])


@pytest.fixture(params=RECIPES, ids=name)
def recipe(request) -> Path:
    return request.param


def test_command_has_each_line_of_the_recipe_and_nothing_else(recipe, tmp_path):
    assert printed_flags(Machine(tmp_path).print(name(recipe))) == stated_flags(recipe)


def test_flags_are_known_and_their_values_allowed(recipe):
    findings = check_flags(script(recipe), stated_flags(recipe))
    assert [finding for finding in findings if not finding.ok] == []


def test_is_valid_and_executable_shell(recipe):
    assert subprocess.run(["bash", "-n", recipe], capture_output=True).stderr == b""
    assert os.access(recipe, os.X_OK)


def samples_of_a_step(recipe: Path) -> tuple[int, int, int]:
    """(data ranks, micro batch, accumulation)"""
    flags = stated_flags(recipe)
    need = dict(re.findall(r"\b(GPUS|PROCESSES)=(\d+)", recipe.read_text()))
    data_ranks = Layout.from_flags(flags, int(need["GPUS"]) or int(need["PROCESSES"])).data_ranks
    return data_ranks, int(flags["per_device_train_batch_size"][0]), int(flags["gradient_accumulation_steps"][0])


@pytest.mark.parametrize("recipe", PRETRAINING, ids=name)
def test_header_tells_the_tokens_of_a_step(recipe):
    """data ranks x micro batch x accumulation x sequence length."""
    text = recipe.read_text()
    flags = stated_flags(recipe)
    tokens = math.prod(samples_of_a_step(recipe)) * int(flags["max_seq_length"][0])
    header = re.search(r"^# Tokens .* = ([\d,]+) a step, ([\d.]+) M in ([\d,]+) steps", text, re.MULTILINE)
    step, total, steps = (word.replace(",", "") for word in header.groups())
    assert (int(step), steps) == (tokens, flags["max_steps"][0])
    assert total == f"{tokens * int(steps) / 1e6:.3g}"


@pytest.mark.parametrize("recipe", FINE_TUNING, ids=name)
def test_header_tells_the_samples_of_a_step(recipe):
    ranks, micro_batch, accumulation = samples_of_a_step(recipe)
    counts = ((ranks, "data rank"), (micro_batch, "sample"))
    words = [f"{count} {word}{'s' if count > 1 else ''}" for count, word in counts]
    step = ranks * micro_batch * accumulation
    batch = f"# Batch      {' x '.join(words)} x {accumulation} accumulation = {step} a step"
    assert any(line.startswith(batch) for line in recipe.read_text().splitlines())


@pytest.mark.parametrize("recipe", FINE_TUNING, ids=name)
def test_fine_tuning_has_the_lengths_of_the_2_6_scripts(recipe):
    """--src_length 128 --tgt_length 160, by today's flags; of AdvertiseGen 64 and 64."""
    source, target = (64, 64) if name(recipe) == "chatglm2-6b/full-2gpu" else (128, 160)
    flags = stated_flags(recipe)
    assert (flags["src_length"], flags["max_length"]) == ([str(source)], [str(source + target)])


def test_lora_header_tells_what_is_trained_and_left():
    [recipe] = [recipe for recipe in FINE_TUNING if name(recipe) == "llama-7b/lora"]
    config = load_config("llama-7b")
    trained = lora_parameters(config, family_of_config(config).linear_layers, rank=8)
    whole = ModelShape.from_config(config).parameters
    text = recipe.read_text()
    assert f"{trained / 1e6:.1f} M of {whole / 1e9:.2f} B parameters" in text
    assert f"the adapter alone, {4 * trained / 1e6:.0f} MB" in text


def test_qlora_header_tells_the_bits_of_a_weight():
    """4 of the code, 8 / 64 of its scale, 32 / 64 / 256 of the scale's; linear layers alone are quantised."""
    [text] = [recipe.read_text() for recipe in FINE_TUNING if name(recipe) == "llama-7b/qlora"]
    bits = 4 + 8 / 64 + 32 / 64 / 256
    sizes = parameters(load_config("llama-7b"))
    linear = sum(one.size for one in sizes if one.kind == LINEAR)
    total = sum(one.size for one in sizes)
    assert f"{bits:.2f} bits a weight" in text
    assert f"{(linear * bits / 8 + (total - linear) * 2) / 1e9:.1f} GB of weights in 4 bits" in text
    assert f"their {2 * total / 1e9:.1f} GB in 16 bits are never in memory" in text


@pytest.mark.parametrize(
    ("recipe", "model"),
    [
        ("chatglm-6b/int8-lora-1gpu", "chatglm-6b"),
        ("baichuan-13b/qlora-1gpu", "baichuan-13b"),
        ("baichuan-13b/lora-2gpu", "baichuan-13b"),
    ],
)
def test_headers_of_few_cards_tell_what_is_trained_and_left(recipe, model):
    [text] = [one.read_text() for one in RECIPES if name(one) == recipe]
    config = load_config(model)
    trained = lora_parameters(config, family_of_config(config).linear_layers, rank=8)
    whole = ModelShape.from_config(config).parameters
    assert f"{trained / 1e6:.1f} M of {whole / 1e9:.2f} B parameters" in text
    assert f"the adapter alone, {4 * trained / 1e6:.0f} MB" in text


def test_chatglm_header_tells_what_fits_sixteen_gigabytes():
    """The header's own flags for a smaller card keep the samples of a step, and fit by the plan."""
    [recipe] = [one for one in FINE_TUNING if name(one) == "chatglm-6b/int8-lora-1gpu"]
    smaller = parse_flags(shlex.split(re.search(r'ARGS="(--per_device[^"]*)"', recipe.read_text())[1]))
    ranks, batch, accumulation = samples_of_a_step(recipe)
    assert int(smaller["per_device_train_batch_size"][0]) * int(smaller["gradient_accumulation_steps"][0]) == (
        ranks * batch * accumulation
    )
    flags, card = stated_flags(recipe), card_of_memory(16)
    assert not plan_memory(Job.from_flags(script(recipe), flags, 1, card), card).fits
    assert plan_memory(Job.from_flags(script(recipe), flags | smaller, 1, card), card).fits


def test_prefix_header_tells_what_is_trained_and_left():
    [recipe] = [recipe for recipe in FINE_TUNING if name(recipe) == "llama-7b/prefix"]
    trained = prefix_parameters(load_config("llama-7b"), tokens=64)
    assert f"{trained / 1e6:.1f} M of " in recipe.read_text()
    assert f"the prefix alone, {4 * trained / 1e6:.0f} MB" in recipe.read_text()


def test_llama_7b_command_can_be_pasted(tmp_path):
    done = Machine(tmp_path).run("llama-7b/pretrain", ACTION="print")
    first, script, *flags = done.stdout.splitlines()
    assert re.fullmatch(
        r"\S*python -m paddle.distributed.launch --gpus 0,1,2,3,4,5,6,7 "
        r"--log_dir ./checkpoints/llama-7b-pretrain/log \\",
        first,
    )
    assert script == f"    {ROOT}/launch/run_pretrain.py \\"
    assert flags[0] == "    --model_name_or_path facebook/llama-7b \\"
    assert flags[-1] == "    --device gpu"
    assert done.stderr == ""


def test_tiny_command_starts_two_processes(tmp_path):
    words = Machine(tmp_path).print("tiny/pretrain")
    assert words[1:5] == ["-m", "paddle.distributed.launch", "--nproc_per_node", "2"]
