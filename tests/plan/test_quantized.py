"""Quantized bases: bytes on the device as launch/adapters makes them."""

from itertools import product

import pytest

from launch.tape.quantized import Format

MOVED = "tests.plan.quantized_ranks:moved_of_all"
TAKEN = "tests.plan.quantized_ranks:taken_of_all"
ALGOS = [("weight_only_int8", False), ("llm.int8", False), ("weight_only_int4", False), ("nf4", False), ("fp4", True)]
SHAPES = [(176, 64), (63, 33), (2048, 2304)]  # whole bytes and blocks; neither; more than one piece


@pytest.mark.long
def test_bytes_are_those_that_the_allocator_counts(ranks):
    cases = list(product(SHAPES, ALGOS))
    found = ranks(1, TAKEN, [(shape, *algo) for shape, algo in cases])[0]
    for (shape, (algo, double_quant)), taken in zip(cases, found, strict=True):
        base, size = Format(algo, double_quant=double_quant), shape[0] * shape[1]
        assert taken["kept"] == base.nbytes(*shape), (shape, algo)
        assert taken["scratch"] == pytest.approx(base.scratch(size, item=4), rel=0.05), (shape, algo)


def test_bytes_moved_are_those_that_operators_read_and_write(ranks):
    """Also in 16 bits, which the last cast writes; the gathered table of 2 KiB and the scales are the rest."""
    cases = [((512, 512), algo, dtype) for algo, _ in ALGOS for dtype in ("float32", "bfloat16")]
    for (shape, algo, dtype), moved in zip(cases, ranks(1, MOVED, cases)[0], strict=True):
        expected = Format(algo).moved(shape[0] * shape[1], item=4 if dtype == "float32" else 2)
        assert moved == pytest.approx(expected, rel=0.02), (algo, dtype)
