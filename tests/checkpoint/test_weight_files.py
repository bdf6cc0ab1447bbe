"""Which files of a directory hold the model, and what is said where they do not."""

import json
import os
import pickle

import numpy as np
import pytest
from safetensors.numpy import save_file

from launch.checkpoint.weight_files import find_weights
from launch.errors import UserError

ONE, TWO = np.arange(6, dtype=np.float32).reshape(2, 3), np.arange(4, dtype=np.float32)


def index(directory, places: dict, name: str = "model.safetensors.index.json") -> None:
    (directory / name).write_text(json.dumps({"metadata": {}, "weight_map": places}))


@pytest.fixture
def sharded(tmp_path):
    save_file({"a.one": ONE}, tmp_path / "model-1.safetensors")
    save_file({"a.two": TWO}, tmp_path / "model-2.safetensors")
    index(tmp_path, {"a.one": "model-1.safetensors", "a.two": "model-2.safetensors"})
    return tmp_path


def values(directory) -> dict:
    return {name: tensor.open().tolist() for name, tensor in find_weights(directory).items()}


def refusal(directory) -> str:
    with pytest.raises(UserError) as refused:
        find_weights(directory)
    return str(refused.value)


BOTH = {"a.one": ONE.tolist(), "a.two": TWO.tolist()}


def test_one_file_or_several_with_an_index(tmp_path, sharded):
    """A downloaded model may lie behind links, as Hugging Face's cache has it: snapshots of links into blobs."""
    assert values(sharded) == BOTH
    (snapshot := tmp_path / "snapshot").mkdir()
    for path in sharded.glob("model*"):
        (snapshot / path.name).symlink_to(path)
    assert values(snapshot) == BOTH
    (one := tmp_path / "one").mkdir()
    save_file({"a.one": ONE, "a.two": TWO}, one / "model.safetensors")
    assert values(one) == BOTH


def test_pdparams_where_there_is_nothing_else(sharded, tmp_path):
    (sharded / "model_state.pdparams").write_bytes(pickle.dumps({"other": TWO}, 4))
    assert set(values(sharded)) == {"a.one", "a.two"}
    (sharded / "model.safetensors.index.json").unlink()
    assert values(sharded) == {"other": TWO.tolist()}
    (several := tmp_path / "several").mkdir()
    (several / "1.pdparams").write_bytes(pickle.dumps({"a.one": ONE}, 4))
    (several / "2.pdparams").write_bytes(pickle.dumps({"a.two": TWO}, 4))
    index(several, {"a.one": "1.pdparams", "a.two": "2.pdparams"}, "model_state.pdparams.index.json")
    assert values(several) == BOTH


def test_files_that_are_not_those_of_the_index_are_named(sharded):
    index(sharded, {"a.one": "model-1.safetensors", "a.three": "model-2.safetensors"})
    assert "a.three not in the files it names" in refusal(sharded)
    for text in ("", "[]", '{"weight_map": 3}', "{}"):
        (sharded / "model.safetensors.index.json").write_text(text)
        assert "not an index of weights files" in refusal(sharded)
    index(sharded, {"a.one": "model-1.safetensors", "a.two": "model-2.safetensors"})
    os.truncate(sharded / "model-2.safetensors", 80)
    assert "model-2.safetensors: 80 bytes, its header says" in refusal(sharded)
    (sharded / "model-2.safetensors").unlink()
    missing = "model-2.safetensors missing, of 2 files in model.safetensors.index.json. Copy them."
    assert refusal(sharded) == f"{sharded}: {missing}"


def test_hugging_faces_layout_is_told_with_the_command(tmp_path):
    said = f"the weights are in Hugging Face's layout (torch's names, matrices transposed). Convert them first: \
make import MODEL={tmp_path}"
    save_file({"model.norm.weight": TWO}, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert refusal(tmp_path) == f"{tmp_path}/model.safetensors: {said}"
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "pytorch_model.bin").write_bytes(b"PK")
    assert refusal(tmp_path) == f"{tmp_path}/pytorch_model.bin: {said}"
    (theirs := tmp_path / "their model").mkdir()
    (theirs / "pytorch_model.bin").write_bytes(b"PK")
    assert refusal(theirs).endswith(f"make import MODEL='{theirs}'"), "it can be pasted"


def test_parts_of_a_model_are_told_apart_from_a_model(tmp_path):
    assert refusal(tmp_path).startswith(f"{tmp_path}: no weights: looked for model.safetensors, model_state.pdparams")
    (tmp_path / "model_state.tp00.pdparams").write_bytes(b"")
    (tmp_path / "model_state.tp01.pdparams").write_bytes(b"")
    said = refusal(tmp_path)
    assert "model_state.tp00.pdparams is one rank's part" in said and "(2 such files)" in said


@pytest.mark.parametrize("name", ["../model-1.safetensors", "/etc/passwd", "..", "", "a/model-1.safetensors", "a\0b"])
def test_an_index_that_names_files_elsewhere_is_refused(sharded, name):
    (sharded / "inner").mkdir()
    index(sharded / "inner", {"a.one": name})
    found = refusal(sharded / "inner")
    assert found.endswith(f"index.json: found {name!r}, allowed: names of files beside it. Copy it again.")
