"""Tensors found by a safetensors header are those that the safetensors library wrote; damage is named."""

import os
import struct

import numpy as np
import pytest
from safetensors.numpy import save_file

from launch.checkpoint.safetensors_file import read_header
from launch.errors import UserError


def write(path, header: bytes, data: bytes) -> None:
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)


@pytest.fixture
def tensors():
    random = np.random.default_rng(0)
    return {
        "matrix": random.normal(size=(6, 5)).astype(np.float32),
        "half": random.normal(size=7).astype(np.float16),
        "ids": random.integers(0, 9, (2, 3, 4)),
        "scalar": np.array(3.5, np.float64),
        "nothing": np.empty((0, 4), np.float32),
    }


def test_every_tensor_is_as_written(tmp_path, tensors):
    path = tmp_path / "model.safetensors"
    save_file(tensors, path, metadata={"format": "np"})
    found, metadata = read_header(path)
    assert metadata == {"format": "np"}
    assert found.keys() == tensors.keys()
    for name, expected in tensors.items():
        opened = found[name].open()
        assert (found[name].dtype, opened.dtype, opened.shape) == (str(expected.dtype), expected.dtype, expected.shape)
        assert found[name].nbytes == expected.nbytes
        assert opened.tobytes() == expected.tobytes()
        assert opened.size == 0 or not opened.flags.writeable


def refusal(path) -> str:
    with pytest.raises(UserError) as refused:
        read_header(path)
    return str(refused.value)


def test_a_file_that_is_cut_off_is_named_with_both_sizes(tmp_path, tensors):
    path = tmp_path / "model.safetensors"
    save_file(tensors, path)
    whole = path.stat().st_size
    os.truncate(path, whole - 4)
    assert refusal(path) == f"{path}: {whole - 4:,} bytes, its header says {whole:,}. Copy or download the file again."


@pytest.mark.parametrize(
    "content",
    [
        *(
            b"",
            b"\x08\0\0",
            struct.pack("<Q", 40) + b'{"x": ',
            struct.pack("<Q", 2) + b"[]",
            b"PK\x03\x04" + b"\0" * 99,
        ),
        *(struct.pack("<Q", size) + b"{}" for size in (2**63, 2**64 - 1, 100_000_001, 10**8)),  # unread
    ],
)
def test_a_file_of_another_kind_is_named(tmp_path, content):
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    assert refusal(path).startswith(f"{path}: not a safetensors file, or cut off in its header")


def u8(size: int | str, start: int, stop: int, dtype: str = "U8") -> str:
    return f'{{"dtype": "{dtype}", "shape": [{size}], "data_offsets": [{start}, {stop}]}}'


NO_SENSE = "the header's entry for 'a' makes no sense"
HEADERS = {
    "too few bytes": (f'{{"a": {u8(2, 0, 4, "F32")}}}', NO_SENSE),
    "negative size": (f'{{"a": {u8(-1, 0, -4, "F32")}}}', NO_SENSE),
    "negative offset": (f'{{"a": {u8(1, -4, 0, "F32")}}}', NO_SENSE),
    "unknown dtype": (f'{{"a": {u8(1, 0, 4, "F4")}}}', NO_SENSE),
    "shape alone": ('{"a": {"shape": [1]}}', NO_SENSE),
    "number": ('{"a": 7}', NO_SENSE),
    "overflow": ('{"a": {"dtype": "U8", "shape": [4294967296, 4294967296], "data_offsets": [0, 0]}}', NO_SENSE),
    "thousands of digits": (f'{{"a": {u8(int("9" * 4000), 0, int("9" * 4000))}}}', NO_SENSE),
    "4,300 digits of an offset": (f'{{"a": {u8(10**2200, 10**4299, 10**4299 + 10**2200)}}}', NO_SENSE),
    "a hundred sizes": (f'{{"a": {u8("1, " * 99 + "1", 0, 1)}}}', NO_SENSE),
    "no whole number": ('{"a": {"dtype": "U8", "shape": [4.0], "data_offsets": [0, 4]}}', NO_SENSE),
    "overlap": (f'{{"a": {u8(4, 0, 4)}, "b": {u8(3, 1, 4)}}}', "tensors overlap"),
    "hole": (f'{{"a": {u8(1, 3, 4)}}}', "leave bytes between them"),
    "twice": (f'{{"a": {u8(4, 0, 4)}, "a": {u8(4, 0, 4, "I8")}}}', "not a safetensors file"),
    "metadata": (f'{{"__metadata__": [], "a": {u8(4, 0, 4)}}}', "__metadata__"),
    "nested": ("[" * 100_000, "not a safetensors file"),
}


@pytest.mark.parametrize("name", HEADERS)
def test_a_header_that_makes_no_sense_or_is_made_to_deceive_is_refused(tmp_path, name):
    header, reason = HEADERS[name]
    write(tmp_path / "model.safetensors", header.encode(), bytes(4))
    assert reason in refusal(tmp_path / "model.safetensors")
