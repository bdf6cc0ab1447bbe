"""What a rehearsal needs and a bare machine lacks: a tiny model with its tokenizer, text and rows of data.

Made once under build/rehearsal/materials, with the tools a user has, and the same in every version of Python and on
every machine, so that a rehearsal's losses can be compared with stored ones (tests/golden). Of `random` only
Random(int).random() is used, which Python promises never to change, and of arithmetic only what IEEE 754 rounds in
one way.
"""

import json
import shutil
import tempfile
from bisect import bisect
from collections.abc import Iterator
from itertools import accumulate, islice
from pathlib import Path
from random import Random

from data_tools.tokenize import tokenize_files
from data_tools.tokenizer import save_tokenizer, train_tokenizer
from launch.families.named_configs import load_config
from launch.families.registry import family_of_config
from launch.processes.fork import run_ranks
from launch.processes.logs import print_failure

SYLLABLES = [
    consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in ("a", "e", "i", "o", "u", "an", "er", "is")
]
SYLLABLES_OF_A_WORD = (1, 3)
WORDS_OF_A_SENTENCE = (3, 18)
SENTENCES_OF_A_DOCUMENT = (5, 40)
WORDS = 4000
DOCUMENTS = 450
SHARES = list(accumulate(1 / rank for rank in range(1, WORDS + 1)))  # of the first words, as in natural languages


def documents() -> Iterator[str]:
    """Yield texts of invented words, about 0.6 MB in all."""
    random = Random(1)

    def syllable() -> str:
        return SYLLABLES[int(random.random() * len(SYLLABLES))]

    words = ["".join(_some(random, SYLLABLES_OF_A_WORD, syllable)) for _ in range(WORDS)]

    def sentence() -> str:
        chosen = _some(random, WORDS_OF_A_SENTENCE, lambda: words[bisect(SHARES, random.random() * SHARES[-1])])
        return f"{' '.join(chosen).capitalize()}."

    for _ in range(DOCUMENTS):
        yield " ".join(_some(random, SENTENCES_OF_A_DOCUMENT, sentence)) + "\n"


def _some(random: Random, count: tuple[int, int], make) -> list[str]:
    """Call make() a random number of times from count[0] to count[1], both included, and return the results."""
    first, last = count
    return [make() for _ in range(first + int(random.random() * (last - first + 1)))]


TRAIN, DEV = 512, 8  # a rehearsal's model writes answers to those of dev: with 64 that was most of its time
SENTENCES = 4  # of one chat


def write_dialogues(directory: Path, dev: int = DEV) -> None:
    """Write pairs/, chats/ and preferences/, each with train.json and dev.json.

    Questions are sentences of the invented text, each answered by the sentence after it; in preferences the one after
    that is rejected.

    Args:
        dev: Rows of dev.json.
        directory: Where they are written.
    """
    for name, row in (("pairs", _pair), ("chats", _chat), ("preferences", _preference)):
        rows = (row(passage) for passage in _passages())
        (directory / name).mkdir()
        for split, count in (("train", TRAIN), ("dev", dev)):
            lines = [json.dumps(dialogue) + "\n" for dialogue in islice(rows, count)]
            (directory / name / f"{split}.json").write_text("".join(lines), encoding="utf-8")


def _passages():
    """Yield lists of consecutive sentences."""
    for document in documents():
        sentences = [f"{sentence}." for sentence in document.rstrip(".\n").split(". ")]
        for start in range(0, len(sentences) - SENTENCES + 1, SENTENCES):
            yield sentences[start : start + SENTENCES]


def _pair(passage: list[str]) -> dict:
    return {"src": passage[0], "tgt": passage[1]}


def _chat(passage: list[str]) -> dict:
    roles = ["user", "assistant"] * (SENTENCES // 2)
    return {"messages": [{"role": role, "content": text} for role, text in zip(roles, passage, strict=True)]}


def _preference(passage: list[str]) -> dict:
    return {"prompt": passage[0], "chosen": passage[1], "rejected": passage[2]}


def make_materials(directory: Path, configuration: str) -> None:
    """Make directory/model, data, pairs, chats and preferences, all or none, where they are not there.

    model: a model directory with its tokenizer, for --model_name_or_path; data: a folder for --input_dir; pairs, chats,
    preferences: folders for --dataset_name_or_path.
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
    """Save a tokenizer of invented text where the model will be, and the text's token files."""
    texts = list(documents())
    symbols = family_of_config(config).answer_symbols
    save_tokenizer(directory / "model", train_tokenizer(texts, config["vocab_size"], symbols=symbols))
    text = directory / "text.jsonl"
    text.write_text("".join(json.dumps({"text": passage}) + "\n" for passage in texts), encoding="utf-8")
    tokenize_files([str(text)], directory / "model", directory / "data" / "corpus")
    text.unlink()


def _make_model(directory: Path, configuration: str) -> None:
    """Save random weights, in a fork: this process must not run an operator before it forks ranks."""

    def save(rank: int) -> None:
        from launch.training.model import save_random_model

        save_random_model(configuration, directory / "model")

    outcome = run_ranks(1, save, directory / "log")
    if outcome.failed_rank is not None:
        print_failure(0, outcome.exit_code, directory / "log")
    if outcome.exit_code:
        raise SystemExit(outcome.exit_code)
