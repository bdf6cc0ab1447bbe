"""The best of a training by evaluation loss, kept beside the newest: OUTPUT/best, for use, not to continue from.

It is what the run saves at its end, an adapter or a model directory with its tokenizer, of the evaluation with the
lowest loss, and best.json, which says which one. predict, merge and --model_name_or_path take it.
"""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path

from launch.training.ranks import barrier, broadcast, rank

BEST, RECORD = "best", "best.json"


class BestKeeper:
    """output_dir: of the run. write: called by all ranks together with the directory to write to."""

    def __init__(self, output_dir: str | Path, write: Callable[[Path], None]):
        self.final = Path(output_dir) / BEST
        self.write = write
        self.loss: float | None = None

    def consider(self, global_step: int, loss: float, continued: bool) -> None:
        """Keep the weights as they are now if no evaluation of the run was better. Called by all ranks together.

        continued: whether the run is one that goes on: what another has left in the same place does not count.
        """
        if self.loss is None:
            self.loss = broadcast(self._earlier_loss() if rank() == 0 else None) if continued else math.inf
        if not loss < self.loss:
            return
        self.loss = loss
        aside, old = (self.final.with_name(f".{BEST}.{word}") for word in ("partial", "old"))
        if rank() == 0:
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir(parents=True)
        barrier()
        self.write(aside)
        barrier()
        if rank() == 0:
            (aside / RECORD).write_text(json.dumps({"global_step": global_step, "eval_loss": loss}) + "\n")
            shutil.rmtree(old, ignore_errors=True)
            if self.final.exists():
                self.final.rename(old)
            aside.rename(self.final)
            shutil.rmtree(old, ignore_errors=True)
        barrier()

    def _earlier_loss(self) -> float:
        """Of the best of the run that is continued."""
        old = self.final.with_name(f".{BEST}.old")
        if old.exists() and not self.final.exists():  # a kill between the two renames
            old.rename(self.final)
        try:
            return json.loads((self.final / RECORD).read_text())["eval_loss"]
        except (OSError, ValueError, KeyError, TypeError):
            return math.inf
