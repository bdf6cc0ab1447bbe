"""Training that writes down which samples it was fed, step by step, until it is killed."""

import hashlib
import json
from collections import Counter
from pathlib import Path

import numpy as np

from data_tools.dialogues.encoding import IGNORED


def train(script: str, argv: list[str], notes: str) -> None:
    """Train by a method; rank r of it appends [step, digest of a sample] to notes.r as it trains on them."""
    import paddle

    from launch.train import train_method
    from launch.training.trainer import Trainer

    upstream = Trainer.compute_loss

    def compute_loss(trainer, model, inputs, *args, **kwargs):
        if model.training:
            with open(f"{notes}.{paddle.distributed.get_rank()}", "a") as file:
                for ids, labels in zip(inputs["input_ids"].numpy(), inputs["labels"].numpy(), strict=True):
                    file.write(json.dumps([trainer.state.global_step + 1, digest(ids, labels)]) + "\n")
        return upstream(trainer, model, inputs, *args, **kwargs)

    Trainer.compute_loss = compute_loss
    train_method(script, argv)


def digest(ids: np.ndarray, labels: np.ndarray) -> str:
    """Of a sample without its padding; "" for one that is nothing else."""
    counted = np.flatnonzero(labels != IGNORED)
    end = counted[-1] + 1 if counted.size else 0
    return hashlib.sha256(np.stack([ids[:end], labels[:end]]).tobytes()).hexdigest()[:16] if end else ""


def read_notes(notes: str) -> dict[int, Counter]:
    """{step: how often it was fed each sample}, over all ranks; what padding there was is left out."""
    steps: dict[int, Counter] = {}
    for file in Path(notes).parent.glob(f"{Path(notes).name}.*"):
        for line in file.read_text().splitlines():
            step, sample = json.loads(line)
            if sample:
                steps.setdefault(step, Counter())[sample] += 1
    return steps
