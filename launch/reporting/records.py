"""Read what a run has written. No Paddle here."""

import json
from pathlib import Path

TRAIN_LOG = "train_log.jsonl"
RUN_SUMMARY = "run_summary.json"


def read_train_log(output_dir: Path | str) -> list[dict]:
    """The records of a run, oldest first."""
    with open(Path(output_dir) / TRAIN_LOG, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def past_losses(output_dir: Path | str, step: int, count: int) -> list[float]:
    """The last losses that were logged up to a step, oldest first; of a step that was done twice, the later one."""
    if not (Path(output_dir) / TRAIN_LOG).exists():
        return []
    losses = {record["global_step"]: record["loss"] for record in read_train_log(output_dir) if "loss" in record}
    return [losses[logged] for logged in sorted(losses) if logged <= step][-count:]


def read_summary(output_dir: Path | str) -> dict:
    return json.loads((Path(output_dir) / RUN_SUMMARY).read_text(encoding="utf-8"))
