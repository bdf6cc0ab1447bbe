"""Flags of PaddleNLP's own scripts: what every command of 2.6's LLaMA example becomes, and what is refused."""

import shlex
from pathlib import Path

import pytest

from launch.config.aliases import DROPPED, REFUSED, RENAMED, refusal, todays_flags
from launch.config.flag_values import known_flags, parse_flags
from launch.preflight.flag_check import check_flags
from tests.config import commands_26 as commands

SQUAD = "--task_name is --dataset_name_or_path today"
BOTH_LENGTHS = "--tgt_length is --max_length 2048 today, with --src_length 1024: both together"
TYPE = "--model_type is left out: the model's config.json says it (--model_name_or_path)"

SQUAD_FLAGS = {"task_name": None, "dataset_name_or_path": "squad", "tgt_length": None}
BATCH = {"per_device_train_batch_size": "1", "gradient_accumulation_steps": "16"}
# command -> {flag of today: its value, None where it is gone}, for those that differ, and the lines that tell it
BECOMES = {
    "PRETRAIN": ({"model_type": None}, [TYPE]),
    "FOUR_D": (
        {"model_type": None, "virtual_pp_degree": None},
        [TYPE, "--virtual_pp_degree is left out: the interleaved pipeline is not supported here"],
    ),
    "FULL_TP4": (SQUAD_FLAGS | {"max_length": "2048"}, [SQUAD, BOTH_LENGTHS]),
    "PIPELINE_BEFORE": (
        BATCH | {"pipeline_parallel_mirco_batch_size": None},
        [
            "--pipeline_parallel_mirco_batch_size is --per_device_train_batch_size 1 "
            "--gradient_accumulation_steps 16 today"
        ],
    ),
    "LORA_BETWEEN": (
        SQUAD_FLAGS
        | {"src_length": "128", "max_length": "288", "r": None, "lora_rank": "4", "merge_weights": None}
        | {"instruction_generation": None, "do_generation": None, "eval_with_do_generation": "False"},
        [
            SQUAD,
            "--r is --lora_rank today",
            "--merge_weights is left out: adapters are kept apart from their base; merging is a command of its own",
            "--instruction_generation is left out: the form of the data says it: dialogues in --dataset_name_or_path",
            "--do_generation is --eval_with_do_generation today",
            "--tgt_length is --max_length 288 today, with --src_length 128: both together",
        ],
    ),
    **dict.fromkeys(("MERGE_RANKS", "MERGE_RANKS_AND_STAGES", "MERGE_LORA", "PREDICT", "PREDICT_LORA"), ({}, [])),
    "PREDICT_PREFIX": ({}, []),
    "EXPORT": (
        {"model_path": None, "model_name_or_path": "checkpoints/"},
        ["--model_path is --model_name_or_path today"],
    ),
}

# command -> flags that are refused, for the training commands all of them
GONE = {
    "LORA_BETWEEN": {"num_beams", "label_smoothing"},
    "MERGE_LORA": {"lora_path"},
    "PREDICT_LORA": {"lora_path"},
    "PREDICT_PREFIX": {"prefix_path"},
    "MERGE_RANKS": {"merge_tensor_parallel_path"},
    "MERGE_RANKS_AND_STAGES": {"pp", "tp"},
}
# Flags of 2.6 that keep their names, of methods that finetune_generation.py may not have yet.
SAME_NAME = {"prefix_tuning", "num_prefix_tokens", "eval_with_do_generation"}
TRAINING = {"run_pretrain.py", "finetune_generation.py"}


def parsed(command: str) -> tuple[str, dict]:
    """The script's name and its flags."""
    words = shlex.split(getattr(commands, command))
    script = next(number for number, word in enumerate(words) if word.endswith(".py"))
    return Path(words[script]).name, parse_flags(words[script + 1 :])


@pytest.mark.parametrize("command", BECOMES)
def test_what_it_becomes(command):
    changes, lines = BECOMES[command]
    _, before = parsed(command)
    after, told = todays_flags(before)
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert {name: after[name][0] if name in after else None for name in changed} == changes
    assert told == lines
    assert {name for name in after if refusal(name)} == GONE.get(command, set())


@pytest.mark.parametrize("command", [name for name in BECOMES if parsed(name)[0] in TRAINING])
def test_todays_shared_modules_take_it(command):
    script, before = parsed(command)
    schema = "run_pretrain" if script == "run_pretrain.py" else "finetune_generation"
    faults = {finding.subject[2:] for finding in check_flags(schema, todays_flags(before)[0]) if not finding.ok}
    assert GONE.get(command, set()) <= faults <= GONE.get(command, set()) | (SAME_NAME - known_flags(schema).keys())


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("merge_weights", "True", "adapters are kept apart from their base"),
        ("virtual_pp_degree", "2", "the interleaved pipeline is not supported here"),
        ("tgt_length", "long", "it is a whole number, and --src_length, too"),
        ("pipeline_parallel_mirco_batch_size", "3", "divides --per_device_train_batch_size"),
    ],
)
def test_what_cannot_be_translated_is_refused_with_the_reason(name, value, found):
    flags, lines = todays_flags({name: [value]})
    assert lines == []
    [finding] = check_flags("finetune_generation", flags)
    assert (finding.ok, finding.subject, finding.fix) == (False, f"--{name}", "leave it out")
    assert finding.found.startswith("a flag of PaddleNLP: ") and found in finding.found


def test_the_micro_batch_of_26_multiplies_the_accumulation():
    asked = "--pipeline_parallel_mirco_batch_size 2 --gradient_accumulation_steps 3"
    flags, _ = todays_flags(parse_flags(asked.split()))
    assert flags == {"per_device_train_batch_size": ["2"], "gradient_accumulation_steps": ["12"]}  # 8 / 2 x 3


def test_no_old_name_hides_a_flag_of_today():
    for script in ("run_pretrain", "finetune_generation"):
        hidden = {*RENAMED, *DROPPED, *REFUSED} & known_flags(script).keys()
        # upstream's own older name, and what it does and we do not
        assert hidden == {"sharding_degree", "do_predict"}
