"""AutoTokenizer does not find the tokenizers of GLM-10B-Chinese and GLM-515M.

paddlenlp/transformers/auto/tokenizer.py, TOKENIZER_MAPPING_NAMES: knows GLMGPT2Tokenizer alone, and ends with
"Tokenizer class GLMChineseTokenizer does not exist". Corrected: all three are known.
"""

from paddlenlp.transformers.auto import tokenizer

CLASSES = ("GLMGPT2Tokenizer", "GLMChineseTokenizer", "GLMBertTokenizer")


def correct() -> None:
    """Correct upstream; a second call changes nothing."""
    tokenizer.TOKENIZER_MAPPING_NAMES["glm"] = (CLASSES, None)  # pyright: ignore[reportArgumentType]
