"""Where a run's data go on, and whether with the same model."""

import json
from dataclasses import asdict
from pathlib import Path

from paddlenlp.peft import LoRAModel

from launch.adapters.add import base_format
from launch.adapters.files import ADAPTERS
from launch.checkpoint.state.identity import base_fingerprint, differences, model_changed, model_identity
from launch.checkpoint.state.ledger import Ledger
from launch.checkpoint.state.manifest import RUN, read_manifest
from launch.errors import UserError
from launch.training.ranks import broadcast, first_on_rank_zero, rank

MODEL = "model"  # of --resume_changed


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


def identify_model(model, model_args, adapter_args, seed: int) -> dict:
    """What a checkpoint keeps of the model that is trained, with its adapter. Called by all ranks together."""
    if not isinstance(model, ADAPTERS):
        return model_identity(model.config.to_dict())
    if isinstance(model, LoRAModel):
        config = model.lora_config
        adapter = {"r": config.r, "scaling": config.scaling, "target_modules": sorted(config.target_modules)}
    else:
        adapter = {"num_prefix_tokens": model.prefix_config.num_prefix_tokens}
    if quantized := base_format(adapter_args):
        adapter |= asdict(quantized)
    if not model_args.continue_training:
        return model_identity(model.model.config.to_dict(), adapter, f"random numbers of seed {seed}")
    base = model.model
    fingerprint = first_on_rank_zero(lambda: base_fingerprint(base.directory) if rank() == 0 else None)
    return model_identity(base.config.to_dict(), adapter, broadcast(fingerprint))


def require_same_model(checkpoint: Path | None, identity: dict, training_args) -> None:
    """Raises UserError where a checkpoint is of another model and --resume_changed does not name it.

    A run that takes the weights alone is told what differs.
    """
    found = differences(read_manifest(checkpoint).model, identity) if checkpoint else []
    if not found:
        return
    if not training_args.ignore_load_lr_and_optim and MODEL not in training_args.resume_changed:
        raise UserError(model_changed(found))
    if rank() == 0:
        for line in found:
            print(f"resume: the model has {line}", flush=True)
