"""The table of what a rehearsal changes: every flag outside it stays, every value is what the table says."""

from pathlib import Path

import pytest

from launch.families.named_configs import load_config
from launch.methods.finetuning import FINETUNING
from launch.methods.pretraining import PRETRAINING
from launch.rehearsal import rehearse
from launch.rehearsal.rehearse import describe, scale_down
from tests.recipes.test_rendered import RECIPES, stated_flags

MATERIALS, OUTPUT = Path("/m"), Path("/m/output")
STAND_INS = {
    "device": ["cpu"],
    "cpu_fast": ["off"],
    "model_name_or_path": ["/m/model"],
    "tokenizer_name_or_path": ["/m/model"],
    "input_dir": ["/m/data"],
    "output_dir": ["/m/output"],
    "overwrite_output_dir": ["1"],
    "max_eval_samples": ["32"],
}


OF_DIALOGUES = {name: words for name, words in STAND_INS.items() if name not in ("input_dir", "max_eval_samples")}


def changed(flags: dict, stand_ins: dict = STAND_INS) -> dict:
    """What scale_down changes beside the stand-ins."""
    method = PRETRAINING if "input_dir" in stand_ins else FINETUNING
    after, changes = scale_down(method, flags, MATERIALS, OUTPUT)
    assert {name: after[name] for name in stand_ins} == stand_ins
    assert {change.flag for change in changes} == {name for name, words in after.items() if words != flags.get(name)}
    return {name: words[0] for name, words in after.items() if name not in stand_ins and flags.get(name) != words}


def test_llama_7b_keeps_its_layout():
    recipe = next(path for path in RECIPES if path.parent.name == "llama-7b" and path.stem == "pretrain")
    assert changed(stated_flags(recipe)) == {
        "fp16_opt_level": "O1",
        "gradient_accumulation_steps": "2",
        "dataloader_num_workers": "0",
        "loss_first": "auto",
        "max_seq_length": "128",
        "max_steps": "20",
        "save_steps": "10",
        "eval_steps": "10",
        "logging_steps": "1",
    }


@pytest.mark.parametrize(("stem", "dialogues"), [("finetune", "pairs"), ("instruct", "chats"), ("lora", "pairs")])
def test_fine_tuning_keeps_its_layout_and_makes_steps_instead_of_epochs(stem, dialogues):
    recipe = next(path for path in RECIPES if path.parent.name == "llama-7b" and path.stem == stem)
    assert changed(stated_flags(recipe), OF_DIALOGUES | {"dataset_name_or_path": [f"/m/{dialogues}"]}) == {
        "fp16_opt_level": "O1",
        "per_device_train_batch_size": "4",
        "dataloader_num_workers": "0",
        "src_length": "64",
        "max_length": "128",
        "max_steps": "20",
        "warmup_steps": "2",
        "save_steps": "10",
        "eval_steps": "10",
        "logging_steps": "1",
    } | ({} if stem == "lora" else {"gradient_accumulation_steps": "2"})


def test_the_tiny_model_has_heads_for_every_tensor_parallel_rank(tmp_path, monkeypatch):
    """Qwen2.5-7B's 4 key/value heads on 4 ranks, of which the tiny model has 2."""
    monkeypatch.setattr(rehearse, "DIRECTORY", tmp_path)
    assert [rehearse.tiny_configuration("qwen2-rehearsal", ranks) for ranks in (1, 2)] == ["qwen2-rehearsal"] * 2
    file = rehearse.tiny_configuration("qwen2-rehearsal", 4)
    changed = {"num_attention_heads": 8, "num_key_value_heads": 4}
    assert load_config(file) == load_config("qwen2-rehearsal") | changed
    assert rehearse.find_materials(file).name.startswith("qwen2-rehearsal-4-ranks-")
    assert rehearse.tiny_configuration("llama-rehearsal", 4) == "llama-rehearsal"


def test_a_pipeline_keeps_two_micro_batches_for_each_stage():
    """It evaluates in as many samples as a step has."""
    pipeline = {"gradient_accumulation_steps": ["64"], "pipeline_parallel_degree": ["2"], "device": ["gpu"]}
    pipeline |= {"per_device_train_batch_size": ["2"], "per_device_eval_batch_size": ["128"]}
    assert changed(pipeline) == {"gradient_accumulation_steps": "4", "per_device_eval_batch_size": "8"}
    assert changed(pipeline | {"pipeline_parallel_degree": ["1"]}) == {"gradient_accumulation_steps": "2"}


def test_smaller_values_stay():
    assert changed({"max_steps": ["5"], "max_seq_length": ["64"], "fp16": ["0"], "device": ["gpu"]}) == {}


def test_steps_that_a_recipe_states_win_over_its_epochs():
    assert changed({"num_train_epochs": ["2"], "max_steps": ["5"], "device": ["gpu"]}) == {}


def test_columns_are_those_of_the_made_up_dialogues():
    flags = {"dataset_name_or_path": ["ads"], "prompt_column": ["content"], "response_column": ["summary"]}
    stand_ins = OF_DIALOGUES | {"dataset_name_or_path": ["/m/pairs"]}
    assert changed(flags, stand_ins) == {"prompt_column": "src", "response_column": "tgt"}


def test_fast_layers_where_they_are_requested():
    after, changes = scale_down(PRETRAINING, {"cpu_fast": ["on"]}, MATERIALS, OUTPUT)
    assert after["cpu_fast"] == ["on"] and "cpu_fast" not in {change.flag for change in changes}


def test_switch_without_a_value_is_on():
    assert changed({"bf16": [], "device": ["gpu"]}) == {"bf16": "0"}


def test_what_is_required_of_a_card_is_not_required_of_the_cpu():
    flags = {"use_flash_attention": ["required"], "use_fused_rms_norm": ["off"], "bf16": ["auto"]}
    assert changed(flags) == {"use_flash_attention": "auto", "bf16": "0"}


def test_every_change_is_told_with_its_reason():
    _, changes = scale_down(PRETRAINING, {"max_steps": ["10000"], "fp16_opt_level": ["O2"]}, MATERIALS, OUTPUT)
    lines = describe(changes).splitlines()
    reason = "fp32, but for fp16's loss scale: the CPU has no kernels in half precision"
    assert f"  --fp16_opt_level O2 -> O1  ({reason})" in lines
    assert "  --max_steps 10000 -> 20  (a minute or so)" in lines
    assert "  --device cpu  (no card is used)" in lines
    assert len(lines) == len(changes)
