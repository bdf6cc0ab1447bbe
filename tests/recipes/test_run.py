"""Running a recipe: refusals before anything starts, and the run itself with a launcher like Paddle's."""

import os
import re
import signal
import subprocess
import textwrap

import pytest

from tests.preflight.test_continuation import make_checkpoint
from tests.processes.waiting import gone, wait_for
from tests.recipes.machine import ROOT, Machine


def test_refusal_without_cards(tmp_path):
    """What the recipe needs, what is here, the rehearsal; Paddle is not imported (the machine's raises)."""
    done = Machine(tmp_path, cards=0).run("llama-7b/pretrain")
    assert done.returncode == 2
    assert re.search("cards +8 of 80 GB needed, here: none", done.stderr)
    *_, error, rehearsal = done.stderr.splitlines()
    assert re.fullmatch(r"error: pretrain-llama7b cannot start here: 1 of \d+ checks failed.", error)
    assert rehearsal == "The same on this machine's CPU, with a tiny model: make rehearse-pretrain-llama7b"


def test_a_fault_that_no_cards_would_mend_names_no_rehearsal(tmp_path):
    done = Machine(tmp_path).run("tiny/pretrain", "--max_step", "3", DATA="data")
    assert done.returncode == 2
    assert "✗ --max_step" in done.stderr
    assert "rehearse" not in done.stderr


def test_refusal_with_too_few_cards_names_the_way(tmp_path):
    done = Machine(tmp_path, cards=2).run("llama-7b/pretrain")
    assert done.returncode == 2
    assert "8 of 80 GB needed, here: 2 x NVIDIA A100-SXM4-80GB (80 GB)" in done.stderr
    assert "fix: GPUS=2 " in done.stderr


def test_smaller_cards_are_refused_until_the_user_insists(tmp_path):
    machine = Machine(tmp_path, cards=8, kind="A100-40G")
    done = machine.run("llama-7b/pretrain")
    assert done.returncode == 2
    assert "8 of 80 GB needed, chosen: 8 x NVIDIA A100-SXM4-40GB (40 GB)" in done.stderr
    assert "fix: GPU_MEMORY_GB=40 " in done.stderr
    insisted = machine.run("llama-7b/pretrain", GPU_MEMORY_GB="40")
    assert "✗" not in insisted.stdout + insisted.stderr


def test_all_faults_are_told_at_once(tmp_path):
    machine = Machine(tmp_path, cards=0)
    (machine.folder / "data" / "corpus.bin").write_bytes(b"cut")
    (machine.folder / "checkpoints").write_text("a file where a folder is needed")
    done = machine.run("llama-7b/pretrain", "--max_step", "3", "--fp16", "maybe")
    assert done.returncode == 2
    for fault in ["✗ cards", "✗ --max_step", "✗ --fp16", "✗ data", "✗ output"]:
        assert fault in done.stderr
    assert re.search(r"5 of \d+ checks failed", done.stderr)
    assert (machine.folder / "checkpoints").read_text() == "a file where a folder is needed"


def test_every_word_reaches_the_launcher(tmp_path):
    """The launcher is started with the printed command; here its ranks fail on a Paddle that raises."""
    machine = Machine(tmp_path, cards=2)
    done = machine.run("llama-7b/pretrain", GPUS="2")
    assert done.returncode == 1
    assert "GPUS: 2 instead of 8, --gradient_accumulation_steps 4 instead of 1" in done.stdout
    assert "AssertionError: Paddle was imported\n" in done.stdout + done.stderr  # of the rank that was first
    assert re.match(
        r"\nrank [01] failed with exit code 1; .* checkpoints/llama-7b-pretrain/log/workerlog.[01]\b",
        done.stderr,
    )


@pytest.fixture
def sleeping(tmp_path):
    """A running recipe of two ranks that sleep: (its process, the ranks' pids)."""
    machine = Machine(tmp_path)
    script = tmp_path / "run_pretrain.py"
    script.write_text(
        "import os, time\n"
        f"open('{tmp_path}/pid.' + os.environ['PADDLE_TRAINER_ID'], 'w').write(str(os.getpid()))\n"
        "time.sleep(600)\n"
    )
    recipe = tmp_path / "recipe.sh"
    recipe.write_text(
        textwrap.dedent(f"""\
        source {ROOT}/launch/recipe.sh
        PROCESSES=2
        run {script} --model_name_or_path llama-7b --input_dir data --output_dir out "$@"
        """)
    )
    process = subprocess.Popen(
        ["bash", recipe], cwd=machine.folder, env=machine.environment(), start_new_session=True
    )
    files = [tmp_path / f"pid.{rank}" for rank in range(2)]
    wait_for(lambda: all(file.exists() and file.read_text() for file in files))
    yield process, [int(file.read_text()) for file in files]
    if process.poll() is None:
        process.kill()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_to_the_recipe_ends_every_rank(sleeping, number, code):
    process, ranks = sleeping
    process.send_signal(number)
    assert process.wait(timeout=60) == code
    assert all(gone(pid) for pid in ranks)


def test_ctrl_c_on_the_terminal_ends_every_rank(sleeping):
    """A terminal sends SIGINT to the whole foreground process group."""
    process, ranks = sleeping
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(timeout=60) == 130
    assert all(gone(pid) for pid in ranks)


def test_without_python_the_fix_is_named(tmp_path):
    """A copy without .venv, and a PATH without python."""
    copy = tmp_path / "copy"
    (copy / "launch").mkdir(parents=True)
    (copy / "launch" / "recipe.sh").write_text((ROOT / "launch" / "recipe.sh").read_text())
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("bash", "dirname", "env"):
        (tools / tool).symlink_to(subprocess.check_output(["which", tool], text=True).strip())
    script = f"source {copy}/launch/recipe.sh; run launch/run_pretrain.py"
    done = subprocess.run(["bash", "-c", script], env={"PATH": str(tools)}, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == (
        f"error: no Python: neither {copy}/.venv/bin/python nor python on PATH. Run `make setup` in {copy}\n"
    )


def finished(tmp_path, script: str, *flags: str) -> subprocess.CompletedProcess:
    """The recipe of a pretraining run of two processes into `out`, whose ranks are this script."""
    machine = Machine(tmp_path)
    make_checkpoint(machine.folder / "out", 5)
    (tmp_path / "run_pretrain.py").write_text(script)
    recipe = tmp_path / "recipe.sh"
    stated = "--model_name_or_path llama-7b --input_dir data --output_dir out --do_train 1 --split 1,0,0 --max_steps 9"
    recipe.write_text(
        f'source {ROOT}/launch/recipe.sh\nPROCESSES=2\nrun {tmp_path}/run_pretrain.py {stated} "$@"\n'
    )
    command = ["bash", recipe, "--per_device_train_batch_size", "8", *flags]
    return subprocess.run(
        command, cwd=machine.folder, env=machine.environment(), capture_output=True, text=True, timeout=60
    )


def test_a_run_that_ends_well_names_its_result(tmp_path):
    done = finished(tmp_path, "open('out/run_summary.json', 'w').close()")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("The model: out\nTo ask it, a line each: make predict MODEL=out\n")


def test_a_killed_run_names_the_checkpoint_from_which_the_same_command_goes_on(tmp_path):
    done = finished(tmp_path, "import os\nos.kill(os.getpid(), 9)")
    assert done.returncode == 137, done.stderr
    assert re.search(r"lack of host memory .*\nthe same command goes on from out/checkpoint-5\n$", done.stderr)
