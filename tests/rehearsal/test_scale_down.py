"""The table of what a rehearsal changes: every flag outside it stays, every value is what the table says."""

from pathlib import Path

from launch.rehearsal.scale_down import describe, scale_down
from tests.recipes.test_rendered import RECIPES, stated_flags

MODEL, DATA, OUTPUT = Path("/m/model"), Path("/m/data"), Path("/m/output")
STAND_INS = {
    "device": ["cpu"],
    "model_name_or_path": ["/m/model"],
    "tokenizer_name_or_path": ["/m/model"],
    "input_dir": ["/m/data"],
    "output_dir": ["/m/output"],
    "overwrite_output_dir": ["1"],
    "max_eval_samples": ["32"],
}


def changed(flags: dict) -> dict:
    """What scale_down changes beside the stand-ins."""
    after, changes = scale_down(flags, MODEL, DATA, OUTPUT)
    assert {name: after[name] for name in STAND_INS} == STAND_INS
    assert {change.flag for change in changes} == {
        name for name, words in after.items() if words != flags.get(name)
    }
    return {
        name: words[0] for name, words in after.items() if name not in STAND_INS and flags.get(name) != words
    }


def test_llama_7b_keeps_its_layout():
    recipe = next(path for path in RECIPES if path.parent.name == "llama-7b" and path.stem == "pretrain")
    assert changed(stated_flags(recipe)) == {
        "fp16": "0",
        "dataloader_num_workers": "0",
        "max_seq_length": "128",
        "max_steps": "20",
        "save_steps": "10",
        "eval_steps": "10",
        "logging_steps": "1",
    }


def test_smaller_values_stay():
    assert changed({"max_steps": ["5"], "max_seq_length": ["64"], "fp16": ["0"], "device": ["gpu"]}) == {}


def test_switch_without_a_value_is_on():
    assert changed({"bf16": [], "device": ["gpu"]}) == {"bf16": "0"}


def test_what_is_required_of_a_card_is_not_required_of_the_cpu():
    flags = {"use_flash_attention": ["required"], "use_fused_rms_norm": ["off"], "bf16": ["auto"]}
    assert changed(flags) == {"use_flash_attention": "auto", "bf16": "0"}


def test_every_change_is_told_with_its_reason():
    _, changes = scale_down({"max_steps": ["10000"], "fp16": ["1"]}, MODEL, DATA, OUTPUT)
    lines = describe(changes).splitlines()
    assert "  --fp16 1 -> 0  (fp32: the CPU has no kernels in half precision)" in lines
    assert "  --max_steps 10000 -> 20  (a minute or so)" in lines
    assert "  --device cpu  (no card is used)" in lines
    assert len(lines) == len(changes)
