"""Where a run's data go on."""

import json
from pathlib import Path

from launch.checkpoint.state.ledger import Ledger
from launch.checkpoint.state.manifest import RUN


def open_ledger(checkpoint: Path | None, dataset, training_args) -> Ledger:
    """The ledger of the run that a checkpoint continues, a new one without.

    dataset: to train on. Raises UserError where data, seed or global batch differ from the run's so far and
    --resume_changed does not name them.
    """
    data = dataset.identity() | {"order_seed": training_args.seed}
    batch = (training_args.global_batch, training_args.dataset_world_size)
    if checkpoint is None or training_args.ignore_load_lr_and_optim:
        return Ledger.begin(data, *batch)
    run = json.loads((checkpoint / RUN).read_text(encoding="utf-8"))
    return Ledger.from_json(run["ledger"]).resumed(data, *batch, tuple(training_args.resume_changed))
