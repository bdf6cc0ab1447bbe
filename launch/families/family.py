"""What a model family is: one frozen object, which general code reads. Classes of paddlenlp are named, not imported.

`HuggingFace` is the part that says how its models are published: their config.json, the names of their tensors, the
files of their tokenizer.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from launch.errors import UserError
from launch.families.forward import Model
from launch.families.parameters import SCORED, Parameter


class Values:
    """The values of a config.json, with errors that name file and key."""

    def __init__(self, values: dict, path: str):
        self.values, self.path = values, path

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value at a key; the default where it is missing or null."""
        value = self.values.get(key)
        return default if value is None else value

    def take(self, *keys: str) -> dict:
        """Return the values at these keys.

        Raises:
            UserError: If one is missing.
        """
        missing = [key for key in keys if self.values.get(key) is None]
        if missing:
            raise UserError(f"{self.path}: {', '.join(missing)} missing: is this the model's own config.json?")
        return {key: self.values[key] for key in keys}

    def only(self, **allowed: object) -> None:
        """Raise UserError where a key is there and has another value."""
        for key, value in allowed.items():
            if self.get(key, value) != value:
                raise UserError(
                    f"{self.path}: {key}: found {self.values[key]!r}, allowed: {value!r}; PaddleNLP's model of this "
                    "family does nothing else."
                )


@dataclass(frozen=True)
class TokenizerFiles:
    """A tokenizer.json, or vocab.json and merges.txt, are read in every family; this is what differs.

    Attributes:
        sentencepiece: (the model file's name as published, its name for the class of paddlenlp), if there is one.
        settings: Values that the class of paddlenlp needs to make the ids of the original.
        published: tokenizer_config.json names this class when a sentencepiece model is exported.
        copied: Files of tokenizers of several classes, which are called the same in paddlenlp.
        byte_level: Class of transformers for vocab.json and merges.txt.
    """

    sentencepiece: tuple[str, str] | None = None
    settings: dict = field(default_factory=dict)
    published: dict = field(default_factory=dict)
    copied: tuple[str, ...] = ()
    byte_level: str = "GPT2Tokenizer"


@dataclass(frozen=True)
class HuggingFace:
    """The family's models at Hugging Face.

    Attributes:
        model_type: `model_type` of the published config.json.
        recognizes: Tells families that share one apart.
        read_config: Our configuration from theirs, without tokens. What the model classes of paddlenlp cannot do is
            refused by key: a setting that is left out would give other logits silently.
        write_config: Theirs from ours, without tokens.
        renamed: (pattern, replacement), applied one after another to our name of a tensor.
        optional_prefix: First part of all names, which files saved from the bare model, without its head, lack.
        fused: {matrix of the published files: those of ours whose rows it holds, in their order}.
        unit_head: Whether the head's rows are divided by their lengths when the model runs.
        own_code: Whether transformers needs the Python files that lie beside the published weights.
        two_copies: Whether the published files hold the head beside the word embedding that it equals.
        left_out: The pattern that begins the names of tensors which an import leaves out; "" for none.
    """

    model_type: str
    read_config: Callable[[Values], dict]
    write_config: Callable[[dict], dict]
    tokenizer: TokenizerFiles
    recognizes: Callable[[dict], bool] = lambda theirs: True
    renamed: tuple[tuple[str, str], ...] = ()
    optional_prefix: str = ""
    fused: dict[str, tuple[str, ...]] = field(default_factory=dict)
    unit_head: Callable[[dict], bool] = lambda theirs: False
    own_code: bool = False
    two_copies: bool = False
    left_out: str = ""


def taken(ours: dict, *keys: str) -> dict:
    """Return the values of the keys that our configuration has; the others have the same defaults on both sides."""
    return {key: ours[key] for key in keys if ours.get(key) is not None}


def native(model_type: str, model_class: str) -> dict:
    """Return the keys of a config.json whose model class is part of transformers."""
    return {"architectures": [model_class], "model_type": model_type}


def with_code(model_type: str, config_class: str, model_class: str) -> dict:
    """Return the keys of a config.json whose code lies beside the published weights.

    It is configuration_X.py and modeling_X.py.
    """
    return {
        "architectures": [model_class],
        "auto_map": {
            "AutoConfig": f"configuration_{model_type}.{config_class}",
            "AutoModelForCausalLM": f"modeling_{model_type}.{model_class}",
        },
        "model_type": model_type,
    }


def tokenizer_with_code(model_type: str, tokenizer_class: str) -> dict:
    """Return the keys of a tokenizer whose code, tokenization_X.py, lies beside the published weights."""
    module = f"tokenization_{model_type}.{tokenizer_class}"
    return {"tokenizer_class": tokenizer_class, "auto_map": {"AutoTokenizer": [module, None]}}


FEATURES = {  # name: what a person calls it
    "pretrain": "pretraining",
    "tensor_parallel": "tensor parallel",
    "pipeline_parallel": "pipeline parallel",
    "sequence_parallel": "sequence parallel",
    "flash_attention": "flash attention",
    "recompute": "recompute",
    "packing": "packing",
    "lora": "LoRA",
    "prefix": "prefix tuning",
}

FUSED_LINEAR = ("query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h")

NO_PIPELINE = "paddlenlp has no pipeline class for it; tensor_parallel_degree works instead"
NO_SEQUENCE = "its layers of paddlenlp do not divide the sequence; tensor_parallel_degree without it works"
NO_FLASH = "paddlenlp's code of this family never calls it; leave --use_flash_attention at auto"
PREFIX_LM = "it reads the prompt in both directions and needs pairs of prompt and answer; fine-tune it instead"
NO_PACKING = "its positions restart in each sample, which masks for packed samples do not express; pad instead"


def initializer_range(config: dict) -> float:
    """Return the standard deviation of a head that is drawn as all matrices are."""
    return config.get("initializer_range", 0.02)


def xavier(config: dict) -> float:
    """Return the standard deviation of a head that is drawn by Xavier's rule."""
    return math.sqrt(2 / (config["vocab_size"] + config["hidden_size"]))


@dataclass(frozen=True)
class Head:
    """The output layer.

    Attributes:
        path: Of the layer in the model.
        reads_length_first, gives_length_first: Hidden states that it reads are [length, batch, hidden], logits that
            it gives [length, batch, vocabulary].
    """

    path: str = "lm_head"
    reads_length_first: bool = False
    gives_length_first: bool = False


@dataclass(frozen=True)
class Family:
    """One model family of paddlenlp.

    Attributes:
        name: In the registry.
        title: Models that belong to it, for people.
        model_type: `model_type` in the config.json that paddlenlp reads. The classes are names in
            `paddlenlp.transformers`; pipeline_class is None where there is none.
        chosen_by: Key of the config.json that, where it is true, tells this family from another of its model_type.
        parameters: All tensors of a model, from the word embedding to the head, by its configuration.
        forward: The forward pass, for the memory plan.
        published: The models at Hugging Face.
        head: The output layer.
        head_std: Standard deviation of the head's random weights, by the configuration.
        rotary: Whether positions turn queries and keys.
        scales_positions: Whether `rope_scaling` of config.json counts (launch/models/rotary_scaling.py); else it is
            refused.
        rehearsal_config: The tiny configuration that stands in for every model of the family on a CPU.
        linear_layers: Last parts of the names of all linear layers within a transformer layer.
        prefix_postprocess: Function of `paddlenlp.peft.prefix` that shapes prefix keys and values; None: no prefix
            tuning.
        chat_template: File of launch/families/chat_templates, in paddlenlp's form, ends of turns included; for a
            tokenizer that brings none of its own.
        chat_template_by_token: (a token in its JSON, the template of a tokenizer that has this token).
        begins_chats: Whether what the tokenizer puts before a text stands before a chat, too; else the template
            says.
        encodes_apart: Whether the makers encode an answer under a chat template apart from what is before it.
        odd_vocabulary: Whether a tensor_parallel_degree may leave a remainder of the vocabulary: its embedding and
            head then stay whole on every rank.
        attention: "causal": input_ids and labels are enough. "prefix": the prompt is seen in both directions, and
            the model needs an attention mask and two rows of positions (launch/families/encoding.py).
        answer_marks: With "prefix", the tokens between prompt and answer, as the tokenizers of the published models
            and paddlenlp's build_inputs_with_special_tokens put them: the first is the mask that the answer stands
            for, the last begins the answer.
        answer_end: The token that ends an answer; None: the tokenizer's eos.
        mask_dtype: With "prefix", of the attention mask.
        mask_covers_answer: Generation needs mask and positions of the answer, too; else the model extends those of
            the prompt.
        always_masked: Whether its code makes a mask of every batch for flash attention, and calls Paddle's
            scaled_dot_product_attention with it; else it calls paddlenlp's fusion_flash_attention, which needs no
            mask of a causal batch.
        weights_dtype_rotary: Whether its rotary embeddings give queries and keys the dtype of the weights.
        flash_dropout: Whether its code hands attention's dropout over to the kernel.
        alibi: Whether a bias by position is added to the scores.
        row_ends: Whether its code takes packed rows by the ends of their samples (FlashMask), without a mask.
        fused_rms_norm: Whether its code asks for the operator fused_ln (--use_fused_rms_norm).
        fused_rope: Whether it calls Paddle's fused rotary embedding (--use_fused_rope).
        window_by_default: Whether `sliding_window` counts in a config.json that has no `use_sliding_window`.
        lacking: Feature -> why not, and what works instead; all other FEATURES are supported.
        refused: What else goes wrong: words of launch/preflight/rules, which has the reasons.
        corrections: Files of launch/upstream that this family alone needs.
        reward_models: Whether its class without an output layer can carry a score (launch/models/reward_model.py),
            and transformers opens the result.
    """

    name: str
    title: str
    model_type: str
    config_class: str
    model_class: str
    pipeline_class: str | None
    tokenizer_class: str
    rehearsal_config: str
    linear_layers: tuple[str, ...]
    prefix_postprocess: str | None
    chat_template: str
    parameters: Callable[[dict], Iterator[Parameter]]
    forward: type[Model]
    published: HuggingFace
    chosen_by: str | None = None
    head: Head = Head()
    head_std: Callable[[dict], float] = initializer_range
    rotary: bool = True
    scales_positions: bool = False
    chat_template_by_token: tuple[tuple[str, str], ...] = ()
    begins_chats: bool = False
    encodes_apart: bool = False
    odd_vocabulary: bool = False
    attention: str = "causal"
    answer_marks: tuple[str, ...] = ()
    answer_end: str | None = None
    mask_dtype: str = "bool"
    mask_covers_answer: bool = False
    always_masked: bool = False
    weights_dtype_rotary: bool = False
    flash_dropout: bool = False
    alibi: bool = False
    row_ends: bool = False
    fused_rms_norm: bool = False
    fused_rope: bool = False
    window_by_default: bool = True
    lacking: dict[str, str] = field(default_factory=dict)
    refused: tuple[str, ...] = ()
    corrections: tuple[str, ...] = ()
    reward_models: bool = False

    @property
    def reward_class(self) -> str:
        """The class of its reward models, in transformers and in launch/models/reward_model.py."""
        return self.model_class.replace("ForCausalLM", SCORED)

    @property
    def shares_samples(self) -> bool:
        """Whether several ranks can share a sample (launch/training/sequence_ranks.py)."""
        return self.forward.shares_samples and not self.alibi

    @property
    def answer_symbols(self) -> tuple[str, ...]:
        """All tokens that this family's answers need."""
        return self.answer_marks + ((self.answer_end,) if self.answer_end else ())
