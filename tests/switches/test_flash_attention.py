"""Each row of the flash attention table, with simulated cards: what it refuses, and its neighbours that are allowed."""

from dataclasses import replace

import pytest

from launch.config.flag_values import FlagValues
from launch.families.llama import LLAMA
from launch.families.named_configs import config_names, load_config
from launch.families.parameters import head_size
from launch.families.registry import FAMILIES, family_of_config
from launch.switches import FLASH_ATTENTION, FLASH_ATTENTION_3
from launch.switches.switch import SwitchCase, case_of

A100 = SwitchCase(LLAMA, compute_capability=(8, 0), dtype="bfloat16", head_size=128, build="12.6")
LACKS = replace(LLAMA, lacking={"flash_attention": "its code never calls it"})
obstacle = FLASH_ATTENTION.obstacle

# what differs from the case above, and what is said of it; one for each row, in the table's order
REFUSED = [
    ({"family": LACKS}, "its code never calls it"),
    ({"compute_capability": None}, "no GPU"),
    ({"build": "cpu"}, "Paddle is the CPU build"),
    ({"compute_capability": (6, 1)}, "compute capability 6.1, it needs 7.0 (V100, T4) or newer"),
    (
        {"compute_capability": (7, 5), "dtype": "float16", "mask": "dense"},
        "compute capability 7.5 has the memory efficient kernel alone, which needs a copy of the mask for each head",
    ),
    ({"compute_capability": (13, 0), "build": "13.0"}, "compute capability 13.0, newer than this Paddle knows (12.1)"),
    ({"compute_capability": (10, 0)}, "compute capability 10.0 needs a Paddle for CUDA 12.8 or newer, this one is"),
    ({"dtype": "float32"}, "float32, it needs --fp16 1 or --bf16 1"),
    (
        {"level": "O1", "family": FAMILIES["chatglm"]},
        "under --fp16_opt_level O1 queries and keys are float32, values bfloat16: Paddle takes exact attention; O2 has",
    ),
    ({"head_size": 264}, "heads of 264, at most 256 are possible"),
    ({"head_size": 100}, "heads of 100, it needs a multiple of 8"),
    (
        {"head_size": 200, "compute_capability": (8, 6)},
        "heads of 200 on compute capability 8.6: their gradient needs an A100 (8.0) or H100 (9.0)",
    ),
    ({"dropout": 0.1, "family": FAMILIES["qwen2"]}, "attention dropout 0.1, which paddlenlp does not hand over"),
]
ALLOWED = [
    {},
    {"dtype": "float16"},
    {"build": None},
    {"compute_capability": (8, 6)},
    {"compute_capability": (8, 9)},
    {"compute_capability": (9, 0)},
    {"compute_capability": (10, 0), "build": "12.9"},
    {"compute_capability": (12, 1), "build": "13.0"},
    {"head_size": 8},
    {"head_size": 80},
    {"head_size": 192, "compute_capability": (8, 6)},
    {"head_size": 200},
    {"head_size": 256, "compute_capability": (9, 0)},
    {"dropout": 0.1, "family": FAMILIES["chatglm_v2"]},
    {"mask": "dense"},
    {"mask": "dense", "family": FAMILIES["chatglm"]},
    {"level": "O1"},
    {"level": "O1", "family": FAMILIES["qwen2"]},
    {"compute_capability": (7, 0), "dtype": "float16"},
    {"compute_capability": (7, 5), "dtype": "float16", "family": FAMILIES["qwen2"]},
]


@pytest.mark.parametrize("changes", ALLOWED, ids=range(len(ALLOWED)))
def test_allowed(changes):
    assert obstacle(replace(A100, **changes)) == ""


def test_every_row_refuses_its_example_and_no_row_above_does():
    for row, (changes, reason) in zip(FLASH_ATTENTION.cases, REFUSED, strict=True):
        case = replace(A100, **changes)
        assert obstacle(case) == row.text.format(case=case)
        assert obstacle(case).startswith(reason) and row.source


def usual(config: dict, capability: tuple[int, int] = (8, 0), dtype: str = "bfloat16", **flags: str) -> SwitchCase:
    """The case of fine-tuning with these flags."""
    words = {name: [str(int(value))] for name, value in flags.items()}
    return case_of(FlagValues("finetune_generation", words), config, capability, dtype, "12.6")


@pytest.mark.parametrize(
    ("name", "flags", "mask"),
    [
        ("llama-7b", {}, "causal"),
        ("llama-7b", {"zero_padding": False, "eval_with_do_generation": False}, "causal"),
        ("llama-7b", {"zero_padding": True}, "dense"),
        ("qwen2-7b", {"eval_with_do_generation": True}, "dense"),
        ("chatglm-6b", {}, "dense"),
        ("chatglm2-6b", {}, "dense"),
    ],
)
def test_masks_follow_from_family_and_flags(name, flags, mask):
    case = usual(load_config(name), (7, 0), "float16", **flags)
    assert case.masked == (mask == "dense")
    assert bool(obstacle(case)) == (mask == "dense")


def test_what_the_table_of_families_lacks_is_refused_here():
    for name in config_names():
        config = load_config(name)
        case = usual(config)
        lacks = "flash_attention" in family_of_config(config).lacking
        assert (obstacle(case) == case.family.lacking.get("flash_attention", "")) or not lacks, name


@pytest.mark.parametrize(
    ("name", "size", "with_alibi"),
    [("llama-7b", 128, 128), ("glm-10b", 64, 64), ("bloom-7b1", 128, 136), ("baichuan-13b", 128, 136)],
)
def test_head_sizes_and_how_alibi_widens_them(name, size, with_alibi):
    config = load_config(name)
    assert head_size(config) == size and head_size(config | {"head_dim": 96}) == 96
    assert usual(config).head_size == with_alibi
    if with_alibi != size:
        assert obstacle(usual(config | {"head_dim": 256}))


@pytest.mark.parametrize(
    ("changes", "variables", "found"),
    [
        ({}, {}, ""),
        ({"head_size": 64}, {"FLAGS_cudnn_deterministic": "0"}, ""),
        ({"compute_capability": (10, 0)}, {}, "compute capability 10.0, it is for 9.0 alone"),
        ({}, {"FLAGS_flash_attn_version": "2"}, "FLAGS_flash_attn_version=2"),
        ({}, {"FLAGS_cudnn_deterministic": "1"}, "--deterministic 1"),
        ({"prefix": 24}, {}, "it has neither masks nor a prefix"),
        ({"head_size": 96}, {}, "heads of 96, it is used for 64 and 128"),
    ],
)
def test_version_3_is_for_causal_attention_on_hopper(monkeypatch, changes, variables, found):
    for name in ("FLAGS_flash_attn_version", "FLAGS_cudnn_deterministic"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert FLASH_ATTENTION_3.obstacle(replace(A100, **({"compute_capability": (9, 0)} | changes))) == found
