"""Degrees from flags and processes: upstream's own numbers, and what it accepts though it cannot be. As many samples a
step on another number of processes."""

import pytest

from launch.config.flag_values import parse_flags
from launch.config.layout import Layout, LayoutError, keep_global_batch
from launch.errors import UserError

FOUR_D = "--tensor_parallel_degree 2 --pipeline_parallel_degree 2 --sharding stage1"
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
    (FOUR_D, 8, (1, 2, 2, 2, "stage1")),
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
        (
            "--tensor_parallel_degree 2 --sep_parallel_degree 3",
            8,
            "3 does not divide the 4 processes that tensor x pipeline parallel (2 x 1) leave of 8",
            "a multiple of 6 processes, or a degree that divides 4",
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


def test_ranks_that_share_a_sample_are_of_data_parallel_or_sharding():
    flags = "--sharding stage1 --sharding_parallel_degree 4 --sep_parallel_degree 2"
    layout = Layout.from_flags(parse_flags(flags.split()), 8)
    assert (layout, layout.processes, layout.data_ranks) == (Layout(2, 4, 1, 1, "stage1", 2), 8, 4)
    assert str(layout) == "8 processes: data parallel 2 x sharding stage1 4, 2 share a sample"


def kept(flags: str, stated: int, processes: int, wished: str = "") -> tuple[str, str]:
    """The accumulation and the line, for flags stated for some processes and run on others."""
    layout, own = Layout.from_flags(parse_flags(flags.split()), stated), parse_flags(wished.split())
    changed, line = keep_global_batch(parse_flags(f"{flags} {wished}".split()), layout, processes, own=own)
    return changed["gradient_accumulation_steps"][0], line


@pytest.mark.parametrize(
    ("flags", "stated", "processes", "wished", "accumulation"),
    [
        ("--sharding stage2", 8, 4, "", "2"),
        ("--gradient_accumulation_steps 4", 8, 16, "", "2"),
        (f"{FOUR_D} --gradient_accumulation_steps 8", 8, 4, "", "16"),  # 2 data ranks -> 1
        (f"{FOUR_D} --gradient_accumulation_steps 8", 8, 16, "", "4"),
        (f"{FOUR_D} --gradient_accumulation_steps 8", 8, 16, "--tensor_parallel_degree 4", "8"),
        ("--tensor_parallel_degree 4 --gradient_accumulation_steps 32", 4, 8, "", "16"),
    ],
)
def test_accumulation_follows_the_data_ranks(flags, stated, processes, wished, accumulation):
    found, line = kept(flags, stated, processes, wished)
    assert found == accumulation
    assert line.startswith(f"GPUS: {processes} instead of {stated}, --gradient_accumulation_steps {accumulation}")
    if accumulation == "8":  # a change that is none is not told
        assert line == "GPUS: 16 instead of 8, --gradient_accumulation_steps 8: as many samples a step"


def test_a_micro_batch_that_cannot_be_dealt_out_becomes_smaller():
    """16 samples on 4 and on 8 cards; a micro batch that the user has given stays."""
    lora = "--per_device_train_batch_size 8 --gradient_accumulation_steps 2"
    told = "GPUS: {} instead of 1, --gradient_accumulation_steps 1 instead of 2, --per_device_train_batch_size {} "
    for cards, size in ((4, 4), (8, 2)):
        accumulation, line = kept(lora, 1, cards)
        assert accumulation == "1" and line.startswith(told.format(cards, size) + "instead of 8: ")
    with pytest.raises(UserError, match=r"cannot be dealt to 4 cards. Possible: 1, 2;"):
        kept(lora, 1, 4, "--per_device_train_batch_size 8")


@pytest.mark.parametrize(
    ("flags", "stated", "processes", "message"),
    [
        (
            "",
            8,
            3,
            "the samples of a step (8 data ranks x --per_device_train_batch_size 1 x --gradient_accumulation_step",
        ),
        ("", 8, 3, "cannot be dealt to 3 cards. Possible: 1, 2, 4, 8;"),
        (FOUR_D, 8, 6, "dealt to 6 cards. Each copy of the model takes 4. Possible: 4, 8;"),
        (FOUR_D, 8, 2, "dealt to 2 cards. Each copy of the model takes 4. Possible: 4, 8;"),
        (f"{FOUR_D} --sharding_parallel_degree 2 --gradient_accumulation_steps 6", 8, 4, "Possible: 8, 16, 24, 48;"),
        ("--gradient_accumulation_steps two", 8, 4, "--gradient_accumulation_steps: found 'two'"),
    ],
)
def test_processes_that_cannot_share_the_batch(flags, stated, processes, message):
    with pytest.raises(UserError) as caught:
        kept(flags, stated, processes)
    assert message in str(caught.value)
