"""What a rehearsal needs and a bare machine lacks: a tiny model with its tokenizer, and token files.

Made once under build/rehearsal/materials, with the tools a user has, and the same on every machine.
"""

import json
import shutil
import tempfile
from pathlib import Path

from data_tools.tokenize import tokenize_files
from data_tools.tokenizer import save_tokenizer, train_tokenizer
from launch.families.named_configs import load_config
from launch.families.registry import family_of_config
from launch.processes.ends import print_failure
from launch.processes.fork import run_ranks
from launch.rehearsal.dialogues import write_dialogues
from launch.rehearsal.text import documents


def make_materials(directory: Path, configuration: str) -> None:
    """Make directory/model, data, pairs and chats, all or none, where they are not there.

    model: a model directory with its tokenizer, for --model_name_or_path; data: a folder for --input_dir; pairs, chats:
    folders for --dataset_name_or_path.
    configuration: of the model, a name from launch/families/configs. For a process that has imported Paddle.
    """
    if directory.exists():
        return
    directory.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(dir=directory.parent))
    try:
        _make_data(unfinished, load_config(configuration))
        write_dialogues(unfinished)
        _make_model(unfinished, configuration)
        unfinished.rename(directory)
    except OSError:
        if not directory.exists():  # else another rehearsal was faster
            raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _make_data(directory: Path, config: dict) -> None:
    """A tokenizer of made-up text, saved where the model will be, and the text's token files."""
    texts = list(documents())
    symbols = family_of_config(config).answer_symbols
    save_tokenizer(directory / "model", train_tokenizer(texts, config["vocab_size"], symbols=symbols))
    text = directory / "text.jsonl"
    text.write_text("".join(json.dumps({"text": one}) + "\n" for one in texts), encoding="utf-8")
    tokenize_files([str(text)], directory / "model", directory / "data" / "corpus")
    text.unlink()


def _make_model(directory: Path, configuration: str) -> None:
    """Random weights, saved by a fork: this process must not run an operator before it forks ranks."""

    def save(rank: int) -> None:
        from launch.training.model import save_random_model

        save_random_model(configuration, directory / "model")

    outcome = run_ranks(1, save, directory / "log")
    if outcome.failed_rank is not None:
        print_failure(0, outcome.exit_code, directory / "log")
    if outcome.exit_code:
        raise SystemExit(outcome.exit_code)
