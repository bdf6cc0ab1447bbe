"""Reward models: a decoder whose output layer gives one score of a text, in place of the logits of its tokens.

paddlenlp has such a class of Qwen2 alone. It scores the token before the first one that has the id of padding, so that
a text which holds this id itself is cut there, finds no ends of packed texts, and does not know sequence parallelism.
Here the ends are given. Classes and tensors have the names of transformers: LlamaForSequenceClassification,
score.weight.
"""

from functools import cache

import paddle
import paddlenlp.transformers as transformers
from paddle import nn
from paddle.distributed.fleet.utils.sequence_parallel_utils import GatherOp
from paddlenlp.transformers import PretrainedModel


class Score(nn.Layer):
    """weight: [hidden size, 1]. It is 0 before training: all texts begin with the same score, and the first loss of
    pairs is ln 2."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.weight = self.create_parameter(
            [config.hidden_size, 1],
            dtype=paddle.get_default_dtype(),
            default_initializer=nn.initializer.Constant(0.0),
        )

    def forward(self, hidden_states, ends):
        """float32 [texts], in every precision: the difference of two scores is what is learnt from, and bfloat16 has
        three digits.

        hidden_states: [batch, length, hidden], under sequence parallelism [batch x length / ranks, hidden]. ends: int64
        [texts], the last token of each text in the batch, counted row by row."""
        if self.config.sequence_parallel:
            hidden_states = GatherOp.apply(hidden_states)  # each rank has the gradient of all rows, and takes its own
        last = paddle.gather(hidden_states.reshape([-1, self.config.hidden_size]), ends)
        with paddle.amp.auto_cast(False):
            return paddle.matmul(last.astype("float32"), self.weight.astype("float32")).squeeze(-1)


class RewardModel:
    """Mixed into the base of a family's classes. decoder_class: without an output layer.

    replaced: what a directory may hold in place of a parameter, which then keeps its first values."""

    decoder_class: type
    base_model_prefix: str
    replaced = {"score.weight": "lm_head.weight"}

    def __init__(self, config):
        super().__init__(config)  # pyright: ignore[reportCallIssue]  # of paddlenlp's class behind this one
        setattr(self, self.base_model_prefix, self.decoder_class(config))
        self.score = Score(config)

    @property
    def decoder(self):
        return getattr(self, self.base_model_prefix)

    def get_input_embeddings(self):
        return self.decoder.get_input_embeddings()

    def forward(self, input_ids, ends, **given):
        """Scores of the texts that end there; see Score. given: positions and masks of packed rows."""
        outputs = self.decoder(input_ids, **given)
        return self.score(outputs[0] if isinstance(outputs, tuple) else outputs, ends)


@cache
def reward_model_class(name: str, decoder_name: str) -> type:
    """The class of this name, such as LlamaForSequenceClassification. decoder_name: LlamaModel."""
    decoder = getattr(transformers, decoder_name)
    base = next(kind for kind in decoder.__mro__ if PretrainedModel in kind.__bases__)
    return type(name, (RewardModel, base), {"decoder_class": decoder, "config_class": decoder.config_class})
