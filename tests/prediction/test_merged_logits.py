"""A merged model has the logits of base + adapter, for every family; make merge says so, and what it refuses."""

import re
import shlex

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from launch.families.named_configs import load_config
from launch.families.registry import FAMILIES
from tests.weights.lora_material import llama, save_base, save_lora, write_lora

MERGE = "tests.prediction.merged_logits_ranks:merge_all"


@pytest.fixture(scope="module")
def families(tmp_path_factory):
    """{name: directory with base and lora}: a tiny model and an adapter of each family."""
    root = tmp_path_factory.mktemp("families")
    for name, family in FAMILIES.items():
        config = load_config(family.rehearsal_config) | {"vocab_size": 64}
        save_base(root / name / "base", config)
        save_lora(root / name / "lora", config)
    return {name: root / name for name in FAMILIES}


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


def test_logits_beside_a_model_are_those_of_paddlenlps_lora(ranks, families):
    pairs = [[str(one / "base"), str(one / "lora")] for one in families.values()]
    [differences] = ranks(1, "tests.prediction.merged_logits_ranks:beside", pairs)
    assert dict(zip(families, differences, strict=True)) == {name: pytest.approx(0, abs=2e-5) for name in families}


def test_every_family_is_merged_and_its_logits_agree(ranks, families):
    [results] = ranks(1, MERGE, [arguments(one) for one in families.values()])
    for name, said in zip(families, results, strict=True):
        assert said["exit_code"] == 0, (name, said["stderr"])
        found = re.search(r"base \+ adapter: (\S+), allowed .* moves them by ([\d.e+-]+)\)", said["stdout"])
        difference, effect = float(found[1]), float(found[2])
        assert difference < 1e-3 * effect and effect > 0.1, name
        assert (families[name] / "merged" / "model.safetensors").exists()


def test_check_only_tells_a_merge_from_another_and_writes_nothing(ranks, small):
    [[first]] = ranks(1, MERGE, [arguments(small)])
    assert first["exit_code"] == 0
    assert shlex.split(first["stdout"].splitlines()[-1])[-1] == f"MODEL={small / 'merged'}"
    made = {file: file.stat().st_mtime_ns for file in (small / "merged").iterdir()}
    [[again]] = ranks(1, MERGE, [arguments(small, "--check-only")])
    assert again["exit_code"] == 0 and "largest difference of logits" in again["stdout"]
    assert {file: file.stat().st_mtime_ns for file in (small / "merged").iterdir()} == made
    lora = {name: one for file in (small / "lora").glob("*.safetensors") for name, one in load_file(file).items()}
    write_lora(small / "lora", lora, scaling=3.9)
    [[other]] = ranks(1, MERGE, [arguments(small, "--check-only")])
    assert other["exit_code"] == 2
    assert "different: llama.layers.0.mlp.down_proj.weight (off by" in other["stderr"]


def test_logits_that_differ_leave_no_output(ranks, small):
    """A model that is computed otherwise than its weights say: here with another configuration than the base's."""
    config = small / "base" / "config.json"
    [[said]] = ranks(1, "tests.prediction.merged_logits_ranks:merge_with_another_config", arguments(small), str(config))
    assert said["exit_code"] == 2
    assert "error: the merged model is not base + adapter: largest difference of logits" in said["stderr"]
    assert sorted(one.name for one in small.iterdir()) == ["base", "lora"]


def test_float16_is_merged_within_its_rounding(ranks, small):
    file = small / "base" / "model.safetensors"
    save_file({name: one.astype(np.float16) for name, one in load_file(file).items()}, file, {"format": "np"})
    [[said]] = ranks(1, MERGE, [arguments(small)])
    assert said["exit_code"] == 0, said["stderr"]
    assert load_file(small / "merged" / "model.safetensors")["lm_head.weight"].dtype == np.float16


def test_a_base_that_is_not_there_is_named(ranks, small):
    flags = arguments(small)
    flags[1] = str(small / "nowhere")
    [[said]] = ranks(1, MERGE, [flags])
    assert said["exit_code"] == 2
    assert f"--model_name_or_path: '{small}/nowhere' is no model directory" in said["stderr"]


@pytest.mark.long
def test_logits_need_less_memory_than_the_model(ranks, tmp_path):
    """A model of 400 MB; the largest layer has 29, embedding and head 0.3."""
    config = llama(hidden_size=512, intermediate_size=4096, num_hidden_layers=14)
    size = sum(one.nbytes for one in save_base(tmp_path / "base", config).values())
    save_lora(tmp_path / "lora", config)
    save_base(tmp_path / "small", llama())
    assert size > 350e6
    places = [str(tmp_path / one) for one in ("small", "base", "lora")]
    [used] = ranks(1, "tests.prediction.merged_logits_ranks:layerwise_memory", *places)
    assert used < 0.25 * size
