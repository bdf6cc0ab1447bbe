"""--precision: instead of --bf16 and --fp16; auto chooses by the card and says why."""

import pytest

from launch.config.flag_values import parse_flags
from launch.config.run_config import RunConfig
from launch.devices.precision import describe_choice, resolve, stated
from launch.plan.hardware import card_of_memory
from launch.plan.job import Job
from launch.preflight import gpus, run_on_flags

CPU, V100, T4, A100, H100 = None, (7, 0), (7, 5), (8, 0), (9, 0)
TUNE = "launch/finetune_generation.py"
RUN = ["--model_name_or_path", "llama-7b", "--lora", "1", "--fp16_opt_level", "O2"]


@pytest.mark.parametrize(
    ("precision", "card", "expected"),
    [
        ("auto", V100, (False, True)),
        ("auto", T4, (False, True)),
        ("auto", A100, (True, False)),
        ("auto", H100, (True, False)),
        ("auto", CPU, (False, False)),
        ("fp16", A100, (False, True)),
        ("bf16", A100, (True, False)),
        ("fp32", A100, (False, False)),
    ],
)
def test_what_it_becomes(precision, card, expected):
    assert resolve(*stated(precision, "off", False), card) == expected


def test_without_it_the_other_flags_count():
    assert stated(None, "auto", True) == ("auto", True)


def test_the_choice_is_explained_in_one_line():
    assert describe_choice(True, 1024.0, A100) == (
        "precision: bfloat16, chosen as compute capability 8.0 has it: the range of float32, no loss scale"
    )
    assert describe_choice(False, 32768.0, V100) == (
        "precision: float16, loss scale 32768, chosen as compute capability 7.0 has no bfloat16, 8.0 (A100, 3090) has"
    )
    assert describe_choice(False, 32768.0, CPU) == (
        "precision: float32, chosen here as the CPU has no kernels in half precision; cards from A100 on get bfloat16, "
        "those before float16"
    )


def planned(*words: str, memory: int) -> str:
    return Job.from_flags(TUNE, parse_flags([*RUN, *words]), 1, card_of_memory(memory)).compute


def test_the_plan_counts_on_the_named_card():
    assert planned("--precision", "auto", memory=80) == "bfloat16"
    assert planned("--precision", "fp16", memory=80) == "float16"
    assert planned("--precision", "fp32", memory=80) == "float32"


@pytest.mark.parametrize(
    ("device", "told"),
    [("cpu", "float32, chosen here as the CPU has no kernels in half precision")],
)
def test_the_check_before_a_run_says_it(device, told):
    situation = RunConfig(TUNE, parse_flags([*RUN, "--precision", "auto", "--device", device]))
    [finding] = [one for one in gpus.check_gates(situation) if one.subject == "precision"]
    assert finding.ok and finding.found.startswith(told)


@pytest.mark.parametrize(("other", "word"), [("--fp16", "1"), ("--bf16", "auto")])
def test_two_ways_of_saying_it_are_refused(other, word):
    situation = RunConfig(TUNE, parse_flags([*RUN, "--precision", "auto", other, word]), processes=1)
    found = [(one.ok, one.subject) for one in run_on_flags(situation) if not one.ok]
    assert (False, "--precision") in found
