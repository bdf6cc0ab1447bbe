"""The output directory of a run, and the checkpoint that it continues: chosen, checked, restored."""

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddlenlp.peft import LoRAModel
from paddlenlp.trainer import TrainerCallback

from launch.adapters.adapter_files import ADAPTERS
from launch.adapters.add import base_format
from launch.adapters.lora_files import PISSA_NEW, PISSA_START
from launch.checkpoint import random_state
from launch.checkpoint.continuation import Continuation, Examined
from launch.checkpoint.data_ledger import Ledger
from launch.checkpoint.local_tensors import local_tensors, restore_tensors
from launch.checkpoint.manifest import (
    DAMAGED,
    MANIFEST,
    RUN,
    Manifest,
    checkpoint_step,
    checkpoints,
    examine,
    rank_file,
    stray_weights,
)
from launch.checkpoint.model_identity import base_fingerprint, differences, model_changed, model_identity
from launch.checkpoint.output_directory import LOCK, lock_output, move_aside, move_checkpoint, remove_partial
from launch.checkpoint.ranks import broadcast, gather, on_rank_zero, rank, world_size
from launch.config.resume_flags import REPORTED
from launch.errors import UserError
from launch.preflight.fitted import copy_record, take_record
from launch.preflight.rules.rule import SCHEDULES_WITH_FLOOR
from launch.reporting.records import cut_log, next_free_name, topology

# ---- which checkpoint a run continues from: decided on rank 0, the same on all ranks


def choose_checkpoint(training_args) -> Continuation:
    """Return the checkpoint to continue, with every byte verified. All ranks call it together. Nothing is moved yet.

    Raises:
        UserError: On all ranks where a named one is damaged, or the checkpoint has weights that the run did not write.
    """
    continuation = Continuation.of(training_args, examine_together, lambda question: broadcast(question()))
    for checkpoint, fault in continuation.passed_over:
        if fault:
            _warn(f"{fault}; the checkpoint before it is looked at")
        else:
            _warn(f"{checkpoint} was written by PaddleNLP, not by this program: to continue it, name it")
    if continuation.fault:
        raise UserError(f"--resume_from_checkpoint: {continuation.fault}.")
    checkpoint, manifest = continuation.checkpoint, continuation.manifest
    if stray := broadcast(stray_weights(checkpoint, manifest) if checkpoint and manifest else None):
        raise UserError(f"{stray}: move it elsewhere.")
    return continuation


def examine_together(checkpoint: Path) -> Examined:
    """Return a checkpoint's manifest, or its first fault.

    All ranks call it, each with its share of the files.

    Raises:
        UserError: If only some see it.
    """
    visible = gather((checkpoint / MANIFEST).is_file())
    if any(visible) and not all(visible):
        raise UserError(
            f"rank {visible.index(False)} does not see {checkpoint}, others do: --output_dir must be on a file system "
            "that all nodes share."
        )
    manifest, fault = examine(checkpoint, share=(rank(), world_size()))
    fault = next((fault for fault in gather(fault) if fault), None)
    return (None, fault) if fault else (manifest, None)


def _warn(line: str) -> None:
    if rank() == 0:
        print(f"warning: {line}", flush=True)


# ---- the output directory: one run at a time, nothing of an earlier run is lost


def open_output(training_args) -> Continuation:
    """Make the output directory and lock it; the checkpoint to continue. Called by all ranks together.

    Nothing of an earlier run is moved or removed yet: the run may still be refused. That the directory can be
    written, and that an earlier run in it may be overwritten, preflight has checked.
    """
    output = Path(training_args.output_dir)

    def make_and_lock() -> None:
        output.mkdir(parents=True, exist_ok=True)
        lock_output(output)

    on_rank_zero(make_and_lock)
    visible = gather((output / LOCK).exists())
    if not all(visible):
        raise UserError(
            f"--output_dir: rank {visible.index(False)} does not see what rank 0 writes to {output}: it must be on a "
            "file system that all nodes share."
        )
    return choose_checkpoint(training_args)


def put_later_aside(continuation: Continuation, training_args) -> Path | None:
    """Move logs and checkpoints of later steps to other names, and return the new path of the checkpoint to continue.

    Later steps are all steps of an earlier run, or the steps after an older checkpoint of this run. Damaged checkpoints
    are renamed first, and remains of interrupted saves removed.

    All ranks call it together, when nothing can refuse the run any more.
    """
    output, checkpoint, manifest = Path(training_args.output_dir), continuation.checkpoint, continuation.manifest

    def put_damaged_aside() -> None:
        remove_partial(output)
        for damaged in continuation.damaged:
            print(f"{damaged} is kept as {move_aside(damaged, DAMAGED).name}", flush=True)

    on_rank_zero(put_damaged_aside)
    within = checkpoint and checkpoint.resolve().parent == output.resolve()
    step = manifest.global_step if manifest and within and not training_args.ignore_load_lr_and_optim else 0
    moved = broadcast(on_rank_zero(lambda: _keep_later(output, step)))

    def put_pissa_in_place() -> None:  # the first adapter of this run in the place of an earlier run's
        if (output / PISSA_NEW).is_dir():
            shutil.rmtree(output / PISSA_START, ignore_errors=True)
            os.rename(output / PISSA_NEW, output / PISSA_START)

    on_rank_zero(put_pissa_in_place)
    return moved.get(checkpoint.resolve(), checkpoint) if checkpoint else None


def _keep_later(output: Path, step: int) -> dict[Path, Path]:
    """Move the log and the checkpoints of later steps; {old path: new path} of the checkpoints.

    The newest goes first and the log last: after a kill in between, the log has all steps of the checkpoints left.
    """
    later = [checkpoint for checkpoint in checkpoints(output) if checkpoint_step(checkpoint) > step]
    moved = {}
    if later:
        folder = output / "earlier"
        folder = next_free_name(folder) if folder.exists() else folder
        folder.mkdir()
        copy_record(output, folder)
        if (output / PISSA_START).exists():
            shutil.copytree(output / PISSA_START, folder / PISSA_START)
        moved = {checkpoint: folder / checkpoint.name for checkpoint in later}
        if step:
            print(f"going back to step {step:,}: {len(later)} later checkpoints are kept in {folder}", flush=True)
    places = {checkpoint.resolve(): place for checkpoint, place in moved.items()}
    for checkpoint, place in moved.items():
        move_checkpoint(checkpoint, place)
    cut_log(output, step)
    take_record(output, begins=not step)
    return places


# ---- where the data go on, and whether with the same model


MODEL_CHANGED = "model"  # of --resume_changed


def open_ledger(continuation: Continuation, dataset, training_args, uneven: bool = False) -> Ledger:
    """Return the ledger of the run that is continued, a new one without.

    Args:
        continuation: Of the run.
        dataset: To train on.
        training_args: The flags.
        uneven: Whether steps read different numbers of samples.

    Raises:
        UserError: If data, seed or global batch differ from the run's so far and --resume_changed does not name
            them.
    """
    data = dataset.identity() | {"order_seed": training_args.seed}
    batch = (training_args.global_batch, training_args.data_ranks)
    if continuation.checkpoint is None or training_args.ignore_load_lr_and_optim:
        return Ledger.begin(data, *batch, uneven)
    run = json.loads((continuation.checkpoint / RUN).read_text(encoding="utf-8"))
    return Ledger.from_json(run["ledger"]).resumed(data, *batch, tuple(training_args.resume_changed))


def identify_model(model, model_args, adapter_args, seed: int, reference_weights: bool = False) -> dict:
    """Return what a checkpoint keeps of the model that is trained, with its adapter. Called by all ranks together.

    reference_weights: whether the loss compares with the weights before training, which are then part of it.
    """
    if not isinstance(model, ADAPTERS):
        before = weights_identity(model, model_args, seed) if reference_weights else None
        return model_identity(model.config.to_dict(), reference=before)
    if isinstance(model, LoRAModel):
        config: Any = model.lora_config
        adapter = {"r": config.r, "scaling": config.scaling, "target_modules": sorted(config.target_modules)}
        if adapter_args.pissa:
            adapter["pissa"] = True
        if adapter_args.dora:
            adapter["dora"] = True
        if adapter_args.trainable_token_indices:
            adapter["trainable_token_indices"] = adapter_args.trainable_token_indices
        if config.lora_plus_scale != 1:
            adapter["lora_plus_scale"] = config.lora_plus_scale
    else:
        adapter = {"num_prefix_tokens": model.prefix_config.num_prefix_tokens}
    if quantized := base_format(adapter_args):
        adapter |= quantized.identity
    return model_identity(model.model.config.to_dict(), adapter, weights_identity(model.model, model_args, seed))


def identify_evaluation(data, loss_flags: dict) -> str:
    """Return a SHA-256 of the evaluation data's identity and of the flags of the loss."""
    identity = data.valid.identity() if data.valid is not None else None
    return hashlib.sha256(json.dumps([identity, loss_flags], sort_keys=True).encode()).hexdigest()


def weights_identity(model, model_args, seed: int) -> str:
    """Return the identity of the weights that a run begins with. All ranks call it together."""
    if not model_args.continue_training:
        return f"random numbers of seed {seed}"
    return broadcast(on_rank_zero(lambda: base_fingerprint(model.directory)))


def require_same_model(continuation: Continuation, identity: dict, training_args) -> None:
    """Raise UserError where a checkpoint is of another model and --resume_changed does not name it.

    A run that takes the weights alone prints the differences.
    """
    found = differences(continuation.manifest.model, identity) if continuation.manifest else []
    if not found:
        return
    if not training_args.ignore_load_lr_and_optim and MODEL_CHANGED not in training_args.resume_changed:
        raise UserError(model_changed(found))
    if rank() == 0:
        for line in found:
            print(f"resume: the model has {line}", flush=True)


# ---- continue where a checkpoint ended: weights, optimizer, schedule, loss scale, random numbers, position


RANDOM_NUMBERS = "all continues but random numbers (dropout), which differ from those of an uninterrupted run"


def changed_arguments(before: dict, now: dict) -> list[str]:
    """Return a line for each REPORTED flag that differs from the one with which a checkpoint was made."""
    now = json.loads(json.dumps(now))  # names for members of an Enum, as a manifest has them
    for arguments in (now, before := dict(before)):
        arguments["bf16"] = arguments.get("bf16", False) or bool(arguments.pop("bfloat16_products", False))
    both = sorted(key for key in now if key in REPORTED and key in before)
    return [f"--{key} is {now[key]}, was {before[key]}" for key in both if before[key] != now[key]]


class Restorer(TrainerCallback):
    """Puts the state of a checkpoint into a trainer.

    Upstream's own resume is not used: it reads consumed data again, and takes the random numbers when there are batches
    to skip, or at every epoch.

    Attributes:
        weights_alone: The run starts at step 0 with its weights.
    """

    def __init__(self, trainer, checkpoint: Path, manifest: Manifest, weights_alone: bool = False):
        self.trainer = trainer
        self.checkpoint, self.manifest = checkpoint, manifest
        self.weights_alone = weights_alone
        self.run = json.loads((checkpoint / RUN).read_text(encoding="utf-8"))
        # Metrics of other evaluation data, or of another loss, say nothing of which model is the best.
        self.measures_the_same = self.run.get("measured", trainer.measured) == trainer.measured
        self._random_state = None
        if not weights_alone:
            if manifest.topology == layout_of(trainer.args):
                own = checkpoint / rank_file(rank())
                self._random_state = json.loads(own.read_text(encoding="utf-8"))["random_state"]
            elif rank() == 0:
                print(f"resume: {checkpoint.name} is of another layout: {RANDOM_NUMBERS}", flush=True)
            if rank() == 0:
                for line in changed_arguments(manifest.arguments, trainer.flags):
                    print(f"resume: {line}", flush=True)
                if not self.measures_the_same:
                    print("resume: other evaluation data or another loss: the best model is found anew", flush=True)

    @property
    def global_step(self) -> int:
        """The step where the run goes on."""
        return 0 if self.weights_alone else self.run["global_step"]

    def restore(self) -> None:
        """Restore weights, optimizer, schedule and loss scale, once the trainer has wrapped them for its layout."""
        trainer = self.trainer
        optimizer = None if self.weights_alone else trainer.optimizer
        restore_tensors(self.checkpoint, self.manifest, local_tensors(trainer.model, optimizer, trainer.args))
        if self.weights_alone:
            return
        self._restore_schedule()
        if self.run.get("grad_norm") is not None:
            trainer.grad_norm.latest = paddle.to_tensor(self.run["grad_norm"], "float32")
        if trainer.do_grad_scaling and self.run["scaler"]:
            scaler = self.run["scaler"]
            trainer.scaler.load_state_dict(scaler | {"scale": np.array(scaler["scale"], dtype=np.float32)})
        trainer.loss.restore(self.run.get("loss"))

    def _restore_schedule(self) -> None:
        """Continue the schedule after the updates so far.

        Before 0.3.0 those with a floor began at 1, so that a step had the rate of the one after it.
        """
        schedule, before = self.trainer.lr_scheduler, self.run.get("scheduler")
        if before is None:
            schedule.step(self.run["updates"])
            return
        kind = self.manifest.arguments.get("lr_scheduler_type", "")  # "SchedulerType.LINEAR"
        was_ahead = kind.rpartition(".")[2].lower() in SCHEDULES_WITH_FLOOR
        schedule.step(before["last_epoch"] - was_ahead)
        if was_ahead and rank() == 0 and self.global_step < self.trainer.args.max_steps:
            print(
                f"resume: {self.checkpoint.name} is of an earlier version, whose learning rates were a step ahead: "
                f"step {self.global_step + 1:,} has {schedule():.2e}, that of {schedule.last_epoch:,} completed steps, "
                f"as in a new run, and no longer {before['last_lr']:.2e}",
                flush=True,
            )

    # ---- as training begins, in this order

    def on_train_begin(self, args, state, control, **kwargs):
        """Set the step and the best metric."""
        state.global_step = self.global_step
        if not self.weights_alone and self.measures_the_same:
            state.best_metric = self.run["best_metric"]

    def on_step_begin(self, args, state, control, **kwargs):
        """Restore the random state once, at the last moment before a random number is used.

        Loaders and wrappers have drawn theirs.
        """
        if self._random_state is not None:
            random_state.restore(self._random_state)
            self._random_state = None


def layout_of(training_args) -> dict:
    """Return the facts that decide the parts of each rank, and its random numbers."""
    return topology(training_args) | {"sharding": " ".join(map(str, training_args.sharding))}


def scaler_state(scaler) -> dict:
    """Return a loss scaler's state as a JSON-serializable dict."""
    state = scaler.state_dict()
    return state | {"scale": np.asarray(state["scale"]).tolist()} if state else {}
