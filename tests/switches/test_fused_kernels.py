"""Each row of the tables of fused kernels, with simulated cards: what it refuses, and its neighbours that are allowed;
and what a run's flags make of it."""

from dataclasses import replace

import pytest

from launch.config.flag_values import FlagValues
from launch.families.llama import LLAMA
from launch.families.named_configs import config_names, load_config
from launch.families.registry import FAMILIES
from launch.plan.hardware import CARDS
from launch.plan.job import Job
from launch.switches import FUSED_ROPE, OVERLAP
from launch.switches.switch import SwitchCase, case_of

A100 = SwitchCase(LLAMA, compute_capability=(8, 0), build="12.6", tensor_parallel_degree=2)
KERNELS = (FUSED_ROPE, OVERLAP)
NEVER_ROTATES = replace(LLAMA, fused_rope=False)
NO_CARD = [({"compute_capability": None}, "no GPU"), ({"build": "cpu"}, "Paddle is the CPU build")]

# what differs from the case above, and what is said of it; one for each row, in the table's order
REFUSED = {
    FUSED_ROPE: [
        ({"family": NEVER_ROTATES}, "paddlenlp's code of this model never calls it"),
        ({"past_keys": "prefix tuning"}, "prefix tuning: paddlenlp's code refuses keys from before the sample"),
        (
            {"shared": 2},
            "--sep_parallel_degree 2: the kernel was never tried with positions of a part of the tokens",
        ),
        *NO_CARD,
    ],
    OVERLAP: [
        ({"frozen": "LoRA"}, "LoRA: no product of a weight's gradient is there to hide the sum over the ranks"),
        ({"level": "O1"}, "under --fp16_opt_level O1 inputs and gradients have different dtypes; O2 has it"),
        *NO_CARD,
    ],
}
ALLOWED = [
    (FUSED_ROPE, {}),
    (FUSED_ROPE, {"frozen": "LoRA", "level": "O1", "build": None}),
    (FUSED_ROPE, {"compute_capability": (7, 0), "level": "O0"}),
    (OVERLAP, {}),
    (OVERLAP, {"family": NEVER_ROTATES, "past_keys": "evaluation by answers", "level": "O0"}),
    (OVERLAP, {"compute_capability": (12, 0), "build": None}),
]


@pytest.mark.parametrize(("kernel", "changes"), ALLOWED, ids=lambda one: getattr(one, "flag", None) or "-".join(one))
def test_allowed(kernel, changes):
    assert kernel.obstacle(replace(A100, **changes)) == ""


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.flag)
def test_every_row_refuses_its_example_and_no_row_above_does(kernel):
    for row, (changes, reason) in zip(kernel.cases, REFUSED[kernel], strict=True):
        case = replace(A100, **changes)
        assert kernel.obstacle(case) == row.text.format(case=case) == reason


@pytest.mark.parametrize(
    ("changes", "concerned"),
    [
        ({}, True),
        ({"tensor_parallel_degree": 1}, False),
        ({"words": ("sync_param",)}, True),
        ({"words": ("enable_mp_async_allreduce",)}, False),
        ({"words": ("sync_param", "enable_sp_async_reduce_scatter")}, False),
    ],
)
def test_overlap_is_decided_where_ranks_share_a_layer_and_the_flags_of_upstream_do_not_say(changes, concerned):
    assert OVERLAP.concerns(replace(A100, **changes)) == concerned


def test_the_families_that_call_the_rotary_kernel():
    assert [name for name, family in FAMILIES.items() if family.fused_rope] == ["llama", "qwen2"]
    calls = {
        name
        for name in config_names()
        if case_of(_flags(), load_config(name), (8, 0), "bfloat16", "12.6").family.fused_rope
    }
    assert {"llama-7b", "llama-2-13b"} <= calls and not {"baichuan-13b", "chatglm-6b"} & calls


SYNC = ("sync_param", "sync_grad")
PRETRAIN = {"model_name_or_path": ["llama-7b"], "max_steps": ["1"], "bf16": ["1"], "fp16_opt_level": ["O2"]}


def _flags(script: str = "run_pretrain", **flags: str) -> FlagValues:
    return FlagValues(script, PRETRAIN | {name: [value] for name, value in flags.items()})


@pytest.mark.parametrize(
    ("script", "flags", "expected"),
    [
        ("run_pretrain", {}, A100),
        ("run_pretrain", {"bf16": "0"}, replace(A100, level="O0")),
        ("run_pretrain", {"lora": "1", "fp16_opt_level": "O1"}, replace(A100, frozen="LoRA", level="O1")),
        (
            "finetune_generation",
            {"prefix_tuning": "1"},
            replace(A100, frozen="prefix tuning", past_keys="prefix tuning", prefix=128),
        ),
        (
            "finetune_generation",
            {"eval_with_do_generation": "1"},
            replace(A100, past_keys="evaluation by answers", mask="dense"),
        ),
        ("run_pretrain", {"tensor_parallel_config": "sync_param,sync_grad"}, replace(A100, words=SYNC)),
    ],
)  # fmt: skip
def test_the_case_of_flags(script, flags, expected):
    values = _flags(script, tensor_parallel_degree="2", **flags)
    dtype = "bfloat16" if values.bf16 else "float32"
    assert case_of(values, load_config("llama-7b"), (8, 0), dtype, "12.6") == replace(expected, dtype=dtype)


@pytest.mark.parametrize(
    ("flags", "rope", "overlap"),
    [
        ({}, True, True),
        ({"device": "cpu", "bf16": "0"}, False, False),
        ({"use_fused_rope": "off", "tensor_parallel_overlap": "off"}, False, False),
        ({"tensor_parallel_config": "enable_mp_async_allreduce"}, True, False),  # which keeps copies of the input
        ({"tensor_parallel_config": "enable_mp_async_allreduce enable_mp_skip_c_identity"}, True, True),
        ({"sequence_parallel": "1", "tensor_parallel_config": "enable_sp_async_reduce_scatter"}, True, True),
        ({"model_name_or_path": "bloom-7b1"}, False, True),
        ({"lora": "1", "tensor_parallel_config": "enable_mp_async_allreduce enable_mp_skip_c_identity"}, True, False),
    ],
)
def test_what_a_plan_counts_on(flags, rope, overlap):
    words = PRETRAIN | {"tensor_parallel_degree": ["2"]} | {name: [value] for name, value in flags.items()}
    job = Job.from_flags("run_pretrain", words, 2, CARDS["A100-80G"])
    assert (job.fused_rope, job.tensor_parallel_overlap) == (rope, overlap)
