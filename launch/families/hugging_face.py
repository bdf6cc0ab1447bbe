"""How a family's models are published: their config.json, the names of their tensors, the files of their tokenizer."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from launch.errors import UserError

TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id")


class Values:
    """The values of a config.json, with errors that name file and key."""

    def __init__(self, values: dict, path: str):
        self.values, self.path = values, path

    def get(self, key: str, default: Any = None) -> Any:
        value = self.values.get(key)
        return default if value is None else value

    def take(self, *keys: str) -> dict:
        """These keys. Raises UserError where one is missing."""
        missing = [key for key in keys if self.values.get(key) is None]
        if missing:
            raise UserError(f"{self.path}: {', '.join(missing)} missing: is this the model's own config.json?")
        return {key: self.values[key] for key in keys}

    def only(self, **allowed: object) -> None:
        """Raises UserError where a key is there and has another value."""
        for key, value in allowed.items():
            if self.get(key, value) != value:
                raise UserError(
                    f"{self.path}: {key}: found {self.values[key]!r}, allowed: {value!r}; PaddleNLP's model of this "
                    "family does nothing else."
                )


@dataclass(frozen=True)
class TokenizerFiles:
    """A tokenizer.json, or vocab.json and merges.txt, are read in every family; this is what differs.

    sentencepiece:  (the model file's name as published, its name for the class of paddlenlp), if there is one
    settings:       values that the class of paddlenlp needs to make the ids of the original
    published:      tokenizer_config.json names this class when a sentencepiece model is exported
    copied:         files of tokenizers of several classes, which are called the same in paddlenlp
    byte_level:     class of transformers for vocab.json and merges.txt
    """

    sentencepiece: tuple[str, str] | None = None
    settings: dict = field(default_factory=dict)
    published: dict = field(default_factory=dict)
    copied: tuple[str, ...] = ()
    byte_level: str = "GPT2Tokenizer"


def _any(values: dict) -> bool:
    return True


def _none(values: dict) -> bool:
    return False


@dataclass(frozen=True)
class HuggingFace:
    """The family's models at Hugging Face.

    model_type:      `model_type` of the published config.json; recognizes: tells families that share one apart
    read_config:     our configuration from theirs, without tokens. What the model classes of paddlenlp cannot do is
                     refused by key: a setting that is left out would give other logits silently
    write_config:    theirs from ours, without tokens
    renamed:         (pattern, replacement), applied one after another to our name of a tensor
    optional_prefix: first part of all names, which files saved from the bare model, without its head, lack
    fused_attention: whether the published files hold query, key and value in one matrix
    unit_head:       whether the head's rows are divided by their lengths when the model runs
    own_code:        whether transformers needs the Python files that lie beside the published weights
    two_copies:      whether the published files hold the head beside the word embedding that it equals
    """

    model_type: str
    read_config: Callable[[Values], dict]
    write_config: Callable[[dict], dict]
    tokenizer: TokenizerFiles
    recognizes: Callable[[dict], bool] = _any
    renamed: tuple[tuple[str, str], ...] = ()
    optional_prefix: str = ""
    fused_attention: bool = False
    unit_head: Callable[[dict], bool] = _none
    own_code: bool = False
    two_copies: bool = False


def taken(ours: dict, *keys: str) -> dict:
    """Those of the keys that our configuration states; the others have the same defaults on both sides."""
    return {key: ours[key] for key in keys if ours.get(key) is not None}


def native(model_type: str, model_class: str) -> dict:
    """A config.json whose model class is part of transformers."""
    return {"architectures": [model_class], "model_type": model_type}


def with_code(model_type: str, config_class: str, model_class: str) -> dict:
    """The files configuration_X.py and modeling_X.py lie beside the published weights."""
    return {
        "architectures": [model_class],
        "auto_map": {
            "AutoConfig": f"configuration_{model_type}.{config_class}",
            "AutoModelForCausalLM": f"modeling_{model_type}.{model_class}",
        },
        "model_type": model_type,
    }


def tokenizer_with_code(model_type: str, tokenizer_class: str) -> dict:
    """The file tokenization_X.py lies beside the published weights."""
    module = f"tokenization_{model_type}.{tokenizer_class}"
    return {"tokenizer_class": tokenizer_class, "auto_map": {"AutoTokenizer": [module, None]}}
