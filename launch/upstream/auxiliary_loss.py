"""The auxiliary loss of models with experts, where it belongs: in training, beside labels.

Upstream's models add it, where the configuration has output_router_logits, to the loss of an evaluation, too, and give
it in the place of the logits to who gives no labels.
"""

from collections.abc import Callable
from functools import wraps
from inspect import signature


def in_training_alone(stock_forward: Callable) -> Callable:
    """Return a forward that computes the auxiliary loss only in training with labels, unless the caller says."""
    parameters = signature(stock_forward)

    @wraps(stock_forward)
    def forward(self, *args, **kwargs):
        given = parameters.bind(self, *args, **kwargs).arguments
        if given.get("output_router_logits") is None:
            trains = self.training and given.get("labels") is not None
            kwargs["output_router_logits"] = self.config.output_router_logits and trains
        return stock_forward(self, *args, **kwargs)

    # paddlenlp drops arguments that a new forward does not name (transformers/utils.py, adapt_stale_fwd_patch).
    forward.__signature__ = parameters  # pyright: ignore[reportAttributeAccessIssue]
    return forward
