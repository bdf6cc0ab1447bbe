"""GLM-515M's tokenizer from its files, for test_glm_tokenizers_unknown.py."""

from types import SimpleNamespace

from paddlenlp.transformers import AutoTokenizer

from launch.training.model import load_tokenizer


def loaded(directory: str, corrected: bool) -> str:
    """The class that AutoTokenizer finds, by itself or once fine-tuning of a GLM has opened it."""
    if corrected:
        flags = {"model_name_or_path": "glm-rehearsal", "tokenizer_name_or_path": directory, "continue_training": 0}
        load_tokenizer(SimpleNamespace(**flags))
        return type(load_tokenizer(SimpleNamespace(**flags))).__name__
    return type(AutoTokenizer.from_pretrained(directory)).__name__
