"""The Trainer of pretraining, fine-tuning and preference tuning: paddlenlp's loop, composed of parts.

    data           samples, their order, and what of it was consumed       data.py, pretraining.py, finetuning.py
    loss           of a batch, and the sums of an evaluated batch          losses.py, preference_losses.py
    watches        steps, memory, loss scale, loss                         watches.py
    reporter       records of train_log.jsonl, run_summary.json            reporter.py
    evaluator      metrics of an evaluation, and the best model so far     evaluation.py
    checkpointer   saves, resumes, stops                                   checkpointer.py
    result         the model or the adapter that a run leaves              result.py

Upstream's methods that are replaced stand at the end, each with the reason.
"""

from contextlib import nullcontext, suppress
from typing import Any

import paddlenlp.trainer
from paddlenlp.trainer.trainer_callback import DefaultFlowCallback, PrinterCallback, ProgressCallback
from paddlenlp.trainer.trainer_utils import OptimizerNames, SchedulerType
from paddlenlp.transformers import CosineAnnealingWithWarmupDecay, LinearAnnealingWithWarmupDecay

from launch import watch
from launch.checkpoint.continuation import Continuation
from launch.checkpoint.local_tensors import innermost
from launch.checkpoint.ranks import rank
from launch.offload.group_sharded import ShardedOffload
from launch.offload.host_memory import host_memory
from launch.reporting.records import plain
from launch.reporting.throughput import Throughput
from launch.training import narrow_moments
from launch.training.arguments import OWN_OPTIMIZERS, RunArguments
from launch.training.checkpointer import Checkpointer, StoppedBefore
from launch.training.data import TrainingData
from launch.training.evaluation import Answers, Evaluator
from launch.training.losses import Loss
from launch.training.optimizer import ClipByGlobalNorm, GradNorm, ScaleRule, follow, keep_norm
from launch.training.reporter import REPORTS, Reporter
from launch.training.result import Result, save_whole_model
from launch.training.update_in_backward import ClipByPastNorm, update_in_backward
from launch.training.watches import Watches

SCHEDULES_WITH_FLOOR = {"cosine": CosineAnnealingWithWarmupDecay, "linear": LinearAnnealingWithWarmupDecay}


class EpochFlow(DefaultFlowCallback):
    """Upstream's flow of logs, evaluations and saves, with the epochs of the data.

    Upstream's loop sees one epoch, the whole stream of samples, whose end is also that of a stopped run. Here an epoch
    ends with the step that reads its last sample, the same in every layout and after a resume, and with the last step.
    """

    def __init__(self, data: TrainingData):
        self._data = data

    def on_step_end(self, args, state, control, **kwargs):
        """Log, evaluate and save after so many steps, or at the end of an epoch."""
        super().on_step_end(args, state, control, **kwargs)
        stream, step = self._data.stream, state.global_step
        epoch_before, epoch = (stream.position(one) // stream.samples for one in (step - 1, step))
        if epoch > epoch_before or step >= state.max_steps:
            super().on_epoch_end(args, state, control, **kwargs)

    def on_epoch_end(self, args, state, control, **kwargs):
        """Do nothing where upstream's loop ends."""


class Trainer(paddlenlp.trainer.Trainer):
    """The trainer of all methods.

    Attributes:
        model_identity: The identity of the model in a checkpoint (launch/checkpoint/model_identity.py).
        other_flags: The flags of model, adapter, data and method.
        measured: Identifies the data and the loss of an evaluation.
        random_weights_loss: The first loss of random weights, None for pretrained ones.
        answers: The evaluation by answers; None where the loss is enough.
        keep_best: Whether the model of the lowest evaluation loss is kept, too.
    """

    args: RunArguments
    optimizer: Any  # paddle.optimizer.Optimizer, or what fleet and sharding wrap around it

    def __init__(
        self,
        model,
        tokenizer,
        args,
        data: TrainingData,
        loss: Loss,
        throughput: Throughput,
        model_identity: dict,
        other_flags: dict,
        measured: str,
        random_weights_loss: float | None = None,
        answers: Answers | None = None,
        keep_best: bool = False,
    ):
        self.other_flags, self.measured = other_flags, measured
        self.data, self.loss = data, loss
        self.grad_norm = GradNorm()
        self.watches = Watches(args, loss, random_weights_loss)
        self.offload = ShardedOffload() if args.host_offload else None
        super().__init__(
            model=model,
            args=args,
            tokenizer=tokenizer,
            data_collator=data.collate,
            train_dataset=data.train,
            eval_dataset=data.valid,
            callbacks=[*self.watches.before_reports, *(report() for report in REPORTS), *self.watches.after_reports],
        )
        for replaced in (DefaultFlowCallback, PrinterCallback, ProgressCallback):
            self.remove_callback(replaced)
        self.callback_handler.callbacks.insert(0, EpochFlow(data))
        self.loss.attach(model, args)
        self.result = Result(self)
        self.reporter = Reporter(self, throughput)
        self.evaluator = Evaluator(self, answers, self.result.save if keep_best else None)
        self.checkpointer = Checkpointer(self, model_identity)

    @property
    def flags(self) -> dict:
        """The flags that a checkpoint records, as JSON holds them."""
        return plain(self.other_flags | vars(self.args))

    # ---- train

    def train(self, continuation: Continuation | None = None) -> None:
        """Train from step 0, or from where a checkpoint of ours ended."""
        self.reporter.clock.lap()
        self.checkpointer.begin(continuation or Continuation())
        with watch.out_of_memory_explained(self.watches.phase, self.args):
            try:
                with suppress(StoppedBefore):
                    if self.checkpointer.all_steps_done:
                        self._restore_without_training()
                    else:
                        with self.checkpointer.signals_received():
                            super().train()
                            self.checkpointer.saver.settle()
                self.checkpointer.load_best()
            finally:
                self.watches.hang_timer.stop()

    def _restore_without_training(self) -> None:
        """Restore the model of a run that has made all of its steps; upstream's loop fails without one."""
        self.create_optimizer_and_scheduler(self.args.max_steps)
        self.model_wrapped = self._wrap_model(self.model_wrapped)
        assert self.checkpointer.restorer is not None, "what has made all steps continues a checkpoint"
        self.state.global_step = self.checkpointer.restorer.global_step
        self._restore()
        if rank() == 0:
            print(f"all {self.args.max_steps:,} steps are done: nothing is left to train", flush=True)

    def _restore(self) -> None:
        """Restore the checkpoint, with model and optimizer wrapped."""
        self.loss.prepare(self)
        self.checkpointer.restore()

    # ---- evaluate

    def evaluate(self, eval_dataset=None, ignore_keys=None, metric_key_prefix: str = "eval") -> dict:
        """Return mean loss over tokens, its perplexity and more: the same for every layout and micro batch.

        Every token of the dataset counts once, also in the last partial batch.
        """
        with self.reporter.clock.paused(), self.watches.phase.during(watch.EVALUATION):
            metrics = self.evaluator.metrics(
                self.data.valid if eval_dataset is None else eval_dataset, metric_key_prefix
            )
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        with self.reporter.clock.paused():
            self.evaluator.keep_best(metrics)
        return metrics

    def final_evaluation(self) -> dict:
        """Return the evaluation of the weights as they are now: the last one, where no step was made since."""
        last = self.evaluator.last
        if last and last["global_step"] == self.checkpointer.weights_step:
            return last
        with watch.out_of_memory_explained(self.watches.phase, self.args):
            self.loss.prepare(self)
            return self.evaluate()

    # ---- upstream's methods that are replaced

    def get_train_dataloader(self):
        """Return our loader.

        Upstream's order of samples depends on the layout, and reads samples again after a resume.
        """
        return self.data.train_loader(self.args.dataloader_num_workers, self.reporter.clock)

    def compute_loss(self, model, inputs, return_outputs: bool = False):
        """Return our loss: upstream's is the model's own mean over a micro batch."""
        if not model.training:
            return self.loss(model, inputs, return_outputs)
        self.watches.phase.name = watch.FORWARD
        loss = self.loss(model, inputs, return_outputs)
        self.watches.phase.name = watch.BACKWARD
        return loss

    def training_step(self, model, inputs):
        """Prepare the loss for a micro batch, for which upstream has no callback."""
        self.reporter.learning_rate = self.optimizer.get_lr()
        self.result.has_trained |= self.reporter.learning_rate > 0
        self.loss.start_step(self.state.global_step)
        return super().training_step(model, inputs)

    def training_pipeline_step(self, model, inputs):
        """Prepare the loss for a pipeline, which does not call compute_loss: forward and backward passes alternate."""
        self.watches.phase.name = watch.PIPELINE
        return super().training_pipeline_step(model, self.loss.training_inputs(inputs))

    def prediction_pipeline_step(self, model, inputs, *args, **kwargs):
        """Cut a batch so that pairs stay whole, unlike upstream, which cuts it by rows."""
        read: Any = self.loss.evaluation_inputs(inputs)  # upstream takes micro batches, too
        return super().prediction_pipeline_step(model, read, *args, **kwargs)

    def create_optimizer(self, lr_scheduler=None):
        """Create the optimizer.

        Upstream forms no gradient norm without clipping, and knows no offload and no 8 bits; its 16-bit moments stand
        still.
        """
        args: Any = self.args  # upstream's name of the optimizer is a member of an enumeration
        requested = args.optim
        narrow_moments.correct(OWN_OPTIMIZERS.get(requested))
        if requested in OWN_OPTIMIZERS:
            args.optim = OptimizerNames.ADAMW_16BIT_MOMENT
        optimizer: Any = super().create_optimizer(lr_scheduler)
        args.optim = requested
        optimizer.step_number = lambda: self.state.global_step  # read by launch/training/narrow_moments.py
        clip = ClipByPastNorm if args.update_in_backward else ClipByGlobalNorm
        optimizer._grad_clip = clip(args.max_grad_norm, self.grad_norm)
        if self.offload:
            self.offload.prepare(optimizer)
        if args.paged_moments:
            optimizer.keep_in(host_memory())
        if args.update_in_backward:
            update_in_backward(self.model, optimizer)
        return optimizer

    def create_scheduler(self, num_training_steps: int):
        """Create the schedule: a step has the rate of the steps completed before it.

        Upstream's cosine and linear ones have no floor: --min_learning_rate, after --decay_steps.
        """
        args = self.args
        schedule = SCHEDULES_WITH_FLOOR.get(SchedulerType(args.lr_scheduler_type).value)
        if schedule is None:
            return super().create_scheduler(num_training_steps)
        warmup_steps = args.warmup_steps if args.warmup_steps > 0 else int(args.warmup_ratio * num_training_steps)
        self.lr_scheduler = schedule(
            max_lr=args.learning_rate,
            min_lr=args.min_learning_rate,
            warmup_step=warmup_steps,
            decay_step=args.decay_steps if args.decay_steps > 0 else num_training_steps,
        )
        return self.lr_scheduler

    def _wrap_amp_model(self, args, model):
        """Let the loss scale move by --loss_scale_window and the like, which upstream's scaler does not know."""
        super()._wrap_amp_model(args, model)
        if self.do_grad_scaling:
            follow(self.scaler, ScaleRule(args.loss_scale_window, args.loss_scale_hysteresis, args.min_loss_scale))
            self.loss.scaled_by(self.scaler)

    def _decorate_exclude_layers(self, model):
        """Return the layers whose parameters stay in float32 under O2."""
        return [layer for layer in model.sublayers() if getattr(layer, "stays_in_float32", False)]

    def _wrap_model(self, model, training=True):
        """Wrap the model for its layout.

        Layouts bring clips of their own, which do not keep the norm; upstream's offload is refused by its own
        assertions, or wrong: launch/offload takes its place.
        """
        if not training:
            return super()._wrap_model(model, training)
        with self.offload.sharding() if self.offload else nullcontext():
            wrapped = super()._wrap_model(model, training)
        keep_norm(innermost(self.optimizer), self.grad_norm)
        if self.offload:
            self.offload.finish(self.scaler if self.do_grad_scaling else None)
        return wrapped

    def log(self, logs: dict, **kwargs) -> None:
        """Log our record in place of upstream's numbers.

        Upstream's summary at the end of training (`train_loss`, `train_runtime`) is dropped: run_summary.json has it.
        """
        if "train_loss" in logs:
            return
        if "loss" in logs:
            logs = self.reporter.interval_record()
        self.control = self.callback_handler.on_log(self.args, self.state, self.control, logs)

    def print_config(self, args=None, key=""):
        """Print nothing: upstream prints every argument as a log line; run_summary.json has them."""

    def _get_item_from_loss(self, loss) -> float:
        """Return the sum of losses unrounded: upstream rounds the interval's to 8 digits."""
        sum_of_losses: Any = super()._get_item_from_loss(loss)
        self.reporter.note_interval(sum_of_losses, self.state.global_step - self._globalstep_last_logged)
        return sum_of_losses

    def _get_learning_rate(self) -> float:
        """Return the rate of the step just done; upstream logs the next step's."""
        return self.reporter.learning_rate

    def _check_loss_valid(self, loss):
        """Check nothing: upstream ends a rank whose own loss is NaN or infinite.

        The loss watch ends all, by the mean.
        """

    def _maybe_log_save_evaluate(self, *args, **kwargs):
        """Log before a save, which upstream does not: a wrong loss must show before its checkpoint is written."""
        self.control.should_log |= self.control.should_save
        super()._maybe_log_save_evaluate(*args, **kwargs)

    def _save_checkpoint(self, model, metrics=None):
        """Save our checkpoint: upstream's are written in place, and can be resumed in few other layouts."""
        with (
            self.reporter.clock.paused(),
            self.watches.hang_timer.beside_steps(),
            self.watches.phase.during(watch.CHECKPOINT),
        ):
            self.checkpointer.save(metrics)

    def _load_optimizer_and_scheduler(self, checkpoint):
        """Restore when model and optimizer are wrapped; upstream never knows of our checkpoint."""
        self._restore()

    def save_model(self, output_dir: str | None = None, merge_tensor_parallel: bool = False):
        """Save the model: upstream gathers a whole model in memory, or writes parts. All ranks call it together."""
        save_whole_model(self.model, self.tokenizer, output_dir or self.args.output_dir, self.args)
