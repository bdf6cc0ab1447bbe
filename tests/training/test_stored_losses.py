"""What is kept of a reference on disk: read as written, or not used."""

import json

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
    store = StoredLosses(folder, "train", MADE_BY, verify=True)
    assert store.samples == 3
    for sample, rows in enumerate(LOSSES):
        for found, row in zip(store[sample], rows, strict=True):
            assert found.dtype == np.float32 and found.tolist() == row.tolist()


def test_those_made_by_something_else_are_not_used(folder):
    store = StoredLosses(folder, "train", MADE_BY | {"weights": "others"}, verify=True)
    assert (store.samples, store.changed) == (0, ["weights"])
    assert StoredLosses(folder, "dev", MADE_BY, verify=True).samples == 0


def flip(folder):
    path = folder / "train-2.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    return path


def remove(folder):
    path = folder / "train-2-sizes.npy"
    path.unlink()
    return path


def misname(folder):
    """A record that takes the sizes of one part for those of another, with a hash that is right."""
    path = folder / "train.json"
    record = json.loads(path.read_text())
    first, second = (list(part["files"].items()) for part in record["parts"])
    record["parts"][1]["files"] = dict([second[0], first[1]])
    path.write_text(json.dumps(record))
    return path


@pytest.mark.parametrize("damage", [flip, remove, misname])
def test_what_comes_before_a_damage_is_used(folder, damage):
    path = damage(folder)
    store = StoredLosses(folder, "train", MADE_BY, verify=True)
    assert (store.samples, store.damaged) == (2, str(path))
    store.write_record()
    again = StoredLosses(folder, "train", MADE_BY, verify=True)
    assert (again.samples, again.damaged) == (2, "")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"made_by": {}, "parts": 3}', '{"made_by": 1, "parts": []}', "[" * 9999]
)
def test_a_record_that_is_none_is_not_used(folder, text):
    (folder / "train.json").write_text(text)
    store = StoredLosses(folder, "train", MADE_BY, verify=True)
    assert store.samples == 0 and (store.damaged or store.changed)
