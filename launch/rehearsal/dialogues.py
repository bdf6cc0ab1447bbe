"""The dialogues of rehearsals, of the same made-up text: a question is a sentence, its answer the one that follows."""

import json
from itertools import islice
from pathlib import Path

from launch.rehearsal.text import documents

TRAIN, DEV = 512, 64
SENTENCES = 4  # of one chat


def write_dialogues(directory: Path) -> None:
    """Write pairs/ and chats/, each with train.json and dev.json."""
    for name, row in (("pairs", _pair), ("chats", _chat)):
        rows = (row(passage) for passage in _passages())
        (directory / name).mkdir()
        for split, count in (("train", TRAIN), ("dev", DEV)):
            lines = [json.dumps(one) + "\n" for one in islice(rows, count)]
            (directory / name / f"{split}.json").write_text("".join(lines), encoding="utf-8")


def _passages():
    """Lists of consecutive sentences."""
    for document in documents():
        sentences = [f"{one}." for one in document.rstrip(".\n").split(". ")]
        for start in range(0, len(sentences) - SENTENCES + 1, SENTENCES):
            yield sentences[start : start + SENTENCES]


def _pair(passage: list[str]) -> dict:
    return {"src": passage[0], "tgt": passage[1]}


def _chat(passage: list[str]) -> dict:
    roles = ["user", "assistant"] * (SENTENCES // 2)
    return {"messages": [{"role": role, "content": text} for role, text in zip(roles, passage, strict=True)]}
