"""The header of every recipe against its flags, the planner, `make help` and the licence of its weights."""

import re

import pytest

from data_tools.formats.plural import plural
from launch.config.flag_values import known_flags
from launch.config.layout import Layout
from launch.config.recipe_file import Recipe, load_recipes
from launch.environment.targets import help_text
from launch.families.arithmetic import ModelShape
from launch.families.named_configs import load_config
from launch.preflight.requested import DEMO_FOLDERS
from tests.recipes.machine import ROOT

RECIPES = load_recipes(ROOT)
PRETRAINING = [recipe for recipe in RECIPES if recipe.script.endswith("run_pretrain.py")]


def of_each(recipes: list[Recipe]):
    return pytest.mark.parametrize("recipe", recipes, ids=lambda recipe: recipe.name)


def layout_of(recipe: Recipe) -> Layout:
    return Layout.from_flags(recipe.flags, recipe.ranks)


def model_of(recipe: Recipe) -> str:
    """Its configuration's name; those of the demos' models are known before there are any."""
    stated = recipe.flags["model_name_or_path"][0]
    return DEMO_FOLDERS[stated].config if stated in DEMO_FOLDERS else stated.rpartition("/")[2]


def text_of(recipe: Recipe) -> str:
    return "\n".join([recipe.summary, *recipe.header.values()])


@of_each(RECIPES)
def test_target_cards_and_summary_are_those_of_make_help_and_the_flags(recipe, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert re.findall(r"(\d+)gpu$", recipe.target) in ([], [str(recipe.gpus)])
    cards = plural(recipe.gpus, "card") if recipe.gpus else "CPU"
    assert f"{recipe.target} {cards} {recipe.summary}" in " ".join(help_text().split())
    # <verb>-<model>[-<variant>]; lora-1gpu, which is older than that, has such another name.
    verbs = "(?:dpo|simpo|kto|reward|grpo)(?:-q?lora)?|pretrain|finetune|instruct|lora|qlora|prefix"
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


def test_a_lora_on_cards_packs_its_samples_where_the_model_can():
    adapted = [
        one for one in RECIPES if one.gpus and "lora" in one.flags and one.script.endswith("finetune_generation.py")
    ]
    assert {one.name for one in adapted if one.flags.get("zero_padding") != ["1"]} == {"chatglm-6b/int8-lora-1gpu"}


def test_no_name_is_that_of_two_recipes_and_a_model_has_one_licence():
    names = [*(recipe.target for recipe in RECIPES), *(recipe.alias for recipe in RECIPES if recipe.alias)]
    assert sorted(set(names)) == sorted(names)
    told: dict[str, set[str]] = {}
    for recipe in RECIPES:
        told.setdefault(model_of(recipe), set()).add(recipe.header["Licence"])
    assert all(len(texts) == 1 and min(texts).startswith("of the weights: ") for texts in told.values()), told


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
    "fine-tuning|instruction tuning|prefix tuning|preference tuning|reward model|reinforcement": lambda flags: (
        "dataset_name_or_path" in flags
    ),
    "GRPO": lambda flags: flags.get("algorithm") == ["grpo"],
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


@of_each(RECIPES)
def test_data_flags_files_and_targets_in_it_are_there(recipe):
    flags = recipe.flags
    if recipe in PRETRAINING:
        assert recipe.header["Data"].startswith(f"{flags['input_dir'][0]}/*.bin + *.idx")
    else:
        folder = flags["dataset_name_or_path"][0]
        assert recipe.header["Data"].startswith(f"{folder}/train.json, {folder}/dev.json:")
    text = text_of(recipe)
    assert set(re.findall(r"--(\w+)", text)) <= known_flags(recipe.script).keys()
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


GENERATES_AT_THE_END = "full-2gpu"  # one evaluation, after the last step
