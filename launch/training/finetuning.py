"""A fine-tuning run: samples of different lengths, whose answers alone count, each token the same."""

import copy
import math

import numpy as np
from paddlenlp.peft import LoRAModel

from launch.adapters.adapter_files import ADAPTERS
from launch.checkpoint.ranks import total
from launch.families.arithmetic import ModelShape
from launch.families.registry import family_of_config
from launch.reporting.callbacks import REPORTS
from launch.reporting.throughput import Throughput
from launch.training.answers import Answers
from launch.training.batches import Collator, PrefixCollator
from launch.training.device import device_peak
from launch.training.losses import IGNORED, TokenLoss
from launch.training.model import matmul_dtype
from launch.training.result import BestKeeper
from launch.training.trainer import ResultTrainer, sample_stream
from launch.training.watches import watches


class FinetuneTrainer(ResultTrainer):
    """epochs_asked: how often --num_train_epochs wants to read each sample; 1 where --max_steps decides.

    answers: has the model answer at each evaluation; None where the loss is enough.
    """

    def __init__(self, epochs_asked: float, answers: Answers | None, **kwargs):
        super().__init__(**kwargs)
        self.epochs_asked = epochs_asked
        self.answers, self.answer_scores = answers, {}
        self.best = BestKeeper(self.args.output_dir, self.save_result)
        self.padding = {"input_ids": np.zeros(1, dtype=np.int64), "labels": np.full(1, IGNORED)}
        self._tokens_until = [self.ledger.tokens if self.ledger else 0]
        self.token_loss = TokenLoss(self.model.config.vocab_size)
        if self.args.pipeline_parallel_degree > 1:
            layers = self.model.model if isinstance(self.model, LoRAModel) else self.model
            layers._loss_fn = [self.token_loss]

    @property
    def step_text(self) -> str:
        """What a step is, to tell."""
        mean = self.train_dataset.tokens.mean() * self.args.global_batch
        return f"{self.args.global_batch} samples (about {mean:,.0f} tokens)"

    def tokens_until(self, step: int) -> int:
        known, first_step = self._tokens_until, self.stream.first_step
        while first_step + len(known) <= step:
            samples = self.stream.samples_of_step(first_step + len(known) - 1)
            known.append(known[-1] + int(self.train_dataset.tokens[samples].sum()))
        return known[step - first_step]

    # ---- loss

    def training_step(self, model, inputs):
        samples = self.stream.samples_of_step(self.state.global_step)
        micro_batches = self.args.gradient_accumulation_steps * self.args.dataset_world_size
        self.token_loss.divisor = int(self.train_dataset.counted[samples].sum()) / micro_batches
        return super().training_step(model, inputs)

    def loss_of(self, model, inputs: dict, return_outputs: bool):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        logits = outputs[0] if isinstance(outputs, tuple) else outputs
        loss = self.token_loss(logits, labels)
        return (loss, (loss, logits)) if return_outputs else loss

    # ---- evaluation

    def batch_sums(self, model, inputs: dict) -> list[float]:
        """(loss, tokens, tokens whose most likely id was right)"""
        args, counted = self.args, int((inputs["labels"] != IGNORED).sum())
        self.token_loss.divisor, self.token_loss.counts_correct = 1.0, True
        self.token_loss.reset()
        loss, _, _ = self.prediction_step(model, inputs, prediction_loss_only=True)
        self.token_loss.counts_correct = False
        if args.pipeline_parallel_degree > 1:  # the mean over micro batches; the last stage alone has seen the logits
            return [
                float(loss) * args.gradient_accumulation_steps,
                counted,
                self.token_loss.correct * args.pipeline_parallel_degree,
            ]
        return [float(loss), counted, self.token_loss.correct]

    def _evaluation_sums(self, dataset) -> list[float]:
        sums = super()._evaluation_sums(dataset)
        if self.answers:
            self.model.eval()
            self.answer_scores = self.answers.evaluate(self.model, dataset, self.args, self.state.global_step)
            self.model.train()
        return sums

    def metrics_of(self, sums: list[float]) -> dict:
        return super().metrics_of(sums) | {"accuracy": sums[2] / sums[1]} | self.answer_scores

    def evaluate(self, *args, **kwargs) -> dict:
        metrics = super().evaluate(*args, **kwargs)
        if self.args.do_train:
            with self.clock.paused():
                self.best.consider(self.state.global_step, metrics["eval_loss"], self.continuation is not None)
        return metrics

    # ---- result

    def outcome(self) -> np.ndarray:
        self.token_loss.divisor = 1.0
        return super().outcome()


def build_trainer(model, tokenizer, data, ledger, data_args, training_args) -> FinetuneTrainer:
    """The Trainer of a fine-tuning run with its reports and watches."""
    args = copy.copy(training_args)  # with the steps that the data make of --num_train_epochs
    stream, epochs_asked, lengths = None, 1.0, data.dev.tokens if data.dev else None
    if data.train:
        end = None
        lengths = data.train.tokens
        if args.max_steps <= 0:
            epochs_asked = args.num_train_epochs
            end = math.ceil(epochs_asked * len(data.train))
            args.max_steps = ledger.last.last_step + math.ceil((end - ledger.last.stop) / args.global_batch)
        stream = sample_stream(args, data.train, ledger, args.max_steps, end)
    peak = device_peak(matmul_dtype(args))
    throughput = Throughput(
        shape=ModelShape.from_config(model.config.to_dict()),
        sequence_length=float(np.mean(lengths)),
        peak_flops=total(peak.flops),
        note=peak.note,
        frozen=isinstance(model, ADAPTERS),
    )
    answers = None
    if data_args.eval_with_do_generation:
        answers = Answers(tokenizer, model.config.to_dict(), data_args.max_length - data_args.src_length)
    return FinetuneTrainer(
        epochs_asked=epochs_asked,
        answers=answers,
        throughput=throughput,
        ledger=ledger,
        stream=stream,
        reports=[*(report() for report in REPORTS), *watches(args)],
        data_collator=collator(model, tokenizer, data_args, args),
        model=model,
        args=args,
        tokenizer=tokenizer,
        train_dataset=data.train,
        eval_dataset=data.dev,
    )


def collator(model, tokenizer, data_args, args) -> Collator:
    """What makes batches of the kind that the model's family reads."""
    family = family_of_config(model.config.to_dict())
    if family.attention == "prefix":
        return PrefixCollator(family, pad_id(tokenizer), data_args.pad_to_multiple_of)
    length = data_args.max_length if args.sequence_parallel else None
    return Collator(pad_id(tokenizer), length, data_args.zero_padding, data_args.pad_to_multiple_of)


def pad_id(tokenizer) -> int:
    """An id to fill batches with; nothing depends on which."""
    return tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id
