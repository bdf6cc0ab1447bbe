"""The reference that preference tuning compares its policy with: the model as it was before training.

    reference(inputs, labels)    float32 [rows, length]: -ln p of each token, 0 where its label is IGNORED

The dropout of the model is off in policy and reference (launch/training/preference_tuning.py).
"""

import contextlib

import paddle
from paddlenlp.peft import LoRAModel

from launch.training.chunked_loss import Chunks, chunked_head
from launch.upstream.token_loss import token_entropies


class TokenLosses:
    """-ln p of tokens by a model. It is the model itself, not what layouts wrap around it."""

    def __init__(self, model):
        self.head, self.vocab_size = chunked_head(model), model.config.vocab_size

    def __call__(self, model, inputs: dict, labels: paddle.Tensor) -> paddle.Tensor:
        """Return float32 [rows, length], 0 where the label is IGNORED.

        model: wrapped or not. inputs: without labels.
        """
        with self.head.of(labels) if self.head else contextlib.nullcontext():
            outputs = model(**inputs)
        return self.of_logits(outputs[0] if isinstance(outputs, tuple) else outputs, labels)

    def of_last_stage(self, outputs: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
        """Return the losses of a pipeline's last layer: of logits, or, computed in chunks, of hidden states."""
        return self.of_logits(self.head.scores(outputs, labels) if self.head else outputs, labels)

    def of_logits(self, logits: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
        """Return the losses of logits [rows, length, vocabulary or a part of it], or of losses [rows, length, 1]."""
        sharded = 1 < logits.shape[-1] < self.vocab_size
        with paddle.amp.auto_cast(False):
            return token_entropies(logits.astype("float32"), labels, sharded).squeeze(-1)


class AdapterOff:
    """The base of a LoRA that is trained, without the LoRA: no second copy."""

    def __init__(self, model: LoRAModel):
        self.model, self.token_losses = model, TokenLosses(model)

    def __call__(self, inputs: dict, labels: paddle.Tensor) -> paddle.Tensor:
        """Return the losses with the adapter switched off."""
        self.model.disable_lora()
        try:
            with paddle.no_grad():
                return self.token_losses(self.model, inputs, labels)
        finally:
            self.model.enable_lora()


class SecondCopy:
    """A frozen copy of the model, sharded by tensor parallelism as the policy is."""

    def __init__(self, model):
        self.model, self.token_losses = model, TokenLosses(model)
        if head := self.token_losses.head:
            head.chunks = Chunks(head.chunks.training, head.chunks.training)
        for parameter in model.parameters():
            parameter.stop_gradient = True
        model.eval()

    def __call__(self, inputs: dict, labels: paddle.Tensor) -> paddle.Tensor:
        """Return the losses by the second copy."""
        with paddle.no_grad():
            return self.token_losses(self.model, inputs, labels)
