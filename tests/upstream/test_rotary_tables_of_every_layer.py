"""Rotary tables are kept once, for the positions that are used."""

import pytest

from launch.models.rotary_scaling import rotary_rows

BYTES = "tests.upstream.rotary_tables_ranks:bytes_of_a_qwen2"
DIFFERENCES = "tests.upstream.rotary_tables_ranks:differences"
CAST = "tests.upstream.rotary_tables_ranks:differs_after_a_cast"
BEFORE = "tests.upstream.rotary_tables_ranks:differs_where_it_was_made_before"
BEYOND = "tests.upstream.rotary_tables_ranks:beyond_the_end"
HEAD_SIZE, FLOAT32 = 16, 4
CAST_TOO = ["llama", "llama3", "qwen2", "mistral", "mixtral", "qwen2_moe"]


def test_a_model_keeps_them_once(ranks):
    frequencies = 3 * 8 * FLOAT32
    assert ranks(1, BYTES, True)[0] == pytest.approx(2 * 1024 * HEAD_SIZE * FLOAT32 + frequencies, abs=1024)


def test_upstream_keeps_all_positions_in_every_layer(ranks):
    assert ranks(1, BYTES, False)[0] == pytest.approx(3 * 2 * 131072 * HEAD_SIZE * FLOAT32, rel=0.001)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", CAST_TOO)
def test_are_upstreams_to_the_bit(ranks, name, dtype):
    rows = [1024, 2048, 2048, 2048]  # of 7, 1,030, 5 and 2,048 positions
    assert ranks(1, DIFFERENCES, name, dtype)[0] == {"equal": True, "shared": True, "rows": rows}


@pytest.mark.parametrize("name", CAST_TOO)
def test_are_upstreams_where_a_model_is_cast_once_it_is_made(ranks, name):
    assert ranks(1, CAST, name) == [[False] * 4]


def test_a_layer_that_was_made_before_keeps_its_own(ranks):
    assert ranks(1, BEFORE, "llama") == [False]


@pytest.mark.parametrize(("name", "rows"), [("llama", 2048), ("qwen2", 2049)])
def test_end_where_upstreams_end(ranks, name, rows):
    """They are computed once all the same."""
    assert ranks(1, BEYOND, name)[0] == [[1, rows, 1, HEAD_SIZE], 1]


def test_rows_are_rounded_up_within_the_model():
    assert [rotary_rows(length, 4096) for length in (1, 1024, 1025, 4096, 5000)] == [1024, 1024, 2048, 4096, 4096]
    assert rotary_rows(40, 128) == 128
