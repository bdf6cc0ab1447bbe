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


def test_one_file(tmp_path):
    save_file({"a.one": ONE, "a.two": TWO}, tmp_path / "model.safetensors")
    assert values(tmp_path) == {"a.one": ONE.tolist(), "a.two": TWO.tolist()}


def test_several_files_with_an_index(sharded):
    assert values(sharded) == {"a.one": ONE.tolist(), "a.two": TWO.tolist()}


def test_pdparams_where_there_is_nothing_else(sharded):
    (sharded / "model_state.pdparams").write_bytes(pickle.dumps({"other": TWO}, 4))
    assert set(values(sharded)) == {"a.one", "a.two"}
    (sharded / "model.safetensors.index.json").unlink()
    assert values(sharded) == {"other": TWO.tolist()}


def test_several_pdparams_with_an_index(tmp_path):
    (tmp_path / "1.pdparams").write_bytes(pickle.dumps({"a.one": ONE}, 4))
    (tmp_path / "2.pdparams").write_bytes(pickle.dumps({"a.two": TWO}, 4))
    index(tmp_path, {"a.one": "1.pdparams", "a.two": "2.pdparams"}, "model_state.pdparams.index.json")
    assert values(tmp_path) == {"a.one": ONE.tolist(), "a.two": TWO.tolist()}


def test_a_missing_file_of_several_is_named(sharded):
    (sharded / "model-2.safetensors").unlink()
    assert refusal(sharded) == (
        f"{sharded}: model-2.safetensors missing, of 2 files in model.safetensors.index.json. Copy them."
    )


def test_a_truncated_file_of_several_is_named(sharded):
    os.truncate(sharded / "model-2.safetensors", 80)
    assert "model-2.safetensors: 80 bytes, its header says" in refusal(sharded)


def test_an_index_of_other_files_is_named(sharded):
    index(sharded, {"a.one": "model-1.safetensors", "a.three": "model-2.safetensors"})
    assert "a.three not in the files it names" in refusal(sharded)


@pytest.mark.parametrize("text", ["", "[]", '{"weight_map": 3}', "{}"])
def test_an_index_that_is_none_is_named(sharded, text):
    (sharded / "model.safetensors.index.json").write_text(text)
    assert "not an index of weights files" in refusal(sharded)


def test_hugging_faces_layout_is_told_with_the_command(tmp_path):
    said = f"the weights are in Hugging Face's layout (torch's names, matrices transposed). Convert them first: \
make import MODEL={tmp_path}"
    save_file({"model.norm.weight": TWO}, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert refusal(tmp_path) == f"{tmp_path}/model.safetensors: {said}"
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "pytorch_model.bin").write_bytes(b"PK")
    assert refusal(tmp_path) == f"{tmp_path}/pytorch_model.bin: {said}"


def test_the_command_of_an_import_can_be_pasted(tmp_path):
    (theirs := tmp_path / "their model").mkdir()
    (theirs / "pytorch_model.bin").write_bytes(b"PK")
    assert refusal(theirs).endswith(f"make import MODEL='{theirs}'")


def test_parts_of_a_model_are_told_apart_from_a_model(tmp_path):
    (tmp_path / "model_state.tp00.pdparams").write_bytes(b"")
    (tmp_path / "model_state.tp01.pdparams").write_bytes(b"")
    said = refusal(tmp_path)
    assert "model_state.tp00.pdparams is one rank's part" in said and "(2 such files)" in said


def test_no_weights_at_all(tmp_path):
    assert refusal(tmp_path).startswith(f"{tmp_path}: no weights: looked for model.safetensors, model_state.pdparams")


@pytest.mark.parametrize("name", ["../model-1.safetensors", "/etc/passwd", "..", "", "a/model-1.safetensors", "a\0b"])
def test_an_index_that_names_files_elsewhere_is_refused(sharded, name):
    (sharded / "inner").mkdir()
    index(sharded / "inner", {"a.one": name})
    found = refusal(sharded / "inner")
    assert found.endswith(f"index.json: found {name!r}, allowed: names of files beside it. Copy it again.")


def test_a_downloaded_model_may_lie_behind_links(sharded):
    """As Hugging Face's cache has it: snapshots of links into blobs."""
    snapshot = sharded / "snapshot"
    snapshot.mkdir()
    for path in sharded.glob("model*"):
        (snapshot / path.name).symlink_to(path)
    assert values(snapshot) == values(sharded)
