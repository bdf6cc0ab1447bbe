"""generate(logits_processors=...) fails: the list that it wants cannot be read, and its own cannot be added to.

paddlenlp/generation/utils.py, GenerationMixin.get_logits_processor: iterates over the LogitsProcessorList that it was
given and calls extend() of another, but the class (generation/logits_process.py) has neither __iter__ nor extend.
Corrected: both are there. Needed by whoever chooses tokens by a way of his own (launch/serving/models.py).
"""

from paddlenlp.generation import LogitsProcessorList


def correct() -> None:
    """Correct upstream; a second call changes nothing."""
    LogitsProcessorList.__iter__ = _iterate  # pyright: ignore[reportAttributeAccessIssue]
    LogitsProcessorList.extend = _extend  # pyright: ignore[reportAttributeAccessIssue]


def _iterate(self):
    return iter(self._processors.values())


def _extend(self, processors) -> None:
    for processor in processors:
        self.append(processor)
