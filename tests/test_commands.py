"""Every command, given what it cannot use: one error, exit code 2, no traceback, nothing written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.forked_commands import start_often
from tests.store import ROOT
from tests.weights.lora_material import llama, save_base, save_lora

# Commands as they are started, PATH standing for what they are to read; at least one for each path that they take.
COMMANDS = [
    "launch/commands/config_from.py PATH",
    "launch/commands/dashboard.py --logdir PATH",
    "launch/commands/demo.py align --model PATH",
    "launch/commands/demo.py chat --model PATH",
    "launch/commands/demo.py finetune --model PATH",
    "launch/commands/demo.py tools --model PATH",
    "launch/commands/add_tokens.py PATH out x",
    "launch/commands/doctor.py --deepspeed PATH",
    "launch/commands/evaluate.py --compare PATH PATH",
    "launch/commands/evaluate.py --tasks text=text.jsonl --model_name_or_path PATH",
    "launch/commands/evaluate.py --model_name_or_path llama-tiny --tasks PATH",
    "launch/commands/export.py PATH out",
    "launch/commands/fit.py --gpu_memory_gb 24 --model PATH",
    "launch/commands/import_weights.py PATH out",
    "launch/commands/card.py PATH",
    "launch/commands/ledger.py PATH",
    "launch/commands/push.py PATH hf:me/model",
    "launch/commands/merge.py --adapter_path PATH --output_dir out",
    "launch/commands/plan_run.py PATH",
    "launch/commands/predict.py --prompt a --model_name_or_path PATH",
    "launch/commands/predict.py --model_name_or_path llama-tiny --data_file PATH",
    "launch/commands/quantization_loss.py --dataset_name_or_path a --model_name_or_path PATH",
    "launch/commands/serve.py --model_name_or_path PATH",
    "launch/commands/serve.py --model_name_or_path llama-tiny --adapter a=PATH",
    "launch/run_pretrain.py --device cpu --output_dir out --continue_training 0 --model_name_or_path llama-tiny "
    "--input_dir PATH",
    "launch/finetune_generation.py --device cpu --output_dir out --dataset_name_or_path a --model_name_or_path PATH",
    "launch/run_dpo.py --device cpu --output_dir out --dataset_name_or_path a --model_name_or_path PATH",
    "launch/run_reward.py --device cpu --output_dir out --dataset_name_or_path a --model_name_or_path PATH",
    "launch/train.py rewards --device cpu --output_dir out --dataset_name_or_path a --model_name_or_path PATH",
    "-m docs.tools.certify_table PATH",
    "-m docs.tools.family_table PATH",
    "launch/commands/guide.py measures PATH",
    "-m docs.tools.recipe_table PATH",
    "-m docs.tools.guide_tables PATH",
    "-m docs.tools.switch_table PATH",
    "-m data_tools.blend PATH",
    "-m data_tools.clean --exact --output out.jsonl --input PATH",
    "-m data_tools.inspect PATH",
    "-m data_tools.merge --output out PATH",
    "-m data_tools.preference check --input PATH",
    "-m data_tools.preference convert --output out.json --input PATH",
    "-m data_tools.preference split --output out --input PATH",
    "-m data_tools.sft --output out --input PATH",
    "-m data_tools.split --output out PATH",
    "-m data_tools.tokenize --output out --tokenizer PATH --input text.jsonl",
    "-m data_tools.tokenize --output out --tokenizer tokenizer --input PATH",
    "-m data_tools.tokenizer --output out --vocab_size 400 --input PATH",
    "-m data_tools.tokenizer --output out --vocab_size 400 --input text.jsonl --extend PATH",
    "-m data_tools.verify PATH",
]
# Those that read nothing.
OTHERS = [
    "launch/commands/certify.py",
    "launch/commands/demo.py",
    "launch/commands/download.py",
    "launch/commands/studio.py",
    "launch/environment/custom_ops.py",
    "launch/environment/setup.py",
    "launch/recipe.py",
    "-m data_tools.stdlib_corpus --output out",
    "-m docs.tools.deepspeed_page",
    "-m docs.tools.chinese",
    "-m docs.tools.demo_picture",
    "-m docs.tools.flag_docs",
    "-m docs.tools.messages",
    "-m docs.tools.notebooks",
    "-m docs.tools.regenerate",
    "-m docs.tools.sizes",
    "-m launch.training.flag_schema",
]
# Parts of commands, started by make, by recipes and by other commands alone.
PARTS = {
    "launch.environment.pins",
    "launch.environment.start",
    "launch.environment.targets",
    "data_tools.dialogues.template_worker",
    "launch.training.reward_worker",
}
UNUSABLE = {
    "missing": "nowhere",
    "empty file": "empty",
    "empty folder": "folder",
    "binary file": "binary.jsonl",
    "below a file": "empty/below",
    "name too long": "a" * 300,
    "not UTF-8": os.fsdecode(b"\xff\xfe"),
}


ENVIRONMENT = {"PYTHONPATH": str(ROOT), "COLUMNS": "80"}


def fill(folder: Path) -> Path:
    (folder / "empty").write_bytes(b"")
    (folder / "folder").mkdir()
    (folder / "binary.jsonl").write_bytes(bytes(range(256)))
    (folder / "text.jsonl").write_text('{"text": "a text"}\n')
    return folder


@pytest.fixture
def folder(tmp_path):
    return fill(tmp_path)


def words_of(command: str, path: str) -> list[str]:
    return [path if word == "PATH" else word.replace("=PATH", f"={path}") for word in command.split()]


def start(command: str, folder: Path, path: str = "", **environment: str) -> subprocess.CompletedProcess:
    """From another folder than the repository, as a user may."""
    words = words_of(command, path)
    if words[0] != "-m":
        words[0] = str(ROOT / words[0])
    environment = os.environ | ENVIRONMENT | environment
    return subprocess.run([sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True)


def files(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*")}


def refused(done: subprocess.CompletedProcess) -> bool:
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    return done.returncode == 2 and len(errors) == 1 and "Traceback" not in done.stderr


def program(command: str) -> str:
    """Without its arguments."""
    return " ".join(command.split()[: 2 if command.startswith("-m ") else 1])


PROGRAMS = sorted({program(command) for command in COMMANDS + OTHERS})


def test_every_entry_point_is_here():
    listed = {name.removeprefix("-m ").removesuffix(".py").replace("/", ".") for name in PROGRAMS}
    started = {
        str(path.relative_to(ROOT).with_suffix("")).replace("/", ".").removesuffix(".__main__")
        for place in ("launch", "data_tools", "docs")
        for path in (ROOT / place).rglob("*.py")
        if '\nif __name__ == "__main__":\n' in path.read_text(encoding="utf-8")
    }
    assert started - listed == PARTS and listed <= started


@pytest.mark.long
@pytest.mark.parametrize("command", COMMANDS)
def test_what_cannot_be_read_is_told(tmp_path, command):
    before, cases = {}, []
    for number, (kind, path) in enumerate(UNUSABLE.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        before[kind] = files(fill(folder))
        cases.append((folder, words_of(command, path)[len(program(command).split()) :]))
    (tmp_path / "printed").mkdir()
    started = start_often(program(command), cases, tmp_path / "printed", os.environ | ENVIRONMENT)
    for kind, (folder, _), done in zip(UNUSABLE, cases, started, strict=True):
        assert refused(done), (kind, done)
        assert files(folder) == before[kind], kind


@pytest.mark.parametrize(
    "command",
    [
        "launch/commands/merge.py --adapter_path lora --output_dir out",
        "launch/commands/predict.py --prompt a",
        "launch/commands/quantization_loss.py --dataset_name_or_path a",
        "launch/commands/serve.py",
    ],
)
def test_a_model_of_hugging_face_is_to_be_imported_first(folder, command):
    save_lora(folder / "lora", llama())
    save_base(folder / "theirs", llama())
    (folder / "theirs" / "model.safetensors").rename(folder / "theirs" / "pytorch_model.bin")
    before = files(folder)
    done = start(f"{command} --model_name_or_path theirs", folder)
    assert refused(done) and "Convert them first: make import MODEL=theirs" in done.stderr, done
    assert files(folder) == before


@pytest.mark.long
@pytest.mark.parametrize("command", COMMANDS + OTHERS)
def test_an_unknown_flag_is_told(folder, command):
    if command.startswith("launch/commands/demo"):
        pytest.skip("takes the flags of another command, or files alone")
    assert refused(start(f"{command} --nonsense", folder, "empty")), command
    assert files(folder) == {str(folder / name) for name in ("empty", "folder", "binary.jsonl", "text.jsonl")}


@pytest.mark.long
@pytest.mark.parametrize("name", PROGRAMS)
def test_help_fits_a_terminal_and_any_encoding(folder, name):
    """Only what has no space is longer: addresses, lists of values."""
    done = start(f"{name} --help", folder, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert [line for line in done.stdout.splitlines() if len(line) > 80 and " " in line.strip()] == []
