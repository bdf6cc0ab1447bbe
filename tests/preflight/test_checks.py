"""Each check of the preflight: what is right passes, each fault is named with its fix."""

import os
import shlex
import sys

import numpy as np
import pytest

from data_tools.formats.tokens.indexed import IndexedWriter
from launch import preflight
from launch.checkpoint.output_directory import LOCK, lock_output, lock_start
from launch.config.flag_values import FlagValues, load_schema, parse_flags, read_number
from launch.config.run_config import RunConfig
from launch.preflight.flags import check_flags
from launch.preflight.host import check_output
from launch.preflight.model_files import check_model
from launch.preflight.report import Finding, print_findings
from launch.preflight.token_files import check_data

SCRIPT = "launch/run_pretrain.py"


def told(findings: list[Finding]) -> tuple[bool, str, str]:
    """The only finding: whether ok, what was found, the fix."""
    (finding,) = findings
    return finding.ok, finding.found, finding.fix


RIGHT = """
--max_steps 10
--learning_rate 1e-5
--fp16 1
--bf16
--do_train
--no_continue_training
--use_flash_attention auto
--recompute_granularity full_attn
--sharding stage2
--sharding "stage2 offload"
--input_dir 0.7 a 0.3 b
--pipeline_parallel_config disable_p2p_cache_shape,enable_timer
"""


def test_flags_that_are_right():
    for line in RIGHT.strip().splitlines():
        assert told(check_flags(SCRIPT, parse_flags(shlex.split(line)))) == (True, "1, all known", ""), line


@pytest.mark.parametrize("script", ["run_pretrain", "finetune_generation"])
def test_every_number_has_a_range_that_holds_its_default(script):
    numbers = {name: flag for name, flag in load_schema(script).items() if flag["type"] in ("int", "float")}
    assert len(numbers) > 50
    for name, flag in numbers.items():
        if flag["default"] is not None:
            assert read_number(flag, str(flag["default"])) == flag["default"], name


def test_a_number_out_of_its_range_counts_as_not_stated():
    values = FlagValues(SCRIPT, {"max_seq_length": ["0"], "seed": ["4294967295"], "adam_beta1": ["nan"]})
    assert (values.max_seq_length, values.seed, values.adam_beta1) == (2048, 4294967295, 0.9)


# flag | what is found | how the fix begins
WRONG = """
--max_step 10 | unknown flag | did you mean --max_steps?
--learnig_rate 1 | unknown flag | did you mean --learning_rate?
--qqqq | unknown flag | leave it out; --help lists all flags
--no_fp16 | unknown flag | did you mean --fp16?
--max_steps 1e4 | found '1e4' | allowed: a whole number, at least -1 and at most 2,147,483,647
--learning_rate small | found 'small' | allowed: a number, at least 0 and at most 100
--learning_rate -1 | found '-1' | allowed: a number, at least 0 and at most 100
--learning_rate 1e10 | found '1e10' | allowed: a number, at least 0 and at most 100
--learning_rate nan | found 'nan' | allowed: a number, at least 0 and at most 100
--seed -1 | found '-1' | allowed: a whole number, at least 0 and at most 4,294,967,295
--seed 4294967296 | found '4294967296' | allowed: a whole number, at least 0 and at most 4,294,967,295
--max_seq_length 0 | found '0' | allowed: a whole number, at least 1 and at most 2,147,483,647
--lora_rank 0 | found '0' | allowed: a whole number, at least 1 and at most 65,536
--lora_alpha 0 | found '0' | allowed: a number, above 0
--lora_dropout 2 | found '2' | allowed: a number, at least 0 and below 1
--adam_beta1 1 | found '1' | allowed: a number, at least 0 and below 1
--dataloader_num_workers -1 | found '-1' | allowed: a whole number, at least 0 and at most 1,024
--gradient_accumulation_steps 9223372036854775807 | found '9223372036854775807' | allowed: a whole number, at least 1
--num_train_epochs nan | found 'nan' | allowed: a number, above 0 and at most 1,000,000
--weight_decay inf | found 'inf' | allowed: a number, at least 0
--fp16 maybe | found 'maybe' | allowed: 1 or 0 (true, false)
--use_flash_attention sometimes | found 'sometimes' | allowed: auto, on, off, required
--recompute_granularity half | found 'half' | allowed: full, full_attn, core_attn
--max_steps | found no value | --max_steps VALUE (int)
--max_steps 10 20 | found 2 values: 10 20 | one value: --max_steps 10
--sharding stage2 offload | found 2 values: stage2 offload | one value: --sharding "stage2 offload"
--sharding stage4 | found 'stage4' | allowed: stage1, stage2, stage3, offload
--lr_scheduler_type cosinus | found 'cosinus' | allowed: linear, cosine, constant, constant_with_warmup, polynomial
--evaluation_strategy step | found 'step' | allowed: no, steps, epoch
--fp16_opt_level 2 | found '2' | allowed: O0, O1, O2
--device cuda | found 'cuda' | allowed: cpu, gpu
--report_to mlflow | found 'mlflow' | allowed: none, all, visualdl, autonlp, wandb, tensorboard
--optim sgd | found 'sgd' | allowed: adamw, adafactor, adamw_mini, adamw_custom, adamw_16bit_moment
--unified_checkpoint_config "enable_all_options async_saving" | found 'async_saving' | allowed: skip_save_model_weight
--tensor_parallel_config "enable_mp_async_allreduce sync_params" | found 'sync_params' | allowed: enable_mp_async_
--pipeline_parallel_config "disable_p2p_cache_shape, enable_timer" | found ' enable_timer' | allowed: disable_p2p_
--sharding_parallel_config enable_stage3_overlap | found 'enable_stage3_overlap' | allowed: enable_stage1_tensor_fusion
"""


@pytest.mark.parametrize("line", WRONG.strip().splitlines())
def test_flag_at_fault(line):
    """At a comma upstream cuts, and keeps the space behind it."""
    words, found, fix = line.split(" | ")
    flags = parse_flags(shlex.split(words))
    (finding,) = check_flags(SCRIPT, {"seed": ["1"]} | flags)
    assert (finding.ok, finding.subject, finding.found) == (False, *(f"--{name}" for name in flags), found)
    assert finding.fix.startswith(fix)


@pytest.fixture
def data(tmp_path):
    """A folder with two corpora of 30 and 12 tokens."""
    for name, tokens in [("a", 30), ("b", 12)]:
        with IndexedWriter(tmp_path / name, vocab_size=100) as writer:
            writer.add_document(np.arange(tokens))
    return tmp_path


def test_data_whole_missing_and_damaged(data, tmp_path):
    found = (True, "2 corpora, 42 tokens", "")
    assert told(check_data({"input_dir": [str(data)]})) == found
    assert told(check_data({"input_dir": ["0.7", f"{data}/a", "0.3", f"{data}/b"]})) == found
    ok, found, _ = told(check_data({"input_dir": [str(tmp_path / "nowhere")]}))
    assert not ok and f"no data at {tmp_path}/nowhere" in found
    ok, found, fix = told(check_data({}))
    assert (ok, found, fix) == (False, "no --input_dir", "--input_dir FOLDER or DATA=FOLDER, with pairs X.bin, X.idx")
    (data / "a.idx").write_bytes((data / "b.idx").read_bytes())
    os.truncate(data / "b.bin", 2)
    findings = check_data({"input_dir": [str(data)]})
    assert [(one.ok, name in one.found) for one, name in zip(findings, ("a.bin", "b.bin"), strict=True)] == [
        (False, True),
        (False, True),
    ]


def test_output_that_can_be_written_and_that_cannot(tmp_path):
    def check(folder):
        return told(check_output(RunConfig(SCRIPT, {"output_dir": [str(folder)]})))

    ok, found, _ = check(tmp_path / "a" / "b")
    assert ok and found.startswith(f"{tmp_path}/a/b, ") and found.endswith(" GB free")
    assert list(tmp_path.iterdir()) == [], "it is not made"
    (tmp_path / "file").write_text("kept")
    ok, found, fix = check(tmp_path / "file" / "run")
    assert not ok and found == f"{tmp_path}/file/run cannot be written: {tmp_path}/file: Not a directory"
    assert fix == "OUTPUT=FOLDER or --output_dir names another"
    assert (tmp_path / "file").read_text() == "kept"
    assert check("/proc/run")[0] is False


def test_output_in_which_another_run_lives(tmp_path):
    """By its lock, not by what is written in it: another process may have the id of one that is gone."""
    (tmp_path / LOCK).write_text(f"process {os.getpid()} on here\n")
    situation = RunConfig(SCRIPT, {"output_dir": [str(tmp_path)]})
    assert told(check_output(situation))[0] is True
    held = lock_output(tmp_path)
    ok, found, fix = told(check_output(situation))
    holder = f"process {os.getpid()} on {os.uname().nodename}"
    assert (ok, found) == (False, f"{tmp_path} is in use by another run ({holder})")
    assert fix.startswith("end that run, or OUTPUT=FOLDER")
    assert told(check_output(situation, starts=False))[0] is True  # one of its own ranks
    os.close(held)
    starting = lock_start(tmp_path)
    assert told(check_output(situation))[1] == f"{tmp_path} is in use by another run (one that starts)"
    os.close(starting)
    assert told(check_output(situation))[0] is True


def test_all_checks_are_made(data):
    flags = {"input_dir": ["nowhere"], "max_step": ["3"], "output_dir": ["/proc/run"]}
    findings = preflight.run(RunConfig(SCRIPT, flags))
    assert [finding.subject for finding in findings if not finding.ok] == ["--max_step", "model", "data", "output"]


def test_a_model_that_is_nowhere_is_a_fault_with_the_names_there_are():
    [finding] = check_model({"model_name_or_path": ["facebook/lama-7b"]})
    assert not finding.ok and "'facebook/lama-7b'" in finding.found and "llama-7b" in finding.found
    assert check_model({"model_name_or_path": ["facebook/llama-7b"]})[0].ok


def test_a_warning_has_a_mark_of_its_own(capsys):
    warning = Finding(True, "b", "to be looked at", warns=True)
    print_findings([Finding(True, "a", "well"), warning, Finding(False, "c", "ill", "mend it")], sys.stdout)
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines() if line[2].isdigit()] == ["✓", "!", "✗"]
