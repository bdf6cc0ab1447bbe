"""Degrees from flags and processes: upstream's own numbers, and what it accepts though it cannot be."""

import pytest

from launch.config.flag_values import parse_flags
from launch.config.layout import Layout, LayoutError

# flags, processes -> data, sharding, tensor, pipeline degree, sharding
CASES = [
    ("", 1, (1, 1, 1, 1, "")),
    ("--sharding stage2", 1, (1, 1, 1, 1, "")),
    ("", 8, (8, 1, 1, 1, "")),
    ("--sharding stage1", 8, (1, 8, 1, 1, "stage1")),
    ("--sharding stage2 --sharding_parallel_degree 4", 8, (2, 4, 1, 1, "stage2")),
    ("--sharding stage3 --sharding_degree 2", 4, (2, 2, 1, 1, "stage3")),
    ("--tensor_parallel_degree 2", 2, (1, 1, 2, 1, "")),
    ("--tensor_parallel_degree 2", 8, (4, 1, 2, 1, "")),
    ("--tensor_parallel_degree 2 --sharding stage2", 8, (1, 4, 2, 1, "stage2")),
    ("--pipeline_parallel_degree 4", 4, (1, 1, 1, 4, "")),
    ("--pipeline_parallel_degree 2 --sharding stage1", 4, (1, 2, 1, 2, "stage1")),
    ("--tensor_parallel_degree 2 --pipeline_parallel_degree 2 --sharding stage1", 8, (1, 2, 2, 2, "stage1")),
    ("--tensor_parallel_degree 4 --pipeline_parallel_degree 2 --sharding stage1", 8, (1, 1, 4, 2, "")),
    ("--tensor_parallel_degree 4 --pipeline_parallel_degree 2 --sharding stage1", 16, (1, 2, 4, 2, "stage1")),
    (
        "--tensor_parallel_degree 2 --sharding stage1 --sharding_parallel_degree 2 --pipeline_parallel_degree 2",
        16,
        (2, 2, 2, 2, "stage1"),
    ),
]


@pytest.mark.parametrize(("argv", "processes", "expected"), CASES)
def test_degrees(argv, processes, expected):
    layout = Layout.from_flags(parse_flags(argv.split()), processes)
    assert layout == Layout(*expected)
    assert layout.processes == processes


def test_upstream_gives_the_same_numbers(ranks):
    [found] = ranks(
        1, "tests.config.layout_ranks:upstream_layouts", [[argv.split(), processes] for argv, processes, _ in CASES]
    )
    assert found == [[*expected, Layout(*expected).data_ranks] for *_, expected in CASES]


@pytest.mark.parametrize(
    ("argv", "processes", "found", "fix"),
    [
        (
            "--tensor_parallel_degree 3",
            8,
            "tensor parallel 3 x pipeline parallel 1 do not divide 8 processes",
            "a multiple of 3",
        ),
        ("--tensor_parallel_degree 4", 1, "do not divide 1 process", "a multiple of 4"),
        (
            "--tensor_parallel_degree 4 --pipeline_parallel_degree 3",
            8,
            "tensor parallel 4 x pipeline parallel 3 do not divide 8 processes",
            "a multiple of 12",
        ),
        (
            "--tensor_parallel_degree 2 --sharding stage1 --sharding_parallel_degree 3",
            8,
            "3 does not divide the 4 processes that tensor x pipeline parallel (2 x 1) leave of 8",
            "one of 1, 2, 4, or leave it out for 4",
        ),
        ("--sharding stage2 --sharding_parallel_degree 4", 1, "4 does not divide the 1 process", "one of 1"),
    ],
)
def test_what_cannot_be_divided(argv, processes, found, fix):
    with pytest.raises(LayoutError) as caught:
        Layout.from_flags(parse_flags(argv.split()), processes)
    assert caught.value.flag == argv.split()[-2].removeprefix("--")
    assert found in caught.value.found and fix in caught.value.fix
    assert str(caught.value).startswith(f"--{caught.value.flag}: ")


def test_layout_in_words():
    flags = "--tensor_parallel_degree 2 --pipeline_parallel_degree 2 --sharding stage1"
    told = "8 processes: sharding stage1 2 x tensor parallel 2 x pipeline parallel 2"
    assert str(Layout.from_flags(parse_flags(flags.split()), 8)) == told
    assert str(Layout.from_flags({}, 1)) == "1 process"
