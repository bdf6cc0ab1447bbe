"""The header of every recipe against its flags, the planner, `make help` and the licence of its weights."""

import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

from data_tools.formats.plural import plural
from launch.commands.demo_finetune import COMMON, METHODS
from launch.config.flag_values import load_schema
from launch.config.layout import Layout
from launch.config.recipe_file import Recipe
from launch.families.arithmetic import ModelShape, lora_parameters, prefix_parameters
from launch.families.named_configs import load_config
from launch.families.parameters import LINEAR
from launch.families.registry import as_reward_model, family_of_config, parameters
from launch.plan.hardware import CARDS
from launch.preflight.requested import DEMO_CONFIG, DEMO_PATHS
from tests.recipes.machine import ROOT
from tests.recipes.rehearsing import recipes_by_target
from tests.recipes.test_rendered import FINE_TUNING, PREFERENCE_TUNING, PRETRAINING, RECIPES, name, script, stated_flags

TARGETS = {path: target for target, path in recipes_by_target().items()}
of_each_recipe = pytest.mark.parametrize("recipe", RECIPES, ids=name)


def header(recipe: Path) -> dict[str, str]:
    """{"": its first line, "Hardware": "8 cards of 80 GB ...", ...}, each entry's lines joined."""
    read = Recipe.load(recipe)
    return {"": read.summary} | read.header


def need(recipe: Path) -> dict[str, int]:
    """{"GPUS": 8, "GPU_MEMORY_GB": 80, "PROCESSES": 1}"""
    read = Recipe.load(recipe)
    return {"GPUS": read.gpus, "GPU_MEMORY_GB": read.gpu_memory_gb, "PROCESSES": read.processes}


def layout_of(recipe: Path) -> Layout:
    return Layout.from_flags(stated_flags(recipe), need(recipe)["GPUS"] or need(recipe)["PROCESSES"])


def model_of(recipe: Path) -> str:
    """Its configuration's name; that of the demo's model is known before there is one."""
    stated = stated_flags(recipe)["model_name_or_path"][0]
    return DEMO_CONFIG if stated == DEMO_PATHS["model_name_or_path"][0] else stated.rpartition("/")[2]


@pytest.fixture(scope="module")
def help_text() -> str:
    """In one line, each blank one blank."""
    said = subprocess.check_output([sys.executable, "launch/environment/targets.py", "help"], cwd=ROOT, text=True)
    return " ".join(said.split())


@of_each_recipe
def test_target_and_cards_are_those_of_make_help(recipe, help_text):
    target = TARGETS[recipe]
    assert header(recipe).get("Target", target) == target
    assert re.findall(r"(\d+)gpu$", target) in ([], [str(need(recipe)["GPUS"])])
    cards = {0: "CPU", 1: "1 card"}.get(need(recipe)["GPUS"], f"{need(recipe)['GPUS']} cards")
    line = f"{target} {cards} {header(recipe)['']}"
    assert line in help_text


@of_each_recipe
def test_the_target_says_what_is_done_to_which_model(recipe):
    """<verb>-<model>[-<variant>]; lora-1gpu, which is older than that, has such another name."""
    verbs = "(?:dpo|simpo|kto|reward)(?:-lora)?|pretrain|finetune|instruct|lora|qlora|prefix"
    folder = recipe.parent.name
    scheme = re.compile(f"({verbs})-({re.escape(folder)}|{folder.replace('-', '')})(-[a-z0-9]+)?")
    target = TARGETS[recipe]
    assert scheme.fullmatch(header(recipe)["Alias"] if target == "lora-1gpu" else target)
    assert not {"lora", "qlora"} & {target.split("-")[0]} or stated_flags(recipe)["lora"] == ["1"]
    assert (target.split("-")[0] == "pretrain") == (recipe in PRETRAINING)


def test_no_name_is_that_of_two_recipes():
    names = [*TARGETS.values(), *(header(recipe)["Alias"] for recipe in RECIPES if "Alias" in header(recipe))]
    assert sorted(set(names)) == sorted(names)


@of_each_recipe
def test_hardware_is_what_the_recipe_asks_for(recipe):
    """So many cards of this size, each kind that is named has it."""
    text, asked = header(recipe)["Hardware"], need(recipe)
    if not asked["GPUS"]:
        assert text.startswith(f"{plural(asked['PROCESSES'], 'process')} on any CPU")
        return
    cards = f"{asked['GPUS']} card{'s' if asked['GPUS'] > 1 else ''} of {asked['GPU_MEMORY_GB']} GB"
    assert text.startswith(cards)
    named = set(re.findall(r"\b[AHV]?\d{3,4}\b|\bT4\b", re.search(r"\(([^)]*)\)", text)[1])) - {"A800", "6000"}
    for kind in named:
        sizes = [card.named_gb for card in CARDS.values() if card.name.startswith(kind)]
        assert max(sizes) >= asked["GPU_MEMORY_GB"], kind


def test_cards_on_the_page_of_fine_tuning():
    rows = re.findall(r"^\| `([\w.-]+)` \| (\d) \|", (ROOT / "docs" / "finetune.md").read_text("utf-8"), re.MULTILINE)
    asked = {TARGETS[recipe]: str(need(recipe)["GPUS"]) for recipe in FINE_TUNING}
    assert dict(rows) == asked


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


@of_each_recipe
def test_the_first_line_says_what_the_flags_do(recipe):
    """All of it, and nothing else; degrees and stages by their numbers."""
    summary, flags, layout = header(recipe)[""], stated_flags(recipe), layout_of(recipe)
    for words, done in SAYS.items():
        assert bool(re.search(words, summary)) == done(flags), words
    assert ("on one card" in summary) == (need(recipe)["GPUS"] == 1)
    stated = dict(re.findall(r"(sharding stage|tensor parallel|pipeline parallel) (\d)", summary))
    degrees = {
        "sharding stage": layout.sharding[-1:],
        "tensor parallel": str(layout.tensor_parallel_degree),
        "pipeline parallel": str(layout.pipeline_parallel_degree),
    }
    assert stated == {kind: degrees[kind] for kind in stated}


def test_the_layout_of_the_four_dimensional_recipe():
    recipe = ROOT / "recipes" / "llama-7b" / "pretrain-4d.sh"
    layout = layout_of(recipe)
    degrees = (layout.tensor_parallel_degree, layout.pipeline_parallel_degree, layout.sharding_parallel_degree)
    assert header(recipe)["Layout"].startswith("tensor {} x pipeline {} x sharding {}:".format(*degrees))
    weights = ModelShape.from_config(load_config("llama-7b")).parameters / (degrees[0] * degrees[1])
    bytes_each = 2 + 2 + 12 / degrees[2]
    assert f"{weights / 1e9:.1f} G x (2 weights" in header(recipe)["Memory"]
    assert f"bytes = {weights * bytes_each / 1e9:.0f} GB before activations" in header(recipe)["Memory"]
    micro_batches = int(stated_flags(recipe)["gradient_accumulation_steps"][0])
    waits = degrees[1] - 1, micro_batches + degrees[1] - 1
    assert "{} / {}, with 4 micro batches 1 / 5".format(*waits) in header(recipe)["Pipeline"]


def test_the_arithmetic_of_the_pipeline():
    recipe = ROOT / "recipes" / "llama-7b" / "pipeline.sh"
    whole = ModelShape.from_config(load_config("llama-7b")).parameters
    told = f"{whole / 1e9:.2f} B parameters x 16 bytes / 4 = {whole * 16 / 4e9:.0f} GB each"
    assert told in header(recipe)["Hardware"]
    stages = layout_of(recipe).pipeline_parallel_degree
    micro_batches = int(stated_flags(recipe)["gradient_accumulation_steps"][0])
    busy = 100 * micro_batches / (micro_batches + stages - 1)
    assert f"{micro_batches} micro batches keep {stages} stages busy {busy:.0f} %" in header(recipe)["Batch"]


HUB = "is a copy on PaddleNLP's hub, under the same terms"
CHATGLM = "no military use; free for research, and commercially after registration with Zhipu AI"
LICENCES = {  # of the weights, by the model's name, as their owners publish them
    "llama-7b": "LLaMA License Agreement, non-commercial research only; Meta grants it on application. "
    f"facebook/llama-7b {HUB}",
    "chatglm-6b": f"The ChatGLM-6B License, {CHATGLM}. THUDM/chatglm-6b {HUB}",
    "chatglm2-6b": f"The ChatGLM2-6B License, {CHATGLM}. THUDM/chatglm2-6b {HUB}",
    "baichuan-13b": "Community License for Baichuan-13B Model; free for research, and commercially with "
    "written permission from Baichuan Inc.",
    "llama-tiny": "yours, because they start from random values",
    **dict.fromkeys(("qwen3-8b", "qwen2.5-7b", "qwen2.5-0.5b"), "Apache 2.0"),
    "llama-3-8b": "Meta Llama 3 Community License; Meta asks for consent to it on the model's page, and services with "
    "more than 700 million users a month need a licence of their own",
    "deepseek-r1-distill-qwen-7b": "MIT, made from Qwen2.5-Math-7B, which is Apache 2.0",
}


@of_each_recipe
def test_licence_is_that_of_the_model(recipe):
    assert model_of(recipe) in LICENCES, "add to LICENCES what its owner publishes"
    assert header(recipe)["Licence"] == f"of the weights: {LICENCES[model_of(recipe)]}"


@of_each_recipe
def test_data_are_those_that_the_flags_name(recipe):
    flags = stated_flags(recipe)
    if recipe in PRETRAINING:
        assert header(recipe)["Data"].startswith(f"{flags['input_dir'][0]}/*.bin + *.idx")
    else:
        folder = flags["dataset_name_or_path"][0]
        assert header(recipe)["Data"].startswith(f"{folder}/train.json, {folder}/dev.json:")


@of_each_recipe
def test_flags_files_and_targets_in_it_are_there(recipe):
    text = "\n".join(header(recipe).values())
    assert set(re.findall(r"--(\w+)", text)) <= load_schema(script(recipe)).keys()
    assert all((ROOT / file).is_file() for file in re.findall(r"docs/\S+\.md", text))
    targets = re.findall(r"^([\w-]+)(?=:)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"\bmake ([a-z](?:[\w.-]*\w)?)", text)) <= {*targets, *TARGETS.values(), "data-tokenize"}
    replaced = re.search(r"replace the line `(.*?)`", text)
    assert not replaced or f"    {replaced[1]} \\\n" in recipe.read_text()


@pytest.mark.parametrize("recipe", [one for one in PRETRAINING if "first loss" in header(one)["Expect"]], ids=name)
def test_first_losses(recipe):
    """From random weights ln V + h sigma^2 / 2; what is expected of trained ones lies in the window that is watched."""
    text, flags = header(recipe)["Expect"], stated_flags(recipe)
    random = re.search(r"([\d.]+) (?:from random weights|\(ln)", text)
    if random:
        assert random[1] == f"{ModelShape.from_config(load_config(model_of(recipe))).first_loss:.1f}"
    trained = re.search(r"([\d.]+) to ([\d.]+) when continuing", text)
    if trained:
        low, high = map(float, flags["loss_first"][0].split("-"))
        assert low <= float(trained[1]) < float(trained[2]) <= high


def test_what_the_lora_on_the_demo_ends_with_is_what_its_page_has():
    """A row of docs/finetune.md's table: the recipe has the flags of that run of `make demo-finetune`."""
    recipe = ROOT / "recipes" / "tiny" / "lora.sh"
    flags, stated = COMMON | next(one for one in METHODS if one.name == "lora r8 all").flags, stated_flags(recipe)
    for one in flags.keys() - {"eval_steps", "save_steps", "logging_steps", "report_to", "eval_with_do_generation"}:
        if one not in ("resume_from_checkpoint", "overwrite_output_dir"):
            assert flags[one] == type(flags[one])(stated[one][0]), one
    page = (ROOT / "docs" / "finetune.md").read_text("utf-8")
    before, after = re.search(r"^\| lora r8 all \| .* MB \| (\S+) \| (\S+) \|", page, re.MULTILINE).groups()
    told = f"evaluation loss {float(after):.1f} at the end on the model of `make demo`, "
    told += f"which has {float(before):.1f} before training"
    assert header(recipe)["Expect"] == told


def samples_of_a_step(recipe: Path) -> tuple[int, int, int]:
    """(data ranks, micro batch, accumulation)"""
    flags = stated_flags(recipe)
    micro_batch, accumulation = flags["per_device_train_batch_size"][0], flags["gradient_accumulation_steps"][0]
    return layout_of(recipe).data_ranks, int(micro_batch), int(accumulation)


@pytest.mark.parametrize("recipe", PRETRAINING, ids=name)
def test_tokens_of_a_step(recipe):
    """data ranks x micro batch x accumulation x sequence length."""
    flags = stated_flags(recipe)
    tokens = math.prod(samples_of_a_step(recipe)) * int(flags["max_seq_length"][0])
    told = re.search(r"= ([\d,]+) a step, ([\d.]+) M in ([\d,]+) steps", header(recipe)["Tokens"])
    step, total, steps = (word.replace(",", "") for word in told.groups())
    assert (int(step), steps) == (tokens, flags["max_steps"][0])
    assert total == f"{tokens * int(steps) / 1e6:.3g}"


@pytest.mark.parametrize("recipe", [*FINE_TUNING, *PREFERENCE_TUNING], ids=name)
def test_samples_of_a_step_and_lengths(recipe):
    ranks, micro_batch, accumulation = samples_of_a_step(recipe)
    flags, prefers = stated_flags(recipe), recipe in PREFERENCE_TUNING
    pairs = prefers and flags.get("loss_type") != ["kto"]
    packed = "zero_padding" in flags
    assert ("Packing" in header(recipe)) == packed
    counts = ((ranks, "data rank"), (micro_batch, "sample" if pairs or not packed else "row"))
    words = [f"{count} {word}{'s' if count > 1 else ''}" for count, word in counts]
    batch = " x ".join(words) + (" of 2 rows" if pairs else "")
    step = ranks * micro_batch * accumulation
    assert header(recipe)["Batch"].startswith(f"{batch} x {accumulation} accumulation = {step} a step")
    asked = "prompt where" if prefers else "question, "
    assert header(recipe)["Lengths"].startswith(f"{flags['src_length'][0]} tokens for the {asked}")
    assert re.search(rf"\b{flags['max_length'][0]}\b", header(recipe)["Lengths"])


ADAPTERS = [recipe for recipe in RECIPES if "Trains" in header(recipe)]


def test_every_recipe_of_an_adapter_tells_what_it_trains():
    assert [one for one in RECIPES if {"lora", "prefix_tuning"} & stated_flags(one).keys()] == ADAPTERS


@pytest.mark.parametrize("recipe", ADAPTERS, ids=name)
def test_what_is_trained_and_left(recipe):
    """Parameters in millions, of billions where there are so many; the files are float32."""
    config, flags = load_config(model_of(recipe)), stated_flags(recipe)
    if script(recipe).endswith("run_reward.py"):
        config = as_reward_model(config)
    if "lora" in flags:
        trained = lora_parameters(config, family_of_config(config).linear_layers, int(flags["lora_rank"][0]))
    else:
        trained = prefix_parameters(config, int(flags["num_prefix_tokens"][0]))
    whole = ModelShape.from_config(config).parameters
    of = f"{whole / 1e9:.2f} B" if whole > 1e9 else f"{whole / 1e6:.1f} M"
    assert header(recipe)["Trains"].startswith(f"{trained / 1e6:.1f} M of {of} parameters")
    kind = "adapter" if "lora" in flags else "prefix"
    assert header(recipe)["Saves"].startswith(f"only the {kind}, {4 * trained / 1e6:.0f} MB")


@pytest.mark.parametrize("recipe", [one for one in FINE_TUNING if "4 bits" in header(one)[""]], ids=name)
def test_bits_of_a_weight_in_4_bits(recipe):
    """4 of the code, 8 / 64 of its scale, 32 / 64 / 256 of the scale's; linear layers alone are quantized."""
    text = "\n".join(header(recipe).values())
    bits = 4 + 8 / 64 + 32 / 64 / 256
    sizes = parameters(load_config(model_of(recipe)))
    linear = sum(one.size for one in sizes if one.kind == LINEAR)
    total = sum(one.size for one in sizes)
    assert f"{bits:.2f} bits a weight" in text
    assert f"{2 * total / 1e9:.1f} GB" in text  # in 16 bits
    small = re.search(r"([\d.]+) GB of weights in 4 bits", text)
    assert not small or small[1] == f"{(linear * bits / 8 + (total - linear) * 2) / 1e9:.1f}"


GENERATES_AT_THE_END = "full-2gpu"  # one evaluation, after the last step


@of_each_recipe
def test_the_best_model_can_be_loaded_at_the_end(recipe):
    """Each checkpoint is of a step that is evaluated."""
    flags = stated_flags(recipe)
    whole = int(flags["save_steps"][0]) % int(flags["eval_steps"][0]) == 0
    assert whole != (recipe.stem == GENERATES_AT_THE_END)
