"""The header of every recipe against its flags, the planner, `make help` and the licence of its weights."""

import math
import re

import pytest

from data_tools.formats.plural import plural
from launch.config.flag_values import load_schema
from launch.config.layout import Layout
from launch.config.recipe_file import Recipe, load_recipes
from launch.environment.targets import help_text
from launch.families.arithmetic import ModelShape, lora_parameters, prefix_parameters
from launch.families.named_configs import load_config
from launch.families.registry import as_reward_model, family_of_config
from launch.plan.hardware import CARDS
from launch.preflight.requested import DEMO_CONFIG, DEMO_PATHS
from tests.recipes.machine import ROOT

RECIPES = load_recipes(ROOT)
BY_NAME = {recipe.name: recipe for recipe in RECIPES}
PRETRAINING, FINE_TUNING, PREFERENCE_TUNING = (
    [recipe for recipe in RECIPES if recipe.script.endswith(scripts)]
    for scripts in ("run_pretrain.py", "finetune_generation.py", ("run_dpo.py", "run_reward.py"))
)


def of_each(recipes: list[Recipe]):
    return pytest.mark.parametrize("recipe", recipes, ids=lambda recipe: recipe.name)


def layout_of(recipe: Recipe) -> Layout:
    return Layout.from_flags(recipe.flags, recipe.ranks)


def model_of(recipe: Recipe) -> str:
    """Its configuration's name; that of the demo's model is known before there is one."""
    stated = recipe.flags["model_name_or_path"][0]
    return DEMO_CONFIG if stated == DEMO_PATHS["model_name_or_path"][0] else stated.rpartition("/")[2]


def text_of(recipe: Recipe) -> str:
    return "\n".join([recipe.summary, *recipe.header.values()])


@of_each(RECIPES)
def test_target_cards_and_summary_are_those_of_make_help_and_the_flags(recipe, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert re.findall(r"(\d+)gpu$", recipe.target) in ([], [str(recipe.gpus)])
    cards = plural(recipe.gpus, "card") if recipe.gpus else "CPU"
    assert f"{recipe.target} {cards} {recipe.summary}" in " ".join(help_text().split())
    # <verb>-<model>[-<variant>]; lora-1gpu, which is older than that, has such another name.
    verbs = "(?:dpo|simpo|kto|reward)(?:-lora)?|pretrain|finetune|instruct|lora|qlora|prefix"
    folder = recipe.path.parent.name
    scheme = re.compile(f"({verbs})-({re.escape(folder)}|{folder.replace('-', '')})(-[a-z0-9]+)?")
    target = recipe.target
    assert scheme.fullmatch(recipe.alias if target == "lora-1gpu" else target)
    assert not {"lora", "qlora"} & {target.split("-")[0]} or recipe.flags["lora"] == ["1"]
    assert (target.split("-")[0] == "pretrain") == (recipe in PRETRAINING)
    # Each checkpoint is of a step that is evaluated.
    flags = recipe.flags
    whole = int(flags["save_steps"][0]) % int(flags["eval_steps"][0]) == 0
    assert whole != (recipe.path.stem == GENERATES_AT_THE_END)


def test_no_name_is_that_of_two_recipes_and_a_model_has_one_licence():
    names = [*(recipe.target for recipe in RECIPES), *(recipe.alias for recipe in RECIPES if recipe.alias)]
    assert sorted(set(names)) == sorted(names)
    told: dict[str, set[str]] = {}
    for recipe in RECIPES:
        told.setdefault(model_of(recipe), set()).add(recipe.header["Licence"])
    assert all(len(texts) == 1 and min(texts).startswith("of the weights: ") for texts in told.values()), told


@of_each(RECIPES)
def test_hardware_is_what_the_recipe_asks_for(recipe):
    text = recipe.header["Hardware"]
    if not recipe.gpus:
        assert text.startswith(f"{plural(recipe.processes, 'process')} on any CPU")
        return
    assert text.startswith(f"{plural(recipe.gpus, 'card')} of {recipe.gpu_memory_gb} GB")
    named = set(re.findall(r"\b[AHV]?\d{3,4}\b|\bT4\b", re.search(r"\(([^)]*)\)", text)[1])) - {"A800", "6000"}
    for kind in named:
        sizes = [card.named_gb for card in CARDS.values() if card.name.startswith(kind)]
        assert max(sizes) >= recipe.gpu_memory_gb, kind


# What the first line says -> whether the flags do it.
SAYS = {
    "tensor parallel|4D": lambda flags: "tensor_parallel_degree" in flags,
    "pipeline": lambda flags: "pipeline_parallel_degree" in flags,
    "sequence parallel": lambda flags: flags.get("sequence_parallel") == ["1"],
    "sharding": lambda flags: "sharding" in flags,
    "offload": lambda flags: "offload" in " ".join(flags.get("sharding", [])),
    "LoRA": lambda flags: flags.get("lora") == ["1"],
    "prefix tuning": lambda flags: flags.get("prefix_tuning") == ["1"],
    "4 bits": lambda flags: flags.get("weight_quantize_algo") in (["nf4"], ["fp4"]),
    "8 bits": lambda flags: flags.get("weight_quantize_algo") in (["weight_only_int8"], ["llm.int8"]),
    "continued pretraining": lambda flags: flags.get("continue_training") == ["1"],
    "from random weights": lambda flags: flags.get("continue_training") == ["0"],
    "fine-tuning|instruction tuning|prefix tuning|preference tuning|reward model": lambda flags: (
        "dataset_name_or_path" in flags
    ),
    "DPO": lambda flags: flags.get("loss_type") == ["sigmoid"],
    "SimPO": lambda flags: flags.get("loss_type") == ["simpo"],
    "KTO": lambda flags: flags.get("loss_type") == ["kto"],
    "CPU": lambda flags: flags["device"] == ["cpu"],
}


@of_each(RECIPES)
def test_the_first_line_says_what_the_flags_do(recipe):
    summary, flags, layout = recipe.summary, recipe.flags, layout_of(recipe)
    for words, done in SAYS.items():
        assert bool(re.search(words, summary)) == done(flags), words
    assert ("on one card" in summary) == (recipe.gpus == 1)
    stated = dict(re.findall(r"(sharding stage|tensor parallel|pipeline parallel) (\d)", summary))
    degrees = {
        "sharding stage": layout.sharding[-1:],
        "tensor parallel": str(layout.tensor_parallel_degree),
        "pipeline parallel": str(layout.pipeline_parallel_degree),
    }
    assert stated == {kind: degrees[kind] for kind in stated}


def test_the_layout_of_the_four_dimensional_recipe():
    recipe = BY_NAME["llama-7b/pretrain-4d"]
    layout = layout_of(recipe)
    degrees = (layout.tensor_parallel_degree, layout.pipeline_parallel_degree, layout.sharding_parallel_degree)
    assert recipe.header["Layout"].startswith("tensor {} x pipeline {} x sharding {}:".format(*degrees))
    weights = ModelShape.from_config(load_config("llama-7b")).parameters / (degrees[0] * degrees[1])
    bytes_each = 2 + 2 + 12 / degrees[2]
    assert f"{weights / 1e9:.1f} G x (2 weights" in recipe.header["Memory"]
    assert f"bytes = {weights * bytes_each / 1e9:.0f} GB before activations" in recipe.header["Memory"]
    micro_batches = int(recipe.flags["gradient_accumulation_steps"][0])
    waits = degrees[1] - 1, micro_batches + degrees[1] - 1
    assert "{} / {}, with 4 micro batches 1 / 5".format(*waits) in recipe.header["Pipeline"]


@of_each(RECIPES)
def test_data_flags_files_and_targets_in_it_are_there(recipe):
    flags = recipe.flags
    if recipe in PRETRAINING:
        assert recipe.header["Data"].startswith(f"{flags['input_dir'][0]}/*.bin + *.idx")
    else:
        folder = flags["dataset_name_or_path"][0]
        assert recipe.header["Data"].startswith(f"{folder}/train.json, {folder}/dev.json:")
    text = text_of(recipe)
    assert set(re.findall(r"--(\w+)", text)) <= load_schema(recipe.script).keys()
    assert all((ROOT / file).is_file() for file in re.findall(r"docs/\S+\.md", text))
    targets = re.findall(r"^([\w-]+)(?=:)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"\bmake ([a-z](?:[\w.-]*\w)?)", text)) <= {
        *targets,
        *(recipe.target for recipe in RECIPES),
        "data-tokenize",
    }
    replaced = re.search(r"replace the line `(.*?)`", text)
    assert not replaced or f"    {replaced[1]} \\\n" in recipe.path.read_text()


@of_each([one for one in PRETRAINING if "first loss" in one.header["Expect"]])
def test_first_losses(recipe):
    """From random weights ln V + h sigma^2 / 2; what is expected of trained ones lies in the window that is watched."""
    text, flags = recipe.header["Expect"], recipe.flags
    random = re.search(r"([\d.]+) (?:from random weights|\(ln)", text)
    if random:
        assert random[1] == f"{ModelShape.from_config(load_config(model_of(recipe))).first_loss:.1f}"
    trained = re.search(r"([\d.]+) to ([\d.]+) when continuing", text)
    if trained:
        low, high = map(float, flags["loss_first"][0].split("-"))
        assert low <= float(trained[1]) < float(trained[2]) <= high


def samples_of_a_step(recipe: Recipe) -> tuple[int, int, int]:
    """(data ranks, micro batch, accumulation)"""
    flags = recipe.flags
    micro_batch, accumulation = flags["per_device_train_batch_size"][0], flags["gradient_accumulation_steps"][0]
    return layout_of(recipe).data_ranks, int(micro_batch), int(accumulation)


@of_each(PRETRAINING)
def test_tokens_of_a_step(recipe):
    flags = recipe.flags
    tokens = math.prod(samples_of_a_step(recipe)) * int(flags["max_seq_length"][0])
    told = re.search(r"= ([\d,]+) a step, ([\d.]+) M in ([\d,]+) steps", recipe.header["Tokens"])
    step, total, steps = (word.replace(",", "") for word in told.groups())
    assert (int(step), steps) == (tokens, flags["max_steps"][0])
    assert total == f"{tokens * int(steps) / 1e6:.3g}"


@of_each([*FINE_TUNING, *PREFERENCE_TUNING])
def test_samples_of_a_step_and_lengths(recipe):
    ranks, micro_batch, accumulation = samples_of_a_step(recipe)
    flags, prefers = recipe.flags, recipe in PREFERENCE_TUNING
    pairs = prefers and flags.get("loss_type") != ["kto"]
    packed = "zero_padding" in flags
    assert ("Packing" in recipe.header) == packed
    counts = ((ranks, "data rank"), (micro_batch, "sample" if pairs or not packed else "row"))
    words = [f"{count} {word}{'s' if count > 1 else ''}" for count, word in counts]
    batch = " x ".join(words) + (" of 2 rows" if pairs else "")
    step = ranks * micro_batch * accumulation
    assert recipe.header["Batch"].startswith(f"{batch} x {accumulation} accumulation = {step} a step")
    asked = "prompt where" if prefers else "question, "
    assert recipe.header["Lengths"].startswith(f"{flags['src_length'][0]} tokens for the {asked}")
    assert re.search(rf"\b{flags['max_length'][0]}\b", recipe.header["Lengths"])


ADAPTERS = [recipe for recipe in RECIPES if "Trains" in recipe.header]


@of_each(ADAPTERS)
def test_what_is_trained_and_left(recipe):
    """Parameters in millions, of billions where there are so many; the files are float32."""
    assert [one for one in RECIPES if {"lora", "prefix_tuning"} & one.flags.keys()] == ADAPTERS
    config, flags = load_config(model_of(recipe)), recipe.flags
    if recipe.script.endswith("run_reward.py"):
        config = as_reward_model(config)
    if "lora" in flags:
        trained = lora_parameters(config, family_of_config(config).linear_layers, int(flags["lora_rank"][0]))
    else:
        trained = prefix_parameters(config, int(flags["num_prefix_tokens"][0]))
    whole = ModelShape.from_config(config).parameters
    of = f"{whole / 1e9:.2f} B" if whole > 1e9 else f"{whole / 1e6:.1f} M"
    assert recipe.header["Trains"].startswith(f"{trained / 1e6:.1f} M of {of} parameters")
    kind = "adapter" if "lora" in flags else "prefix"
    assert recipe.header["Saves"].startswith(f"only the {kind}, {4 * trained / 1e6:.0f} MB")


GENERATES_AT_THE_END = "full-2gpu"  # one evaluation, after the last step
