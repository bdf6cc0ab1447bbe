"""Weights come into a model as from_pretrained brings them, to the bit, in every layout; what does not fit is told."""

import json
import os
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from launch.families.registry import FAMILIES
from tests.checkpoint.loading_ranks import CONFIGURATIONS

COMPARE = "tests.checkpoint.loading_ranks:compare"
REFUSAL = "tests.checkpoint.loading_ranks:refusal"
TP2, PP2 = {"tensor_parallel_degree": 2}, {"pipeline_parallel_degree": 2}
WITH_PIPELINE = [name for name in CONFIGURATIONS if name not in FAMILIES or FAMILIES[name].pipeline_class]
FILES = pytest.mark.parametrize("files", ["single", "sharded", "pdparams"])


@pytest.fixture(scope="module")
def models(ranks, tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    ranks(1, "tests.checkpoint.loading_ranks:save_models", str(root), list(CONFIGURATIONS))
    return root


@FILES
def test_one_process(ranks, models, files):
    [parameters] = ranks(1, COMPARE, str(models), list(CONFIGURATIONS), files, {})
    assert "llama.layers.3.mlp.down_proj.weight" in parameters["llama"]


@FILES
def test_tensor_parallel(ranks, models, files):
    ranks(2, COMPARE, str(models), list(CONFIGURATIONS), files, TP2)


@FILES
def test_pipeline_parallel(ranks, models, files):
    first, last = ranks(2, COMPARE, str(models), WITH_PIPELINE, files, PP2)
    for name in WITH_PIPELINE:
        assert not set(first[name]) & set(last[name])
    assert "llama.layers.1.mlp.down_proj.weight" in first["llama"]
    assert "llama.layers.2.mlp.down_proj.weight" in last["llama"]


def save(directory, tensors: dict, config: dict) -> str:
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(config))
    save_file(tensors, directory / "model.safetensors", metadata={"format": "np"})
    return str(directory)


@pytest.fixture
def changed(models, tmp_path):
    """changed(**tensors): the llama with other tensors (None: without it), in a directory of its own."""

    def write(**tensors) -> str:
        config = json.loads((models / "llama" / "single" / "config.json").read_text())
        everything = load_file(models / "llama" / "single" / "model.safetensors") | tensors
        return save(tmp_path / "changed", {name: one for name, one in everything.items() if one is not None}, config)

    return write


LAYOUTS = pytest.mark.parametrize(("processes", "flags"), [(1, {}), (2, TP2), (2, PP2)], ids=["single", "tp2", "pp2"])


@LAYOUTS
def test_every_tensor_that_does_not_fit_is_named_on_every_rank(ranks, changed, processes, flags):
    directory = changed(
        **{
            "llama.layers.0.mlp.up_proj.weight": None,  # of the first pipeline stage
            "llama.layers.3.mlp.up_proj.weight": None,  # of the last
            "llama.layers.4.mlp.up_proj.weight": np.ones((64, 176), np.float32),
            "llama.layers.2.mlp.down_proj.weight": np.ones((176, 32), np.float32),
            "llama.norm.weight": np.ones(64, np.int64),
            "llama.layers.1.self_attn.rotary_emb.inv_freq": np.ones(8, np.float32),  # known, and left aside
        }
    )
    said = ranks(processes, REFUSAL, directory, flags)
    part = "a rank's part [88, 32], expected [88, 64]" if flags == TP2 else "expected [176, 64]"
    assert set(said) == {
        f"{directory}: the weights do not fit its config.json; "
        "missing: llama.layers.0.mlp.up_proj.weight, llama.layers.3.mlp.up_proj.weight; "
        "not in the model: llama.layers.4.mlp.up_proj.weight; "
        f"different: llama.layers.2.mlp.down_proj.weight (found [176, 32], {part}), "
        "llama.norm.weight (found int64, expected float32). Take both from one model."
    }


def test_of_many_the_first_ten_are_named_and_all_counted(ranks, changed):
    directory = changed(**{f"extra.{number:02d}": np.ones(2, np.float32) for number in range(25)})
    [said] = ranks(1, REFUSAL, directory, {})
    assert "not in the model: extra.00, extra.01, " in said and "extra.09, ... (25 in all)." in said
    assert "extra.10" not in said


def test_a_tensor_that_cannot_be_divided_is_told_by_its_shape(ranks, changed):
    directory = changed(**{"llama.layers.0.mlp.up_proj.weight": np.ones((64, 175), np.float32)})
    first, second = ranks(2, REFUSAL, directory, TP2)
    assert "different: llama.layers.0.mlp.up_proj.weight (found [64, 175], expected [64, 88])" in first == second


def test_a_file_that_is_damaged_for_one_rank_stops_all(ranks, models, tmp_path):
    """As on several nodes, each with a disk of its own."""
    for rank in range(2):
        shutil.copytree(models / "llama" / "sharded", tmp_path / f"rank{rank}")
    damaged = sorted((tmp_path / "rank1").glob("*.safetensors"))[0]
    os.truncate(damaged, damaged.stat().st_size - 1)
    first, second = ranks(2, "tests.checkpoint.loading_ranks:refusal_of_own_disk", str(tmp_path), PP2)
    assert first == second and first.startswith(f"{damaged}: ") and "its header says" in first


@pytest.mark.parametrize(("dtype", "model"), [("float16", "llama"), ("bfloat16", "gqa")])
def test_half_precision_is_rounded_as_paddle_does(ranks, models, dtype, model):
    ranks(1, COMPARE, str(models), [model], "single", {}, dtype)


def test_half_precision_becomes_float32_as_it_is(ranks, models, tmp_path):
    config = json.loads((models / "llama" / "single" / "config.json").read_text())
    weights = load_file(models / "llama" / "single" / "model.safetensors")
    (tmp_path / "half").mkdir()
    save(tmp_path / "half" / "single", {name: one.astype("float16") for name, one in weights.items()}, config)
    ranks(1, COMPARE, str(tmp_path), ["half"], "single", {})


@LAYOUTS
def test_a_value_beyond_float16_is_told_on_every_rank(ranks, changed, processes, flags):
    large = np.zeros((64, 176), np.float32)
    large[0, 0] = -70_000
    directory = changed(**{"llama.layers.0.mlp.up_proj.weight": large})
    assert set(ranks(processes, REFUSAL, directory, flags, "float16")) == {
        f"{directory}: values beyond float16's 65,504 in llama.layers.0.mlp.up_proj.weight (up to 7e+04). "
        "Train in bfloat16 (--bf16 1 --fp16 0)."
    }
