"""FIT: a recipe's run with the changes that fit it to its cards, made before anything starts and printed one a line.

A run that goes on from a checkpoint keeps the flags that it began with: another micro batch adds gradients up in
another order. They are in OUTPUT/fit.json, beside the kind and number of the cards. On other cards it is fitted anew.

The record belongs to the checkpoints beside it. So node 0, which has locked OUTPUT, writes that of a start as
fit.next.json, and rank 0 puts it in place when the checkpoints of an earlier run are out of the way.
"""

import json
import os
import shutil
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import NamedTuple

from launch.checkpoint.continuation import Continuation
from launch.config.flag_values import Flags, flag_arguments
from launch.config.run_config import HANDED_OVER, RunConfig
from launch.errors import UserError
from launch.plan.hardware import Card
from launch.preflight.memory import available_bytes, card_here
from launch.preflight.proposals import BATCH, GROUPS, fit, is_given

RECORD, PROPOSED = "fit.json", "fit.next.json"
SETTINGS = ("on", "off")  # of the variable FIT; "" means on


class Record(NamedTuple):
    """The record of what a run was fitted to.

    Attributes:
        words: The changed flags, and the user's own in their place.
    """

    card: str
    memory_bytes: int
    processes: int
    words: Flags

    @classmethod
    def read(cls, output: Path) -> "Record | None":
        """Return the record of an output directory; None where there is none.

        Raises:
            UserError: For another file.
        """
        path = output / RECORD
        try:
            record = cls(**json.loads(path.read_text(encoding="utf-8")))
            record.words.items()
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, AttributeError) as error:
            fix = "remove it, and FIT=off or the flags of the run so far in ARGS"
            raise UserError(f"{path}: not what FIT wrote: {error}; {fix}.") from None
        return record


def is_on(setting: str) -> bool:
    """Return whether a value of FIT means on.

    Raises:
        UserError: For a value that it does not take.
    """
    if setting not in ("", *SETTINGS):
        raise UserError(f"FIT: found {setting!r}, allowed: {', '.join(SETTINGS)}.")
    return setting != "off"


def fitted(run: RunConfig, card: Card | None) -> tuple[RunConfig, list[str]]:
    """Return the run fitted to such cards, and lines to print.

    It is unchanged where it is for a CPU, does not train or cannot be planned: the checks report why.
    """
    if card is None or not run.flags.do_train:
        return run, []
    if start := _start(run):
        record = Record.read(start.parent)
        if record is None:  # it was not fitted
            return run, []
        if record[:3] == (card.name, card.memory_bytes, run.processes):
            words = _of_the_run_so_far(record.words, run)
            line = f"FIT as for the run so far, {start}: {' '.join(flag_arguments(words))}"
            return _changed(run, words), [line] if words else []
    # The host memory of each rank, where the cards are here; no limit for a plan.
    host_bytes = available_bytes() // (run.processes // run.nodes.count) if card_here(run) else inf
    try:
        fitting = fit(run, card, host_bytes)
    except UserError:
        return run, []
    return _changed(run, fitting.after.changes), [f"FIT for {card.name}: {line}" for line in fitting.lines()]


def propose_record(run: RunConfig, card: Card | None) -> None:
    """Propose a record before the ranks of a run start, on node 0, which has locked its output."""
    proposed = Path(run.flags.output_dir or ".") / PROPOSED
    if run.fitted is None or card is None:
        proposed.unlink(missing_ok=True)
        return
    given = {
        name: run.explicit[name] for group in GROUPS if is_given(group, run) for name in group if name in run.explicit
    }
    record = Record(card.name, card.memory_bytes, run.processes, run.fitted | given)
    proposed.write_text(json.dumps(record._asdict()) + "\n", encoding="utf-8")


def copy_record(output: Path, folder: Path) -> None:
    """Copy the record for checkpoints that are moved to a folder."""
    if (output / RECORD).exists():
        shutil.copy2(output / RECORD, folder / RECORD)


def take_record(output: Path, begins: bool) -> None:
    """Take the record on rank 0, when nothing can refuse the run any more.

    begins: it continues no checkpoint of its output.

    A run that begins without FIT leaves no record. One that is started without a recipe proposes none: a proposal is of
    a start that failed.
    """
    if HANDED_OVER in os.environ and (output / PROPOSED).exists():
        (output / PROPOSED).replace(output / RECORD)
    elif begins:
        (output / RECORD).unlink(missing_ok=True)


def _start(run: RunConfig) -> Path | None:
    """Return the checkpoint that the run continues with as many samples a step.

    None where it begins, if with weights.
    """
    flags = run.flags
    if flags.ignore_load_lr_and_optim or "batch" in flags.words("resume_changed"):
        return None
    return Continuation.of(flags).checkpoint


def _of_the_run_so_far(recorded: Flags, run: RunConfig) -> Flags:
    """Return the recorded flags of the groups that the user leaves alone.

    A batch of other samples than the recipe's by now is left out, so that the check of the checkpoint refuses the
    recipe's.
    """
    words = {name: recorded[name] for group in GROUPS if not is_given(group, run) for name in group if name in recorded}
    if is_given(BATCH, run) or run.changed(words).samples_a_data_rank == run.samples_a_data_rank:
        return words
    return {name: value for name, value in words.items() if name not in BATCH}


def _changed(run: RunConfig, words: Flags) -> RunConfig:
    return replace(run, explicit=run.explicit | words, fitted=words)
