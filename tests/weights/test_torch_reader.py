"""A .bin file of torch is read as tensors and nothing else: what it asks to be run is not run."""

import io
import os
import pickle
import zipfile

import numpy as np
import pytest

from launch.errors import UserError
from launch.weights.torch_reader import read_torch
from tests.weights.torch_files import Tensor, save_arrays, save_torch


@pytest.fixture
def path(tmp_path):
    return tmp_path / "pytorch_model.bin"


def test_every_tensor_is_as_saved(path, monkeypatch):
    random = np.random.default_rng(0)
    arrays = {
        "matrix": random.normal(size=(5, 7)).astype(np.float32),
        "half": random.normal(size=(3,)).astype(np.float16),
        "bits": random.integers(0, 2**16, (2, 3)).astype(np.uint16),
        "ids": np.arange(4),
        "nothing": np.empty((0, 4), np.float32),
        "scalar": np.array(3.5, np.float32),
    }
    save_arrays(path, arrays, monkeypatch)
    found = read_torch(path)
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert found[name].dtype == ("bfloat16" if array.dtype == np.uint16 else array.dtype.name)
        assert found[name].shape == array.shape
        assert found[name].open().tobytes() == array.tobytes()


def test_tensors_of_one_storage_and_parameters(path, monkeypatch):
    data = np.arange(12, dtype=np.float32)
    state = {"whole": Tensor(data, "0"), "row": Tensor(data[8:], "0", first=8, parameter=True)}
    save_torch(path, state, {"0": data.tobytes()}, monkeypatch)
    found = read_torch(path)
    assert found["whole"].open().tolist() == data.tolist()
    assert found["row"].open().tolist() == [8, 9, 10, 11]


class Hostile:
    def __reduce__(self):
        return os.system, ("touch should-not-be-here",)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"x": Hostile()}, r"refused: it holds posix\.system, not only tensors"),
        ([1, 2], "refused: it holds no dictionary of tensors"),
        ({"x": 3}, "refused: 'x' is no tensor"),
        ({"x": b"bytes"}, "refused"),
        ({"x": {1, 2}}, "refused"),
    ],
)
def test_anything_but_tensors_is_refused_and_not_run(path, monkeypatch, state, message):
    monkeypatch.chdir(path.parent)
    save_torch(path, state, {}, monkeypatch)
    with pytest.raises(UserError, match=message):
        read_torch(path)
    assert not os.path.exists("should-not-be-here")


@pytest.mark.parametrize(
    ("tensor", "storage", "message"),
    [
        (Tensor(np.zeros((2, 3), np.float32), "0", strides=(1, 2)), 24, "'x' is not in row-major order"),
        (Tensor(np.zeros((2, 3), np.float32), "0"), 20, "'x' is larger than its place in the file"),
        (Tensor(np.zeros((2, 3), np.float32), "0", first=-1), 24, "'x' is larger than its place in the file"),
        (Tensor(np.zeros((2, 3), np.float32), "1"), 24, "the bytes of storage 1 are missing"),
    ],
)
def test_a_tensor_that_is_not_whole_is_named(path, monkeypatch, tensor, storage, message):
    save_torch(path, {"x": tensor}, {"0": bytes(storage)}, monkeypatch)
    with pytest.raises(UserError, match=message):
        read_torch(path)


def test_files_that_are_compressed_cut_off_or_none_of_torch(path, monkeypatch):
    save_torch(path, {"x": Tensor(np.zeros(2, np.float32), "0")}, {"0": bytes(8)}, monkeypatch, compressed=True)
    compressed = path.read_bytes()
    save_arrays(path, {"x": np.zeros((50, 50), np.float32)}, monkeypatch)
    cut = path.read_bytes()[:5000]
    for content, message in (
        (compressed, "compressed"),
        (cut, "cut off"),
        (pickle.dumps({"x": 1}), "not a file of torch.save since torch 1.6, or cut off"),  # before it: a bare pickle
        (zipped("readme", b"hello"), r"no data\.pkl"),
        (zipped("archive/data.pkl", bytes(10**7)), "compressed"),  # a bomb is not unpacked
    ):
        path.write_bytes(content)
        with pytest.raises(UserError, match=message):
            read_torch(path)


def zipped(name: str, content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return file.getvalue()


def test_a_storage_of_objects_is_refused(path):
    """A string in the place of torch's name: NumPy would take what lies there for addresses."""
    reference = b"X\x07\0\0\0storageX\x06\0\0\0objectX\x01\0\0\x000X\x03\0\0\0cpuK\x01t"
    pickled = b"\x80\x02}X\x01\0\0\0xctorch._utils\n_rebuild_tensor_v2\n((" + reference + b"QK\0(K\x01t(K\x01ttRs."
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/data/0", bytes(8))
    with pytest.raises(UserError, match="refused: it holds a reference to 'storage'"):
        read_torch(path)
