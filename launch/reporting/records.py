"""Read what a run has written. No Paddle here."""

import json
from pathlib import Path

TRAIN_LOG = "train_log.jsonl"
RUN_SUMMARY = "run_summary.json"


def read_train_log(output_dir: Path | str) -> list[dict]:
    """The records of a run, oldest first."""
    with open(Path(output_dir) / TRAIN_LOG, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def read_summary(output_dir: Path | str) -> dict:
    return json.loads((Path(output_dir) / RUN_SUMMARY).read_text(encoding="utf-8"))
