"""What the page shows is what the commands say: plans to the last digit, refusals at their controls, offers that hold
what they say."""

import json
import os

import pytest

from launch.config.recipe_file import load_recipes
from launch.devices.cards import DetectedCard, Driver
from launch.errors import UserError
from launch.plan.plan_report import duration
from launch.studio import planning
from launch.studio.planning import RecipeChoice, advice_of, checks_of, layouts_of, offered, plan_of
from tests.forked_commands import start_forked
from tests.store import ROOT


def choice(recipe: str, **variables: str) -> RecipeChoice:
    return RecipeChoice.read({"recipe": recipe} | variables)


@pytest.mark.parametrize(
    "chosen",
    [
        choice("lora-qwen3-8b", GPUS="2", CARD="3090", ARGS="--max_length 2048"),
        choice("pretrain-llama7b-4d", MODEL="facebook/llama-13b"),
        choice("pretrain-llama7b", NNODES="2", NETWORK="ib-hdr", CARD="A100-80G"),
        choice("lora-tiny"),  # whose model the demo makes
    ],
    ids=lambda chosen: chosen.recipe.target,
)
def test_the_plan_is_that_of_make(chosen, tmp_path):
    given = os.environ | chosen.variables | {"ACTION": "plan", "FORMAT": "json"}
    printed = start_forked("launch/recipe.py", ROOT, [str(chosen.recipe.path)], given, tmp_path).stdout
    found = plan_of(chosen)
    plan = found["plan"]
    stages = [sum(parts.values()) for parts in plan.pop("peak_parts")]
    assert json.loads(json.dumps(plan)) == json.loads(printed)
    assert stages == [stage["peak_bytes"] for stage in plan["stages"]]


def test_the_command_the_duration_and_what_empty_controls_mean():
    found = plan_of(choice("dpo-llama3-8b", ARGS="--max_steps 300"))
    assert found["calibrated"] and found["duration"] == duration(found["plan"]["time"]["steps_seconds"])
    found = plan_of(choice("lora-qwen3-8b", GPUS="2", ARGS="--max_length 2048"))
    assert found["command"] == "lora-qwen3-8b GPUS=2 ARGS='--max_length 2048'"
    values = {"tokens": "2048", "micro_batch": "1", "accumulation": "8", "GPUS": "2", "PROCESSES": "2", "NNODES": "1"}
    assert found["values"] == found["values"] | values, "16 samples a step over 2 cards"
    assert "--gradient_accumulation_steps 8" in found["launch"]


@pytest.mark.parametrize(
    ("variables", "control", "said"),
    [
        ({"GPUS": "x"}, "GPUS", "expected a whole number from 1 to"),
        ({"NNODES": "0"}, "NNODES", "expected a whole number from 1 to"),
        ({"NNODES": "2", "NETWORK": "x"}, "NETWORK", "known: ib-ndr"),
        ({"GPUS": "3"}, "GPUS", "cannot be dealt to 3"),
        ({"CARD": "2080"}, "CARD", "known: A100-80G"),
        ({"ARGS": "--max_length x"}, "max_length", "found 'x'"),
        ({"ARGS": "--tensor_parallel_degree 3", "GPUS": "3"}, "tensor_parallel_degree", "3"),
        ({"ARGS": "nonsense"}, "ARGS", "is not a flag"),
        ({"MODEL": "nowhere/none"}, "model_name_or_path", "none"),
    ],
)
def test_what_is_refused_is_told_at_its_control(variables, control, said):
    found = plan_of(choice("lora-qwen3-8b", **variables))
    assert "plan" not in found
    assert any(fault["control"] == control and said in fault["found"] for fault in found["faults"]), found["faults"]


def test_all_faults_are_told_and_empty_controls_mean_what_they_do_without_them():
    variables = {"NNODES": "0", "GPUS": "3", "CARD": "2080", "MODEL": "nowhere/none", "DATA": "mine"}
    arguments = "--max_length x --learning_rate 1e-4 --foo 3"
    found = plan_of(choice("lora-qwen3-8b", ARGS=arguments, **variables))
    controls = ["NNODES", "GPUS", "model_name_or_path", "CARD", "max_length", "foo"]
    assert sorted(fault["control"] for fault in found["faults"]) == sorted(controls)
    values = {"tokens": "3072", "learning_rate": "0.0001", "DATA": "mine", "accumulation": "16", "GPUS": "1"}
    assert found["values"] == found["values"] | values and "plan" not in found
    open_quotation = plan_of(choice("lora-qwen3-8b", NNODES="0", ARGS="--max_length 'a"))
    assert [fault["control"] for fault in open_quotation["faults"]] == ["NNODES", "ARGS"]


def test_a_card_that_the_installed_paddle_cannot_use_is_offered_with_the_fix(monkeypatch):
    card = DetectedCard(0, "NVIDIA GeForce RTX 4090", 24 << 30, 24 << 30, (8, 9), "GPU-0")
    monkeypatch.setattr(planning, "list_cards", lambda: [card])
    monkeypatch.setattr(planning, "driver", lambda: Driver("575.51", (12, 9)))
    for build, fault in {"cpu": "make setup-gpu CUDA=12.9", "12.9": None}.items():
        monkeypatch.setattr(planning, "paddle_build", lambda build=build: build)
        found = offered()["here"]["fault"]
        assert (found and found["fix"]) == fault
    assert offered()["demo_minutes"]["build/demo/model"] == "5-10"


@pytest.mark.parametrize(
    ("variables", "meant"),
    [
        ({"CARD": "490"}, "4090"),
        ({"CARD": "a10-80g"}, "A100-80G"),
        ({"MODEL": "Qwen/Qwen3-8"}, "qwen3-8b"),
        ({"MODEL": "models/qwen3-8c"}, "models/qwen3-8b"),  # a folder is there, and a name is near, too
        ({"ARGS": "--lr_scheduler_type cosin"}, "cosine"),
        ({"ARGS": "--learning_rate 1e--4"}, ""),  # a range lists no names
        ({"CARD": "Voodoo"}, ""),
    ],
)
def test_the_nearest_of_the_names_that_a_fault_lists_is_meant(variables, meant, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models/qwen3-8b").mkdir(parents=True)
    (tmp_path / "models/qwen3-8b/config.json").touch()
    [fault] = plan_of(choice("lora-qwen3-8b", **variables))["faults"]
    assert fault["meant"] == meant


def test_an_unknown_recipe_or_variable_is_an_error():
    with pytest.raises(UserError, match=r"recipe: found 'lora-quen3-8b', which is none. Did you mean lora-qwen3-8b\?$"):
        choice("lora-quen3-8b")
    for name, value in {"PATH": "/tmp", "MASTER": "a:1", "ARGS": "a\0b", "DATA": "x" * 10_001}.items():
        with pytest.raises(UserError, match=f"{name}: found a value that no recipe takes"):
            choice("lora-qwen3-8b", **{name: value})


@pytest.mark.parametrize(
    ("offers", "chosen"),
    [
        (layouts_of, choice("lora-1gpu", ARGS="--learning_rate 1e-5")),
        (advice_of, choice("finetune-llama7b", CARD="A100-40G")),  # faster
        *(
            pytest.param(*further, marks=pytest.mark.long)
            for further in (
                (layouts_of, choice("finetune-llama7b", GPUS="2", CARD="H200")),  # the recipe is for 4
                (layouts_of, choice("pretrain-llama7b", NNODES="2", GPUS="4", CARD="H100-80G")),
                (advice_of, choice("lora-1gpu", CARD="V100-16G")),  # smaller
            )
        ),
    ],
)
def test_an_offer_that_is_taken_has_the_memory_that_it_names(offers, chosen):
    found = offers(chosen)
    assert found
    for offer in found:
        assert offer["args"].startswith(chosen.variables.get("ARGS", "--")), "the user's flags stay"
        taken = plan_of(RecipeChoice(chosen.recipe, chosen.variables | {"ARGS": offer["args"]}))
        further = any(note.startswith("FIT for ") for note in taken["notes"])  # then it is smaller still
        assert taken["fits"] and taken["plan"]["peak_bytes"] <= offer["peak_bytes"], offer
        assert taken["plan"]["peak_bytes"] == offer["peak_bytes"] or (further and offers is advice_of), offer


def test_the_checks_are_those_of_a_start(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    found = checks_of(choice("lora-tiny"))
    faults = {check["subject"]: check["fix"] for check in found if not check["ok"]}
    assert faults["--model_name_or_path"] == "make demo"  # what the start says beside the check of the model
    assert (tmp_path / "build/demo-finetune/data/train.json").exists()  # as the start makes them
    assert {"python", "flags", "output"} <= {check["subject"] for check in found}


def test_several_nodes_are_planned_and_not_started():
    chosen = choice("pretrain-llama7b", NNODES="2", CARD="A100-80G")
    found = plan_of(chosen)
    assert found["command"] == "pretrain-llama7b CARD=A100-80G NNODES=2"
    assert (found["cards"], found["values"]["GPUS"], found["values"]["NNODES"]) == (16, "8", "2")
    assert found["launch"].startswith("launch/run_pretrain.py ")  # where they meet is not known here
    [fault] = checks_of(chosen)
    assert not fault["ok"] and fault["found"].startswith("NNODES: found 2, the studio starts a run on this machine")


def test_all_recipes_are_offered_with_the_flag_that_sets_their_length():
    found = offered()
    flags = {recipe["target"]: recipe["length_flag"] for recipe in found["recipes"]}
    methods = {recipe["target"]: recipe["method"] for recipe in found["recipes"]}
    assert (methods["pretrain-tiny"], methods["dpo-lora-qwen2.5-7b"]) == ("pretraining", "preferences")
    assert methods["pretrain-baichuan13b-lora"] == "LoRA"
    assert flags["pretrain-baichuan13b-lora"] == "max_seq_length"  # by its script, not by its method
    lengths = {"max_seq_length", "max_length"}
    assert {recipe.target: lengths & recipe.flags.keys() for recipe in load_recipes(ROOT)} == {
        target: {flag} for target, flag in flags.items()
    }
    assert found["cards"]["4090"] == 24 and "qwen3-8b" in found["models"]
