"""What a rehearsal needs and a bare machine lacks: a tiny model with its tokenizer, and token files.

Made once under build/rehearsal/materials/<configuration>, with the tools a user has, and the same every time
with one Python version: the text is its standard library.
"""

import shutil
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from data_tools.sources import read_documents
from data_tools.stdlib_corpus import write_corpus
from data_tools.tokenize import tokenize_files
from data_tools.tokenizer import save_tokenizer, train_tokenizer
from launch.models.named_configs import load_config
from launch.processes.fork import run_ranks
from launch.processes.logs import print_failure


@dataclass(frozen=True)
class Materials:
    """model: a model directory with tokenizer, for --model_name_or_path; data: a folder for --input_dir."""

    model: Path
    data: Path


def make_materials(directory: Path, configuration: str) -> Materials:
    """Make what is not there yet. `configuration` names a file of launch/models/configs.

    Raises DataError where this Python's standard library lacks its sources.
    """
    text, tokenizer, corpus = directory / "text", directory / "tokenizer", directory / "data" / "corpus"
    made = Materials(directory / "model", directory / "data")
    if (made.model / "config.json").exists() and corpus.with_suffix(".idx").exists():
        return made
    write_corpus(text, sysconfig.get_path("stdlib"))
    files = [str(text / "heldout.jsonl")]  # the small part, half a megabyte, is enough
    texts = [document.text for document in read_documents(files)]
    save_tokenizer(tokenizer, train_tokenizer(texts, load_config(configuration)["vocab_size"]))
    tokenize_files(files, tokenizer, corpus)
    _make_model(directory, configuration, tokenizer)
    return made


def _make_model(directory: Path, configuration: str, tokenizer: Path) -> None:
    """Random weights, saved by a fork: this process must not run an operator before it forks ranks."""
    unfinished = directory / "model.unfinished"
    shutil.copytree(tokenizer, unfinished, dirs_exist_ok=True)

    def save(rank: int) -> None:
        from launch.training.model import save_random_model

        save_random_model(configuration, unfinished)

    outcome = run_ranks(1, save, directory / "log")
    if outcome.failed_rank is not None:
        print_failure(0, outcome.exit_code, directory / "log")
    if outcome.exit_code:
        raise SystemExit(outcome.exit_code)
    unfinished.rename(directory / "model")
