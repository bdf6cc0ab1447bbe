"""What a run leaves for use: the model, or the adapter alone, which is read back from disk and tried."""

from pathlib import Path

import numpy as np
import paddle

from launch.adapters.load import ADAPTERS
from launch.adapters.save import save_adapter
from launch.training.ranks import rank
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

        directory: default the run's own, at its end. Raises UserError where an adapter does not read back as trained.
        """
        at_end, directory = directory is None, directory or Path(self.args.output_dir)
        if not self.read_back:
            self.save_model(str(directory))
            return
        save_adapter(self.model, directory, self.args)
        changed, tensors, difference = self.read_back.check(
            directory, self.outcome, updated=at_end and self.made_a_step
        )
        if rank() == 0:
            if self.tokenizer is not None:
                self.tokenizer.save_pretrained(str(directory))
            if at_end:
                print(self._read_back_line(changed, tensors, difference), flush=True)

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
