"""A .pdparams file is read as arrays and nothing else: what it asks to be run is not run."""

import os
import pickle
from collections import OrderedDict

import numpy as np
import pytest

from launch.checkpoint.pdparams_reader import read_pdparams
from launch.errors import UserError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model_state.pdparams"


def save(path, value, protocol: int = 4) -> None:
    """As paddle.save does."""
    with open(path, "wb") as file:
        pickle.dump(value, file, protocol)


@pytest.mark.parametrize("protocol", [3, 4])
@pytest.mark.parametrize("kind", [dict, OrderedDict])
def test_every_array_is_as_saved(path, protocol, kind):
    random = np.random.default_rng(0)
    arrays = {
        "large": random.normal(size=(300, 200)).astype(np.float32),  # 240 KB: outside of the pickle's frames
        "small": random.normal(size=(3, 5)).astype(np.float16),
        "ids": random.integers(0, 9, (2, 3, 4)),
        "scalar": np.array(3.5, np.float64),
        "nothing": np.empty((0, 4), np.float32),
        "flags": np.array([True, False]),
        "last": random.normal(size=70_000).astype(np.float32),
    }
    save(path, kind({**arrays, "StructuredToParameterName@@": {"large": "linear_0.w_0"}}), protocol)
    found = read_pdparams(path)
    assert found.keys() == arrays.keys()
    for name, expected in arrays.items():
        opened = found[name].open()
        assert (opened.dtype, opened.shape) == (expected.dtype, expected.shape)
        assert opened.tobytes() == expected.tobytes()


def test_bfloat16_comes_as_uint16_and_a_parameter_is_its_array(path):
    save(path, {"x": np.array([0x3F80], np.uint16), "y": ("linear_0.w_0", np.ones((2, 2), np.float32))})
    found = read_pdparams(path)
    assert found["x"].dtype == "bfloat16" and found["y"].open().tolist() == [[1, 1], [1, 1]]


class Runs:
    """What a hostile file holds: something to be called when it is loaded."""

    def __init__(self, function, *args):
        self.call = function, args

    def __reduce__(self):
        return self.call


HOSTILE = {
    "at the top": lambda mark: Runs(os.system, f"touch {mark}"),
    "as a tensor": lambda mark: {"x": Runs(os.system, f"touch {mark}")},
    "beside an array": lambda mark: {"x": np.ones(3), "y": [Runs(exec, f"open({str(mark)!r}, 'w')")]},
    "as a key": lambda mark: {Runs(os.system, f"touch {mark}"): np.ones(3)},
    "as a shape": lambda mark: {"x": Runs(np.empty, Runs(os.system, f"touch {mark}"))},
    "by its module": lambda mark: {"x": Runs(getattr, Runs(__import__, "os"), "system")},
}


@pytest.mark.parametrize("where", HOSTILE)
def test_nothing_is_run(path, tmp_path, where):
    mark = tmp_path / "was-run"
    for protocol in range(6):
        save(path, HOSTILE[where](mark), protocol)
        with pytest.raises(UserError, match="refused|not a file of paddle.save"):
            read_pdparams(path)
        assert not mark.exists()


def test_what_a_file_asks_for_is_named(path):
    save(path, {"x": Runs(os.system, "true")})
    with pytest.raises(UserError, match=r"refused: it holds posix\.system, not only arrays"):
        read_pdparams(path)


@pytest.mark.parametrize(
    "value",
    [
        [np.ones(2)],
        {"x": {"y": np.ones(2)}},
        {"x": "text"},
        {"x": np.array(["text"])},
        {"x": np.asfortranarray(np.ones((2, 3)))},
        {"x": np.ones(2, ">f4")},
        {"x": np.ones(2, np.complex64)},
        {3: np.ones(2)},
        {"x": Runs(np.dtype, ["f4"])},
    ],
    ids=["list", "nested", "text", "texts", "column-major", "big-endian", "complex", "number as name", "dtype"],
)
def test_what_is_no_named_array_of_numbers_is_refused(path, value):
    save(path, value)
    with pytest.raises(UserError, match="refused"):
        read_pdparams(path)


def test_a_damaged_file_or_another_kind_is_refused(path):
    save(path, {"a": np.ones(16_000, np.float32), "b": np.ones(20_000, np.float32), "c": np.ones(5, np.float32)})
    whole = path.read_bytes()
    for kept in (0, 1, 50, 200, 70_000, 140_000, -100):
        path.write_bytes(whole[:kept])
        with pytest.raises(UserError, match="damaged"):
            read_pdparams(path)
    path.write_bytes(b"PK\x03\x04" + bytes(200))
    with pytest.raises(UserError, match="not a file of paddle.save, or damaged"):
        read_pdparams(path)
    save(path, {"x": np.arange(6, dtype=np.float32)})
    path.write_bytes(path.read_bytes().replace(b"K\x06\x85", b"K\x07\x85"))  # the tuple (6,) becomes (7,)
    with pytest.raises(UserError, match="'x' has 24 bytes, its shape says 28"):
        read_pdparams(path)
