"""Tensors put together from the parts of several ranks."""

import numpy as np
import pytest

from launch.checkpoint.state.divided import DividedTensor
from launch.checkpoint.state.parts import Part
from launch.checkpoint.state.reshard import Piece
from launch.errors import UserError

WHOLE = np.arange(24, dtype=np.float32).reshape(4, 6)


def piece(part: Part) -> Piece:
    return Piece(part, lambda: part.of(WHOLE))


COLUMNS = [piece(Part((4, 6), 1, ranges)) for ranges in (((0, 2), (4, 5)), ((2, 4), (5, 6)))]  # a fused projection
SLICES = [piece(Part((4, 6), flat=flat)) for flat in ((0, 13), (13, 24))]


@pytest.mark.parametrize("pieces", [COLUMNS, SLICES, [piece(Part((4, 6)))]], ids=["columns", "slices", "whole"])
def test_opened_it_is_whole(pieces):
    tensor = DividedTensor("weight", "float32", (4, 6), pieces)
    assert tensor.nbytes == 96 and np.array_equal(tensor.open(), WHOLE)


@pytest.mark.parametrize("pieces", [COLUMNS[:1], SLICES[1:]], ids=["columns", "slices"])
def test_a_missing_part_is_named(pieces):
    with pytest.raises(UserError, match="weight: parts of it are missing in the checkpoint"):
        DividedTensor("weight", "float32", (4, 6), pieces).open()
