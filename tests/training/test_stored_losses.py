"""What is kept of a reference on disk: read as written, or not used."""

import json
import os
import resource
from hashlib import sha256

import numpy as np
import pytest

from launch.training.stored_losses import StoredLosses

MADE_BY = {"weights": "w", "data": {"samples": 3}}
LOSSES = [(np.arange(2), np.arange(3)), (np.arange(0), np.arange(1)), (np.arange(4), np.arange(5))]


@pytest.fixture
def folder(tmp_path):
    """With two samples in a part, and one in another."""
    store = StoredLosses(tmp_path / "reference", "train", MADE_BY, verify=True)
    assert (store.samples, store.changed, store.damaged) == (0, [], "")
    store.append(LOSSES[:2])
    store.append(LOSSES[2:])
    return tmp_path / "reference"


def test_samples_are_read_as_they_were_written(folder):
    assert_whole(StoredLosses(folder, "train", MADE_BY, verify=True))


def assert_whole(store):
    assert (store.samples, store.damaged) == (3, "")
    for sample, rows in enumerate(LOSSES):
        for found, row in zip(store[sample], rows, strict=True):
            assert found.dtype == np.float32 and found.tolist() == row.tolist()


def test_those_made_by_something_else_are_not_used(folder):
    store = StoredLosses(folder, "train", MADE_BY | {"weights": "others"}, verify=True)
    assert (store.samples, store.changed) == (0, ["weights"])
    assert StoredLosses(folder, "dev", MADE_BY, verify=True).samples == 0


def flip(folder):
    path = folder / "train.values"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    return path


def shorten(folder):
    path = folder / "train.sizes"
    path.write_bytes(path.read_bytes()[:-1])
    return path


def miscount(folder):
    """A record whose hashes are right, of sizes that are not those of its values."""
    path = folder / "train.json"
    record = json.loads(path.read_text())
    part = record["parts"][1]
    part["values"] -= 1
    part["sha256"][".values"] = sha256((folder / "train.values").read_bytes()[6 * 4 : 14 * 4]).hexdigest()
    path.write_text(json.dumps(record))
    return path


@pytest.mark.parametrize("damage", [flip, shorten, miscount])
def test_what_comes_before_a_damage_is_used(folder, damage):
    path = damage(folder)
    store = StoredLosses(folder, "train", MADE_BY, verify=True)
    assert (store.samples, store.damaged) == (2, str(path))
    assert store[1][1].tolist() == [0]
    store.write_record()
    again = StoredLosses(folder, "train", MADE_BY, verify=True)
    assert (again.samples, again.damaged) == (2, "")
    again.append(LOSSES[2:])
    assert_whole(StoredLosses(folder, "train", MADE_BY, verify=True))


def test_a_file_that_is_gone_is_damage(folder):
    (folder / "train.sizes").unlink()
    store = StoredLosses(folder, "train", MADE_BY, verify=True)
    assert (store.samples, store.damaged) == (0, str(folder / "train.sizes"))


def test_many_parts_are_few_open_files(tmp_path):
    """A part is 10 s of computing, and hours of it have thousands; most systems allow 1,024 open files."""
    store = StoredLosses(tmp_path, "train", MADE_BY, verify=True)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(40):
        store.append(LOSSES)
    read = StoredLosses(tmp_path, "train", MADE_BY, verify=True)
    assert read[119][1].tolist() == [0, 1, 2, 3, 4] and len(os.listdir("/proc/self/fd")) - before <= 2


def test_a_file_that_cannot_be_read_is_not_damage(folder):
    """Such as for too many open files: what was computed in hours is not computed again."""
    limit, highest = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, highest))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            StoredLosses(folder, "train", MADE_BY, verify=True)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, highest))


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"made_by": {}, "parts": 3}', '{"made_by": 1, "parts": []}', "[" * 9999]
)
def test_a_record_that_is_none_is_not_used(folder, text):
    (folder / "train.json").write_text(text)
    store = StoredLosses(folder, "train", MADE_BY, verify=True)
    assert store.samples == 0 and (store.damaged or store.changed)
