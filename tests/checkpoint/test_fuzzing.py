"""Files of weights from anywhere: each is read as what it is or refused in a sentence, whatever its bytes are."""

import io
import json
import pickle
import struct
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from launch.checkpoint.manifest import MANIFEST, Manifest, first_fault, sha256
from launch.checkpoint.parts import sharded_weights
from launch.checkpoint.pdparams_reader import read_pdparams
from launch.checkpoint.safetensors_file import read_header
from launch.checkpoint.weight_files import find_weights
from launch.errors import UserError
from launch.weights.torch_reader import read_torch
from tests.fuzzing import FEW_AND_MANY, cases, damaged, dumped, values
from tests.weights.torch_files import save_arrays

TENSORS = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(4, np.float16), "c": np.zeros((0, 2), "i8")}
SAFETENSORS = save(TENSORS, metadata={"format": "np"})
INDEX = json.dumps({"metadata": {}, "weight_map": {"a": "x.safetensors", "b": "x.safetensors"}}).encode()
PDPARAMS = pickle.dumps(TENSORS | {"StructuredToParameterName@@": {"a": "linear_0.w_0"}}, 4)

NUMBERS = st.integers(-2, 30) | st.sampled_from([2**31, 2**32, 2**62, 2**63, 2**64, -(2**63)]) | st.floats()
SCALARS = st.none() | NUMBERS | st.booleans() | st.text(max_size=8)
JSON = values()
PLACES = ["x.safetensors", "../x.safetensors", "/etc/passwd", "..", "", ".", "a/../x.safetensors", "\0"]


@st.composite
def safetensors(draw) -> bytes:
    """A file whose header is JSON, in part as it should be."""
    shapes = st.one_of(st.lists(NUMBERS, max_size=4), JSON)
    dtypes = st.one_of(st.sampled_from(["F32", "BF16", "I8", "BOOL", "F4"]), JSON)
    entry = st.fixed_dictionaries(
        {}, optional={"dtype": dtypes, "shape": shapes, "data_offsets": st.one_of(st.lists(NUMBERS, max_size=3), JSON)}
    )
    names = st.sampled_from(["a", "b", "c", "__metadata__"])
    header = dumped(draw(JSON | st.dictionaries(names, entry | JSON, max_size=4)))
    size = draw(st.one_of(st.just(len(header)), st.sampled_from([0, 1, 2**31, 2**63, 2**64 - 1])))
    return struct.pack("<Q", size) + header + bytes(draw(st.integers(0, 64)))


# JSON deeper than any reader goes.
DEEP = st.sampled_from([b"[", b'{"weight_map":', b'{"a":']).map(lambda start: start * 100_000)


def run(strategy, check: Callable[[bytes, Path], None], count: int) -> None:
    @cases(count)
    @given(strategy)
    def each(content):
        with tempfile.TemporaryDirectory() as directory:
            check(content, Path(directory))

    each()


def inside(tensors: dict, directory: Path) -> None:
    """What was found lies in files of the directory, and opens."""
    for name, tensor in tensors.items():
        assert isinstance(name, str) and tensor.path.parent == directory
        assert 0 <= tensor.offset <= tensor.offset + tensor.nbytes <= tensor.path.stat().st_size
        assert tensor.open().nbytes == tensor.nbytes


def reads_or_refuses(read: Callable, path: Path) -> None:
    try:
        found = read(path)
    except UserError as error:
        assert str(path.parent) in str(error) or path.parent.name in str(error)
        return
    inside(found, path.parent if path.is_file() else path)


@FEW_AND_MANY
def test_safetensors(count):
    def check(content: bytes, directory: Path) -> None:
        (directory / "x.safetensors").write_bytes(content)
        reads_or_refuses(lambda path: read_header(path)[0], directory / "x.safetensors")

    header = st.builds(lambda text: struct.pack("<Q", len(text)) + text, DEEP)
    run(st.one_of(damaged(SAFETENSORS), safetensors(), header), check, count)


@FEW_AND_MANY
def test_pdparams(count):
    pickled = st.recursive(
        st.one_of(SCALARS, st.sampled_from(list(TENSORS.values())), st.binary(max_size=300)),
        lambda one: st.one_of(
            st.lists(one, max_size=3),
            st.tuples(one, one),
            st.dictionaries(st.one_of(st.text(max_size=3), st.integers(0, 3)), one, max_size=3),
        ),
        max_leaves=5,
    )

    class Made:
        """Asks the reader to make something of NumPy's with values from anywhere."""

        def __init__(self, function, arguments, state):
            self.made = function, tuple(arguments), state

        def __reduce__(self):
            return self.made

    function = st.sampled_from([np.dtype, np.core.multiarray._reconstruct, dict, tuple])
    made = st.builds(Made, function, st.lists(pickled, max_size=3), st.one_of(pickled, st.tuples(*[pickled] * 5)))
    states = st.dictionaries(st.one_of(st.text(max_size=3), SCALARS), st.one_of(made, pickled), max_size=2)

    def check(content: bytes, directory: Path) -> None:
        (directory / "x.pdparams").write_bytes(content)
        reads_or_refuses(read_pdparams, directory / "x.pdparams")

    pickles = st.builds(pickle.dumps, st.one_of(states, pickled), st.integers(2, 5))
    run(st.one_of(damaged(PDPARAMS), pickles, st.binary()), check, count)


@FEW_AND_MANY
def test_indexes(count):
    maps = st.one_of(
        JSON, st.dictionaries(st.sampled_from(["a", "b", "z"]), st.sampled_from(PLACES) | JSON, max_size=3)
    )
    texts = st.builds(lambda value: dumped({"weight_map": value}), maps)

    def check(content: bytes, directory: Path) -> None:
        for name in ("x.safetensors", "inner/x.safetensors"):
            (directory / name).parent.mkdir(exist_ok=True)
            (directory / name).write_bytes(SAFETENSORS)
        (directory / "inner" / "model.safetensors.index.json").write_bytes(content)
        reads_or_refuses(find_weights, directory / "inner")

    run(st.one_of(damaged(INDEX), texts, DEEP), check, count)


@FEW_AND_MANY
def test_torch_files(count):
    """Their pickles changed, in an archive that is whole, and the archive itself."""
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        good = Path(directory) / "x.bin"
        save_arrays(good, {name: array for name, array in TENSORS.items() if array.dtype != "i8"}, patch)
        archive = good.read_bytes()
        with zipfile.ZipFile(good) as opened:
            entries = {name: opened.read(name) for name in opened.namelist()}

    def packed(pickled: bytes) -> bytes:
        target = io.BytesIO()
        with zipfile.ZipFile(target, "w") as written:
            for name, data in (entries | {"archive/data.pkl": pickled}).items():
                written.writestr(name, data)
        return target.getvalue()

    def check(content: bytes, directory: Path) -> None:
        (directory / "x.bin").write_bytes(content)
        reads_or_refuses(read_torch, directory / "x.bin")

    pickles = st.builds(packed, damaged(entries["archive/data.pkl"]))
    run(st.one_of(pickles, pickles, damaged(archive), st.binary()), check, count)


def checkpoint(directory: Path, parts: object) -> Path:
    """One of ours whose tensors are said to be such parts."""
    tensor = directory / "model-00001-of-00001.safetensors"
    tensor.write_bytes(save(TENSORS, metadata={"format": "np", "parts": dumped(parts).decode()}))
    files = {tensor.name: {"bytes": tensor.stat().st_size, "sha256": sha256(tensor)}}
    manifest = Manifest(files, global_step=1, consumed_samples=1, consumed_tokens=1, topology={"processes": 1})
    (directory / MANIFEST).write_text(manifest.to_json())
    return directory


@FEW_AND_MANY
def test_manifests(count):
    with tempfile.TemporaryDirectory() as directory:
        good = (checkpoint(Path(directory), {}) / MANIFEST).read_bytes()
    keys = ("files", "global_step", "consumed_samples", "topology", "trained_only", "data", "model", "format", "sha256")

    def edited(changes: dict) -> bytes:
        return dumped(json.loads(good) | changes)

    edits = st.builds(edited, st.dictionaries(st.sampled_from(keys), JSON, max_size=3))
    old = st.builds(lambda changes: edited({"format": 1} | changes), st.dictionaries(st.sampled_from(keys), JSON))

    def check(content: bytes, directory: Path) -> None:
        checkpoint(directory, {})
        (directory / MANIFEST).write_bytes(content)
        fault = first_fault(directory)
        assert fault is None or str(directory) in fault

    run(st.one_of(damaged(good), edits, old, DEEP), check, count)


@FEW_AND_MANY
def test_parts(count):
    pairs = st.lists(st.lists(NUMBERS, max_size=3), max_size=3)
    part = st.one_of(JSON, st.tuples(st.lists(NUMBERS, max_size=3), SCALARS, pairs, st.one_of(st.none(), pairs)))

    def check(parts: object, directory: Path) -> None:
        checkpoint(directory, parts)
        try:
            found = sharded_weights(directory)
            for one in found.values():
                assert one.open().shape == one.shape
        except UserError as error:
            assert str(directory) in str(error) or "parts of it are missing" in str(error)

    run(st.one_of(JSON, st.dictionaries(st.sampled_from(["a", "b", "c"]), part, max_size=3)), check, count)
