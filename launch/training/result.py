"""What a run leaves for use: the model, or the adapter alone, which is read back from disk and tried."""

import shutil
from pathlib import Path

import numpy as np
import paddle

from launch.adapters.files import ADAPTERS, save_adapter
from launch.checkpoint.state.manifest import PARTIAL_MODEL
from launch.checkpoint.state.write import put_in_place
from launch.training.ranks import first_on_rank_zero, rank
from launch.training.saving.read_back import ReadBack
from launch.training.trainer import PaddedDataset, RunTrainer

TRIED = 2  # samples that a saved adapter is tried on


class ResultTrainer(RunTrainer):
    """read_back: None where the whole model is trained. made_a_step: with a learning rate above 0."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.read_back = ReadBack(self.model, self.args) if isinstance(self.model, ADAPTERS) else None
        self.made_a_step = False

    def training_step(self, model, inputs):
        self.made_a_step |= self.optimizer.get_lr() > 0
        return super().training_step(model, inputs)

    def save_result(self, directory: Path | None = None) -> None:
        """Write what was trained, for use, and its tokenizer where there is one: the adapter alone or the whole model.

        directory: default the run's own, at its end, where the files appear together when all are whole.
        Raises UserError on all ranks where they cannot be written, or an adapter does not read back as trained.
        """
        if directory is not None:
            return self._write_result(directory, updated=False)
        output = Path(self.args.output_dir)
        partial = output / PARTIAL_MODEL
        first_on_rank_zero(lambda: _empty(partial) if rank() == 0 else None)
        read_back = self._write_result(partial, updated=self.made_a_step)
        first_on_rank_zero(lambda: put_in_place(partial, output) if rank() == 0 else None)
        if rank() == 0 and read_back:
            print(read_back, flush=True)

    def _write_result(self, directory: Path, updated: bool) -> str | None:
        """A line about an adapter that was read back. updated: whether training must have changed it."""
        if not self.read_back:
            self.save_model(str(directory))
            return None
        save_adapter(self.model, directory, self.args)
        line = self._read_back_line(*self.read_back.check(directory, self.outcome, updated))
        first_on_rank_zero(lambda: self._save_tokenizer(directory) if rank() == 0 else None)
        return line

    def _save_tokenizer(self, directory: Path) -> None:
        if self.tokenizer is not None:
            self.tokenizer.save_pretrained(str(directory))

    def _read_back_line(self, changed: int, tensors: int, difference: float) -> str:
        what = "loss" if self.args.pipeline_parallel_degree > 1 else "logits"
        return (
            f"adapter read back from {self.args.output_dir}: {tensors} tensors as trained, {changed} of them not as at "
            f"the beginning; largest difference of the {what} of {self._tried} training samples {difference:.2g}"
        )

    @property
    def _tried(self) -> int:
        """A pipeline takes whole batches only."""
        args = self.args
        if args.pipeline_parallel_degree > 1:
            return args.per_device_eval_batch_size
        return min(TRIED, args.per_device_train_batch_size)

    def outcome(self) -> np.ndarray:
        """The logits of the first samples of training, of this rank's part of the vocabulary; a pipeline has their
        loss instead."""
        first = range(self._tried)
        padded = PaddedDataset(self.train_dataset, self.padding)
        batch = self.data_collator([padded[i if i < len(self.train_dataset) else None] for i in first])
        inputs = {key: paddle.to_tensor(array) for key, array in batch.items()}
        pipeline = self.args.pipeline_parallel_degree > 1
        model = self.model_wrapped if pipeline else self.model
        model.eval()
        if pipeline:
            outcome, _, _ = self.prediction_step(model, inputs, prediction_loss_only=True)
        else:
            with paddle.no_grad(), self.autocast_smart_context_manager():
                _, (_, outcome) = self.loss_of(self.model, inputs, return_outputs=True)
        model.train()
        return outcome.astype("float32").numpy()


def _empty(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
