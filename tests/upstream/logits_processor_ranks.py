"""A logits processor of one's own, for test_logits_processor_list.py."""

from paddlenlp.generation import LogitsProcessor, LogitsProcessorList
from paddlenlp.generation.utils import GenerationMixin

from launch.upstream import correct


class OwnChoice(LogitsProcessor):
    pass


def used(corrected: bool) -> list[str]:
    """The processors that generate() uses, by class: its own for a minimum length, and that given to it."""
    if corrected:
        correct(["logits_processor_list"])
        correct(["logits_processor_list"])
    given = LogitsProcessorList([OwnChoice()])
    found = GenerationMixin.get_logits_processor(None, min_length=2, eos_token_id=1, logits_processors=given)
    return [type(one).__name__ for one in found._processors.values()]
