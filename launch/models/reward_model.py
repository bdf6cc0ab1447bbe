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
    """The head of a reward model.

    Attributes:
        weight: [hidden size, 1]. It is 0 before training: all texts begin with the same score, and the first loss
            of pairs is ln 2.
    """

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.weight = self.create_parameter(
            [config.hidden_size, 1],
            dtype=paddle.get_default_dtype(),
            default_initializer=nn.initializer.Constant(0.0),
        )

    def forward(self, hidden_states, ends):
        """Return the score of each text, float32 [texts], in every precision.

        Training uses the difference of two scores, and bfloat16 has three digits.

        Args:
            hidden_states: [batch, length, hidden], under sequence parallelism [batch x length / ranks, hidden].
            ends: int64 [texts], the last token of each text in the batch, counted row by row.
        """
        if self.config.sequence_parallel:
            hidden_states = GatherOp.apply(hidden_states)  # each rank has the gradient of all rows, and takes its own
        last = paddle.gather(hidden_states.reshape([-1, self.config.hidden_size]), ends)
        with paddle.amp.auto_cast(False):
            return paddle.matmul(last.astype("float32"), self.weight.astype("float32")).squeeze(-1)


class RewardModel:
    """Mixed into the base of a family's classes.

    replaced: what a directory may hold in place of a parameter, which then keeps its first values.

    Attributes:
        decoder_class: Without an output layer.
    """

    decoder_class: type
    base_model_prefix: str
    replaced = {"score.weight": "lm_head.weight"}

    def __init__(self, config):
        super().__init__(config)  # pyright: ignore[reportCallIssue]  # of paddlenlp's class behind this one
        setattr(self, self.base_model_prefix, self.decoder_class(config))
        self.score = Score(config)

    @property
    def decoder(self):
        """The model without its head."""
        return getattr(self, self.base_model_prefix)

    def get_input_embeddings(self):
        """Return the word embedding."""
        return self.decoder.get_input_embeddings()

    def forward(self, input_ids, ends, **given):
        """Return the scores of the texts with these ends; see Score. given: positions and masks of packed rows."""
        outputs = self.decoder(input_ids, **given)
        return self.score(outputs[0] if isinstance(outputs, tuple) else outputs, ends)


@cache
def reward_model_class(name: str, decoder_name: str) -> type:
    """Return the class of this name, such as LlamaForSequenceClassification. decoder_name: such as LlamaModel."""
    decoder = getattr(transformers, decoder_name)
    base = next(kind for kind in decoder.__mro__ if PretrainedModel in kind.__bases__)
    return type(name, (RewardModel, base), {"decoder_class": decoder, "config_class": decoder.config_class})
