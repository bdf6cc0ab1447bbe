"""Tensors put together from the parts of several ranks."""

import numpy as np
import pytest
from safetensors.numpy import save_file

from launch.checkpoint import weight_files
from launch.checkpoint.model_identity import base_fingerprint
from launch.checkpoint.parts import Part, Piece, ShardedTensor
from launch.errors import UserError

WHOLE = np.arange(24, dtype=np.float32).reshape(4, 6)


def piece(part: Part) -> Piece:
    return Piece(part, lambda: part.of(WHOLE))


COLUMNS = [piece(Part((4, 6), 1, ranges)) for ranges in (((0, 2), (4, 5)), ((2, 4), (5, 6)))]  # a fused projection
SLICES = [piece(Part((4, 6), flat=flat)) for flat in ((0, 13), (13, 24))]


ROWS = [piece(Part((4, 6), 0, ranges)) for ranges in (((0, 1), (3, 4)), ((1, 3),))]
ALL = {"columns": COLUMNS, "rows": ROWS, "slices": SLICES, "whole": [piece(Part((4, 6)))]}


@pytest.mark.parametrize("pieces", ALL.values(), ids=ALL)
def test_opened_it_is_whole_and_begins_as_the_whole(pieces):
    tensor = ShardedTensor("weight", "float32", (4, 6), pieces)
    assert tensor.nbytes == 96 and np.array_equal(tensor.open(), WHOLE)
    for count in (1, 6, 7, 15, 24, 99):
        assert np.array_equal(tensor.first(count), WHOLE.reshape(-1)[:count]), count
    if len(pieces) > 1:
        for missing in (pieces[:1], pieces[1:]):
            with pytest.raises(UserError, match="weight: parts of it are missing in the checkpoint"):
                ShardedTensor("weight", "float32", (4, 6), missing).open()


def test_a_base_is_known_without_putting_its_tensors_together(tmp_path, monkeypatch):
    """By the fingerprint of an ordinary directory with these tensors."""
    save_file({"weight": WHOLE}, tmp_path / "model.safetensors", metadata={"format": "np"})
    ordinary = base_fingerprint(tmp_path)
    monkeypatch.setattr(ShardedTensor, "open", None)
    for pieces in (COLUMNS, ROWS, SLICES):
        divided = {"weight": ShardedTensor("weight", "float32", (4, 6), pieces)}
        monkeypatch.setattr(weight_files, "find_weights", lambda directory, divided=divided: divided)
        assert base_fingerprint(tmp_path) == ordinary
