"""A model directory's weights, by their headers: whole, and those of its configuration."""

import json
import os

import numpy as np
import pytest
from safetensors.numpy import save_file

from launch.checkpoint.checkpoint_writer import NewPart, PartialCheckpoint, safetensors_file
from launch.checkpoint.parts import Part
from launch.config.run_config import RunConfig
from launch.families.named_configs import load_config
from launch.families.registry import parameters
from launch.preflight.model_files import check_weights
from tests.checkpoint.test_checkpoint_writer import manifest


def told(directory, **flags) -> list[tuple[bool, str]]:
    stated = {"model_name_or_path": [str(directory)]} | flags
    return [(one.ok, one.found) for one in check_weights(RunConfig("launch/run_pretrain.py", stated))]


def tensors(config: dict) -> dict:
    return {one.name: np.zeros(one.shape, np.float32) for one in parameters(config)}


def write(directory, config: dict, weights: dict, metadata=None):
    directory.mkdir(exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    save_file(weights, directory / "model.safetensors", metadata=metadata or {"format": "np"})
    return directory


@pytest.fixture
def config():
    return load_config("llama-rehearsal")


def test_of_a_name_they_are_not_here_until_paddlenlp_has_them(tmp_path, monkeypatch):
    monkeypatch.setenv("PPNLP_HOME", str(tmp_path))
    stated = {"model_name_or_path": ["Qwen/qwen3-8b"]}
    [one] = check_weights(RunConfig("launch/finetune_generation.py", stated))
    assert one.ok and one.warns and one.found.startswith("Qwen/qwen3-8b: not here. The start asks PaddleNLP's hub")
    assert told("Qwen/qwen3-8b", continue_training=["0"]) == [] == told("Qwen/nothing")
    (tmp_path / "models/Qwen/qwen3-8b").mkdir(parents=True)
    (tmp_path / "models/Qwen/qwen3-8b/model.safetensors").write_bytes(b"")
    assert told("Qwen/qwen3-8b") == []


NAMES = ["llama-rehearsal", "qwen2-rehearsal", "bloom-rehearsal", "chatglm2-rehearsal", "opt-rehearsal"]


@pytest.mark.parametrize("name", NAMES)
def test_weights_that_fit(tmp_path, name):
    weights = tensors(load_config(name))
    found = told(write(tmp_path / "model", load_config(name), weights))
    assert found == [(True, f"{len(weights)} tensors, 0.0 GB in 1 file")]


def test_a_checkpoint_of_several_ranks_may_be_the_model(tmp_path, config):
    """Its tensors are in two files, the first one in both: half of its rows in each."""
    (first, embedding), *others = tensors(config).items()
    half = len(embedding) // 2
    parts = [Part(embedding.shape, 0, (rows,)) for rows in ((0, half), (half, len(embedding)))]
    halves = [NewPart(first, "float32", part, lambda: embedding[:half]) for part in parts]
    whole = [NewPart(name, "float32", Part(one.shape), lambda one=one: one) for name, one in others]
    checkpoint = PartialCheckpoint(tmp_path, 5, rank=0, ranks=1)
    checkpoint.prepare()
    files = [("model-00001-of-00002", [halves[0]]), ("model-00002-of-00002", [halves[1], *whole])]
    checkpoint.write([safetensors_file(f"{name}.safetensors", content) for name, content in files])
    checkpoint.finish(manifest(5))
    (checkpoint.final / "config.json").write_text(json.dumps(config))
    assert told(checkpoint.final) == [(True, "39 tensors, 0.0 GB in 2 files")]


def test_tensors_that_do_not_fit_are_named(tmp_path, config):
    weights = tensors(config)
    del weights["llama.layers.2.mlp.up_proj.weight"]
    weights["llama.layers.4.mlp.up_proj.weight"] = np.zeros((64, 176), np.float32)
    weights["lm_head.weight"] = np.zeros((64, 1000), np.float32)
    weights["llama.layers.0.self_attn.rotary_emb.inv_freq"] = np.zeros(8, np.float32)
    directory = write(tmp_path / "model", config, weights)
    found = (
        f"{directory}: the weights do not fit its config.json; "
        "missing: llama.layers.2.mlp.up_proj.weight; not in the model: llama.layers.4.mlp.up_proj.weight; "
        "different: lm_head.weight (found [64, 1000], expected [64, 1024])"
    )
    assert told(directory) == [(False, found)]


def test_a_tied_head_may_be_saved_or_not(tmp_path, config):
    """And fused layers have names that are not known beforehand."""
    tied = config | {"tie_word_embeddings": True}
    without = tensors(tied)
    assert "lm_head.weight" not in without
    assert told(write(tmp_path / "without", tied, without))[0][0]
    assert told(write(tmp_path / "with", tied, without | {"lm_head.weight": np.zeros((1024, 64), np.float32)}))[0][0]
    fused = config | {"fuse_attention_qkv": True}
    assert told(write(tmp_path / "fused", fused, {"other": np.zeros(2, np.float32)}))[0][0]


def test_weights_that_are_not_whole_not_ours_or_not_there(tmp_path, config):
    model = write(tmp_path / "model", config, tensors(config), {"format": "pt"})
    [(ok, found)] = told(model)
    assert not ok and "in Hugging Face's layout" in found and f"make import MODEL={model}" in found
    file = write(model, config, tensors(config)) / "model.safetensors"
    whole = file.stat().st_size
    os.truncate(file, 1_000_000)
    [(ok, found)] = told(model)
    assert not ok and found.startswith(f"{file}: 1,000,000 bytes, its header says {whole:,}.")
    file.unlink()
    [(ok, found)] = told(model)
    assert not ok and found.startswith(f"{model}: no weights")
    assert told(model, continue_training=["0"]) == []
