"""The reference of preference tuning, computed once before the first step (--reference precomputed).

All data ranks share the samples. What they find is kept in OUTPUT/reference (launch/training/stored_losses.py) and
comes with each sample of a batch.
"""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from data_tools.dialogues.encoding import IGNORED
from data_tools.progress import counted
from launch.checkpoint.ranks import broadcast, first_on_rank_zero, gather, rank
from launch.errors import UserError
from launch.training.batches import PaddedDataset
from launch.training.data import TrainingData
from launch.training.pipeline_pairs import joined, last_stage_computes
from launch.training.reference import TokenLosses
from launch.training.resuming import MODEL_CHANGED
from launch.training.stored_losses import FOLDER, Losses, StoredLosses

SECONDS_A_PART = 10.0  # of computing between two writes: what a kill costs at most
OF_THE_LOSS = ("pairs", "desired")  # in a batch, not for the model
VALUES = "reference"  # in a batch: float32, as the labels


class Precomputed:
    """Log-probabilities by the reference, computed before training.

    Attributes:
        made_by: JSON objects that the values depend on beside the data, by name; a continued run may change only
            values outside OF_MODEL.
    """

    OF_MODEL = ("model", "weights")

    def __init__(self, model, data: TrainingData, made_by: dict[str, object]):
        self.token_losses, self.data, self.made_by = TokenLosses(model), data, made_by
        self.stored: dict[str, StoredLosses] = {}
        data.join = self.join

    def __call__(self, inputs: dict, labels: paddle.Tensor) -> paddle.Tensor:
        """Return the values of a batch."""
        return inputs.pop(VALUES)

    # ---- batches

    def join(self, dataset, padding, collate: Callable) -> tuple["Joined", tuple, Callable]:
        """Join the values to a dataset, for TrainingData. They may be computed after this call."""
        name = "train" if dataset is self.data.train else "dev"
        return Joined(dataset, partial(self._of, name)), (padding, None), partial(collate_joined, collate)

    def _of(self, name: str, sample: int) -> Losses:
        return self.stored[name][sample]

    # ---- before training

    def prepare(self, trainer) -> None:
        """Read what is on disk and compute what is missing, with the model as it is now. Called by all ranks together.

        Raises StoppedBefore.

        Raises:
            UserError: If the run goes on and has values by another model.
        """
        args = trainer.args
        sizes = {"train": args.per_device_train_batch_size, "dev": args.per_device_eval_batch_size}
        if args.pipeline_parallel_degree > 1:  # a pass has the micro batches of a step
            sizes = dict.fromkeys(sizes, args.per_device_train_batch_size * args.gradient_accumulation_steps)
        for (name, size), dataset in zip(sizes.items(), (self.data.train, self.data.valid), strict=True):
            if dataset is not None and name not in self.stored:
                self.stored[name] = self._complete(trainer, name, dataset, size)

    def _complete(self, trainer, name: str, dataset, batch: int) -> StoredLosses:
        store = first_on_rank_zero(lambda: self._open(trainer, name, dataset))
        if store.samples < len(dataset):
            self._compute(trainer, name, dataset, batch, store)
            store = first_on_rank_zero(lambda: self._open(trainer, name, dataset))
        return store

    def _open(self, trainer, name: str, dataset) -> StoredLosses:
        folder = Path(trainer.args.output_dir) / FOLDER
        store = StoredLosses(folder, name, self.made_by | {"data": dataset.identity()}, verify=rank() == 0)
        if rank() > 0 or not (store.changed or store.damaged):
            return store
        other = [part for part in store.changed if part in self.OF_MODEL]
        if other and trainer.checkpointer.restorer and MODEL_CHANGED not in trainer.args.resume_changed:
            raise UserError(
                f"--reference precomputed: {folder} is of another model ({', '.join(other)}) than --model_name_or_path "
                "names now. Give the former one, or --resume_changed model to compute it anew."
            )
        why = f"{store.damaged} is not what was written" if store.damaged else f"other {', '.join(store.changed)}"
        print(f"reference: {folder}/{name}.json is not used as it is: {why}; computed again", flush=True)
        store.write_record()
        return store

    def _compute(self, trainer, name: str, dataset, batch: int, store: StoredLosses) -> None:
        """Compute values in rounds, after each of which rank 0 writes what all ranks have found."""
        args, requests = trainer.args, trainer.checkpointer.requests
        done, batches, seconds = store.samples, 1, 0.0
        at_once, to_do = batch * args.dataset_world_size, len(dataset) - store.samples
        trainer.model.eval()
        with counted(f"log-probabilities by the reference, {name}", to_do, shown=rank() == 0) as reach:
            while done < len(dataset):
                started = time.monotonic()
                batches = min(batches, -(-(len(dataset) - done) // at_once))
                stop = min(done + batches * at_once, len(dataset))
                mine: dict[int, Losses] = {}
                for first in range(done + args.dataset_rank * batch, done + batches * at_once, at_once):
                    mine |= self._losses(trainer, dataset, range(first, first + batch))
                found = {sample: losses for part in gather(mine) for sample, losses in part.items()}
                first_on_rank_zero(partial(_append, store, [found[sample] for sample in range(done, stop)]))
                done = stop
                reach(to_do - len(dataset) + done)
                seconds = max(time.monotonic() - started, 1e-3)
                batches = broadcast(max(1, int(batches * SECONDS_A_PART / seconds)))
                if args.do_train:
                    requests.stop_before_training(args)
        trainer.model.train()

    def _losses(self, trainer, dataset, samples: range) -> dict[int, Losses]:
        """Return the losses of samples by number.

        Numbers beyond the last one pad the batch: all ranks compute equally many.

        Of a pipeline its last stage has them, the others none.
        """
        there = [sample for sample in samples if sample < len(dataset)]
        padded = PaddedDataset(dataset, self.data.padding)
        batch = self.data.collate([padded[sample if sample in there else None] for sample in samples])
        labels = batch.pop("labels")
        inputs = {name: paddle.to_tensor(value) for name, value in batch.items() if name not in OF_THE_LOSS}
        if trainer.args.pipeline_parallel_degree > 1:
            found = self._by_pipeline(trainer, inputs | {"labels": paddle.to_tensor(labels)})
        else:
            with paddle.no_grad(), trainer.autocast_smart_context_manager():
                found = self.token_losses(trainer.model, inputs, paddle.to_tensor(labels))
        if found is None:
            return {}
        rows = [row[counts] for row, counts in zip(found.numpy(), labels != IGNORED, strict=True)]
        return dict(zip(there, zip(rows, rows[len(samples) :], strict=False), strict=False))

    def _by_pipeline(self, trainer, batch: dict) -> paddle.Tensor | None:
        """Return float32 [rows, length] on the last stage, None on the others."""
        found: list[paddle.Tensor] = []

        def kept(outputs: paddle.Tensor, read: list[paddle.Tensor]) -> paddle.Tensor:
            found.append(self.token_losses.of_last_stage(outputs, read[0]))
            return paddle.zeros([])

        with last_stage_computes(trainer.model_wrapped, kept):
            trainer.prediction_step(trainer.model_wrapped, batch, prediction_loss_only=True)
        return joined(found) if found else None


def _append(store: StoredLosses, losses: list[Losses]) -> None:
    """Append losses to the store by first_on_rank_zero, so that no rank waits for one that cannot write."""
    if rank() == 0:
        store.append(losses)


class Joined:
    """Samples, each with its values."""

    def __init__(self, dataset, values_of: Callable[[int], Losses]):
        self.dataset, self.values_of = dataset, values_of

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, sample: int) -> tuple[Any, Losses]:
        return self.dataset[sample], self.values_of(sample)


def collate_joined(collate: Callable, samples: list[tuple[Any, Losses | None]]) -> dict:
    """Return a batch of pairs (a sample, the values of its two rows or None for padding), with VALUES."""
    batch = collate([sample for sample, _ in samples])
    counts = batch["labels"] != IGNORED
    values = np.zeros(counts.shape, dtype=np.float32)
    for row, (_, losses) in enumerate(samples):
        for place, of_row in zip((row, len(samples) + row), losses or (), strict=False):
            values[place, counts[place]] = of_row
    return batch | {VALUES: values}
