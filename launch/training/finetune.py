"""Fine-tuning: dialogues of different lengths, whose answers alone count, each token the same."""

import math
from typing import Any

import numpy as np
import paddle
from paddle import nn
from paddle.distributed.fleet.meta_parallel import VocabParallelEmbedding
from paddlenlp.peft import LoRAModel

from launch.checkpoint.continuation import Continuation
from launch.families.named_configs import load_config
from launch.families.registry import family_of_config
from launch.methods.finetuning import FINETUNING
from launch.models.rotary_scaling import scaled_by_length
from launch.training.batches import collator, padding_share, shared_padding
from launch.training.data import TrainingData, open_dialogues, run_length
from launch.training.evaluation import Answers
from launch.training.losses import IGNORED, Loss, TokenLoss
from launch.training.resuming import open_ledger
from launch.training.run import Training

NOTABLE_PADDING = 0.1


class Finetuning(Training):
    """--max_length tokens a sample at most; --num_train_epochs or --max_steps say how long."""

    method = FINETUNING

    def open_data(self, tokenizer, config, continuation: Continuation, row_ends: bool) -> "DialogueData":
        """Open the dialogues."""
        args = self.training_args
        sets = open_dialogues(self.data_args, args, tokenizer, config, continuation)
        ledger = open_ledger(continuation, sets.train, args) if args.do_train else None
        steps, end, epochs = run_length(ledger, sets.train, args)
        samples: Any = sets.train or sets.dev
        collate = collator(config, tokenizer, self.data_args, args.sequence_parallel, row_ends)
        collate.shares_rows = self._shares_rows(config)
        return DialogueData(
            sets.train,
            sets.dev,
            collate,
            {"input_ids": np.zeros(1, dtype=np.int64), "labels": np.full(1, IGNORED)},
            ledger,
            args,
            steps=steps,
            mean_length=float(np.mean(samples.tokens)),
            end=end,
            epochs_requested=epochs,
            lines=[*sets.lines, *self._padding_lines(samples, config)],
            unit="rows of packed samples" if self.data_args.zero_padding else "samples",
        )

    def _shares_rows(self, config) -> bool:
        """Return True if the samples of a micro batch are laid into fewer rows, which changes no result of a LoRA.

        On a card rows are packed by --zero_padding, whose mask the choice of its kernels knows.
        """
        args, values = self.training_args, self.data_args
        can = "packing" not in family_of_config(config.to_dict()).lacking and args.pipeline_parallel_degree <= 1
        length_counts = values.neftune or scaled_by_length(load_config(self.model_args.model_name_or_path))
        apart = values.zero_padding or args.sequence_parallel or length_counts
        return self.adapter_args.lora and args.device == "cpu" and can and not apart

    def _padding_lines(self, samples, config) -> list[str]:
        """Return lines about the padding that packing saves, or would save, for a family that can."""
        args = self.training_args
        if self.data_args.zero_padding or "packing" in family_of_config(config.to_dict()).lacking:
            return []
        share = padding_share(samples.tokens, args.per_device_train_batch_size)
        if share < NOTABLE_PADDING or self.adapter_args.prefix_tuning:
            return []
        if self._shares_rows(config):
            left = shared_padding(samples.tokens, args.per_device_train_batch_size)
            return [
                f"padding: {left:.0%} of batches of {args.per_device_train_batch_size} whose short samples share rows, "
                f"none sees another; {share:.0%} with a row for each"
            ]
        return [
            f"padding: {share:.0%} of batches of {args.per_device_train_batch_size}; --zero_padding 1 packs several "
            "samples into a row instead"
        ]

    def prepare(self, model) -> list[str]:
        """Add noise to the embeddings, with NEFTune."""
        if not self.data_args.neftune:
            return []
        alpha = self.data_args.neftune_noise_alpha
        add_noise(model, alpha)
        return [f"NEFTune: noise of at most {alpha:g} / sqrt(tokens x hidden size) is added to the embeddings"]

    def make_loss(self, model, data: TrainingData) -> "AnswerLoss":
        """Return the loss of fine-tuning."""
        return AnswerLoss(model.config.vocab_size, data, self.training_args)

    def make_answers(self, tokenizer, model) -> Answers | None:
        """Return the evaluation by answers, if requested."""
        if not self.data_args.eval_with_do_generation:
            return None
        return Answers(tokenizer, model.config.to_dict(), self.data_args.max_length - self.data_args.src_length)


def add_noise(model, alpha: float) -> None:
    """Add uniform noise within alpha / sqrt(length x width) to the embeddings [..., length, width] in training.

    It is NEFTune (arXiv 2310.05914, algorithm 1; the length is the batch's, as in PaddleNLP and TRL). All ranks of
    tensor parallelism, which have the whole embeddings, draw the same noise.
    """

    def noisy(layer, inputs, embeddings: paddle.Tensor) -> paddle.Tensor:
        if not layer.training:
            return embeddings
        length, width = embeddings.shape[-2:]
        bound = alpha / math.sqrt(length * width)
        return embeddings + paddle.uniform(embeddings.shape, embeddings.dtype, -bound, bound)

    for layer in model.sublayers():
        vocabulary = getattr(layer, "num_embeddings", None) or getattr(layer, "_num_embeddings", None)
        if isinstance(layer, (nn.Embedding, VocabParallelEmbedding)) and vocabulary == model.config.vocab_size:
            layer.register_forward_post_hook(noisy)


class DialogueData(TrainingData):
    """Samples of different lengths: the tokens of each are counted.

    Attributes:
        unit: What a sample is, in the plural.
    """

    def __init__(self, *args, unit: str, **kwargs):
        super().__init__(*args, **kwargs)
        self._unit = unit
        self._tokens_until = [self._ledger.tokens if self._ledger else 0]

    def step_text(self, global_batch: int) -> str:
        """Return the size of a step, for the line at the start."""
        return f"{global_batch} {self._unit} (about {self.train.tokens.mean() * global_batch:,.0f} tokens)"

    def tokens_until(self, step: int) -> int:
        """Return the tokens read before a step."""
        known, first_step = self._tokens_until, self.stream.first_step
        while first_step + len(known) <= step:
            samples = self.stream.samples_of_step(first_step + len(known) - 1)
            known.append(known[-1] + int(self.train.tokens[samples].sum()))
        return known[step - first_step]


class AnswerLoss(Loss):
    """The mean over the counted tokens of a step."""

    def __init__(self, vocab_size: int, data: TrainingData, args):
        self.token_loss, self.data = TokenLoss(vocab_size), data
        self.micro_batches = args.gradient_accumulation_steps * args.dataset_world_size

    def attach(self, model, args) -> None:
        """Attach the loss to a model."""
        if args.pipeline_parallel_degree > 1:
            layers = model.model if isinstance(model, LoRAModel) else model
            layers._loss_fn = [self.token_loss]
        super().attach(model, args)
        if self.head:
            self.head.correct = self.token_loss.correct

    def start_step(self, global_step: int) -> None:
        """Set the divisor of a step: its target tokens."""
        samples = self.data.stream.samples_of_step(global_step)
        self.token_loss.divisor = int(self.data.train.counted[samples].sum()) / self.micro_batches

    def start_evaluation(self) -> None:
        """Set the divisor of an evaluation."""
        self.token_loss.divisor = 1.0

    def __call__(self, model, inputs: dict, return_outputs: bool):
        """Return the loss of a batch."""
        labels = inputs.pop("labels")
        outputs = self.outputs(model, inputs, labels)
        logits = outputs[0] if isinstance(outputs, tuple) else outputs
        loss = self.token_loss(logits, labels)
        return (loss, (loss, logits)) if return_outputs else loss

    def batch_sums(self, trainer, model, inputs: dict) -> list[float]:
        """Return [loss, tokens, tokens whose most likely id was right]."""
        args, counted = trainer.args, int((inputs["labels"] != IGNORED).sum())
        self.start_evaluation()
        with self.token_loss.correct.counting():
            loss, _, _ = trainer.prediction_step(model, inputs, prediction_loss_only=True)
        loss_sum, correct = float(loss), self.token_loss.correct.count
        if args.pipeline_parallel_degree > 1:  # the mean over micro batches; the last stage alone has seen the logits
            loss_sum *= args.gradient_accumulation_steps
            correct *= args.pipeline_parallel_degree
        return [loss_sum, counted, correct]

    def metrics(self, sums: list[float]) -> dict:
        """Return the metrics, with the accuracy."""
        return super().metrics(sums) | {"accuracy": sums[2] / sums[1]}
