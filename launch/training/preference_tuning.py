"""Preference tuning: pairs of responses to one prompt, or single responses.

Of a pair the chosen response shall become likelier than the rejected one; of single ones the desired ones shall become
likelier.
"""

from typing import Any

import numpy as np
from paddle import nn
from paddlenlp.peft import LoRAModel

from launch.adapters.add import base_format
from launch.checkpoint.continuation import Continuation
from launch.checkpoint.model_identity import model_identity
from launch.checkpoint.ranks import first_on_rank_zero
from launch.methods.preference_flags import ADAPTER_OFF, KTO, NONE, PRECOMPUTED, SECOND_COPY, reference_of
from launch.methods.preferences import PREFERENCES
from launch.training.data import TrainingData, run_length
from launch.training.finetune import DialogueData
from launch.training.kto_loss import KtoLoss
from launch.training.model import compute_dtype
from launch.training.precomputed import Precomputed
from launch.training.preference_data import NO_PAIR, NO_RESPONSE, desired_collator, load_preferences, pair_collator
from launch.training.preference_losses import PreferenceLoss
from launch.training.reference import AdapterOff, SecondCopy
from launch.training.resuming import open_ledger, weights_identity
from launch.training.run import Training


class PairTraining(Training):
    """--max_length tokens of a prompt with a response at most; --num_train_epochs or --max_steps say how long."""

    paired = True

    def open_data(self, tokenizer, config, continuation: Continuation, row_ends: bool) -> "DialogueData":
        """Open the preferences."""
        args, whole = self.training_args, self.method.reward_model
        sets = first_on_rank_zero(
            lambda: load_preferences(self.data_args, args, tokenizer, config, self.paired, whole=whole)
        )
        ledger = open_ledger(continuation, sets.train, args) if args.do_train else None
        steps, end, epochs = run_length(ledger, sets.train, args)
        samples: Any = sets.train if sets.train is not None else sets.dev
        if self.paired:
            collate = pair_collator(tokenizer, self.data_args, args.sequence_parallel, row_ends, whole)
        else:
            collate = desired_collator(tokenizer, self.data_args, args.sequence_parallel)
        return DialogueData(
            sets.train,
            sets.dev,
            collate,
            NO_PAIR if self.paired else NO_RESPONSE,
            ledger,
            args,
            steps=steps,
            mean_length=float(np.mean(samples.tokens)) / self.rows,
            end=end,
            epochs_requested=epochs,
            lines=sets.lines,
            unit=self._unit,
        )

    @property
    def _unit(self) -> str:
        if not self.paired:
            return "responses"
        return "rows of packed pairs" if self.data_args.zero_padding else "pairs"


class PreferenceTuning(PairTraining):
    """Preference tuning by the log-probabilities of the responses."""

    method = PREFERENCES

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.preference_args = values = arguments[-2]
        self.paired = values.loss_type != KTO
        self.reference = reference_of(values.loss_type, values.reference_free, self.adapter_args.lora, values.reference)
        self.reference_weights, self.needs_second_copy = self.reference != NONE, self.reference == SECOND_COPY
        self.loss_flags = {name: value for name, value in vars(values).items() if name != "reference"}

    def prepare(self, model) -> list[str]:
        """Switch dropout off: a reference without dropout is compared with the policy."""
        return ["dropout: that of the model is off, as in its reference"] if end_dropout(model) else []

    def make_loss(self, model, data: TrainingData) -> PreferenceLoss:
        """Return the preference loss."""
        makers = {
            NONE: lambda: None,
            ADAPTER_OFF: lambda: AdapterOff(model),
            SECOND_COPY: lambda: SecondCopy(self.second_copy),
            PRECOMPUTED: lambda: Precomputed(model, data, self._identity(model)),
        }
        kind = PreferenceLoss if self.paired else KtoLoss
        return kind(self.preference_args, makers[self.reference](), data, self.training_args)

    def _identity(self, model) -> dict[str, object]:
        """Return what the reference's log-probabilities depend on, beside the data. All ranks call it together."""
        args, base = self.training_args, model.model if isinstance(model, LoRAModel) else model
        quantized = base_format(self.adapter_args)
        computes = (compute_dtype(args), args.fp16_opt_level, self.model_args.fp32_norms_and_head)
        return {
            "model": model_identity(base.config.to_dict())["config"],
            "weights": weights_identity(base, self.model_args, args.seed),
            "precision": [*computes, quantized.identity if quantized else None],
        }


def end_dropout(model) -> bool:
    """Set all dropout of a model to 0. Returns whether there was any.

    paddlenlp's layers have it as a layer, as a number of their own (OPT's attention, Bloom), or read it from the
    configuration in each forward pass (Qwen2, Mixtral, Bloom with flash attention).
    """
    found = False
    for layer in model.sublayers(include_self=True):
        owners = [(layer, name) for name in vars(layer) if "dropout" in name]
        owners += [(layer, "p")] if isinstance(layer, nn.Dropout) else []
        owners += [(layer.config, "attention_dropout")] if hasattr(layer, "config") else []
        for owner, name in owners:
            value = getattr(owner, name, 0)
            if isinstance(value, float) and value > 0:
                setattr(owner, name, 0.0)
                found = True
    return found
