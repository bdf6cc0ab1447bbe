"""Running a recipe: refusals before anything starts, and the run itself with a launcher like Paddle's."""

import json
import re
import subprocess
import textwrap

import psutil
import pytest

from launch.families.named_configs import load_config
from tests.preflight.test_continuation import make_checkpoint
from tests.processes.waiting import gone, wait_for
from tests.recipes.machine import ROOT, Machine


def test_refusal_without_cards(tmp_path):
    machine = Machine(tmp_path, cards=0)
    done = machine.run("llama-7b/pretrain")
    assert done.returncode == 2
    assert re.search("cards +8 of 80 GB needed, here: none", done.stderr)
    *_, error, rehearsal = done.stderr.splitlines()
    assert re.fullmatch(r"error: pretrain-llama7b cannot start here: 1 of \d+ checks failed.", error)
    told = "The same on this machine's CPU, with a tiny model: make rehearse-"
    assert rehearsal == f"{told}pretrain-llama7b"
    lines = machine.run("llama-7b/lora", DATA="data").stderr.splitlines()
    assert lines[-2:] == [f"{told}lora-1gpu DATA=data", "A LoRA that trains a small model on the CPU: make lora-tiny"]


@pytest.mark.parametrize(
    ("model", "given"), [("Qwen/Qwen3-8B-Base", " MODEL=Qwen/Qwen3-8B-Base"), ("Qwen/Qwen9-8B", "")]
)
def test_a_model_that_is_not_here_is_refused_with_commands_that_work(tmp_path, model, given):
    machine = Machine(tmp_path, cards=0)
    done = machine.run("qwen3-8b/lora", MODEL=model)
    rehearsal = next(line for line in done.stderr.splitlines() if "make rehearse" in line)
    assert done.returncode == 2 and rehearsal.partition("make ")[2] == f"rehearse-lora-qwen3-8b{given}"
    names = [*given.split("=")[1:], *re.findall(r"without\s+it:\s+MODEL=([\w.-]+),", done.stderr)]
    assert names
    for name in (*names, ""):
        plan = machine.run("qwen3-8b/lora", ACTION="plan", MODEL=name)
        assert plan.stdout.startswith("Qwen3, 8.19 billion parameters, 36 layers; LoRA, rank 16"), plan.stderr


def test_the_recipes_of_the_demo_name_what_makes_their_model_and_data(tmp_path):
    machine = Machine(tmp_path)
    made = (
        ("tiny/lora", "build/demo/model", "5-10 minutes: make demo"),
        ("tiny/pretrain", "build/demo/data", "5-10 minutes: make demo"),
        ("tiny/grpo", "build/demo-grpo/prompts", "3 minutes: make demo-grpo"),
    )
    for recipe, folder, way in made:
        done = machine.run(recipe)
        told = f"{folder} comes from the demo, which takes {way}"
        assert done.returncode == 2 and done.stderr.splitlines()[-1] == told
    done = machine.run("tiny/pretrain", "--max_step", "3", DATA="data")
    assert done.returncode == 2 and "✗ --max_step" in done.stderr
    assert "rehearse" not in done.stderr, "no cards would mend that"


def test_the_lora_on_the_demo_has_its_questions_once_and_a_plan_before_there_is_a_model(tmp_path):
    """The questions are as `make demo-finetune` has them. Planned as llama-tiny, which the demo trains; once its model
    is there, as that."""
    machine = Machine(tmp_path)
    first, second = (machine.run("tiny/lora") for _ in range(2))
    made = "build/demo-finetune/data: made, 4000 rows to train on, 128 to evaluate on\n"
    assert first.stdout.startswith(made) and made not in second.stdout
    for done in (first, second):
        assert "train 4,000 dialogues (src/tgt); dev 128 dialogues" in " ".join(done.stderr.split())
    plan = machine.run("tiny/lora", ACTION="plan")
    assert plan.returncode == 0 and "0.01 billion parameters, 6 layers; LoRA, rank 8" in plan.stdout
    (machine.folder / "build" / "demo" / "model").mkdir(parents=True)
    config = load_config("llama-tiny") | {"num_hidden_layers": 3}
    (machine.folder / "build" / "demo" / "model" / "config.json").write_text(json.dumps(config))
    assert " 3 layers; LoRA" in machine.run("tiny/lora", ACTION="plan").stdout


@pytest.mark.parametrize(
    ("cards", "kind", "found", "fix"),
    [
        (2, "A100", "8 of 80 GB needed, here: 2 x NVIDIA A100-SXM4-80GB (80 GB)", "fix: GPUS=2 "),
        (8, "A100-40G", "8 of 80 GB needed, chosen: 8 x NVIDIA A100-SXM4-40GB (40 GB)", "fix: GPU_MEMORY_GB=40 "),
    ],
)
def test_refusal_with_too_few_or_too_small_cards_names_the_way(tmp_path, cards, kind, found, fix):
    """Too small ones are refused by a recipe that is not fitted, until the user insists."""
    machine = Machine(tmp_path, cards, kind)
    done = machine.run("llama-7b/pretrain", FIT="off")
    assert done.returncode == 2 and found in " ".join(done.stderr.split()) and fix in done.stderr
    if "MEMORY" in fix:
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
    machine = Machine(tmp_path, cards=2)
    done = machine.run("llama-7b/pretrain", GPUS="2")
    assert done.returncode == 1
    assert "GPUS: 2 instead of 8, --gradient_accumulation_steps 32 instead of 8" in done.stdout
    assert "AssertionError: Paddle was imported\n" in done.stdout + done.stderr  # of the rank that was first
    assert re.match(
        r"\nrank [01] failed with exit code 1; .* checkpoints/llama-7b-pretrain/log/workerlog.[01]\b", done.stderr
    )


def test_modules_of_the_current_folder_are_not_imported(tmp_path):
    machine = Machine(tmp_path)
    for name in ("dl", "signal", "subprocess"):
        (machine.folder / f"{name}.py").write_text("raise SystemExit('of the current folder')")
    done = finished(machine, "import signal, subprocess, os\nopen('out/run_summary.json', 'w').write('{}')")
    assert done.returncode == 0, done.stderr


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
    process = subprocess.Popen(["bash", recipe], cwd=machine.folder, env=machine.environment(), start_new_session=True)
    files = [tmp_path / f"pid.{rank}" for rank in range(2)]
    wait_for(lambda: all(file.exists() and file.read_text() for file in files))
    yield process, [int(file.read_text()) for file in files]
    if process.poll() is None:
        process.kill()


def test_a_second_start_is_refused_at_once_and_leaves_the_first_alone(sleeping, tmp_path):
    """The first is still starting: none of its ranks holds the output directory."""
    process, ranks = sleeping
    out = tmp_path / "work" / "out"
    environment = psutil.Process(process.pid).environ()
    before = sorted(path.relative_to(out) for path in out.rglob("*"))
    given = {"cwd": out.parent, "env": environment, "capture_output": True, "text": True, "timeout": 60}
    again = subprocess.run(process.args, **given)
    assert again.returncode == 2 and "out is in use by another run (one that starts)" in " ".join(again.stderr.split())
    assert sorted(path.relative_to(out) for path in out.rglob("*")) == before
    assert process.poll() is None and not any(gone(pid) for pid in ranks)


def finished(machine: Machine, script: str, *flags: str) -> subprocess.CompletedProcess:
    """The recipe of a pretraining run of two processes into `out`, whose ranks are this script."""
    tmp_path = machine.folder.parent
    make_checkpoint(machine.folder / "out", 5, model="llama-7b")
    (tmp_path / "run_pretrain.py").write_text(script)
    recipe = tmp_path / "recipe.sh"
    stated = "--model_name_or_path llama-7b --input_dir data --output_dir out --do_train 1 --split 1,0,0 --max_steps 9"
    recipe.write_text(f'source {ROOT}/launch/recipe.sh\nPROCESSES=2\nrun {tmp_path}/run_pretrain.py {stated} "$@"\n')
    command = ["bash", recipe, "--per_device_train_batch_size", "8", *flags]
    return subprocess.run(
        command, cwd=machine.folder, env=machine.environment(), capture_output=True, text=True, timeout=60
    )


def test_a_run_that_ends_well_names_its_result(tmp_path):
    done = finished(Machine(tmp_path), "open('out/run_summary.json', 'w').write('{}')")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("The model: out\nTo ask it, a line each: make predict MODEL=out\n")


def test_a_killed_run_names_the_checkpoint_from_which_the_same_command_goes_on(tmp_path):
    done = finished(Machine(tmp_path), "import os\nos.kill(os.getpid(), 9)")
    assert done.returncode == 137, done.stderr
    assert re.search(r"lack of host memory .*\nthe same command goes on from out/checkpoint-5\n$", done.stderr)
