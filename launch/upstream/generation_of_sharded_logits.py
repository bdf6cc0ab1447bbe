"""generate() under tensor parallel gives wrong tokens, without a warning.

paddlenlp/generation/utils.py, GenerationMixin.generate: with `tensor_parallel_output`, which training sets, each rank
picks the best token of its own shard of the vocabulary. Corrected: the logits are gathered while it generates.
"""

import functools

from paddlenlp.generation.utils import GenerationMixin


def correct() -> None:
    """Correct upstream; a second call changes nothing."""
    if not hasattr(GenerationMixin.generate, "corrected"):
        GenerationMixin.generate = _with_whole_logits(GenerationMixin.generate)


def _with_whole_logits(stock_generate):
    @functools.wraps(stock_generate)
    def generate(self, *args, **kwargs):
        sharded = self.config.tensor_parallel_output
        self.config.tensor_parallel_output = False
        try:
            return stock_generate(self, *args, **kwargs)
        finally:
            self.config.tensor_parallel_output = sharded

    generate.corrected = True  # pyright: ignore[reportAttributeAccessIssue]
    return generate
