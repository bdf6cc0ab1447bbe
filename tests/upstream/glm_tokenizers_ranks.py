"""GLM-515M's tokenizer from its files, for test_glm_tokenizers_unknown.py."""

from paddlenlp.transformers import AutoTokenizer

from launch.upstream import correct


def loaded(directory: str, corrected: bool) -> str:
    """The class that AutoTokenizer finds."""
    if corrected:
        correct(["glm_tokenizers_unknown"])
        correct(["glm_tokenizers_unknown"])
    return type(AutoTokenizer.from_pretrained(directory)).__name__
