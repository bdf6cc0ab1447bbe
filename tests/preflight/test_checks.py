"""Each check of the preflight: what is right passes, each fault is named with its fix, in numbered lines."""

import io
import os
import shlex

import numpy as np
import pytest

from data_tools.formats.tokens.indexed import IndexedWriter
from docs.tools.flag_docs import PAGE, render
from launch import preflight
from launch.checkpoint.output_directory import LOCK, lock_output, lock_start
from launch.config.flag_values import known_flags, parse_flags
from launch.config.run_config import RunConfig
from launch.preflight.flag_check import check_flags
from launch.preflight.host import check_output
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
    numbers = {name: flag for name, flag in known_flags(script).items() if flag.kind in ("int", "float")}
    assert len(numbers) > 50
    for name, flag in numbers.items():
        if flag.default is not None:
            assert flag.number(str(flag.default)) == flag.default, name


# flag | what is found | how the fix begins
WRONG = """
--max_step 10 | unknown flag | did you mean --max_steps?
--learnig_rate 1 | unknown flag | did you mean --learning_rate?
--qqqq | unknown flag | leave it out; --help lists all flags
--no_fp16 | unknown flag | did you mean --fp16?
--max_steps 1e4 | found '1e4' | allowed: a whole number, at least -1 and at most 2,147,483,647
--learning_rate small | found 'small' | allowed: a number, at least 0 and at most 100
--learning_rate -1 | found '-1' | allowed: a number, at least 0 and at most 100
--learning_rate nan | found 'nan' | allowed: a number, at least 0 and at most 100
--seed -1 | found '-1' | allowed: a whole number, at least 0 and at most 4,294,967,295
--max_seq_length 0 | found '0' | allowed: a whole number, at least 1 and at most 2,147,483,647
--lora_alpha 0 | found '0' | allowed: a number, above 0
--lora_dropout 2 | found '2' | allowed: a number, at least 0 and below 1
--adam_beta1 1 | found '1' | allowed: a number, at least 0 and below 1
--gradient_accumulation_steps 9223372036854775807 | found '9223372036854775807' | allowed: a whole number, at least 1
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


def test_the_page_of_flags_is_current():
    assert PAGE.read_text(encoding="utf-8") == render(), "run: python -m docs.tools.flag_docs"
    assert "{run" not in render() and "&lt;stage&gt; with --pipeline_parallel_degree &lt;pipeline&gt;" in render()


GOOD = Finding(True, "Python", "3.11.7")
SMALL = "/dev/shm has 0.1 GiB: " + "too small for the workers " * 3
BAD = Finding(False, "shared memory", SMALL, "docker run --shm-size=8g")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def printed(findings, file):
    print_findings(findings, file)
    return file.getvalue()


def test_lines_are_numbered_and_a_fault_has_its_fix_below():
    assert printed([GOOD, BAD], io.StringIO()).splitlines() == [
        "  1 ✓ Python         3.11.7",
        "  2 ✗ shared memory  /dev/shm has 0.1 GiB: too small for the workers too small",
        "                     for the workers too small for the workers",
        "                     fix: docker run --shm-size=8g",
    ]
    warning = Finding(True, "b", "to be looked at", warns=True)
    marks = [line.split()[1] for line in printed([GOOD, warning, BAD], io.StringIO()).splitlines() if line[2].isdigit()]
    assert marks == ["✓", "!", "✗"]
    long = Finding(False, "driver", "a driver that is told about in very many words " * 5, "some cure or other " * 9)
    assert max(len(line) for line in printed([long] * 12, io.StringIO()).splitlines()) <= 80


def test_colours_only_on_a_terminal_and_not_with_no_color(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\033" not in printed([GOOD, BAD], io.StringIO())
    assert "\033[32m✓\033[0m Python" in printed([GOOD], Terminal())
    assert "\033[31m✗\033[0m shared" in printed([BAD], Terminal())
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\033" not in printed([GOOD, BAD], Terminal())


def test_letters_where_the_encoding_lacks_the_signs():
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding="ascii")
    print_findings([GOOD, BAD], file)
    file.flush()
    assert raw.getvalue().decode("ascii").splitlines()[0] == "  1 ok Python         3.11.7"


def test_commands_and_samples_in_a_finding_stay_whole_lines():
    command = "    make " + "x " * 80 + "end"
    lines = printed([Finding(False, "model", f"is none:\n{command}\nThen it is.")], io.StringIO()).splitlines()
    assert [line.strip() for line in lines] == ["1 ✗ model  is none:", command.strip(), "Then it is."]
