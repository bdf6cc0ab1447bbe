"""Quantised bases: bytes on the device as launch/adapters makes them."""

from itertools import product

import pytest

from launch.plan.quantised import QuantisedBase

TAKEN = "tests.plan.quantised_ranks:taken_of_all"
ALGOS = [("weight_only_int8", False), ("llm.int8", False), ("weight_only_int4", False), ("nf4", False), ("fp4", True)]
SHAPES = [(176, 64), (63, 33), (2048, 2304)]  # whole bytes and blocks; neither; more than one piece


@pytest.mark.long
def test_bytes_are_those_that_the_allocator_counts(ranks):
    cases = list(product(SHAPES, ALGOS))
    found = ranks(1, TAKEN, [(shape, *algo) for shape, algo in cases])[0]
    for (shape, (algo, double_quant)), taken in zip(cases, found, strict=True):
        base, size = QuantisedBase(algo, double_quant=double_quant), shape[0] * shape[1]
        assert taken["kept"] == base.nbytes(*shape), (shape, algo)
        assert taken["scratch"] == pytest.approx(base.scratch(size, item=4), rel=0.05), (shape, algo)
