"""A merged model has the logits of base + adapter, for every family; make merge says so, and what it refuses."""

import re
import shlex

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from launch.families.named_configs import load_config
from launch.families.registry import FAMILIES
from tests.families.test_families import groups
from tests.weights.lora_material import llama, save_base, save_lora, write_lora

RANKS = "tests.prediction.merged_logits_ranks"
MERGE = ("tests.runs_ranks:train_all", "commands.merge")


DORA = ("qwen2", "bloom", "chatglm_v2", "mistral")
ROWS = ("llama", "bloom", "ernie4_5_moe")  # the last two have one matrix of tokens


def made(root, name: str):
    """root/name with base and lora: a tiny model and an adapter of a family."""
    config = load_config(FAMILIES[name].rehearsal_config) | {"vocab_size": 64}
    save_base(root / name / "base", config)
    save_lora(root / name / "lora", config, dora=name in DORA, tokens=(9, 41, 3) if name in ROWS else ())
    return root / name


@pytest.fixture
def small(tmp_path):
    """A directory with base and lora of a LLaMA."""
    directory = tmp_path / "my models"
    save_base(directory / "base", llama())
    save_lora(directory / "lora", llama())
    return directory


def arguments(directory, *more: str) -> list[str]:
    flags = ["--model_name_or_path", "base", "--adapter_path", "lora", "--output_dir", "merged"]
    return [word if word.startswith("--") else str(directory / word) for word in flags] + list(more)


@groups
def test_every_family_is_merged_and_its_logits_agree(ranks, tmp_path, group):
    """Also with those of paddlenlp's LoRA beside the base."""
    directories = [made(tmp_path, name) for name in group]
    [found] = ranks(1, f"{RANKS}:merge_and_compare", [arguments(one) for one in directories])
    for directory, said, beside in zip(directories, found["said"], found["beside"], strict=True):
        assert said["exit_code"] == 0, (directory, said["stderr"])
        text = re.search(r"base \+ adapter: (\S+), allowed .* moves them by ([\d.e+-]+)\)", said["stdout"])
        difference, effect = float(text[1]), float(text[2])
        assert difference < 1e-3 * effect and effect > 0.1, directory
        assert (directory / "merged" / "model.safetensors").exists()
        assert beside == pytest.approx(0, abs=2e-5), directory


def test_logits_of_zeros_alone_agree_with_nothing(ranks, small):
    """A value that is too large: the normalization behind it makes zeros of infinite ones."""
    lora = {name: one for file in (small / "lora").glob("*.safetensors") for name, one in load_file(file).items()}
    name = next(name for name in lora if name.endswith("lora_B"))
    lora[name][0, 0] = 1e37
    write_lora(small / "lora", lora)
    [[said]] = ranks(1, *MERGE, [arguments(small)])
    assert said["exit_code"] == 2 and "(logits are up to 0, " in said["stderr"], said
    assert not (small / "merged").exists()


def test_check_only_tells_a_merge_from_another_and_writes_nothing(ranks, small):
    lora = {name: one for file in (small / "lora").glob("*.safetensors") for name, one in load_file(file).items()}
    write_lora(small / "other", lora, lora_alpha=11.7, scaling=3.9)
    other = [str(small / "other") if word == str(small / "lora") else word for word in arguments(small, "--check-only")]
    [[first]] = ranks(1, *MERGE, [arguments(small)])
    assert first["exit_code"] == 0
    assert shlex.split(first["stdout"].splitlines()[-1])[-1] == f"MODEL={small / 'merged'}"
    files = {file: file.stat().st_mtime_ns for file in (small / "merged").iterdir()}
    [[again, refused]] = ranks(1, *MERGE, [arguments(small, "--check-only"), other])
    assert again["exit_code"] == 0 and "largest difference of logits" in again["stdout"]
    assert {file: file.stat().st_mtime_ns for file in (small / "merged").iterdir()} == files
    assert refused["exit_code"] == 2
    assert "different: llama.layers.0.mlp.down_proj.weight (off by" in refused["stderr"]


def test_logits_that_differ_leave_no_output(ranks, small):
    """A model that is computed otherwise than its weights say: here with another configuration than the base's."""
    config = small / "base" / "config.json"
    [[said]] = ranks(1, f"{RANKS}:merge_with_another_config", arguments(small), str(config))
    assert said["exit_code"] == 2
    assert "error: the merged model is not base + adapter: largest difference of logits" in said["stderr"]
    assert sorted(one.name for one in small.iterdir()) == ["base", "lora"]


def test_float16_is_merged_within_its_rounding_and_a_base_that_is_not_there_is_named(ranks, small):
    file = small / "base" / "model.safetensors"
    save_file({name: one.astype(np.float16) for name, one in load_file(file).items()}, file, {"format": "np"})
    nowhere = arguments(small)
    nowhere[1] = str(small / "nowhere")
    [[said, refused]] = ranks(1, *MERGE, [arguments(small), nowhere])
    assert said["exit_code"] == 0, said["stderr"]
    assert load_file(small / "merged" / "model.safetensors")["lm_head.weight"].dtype == np.float16
    assert refused["exit_code"] == 2
    assert f"--model_name_or_path: '{small}/nowhere' is no model directory" in refused["stderr"]


@pytest.mark.long
def test_logits_need_less_memory_than_the_model(ranks, tmp_path):
    """A model of 400 MB; the largest layer has 29, embedding and head 0.3."""
    config = llama(hidden_size=512, intermediate_size=4096, num_hidden_layers=14)
    size = sum(one.nbytes for one in save_base(tmp_path / "base", config).values())
    save_lora(tmp_path / "lora", config)
    save_base(tmp_path / "small", llama())
    assert size > 350e6
    places = [str(tmp_path / one) for one in ("small", "base", "lora")]
    [used] = ranks(1, f"{RANKS}:layerwise_memory", *places)
    assert used < 0.25 * size
