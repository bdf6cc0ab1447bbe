"""launch/commands/plan_run.py and `make plan-X`: what they print, as a table and as data, and what they refuse."""

import json

import pytest

from docs.tools.recipe_table import plan_of
from launch.config.recipe_file import recipe_paths
from launch.plan.hardware import GIB
from launch.plan.time_plan import PUBLIC_SHARES
from launch.preflight.proposals import SPARE
from tests.forked_commands import start_forked
from tests.recipes.machine import ROOT, environment

HALF = ["--fp16", "1", "--fp16_opt_level", "O2", "--per_device_train_batch_size", "1"]
MARGIN = 0.92  # of a card
DPO = ("launch/run_dpo.py", "--model_name_or_path", "llama-7b", "--max_steps", "100")


@pytest.fixture
def plan(tmp_path):
    """plan(words): how the command ends, in a fork."""
    return lambda *words, **variables: start_forked(
        "launch/commands/plan_run.py", ROOT, [str(word) for word in words], environment(**variables), tmp_path
    )


@pytest.fixture
def recipe(tmp_path):
    """recipe("llama-7b/pretrain", GPUS="4"): how `make plan-X` ends, in a fork."""
    return lambda name, **variables: start_forked(
        "launch/recipe.py", ROOT, [f"recipes/{name}.sh"], environment(ACTION="plan", **variables), tmp_path
    )


def test_the_table_is_no_wider_than_a_terminal(plan):
    pipeline = "--tensor_parallel_degree 2 --pipeline_parallel_degree 8 --gradient_accumulation_steps 16"
    shown = plan("--gpus", "16", "llama-7b", *HALF, *pipeline.split()).stdout.splitlines()
    table = shown[shown.index("") + 1 :]
    table = table[: table.index("")]
    assert table[0].count("stage") == 7  # the eighth has no room: those with the highest peaks are shown
    assert all(len(line) <= 80 for line in shown)
    assert [line.split()[0] for line in table[1:6]] == ["layers", "peak", "parameters", "gradients", "master"]


@pytest.mark.parametrize(
    ("flags", "language", "line"),
    [
        ("--loss_type sigmoid", "en", "DPO; the reference is a second copy of the model"),
        ("--loss_type hinge --lora 1", "en", "SLiC; the reference is the model without its adapter"),
        ("--loss_type simpo --lora 1", "zh", "SimPO；不用参考模型"),
        ("--reference precomputed", "en", "DPO; the reference is computed once, before training"),
    ],
)
def test_what_preferences_are_compared_with_is_told_after_the_model(plan, flags, language, line):
    shown = plan(*DPO, *flags.split(), *HALF, LAUNCH_LANG=language).stdout.splitlines()
    assert line in shown[1:3]  # the model may take two


def test_a_reward_model_has_a_score_in_place_of_its_output_layer(plan):
    shown = plan("launch/run_reward.py", "--model_name_or_path", "llama-7b", *HALF).stdout
    assert "6.61 billion parameters" in shown, "4096 x 1 for 4096 x 32000"
    assert "a reward model: one score of a text in place of logits" in shown


def test_reinforcement_has_keys_and_values_of_its_answers_before_it_learns(plan):
    words = ("--format", "json", "reinforcement", "--model_name_or_path", "llama-7b", "--reward", "number", *HALF)
    found = json.loads(plan(*words, "--max_length", "512", "--src_length", "256").stdout)
    [stage] = found["stages"]
    assert stage["phases"]["sampling"]["keys and values"] == (64 + 8) * 512 * 2 * 32 * 4096 * 2
    time = found["time"]
    assert [phase["tokens"] for phase in time["phases"].values()] == [8 * 256, 8 * 512]
    assert time["step_seconds"] == pytest.approx(sum(phase["seconds"] for phase in time["phases"].values()))
    assert time["phases"]["learning"]["parts_seconds"] == time["parts_seconds"]
    assert "evaluation" not in stage["phases"] and "keys and values" not in stage["phases"]["forward"]


def test_a_teacher_has_its_own_size(plan):
    """As a copy of the model where it is as large; a larger one takes its weights, and its share of the time."""
    words = ("--format", "json", "reinforcement", "--model_name_or_path", "qwen3-0.6b", "--reward", "number", *HALF)
    kinds = (("--kl_weight", "1"), ("--teacher", "qwen3-0.6b"), ("--teacher", "qwen3-4b", "--lora", "1"))
    copy, alike, larger = (json.loads(plan(*words, *kind).stdout) for kind in kinds)
    assert copy == alike
    [stage] = larger["stages"]
    for phase in ("sampling", "forward"):
        assert stage["phases"][phase]["reference"] == pytest.approx(2 * 4_022_468_096, rel=1e-3)
    seconds = [found["time"]["parts_seconds"]["reference"] for found in (copy, larger)]
    assert 4 < seconds[1] / seconds[0] < 8, "4.02 billion parameters and 0.60"


def test_json_has_the_documented_keys_and_the_time_of_a_pass_before_training(plan):
    reference = [
        plan("--format", form, *DPO, "--reference", kind, *HALF).stdout
        for form, kind in (("text", "precomputed"), ("json", "precomputed"), ("json", "copy"))
    ]
    assert "\n      before training, for the reference: " in reference[0]
    once, each = (json.loads(text)["time"] for text in reference[1:])
    assert once["step_seconds"] < 0.8 * each["step_seconds"] and "reference" not in once["parts_seconds"]
    assert once["million_samples_days"] == pytest.approx(each["million_samples_days"], rel=1e-9)
    ended = plan("--gpus", "8", "--format", "json", "llama-7b", "--sharding", "stage2", *HALF)
    found = json.loads(ended.stdout)
    documented = (ROOT / "docs" / "plan.md").read_text()
    assert all(f"`{key}`" in documented for key in found)
    [stage] = found["stages"]
    assert all(f"`{key}`" in documented for key in stage)
    assert stage["peak_bytes"] == max(sum(parts.values()) for parts in stage["phases"].values()) == found["peak_bytes"]
    assert ended.returncode == 0 and found["fits"] is True and found["calibrated"] is True
    speed = found["time"]["tokens_per_second"]
    assert found["time"]["tokens_per_second_range"] == [share * speed for share in PUBLIC_SHARES]


def test_a_configuration_file_is_enough(plan, tmp_path):
    config = json.loads((ROOT / "launch/families/configs/llama-13b.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config))
    for what in (tmp_path / "config.json", tmp_path):
        ended = plan("--gpus", "2", "--card", "4090", str(what), "--lora", "1", "--max_length", "1024", *HALF)
        shown = ended.stdout
        assert ended.returncode == 1
        assert "13.02 billion parameters" in shown and "LoRA, rank 8" in shown
        assert "DOES NOT FIT" in shown and "uncalibrated" in shown


@pytest.mark.parametrize(("words", "told"), [
    (["llama-70b"], "'llama-70b' is no directory"),
    (["llama-7b", "--nosuch", "1"], "--nosuch: unknown flag"),
    (["--gpus", "0", "llama-7b"], "argument --gpus: found '0'"),
    (["--card", "TPU", "llama-7b"], "'TPU'"),
    (["--gpus", "3", "llama-7b", "--tensor_parallel_degree", "2"], "do not divide 3 processes"),
])  # fmt: skip
def test_mistakes(plan, words, told):
    answer = plan(*words)
    assert answer.returncode == 2 and answer.stdout == ""
    assert answer.stderr.startswith("error: ") and told in answer.stderr


@pytest.mark.long
def test_every_recipe_fits_the_hardware_that_it_names():
    plans = {path: plan_of(path) for path in recipe_paths(ROOT)}
    assert len(plans) > 30
    assert [path for path, plan in plans.items() if plan["fits"] is False] == []  # None: on a CPU no card is named


def test_flags_of_the_command_line_and_the_number_of_nodes_count(recipe):
    path = "llama-7b/pretrain"
    stated, changed = (json.loads(recipe(path, FORMAT="json", ARGS=one).stdout) for one in ("", "--recompute 1"))
    assert changed["peak_bytes"] < stated["peak_bytes"]
    small = recipe(path, GPU_MEMORY_GB="16")
    assert small.returncode == 1 and "DOES NOT FIT" in small.stdout
    assert recipe(path, FORMAT="xml").stderr.startswith("error: FORMAT: found 'xml'")
    shown = recipe("llama-7b/pretrain-4d", NNODES="16")
    text = " ".join(shown.stdout.split())
    assert shown.returncode == 0, shown.stderr
    assert "16 nodes x 8, network ib-hdr (8 x 25 GB/s, 14 µs), assumed for these cards" in text
    assert "between nodes: sharding over 8 nodes, pipeline parallel over 2 nodes" in text
    refused = recipe("llama-7b/pretrain-4d", NNODES="2", NETWORK="ether")
    assert refused.returncode == 2 and "error: NETWORK: found 'ether', known: " in refused.stderr


@pytest.mark.parametrize(
    ("recipe", "card", "ranks", "host_gib"),
    [
        ("baichuan-13b/lora-2gpu.sh", "4090", 2, 64),
        pytest.param("baichuan-13b/qlora-1gpu.sh", "4090", 1, 8, marks=pytest.mark.long),
        ("chatglm-6b/int8-lora-1gpu.sh", "4090", 1, 8),
        ("chatglm2-6b/full-2gpu.sh", "V100-32G", 2, 128),
    ],
)
def test_recipes_for_one_card_or_two_fit_it_and_the_host_with_margin(recipe, card, ranks, host_gib):
    plan = plan_of(ROOT / "recipes" / recipe)
    assert plan["card"] == card and plan["fits"]
    assert plan["peak_bytes"] < MARGIN * plan["card_memory_bytes"]
    assert ranks * sum(plan["host_bytes"].values()) < MARGIN * host_gib * GIB


def test_the_recipe_in_8_bits_is_fitted_to_16_gb():
    plan = plan_of(ROOT / "recipes/chatglm-6b/int8-lora-1gpu.sh", GPU_MEMORY_GB="16")
    assert plan["card"] == "V100-16G" and plan["peak_bytes"] <= (1 - SPARE) * plan["card_memory_bytes"]


def test_the_time_is_that_of_the_users_own_data_and_epochs(recipe, tmp_path):
    (tmp_path / "train.json").write_text('{"src": "a", "tgt": "b"}\n' * 100)
    shown = " ".join(recipe("qwen3-8b/lora", DATA=str(tmp_path), ARGS="--zero_padding 0").stdout.split())
    assert " 13 steps: " in shown and "a million samples" not in shown, "2 epochs of 100 rows, 16 a step"
    assert f"steps: --num_train_epochs 2 of the 100 rows in {tmp_path} " in f"{shown} "
    packed = " ".join(recipe("qwen3-8b/lora", DATA=str(tmp_path)).stdout.split())
    assert "steps: fewer, as a packed row holds several" in packed
    assert " 7 steps: " in recipe("qwen3-8b/lora", DATA=str(tmp_path), ARGS="--max_steps 7").stdout.replace(
        "\n     ", ""
    )
    assert "a million samples" in " ".join(recipe("qwen3-8b/lora", DATA=str(tmp_path / "none")).stdout.split())
