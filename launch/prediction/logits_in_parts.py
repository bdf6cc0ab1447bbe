"""The logits of tokens that a model reads, a part of them at a time: [length, vocabulary] is never in memory.

layer = LogitsInParts(model, family)
hidden_states = layer.read({"input_ids": ids})
for start, logits in layer.parts(hidden_states): ...
"""

from collections.abc import Iterator
from typing import Any, cast

import paddle

from launch.adapters.adapter_files import ADAPTERS
from launch.families.family import Family
from launch.training.chunked_loss import output_layer

LOGITS = 1 << 26  # in float32 at once: 256 MiB


class LogitsInParts:
    """A model whose logits are computed in parts.

    Attributes:
        model: With an adapter or without.
    """

    def __init__(self, model, family: Family):
        base = model.model if isinstance(model, ADAPTERS) else model
        head = output_layer(base, family.head.path, pipeline=False)
        assert head is not None, "no pipeline"
        self.model, self.head, self.length_first = model, head, family.head.reads_length_first
        self.step = max(1, LOGITS // base.config.vocab_size)  # tokens
        self.more: tuple = ()  # what the layer is given beside hidden states

    @paddle.no_grad()
    def read(self, inputs: dict[str, paddle.Tensor]) -> paddle.Tensor:
        """Return the input of the output layer, [batch * length, hidden]. The layer itself computes one token only."""
        found: list[paddle.Tensor] = []

        def keep(_, arguments):
            hidden_states, *more = arguments
            self.more = tuple(more)
            rows = hidden_states.transpose([1, 0, 2]) if self.length_first else hidden_states
            found.append(rows.reshape([-1, rows.shape[-1]]))
            return (hidden_states[:1, :1], *more)

        hook = self.head.register_forward_pre_hook(cast(Any, keep))  # its stub knows one tensor only
        try:
            self.model(**inputs)
        finally:
            hook.remove()
        return found.pop()

    def parts(self, hidden_states: paddle.Tensor) -> Iterator[tuple[int, paddle.Tensor]]:
        """Yield (number of the first token, float32 [tokens, vocabulary]) of hidden_states [tokens, hidden], in order.

        A caller who deletes a part before taking the next one holds one at a time.
        """
        for start in range(0, hidden_states.shape[0], self.step):
            yield start, self._logits(hidden_states[start : start + self.step])

    @paddle.no_grad()
    def _logits(self, hidden_states: paddle.Tensor) -> paddle.Tensor:
        logits = self.head(hidden_states[:, None] if self.length_first else hidden_states[None], *self.more)
        return logits.reshape([-1, logits.shape[-1]]).astype("float32")
