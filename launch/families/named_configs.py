"""Model configurations by name, from the checked-in files in configs/, from a file or from a model directory.

    load_config(name_or_path)    the configuration, checked
    named_size(name_or_path)     the name of the one that has a published model's sizes, to plan and rehearse
    check_values(values, path)   every known key alone: Hugging Face's names and ours
    check_config(config, path)   the same, and what must fit together in a configuration of ours

All raise UserError, which names file, key, the value found, the values allowed and the fix.
"""

import difflib
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from data_tools.formats.json_files import require_file, shown
from launch.errors import UserError
from launch.families.parameters import EXPERTS, HEAD_SIZE, HEADS, KEY_VALUE_HEADS, LAYERS, stated
from launch.families.registry import FAMILIES
from launch.models.rotary_scaling import require_plain_positions, with_scaling

CONFIGS = Path(__file__).parent / "configs"
NAME = re.compile(r"((?P<owner>[\w-][\w.-]*)/)?(?P<name>[\w-][\w.-]*)")

GATED = "Meta asks for consent to its licence on the model's page; then `.venv/bin/hf auth login` comes first."
# What hubs add to the name of a model for the same sizes: what it was trained for, whose layout its files have.
FORMS = re.compile(r"^meta-|-(base|instruct|chat|hf|pt|paddle|thinking)(?=-|$)")
# Names of other forms.
OTHERS = {
    "bloomz-7b1": "bloom-7b1",
    "bloomz-7b1-mt": "bloom-7b1",
    "tinyllama-1.1b-v1.0": "tinyllama-1.1b",
}
# Of PaddleNLP's documents and tests; they mean the rehearsal's model of the family.
TESTING = re.compile(r"__internal_testing__/(?:tiny|micro)-(?:random|fused)-([\w-]+)")
# Folders that our commands write to: a path below one that is not there yet is no name.
OUR_FOLDERS = ("models", "runs", "exported", "checkpoints", "build", "data")


def config_names() -> list[str]:
    """Return the names of the configurations here."""
    return sorted(path.stem for path in CONFIGS.glob("*.json"))


def named_size(model_name_or_path: str) -> str:
    """Return the configuration here with the sizes of a published model, such as Qwen/Qwen3-8B-Base in any case.

    Any other name, and a path into a folder that is here or ours, is returned unchanged.
    """
    named = NAME.fullmatch(model_name_or_path)
    if not named or named["name"] in config_names() or Path(model_name_or_path).is_dir():
        return model_name_or_path
    if named["owner"] and (named["owner"] in OUR_FOLDERS or Path(named["owner"]).exists()):
        return model_name_or_path
    name = FORMS.sub("", named["name"].lower())
    size = OTHERS.get(name, _for_testing(model_name_or_path) or name)
    return size if size in config_names() else model_name_or_path


def _for_testing(name: str) -> str:
    """Return the rehearsal's configuration that a name of PaddleNLP's tests means, "" for another name."""
    found = TESTING.fullmatch(name)
    return f"{found[1].replace('_', '-')}-rehearsal" if found else ""


def find_config(model_name_or_path: str) -> Path:
    """Return the configuration file of a name or a path.

    The order is: a model directory with config.json, a path to a .json file, a name of a checked-in configuration with
    or without its owner (`facebook/llama-7b` is `llama-7b`).

    Raises:
        UserError: If it is none of these; a path into a folder that is here, or from `/`, `~` or `.`, is no name.
    """
    path = Path(model_name_or_path).expanduser()
    if (path / "config.json").is_file():
        return path / "config.json"
    if path.suffix == ".json" and path.is_file():
        return path
    named = NAME.fullmatch(model_name_or_path)
    if named and not (named["owner"] and Path(named["owner"]).is_dir()):
        known = CONFIGS / f"{_for_testing(model_name_or_path) or named['name']}.json"
        if known.is_file():
            return known
    found = f"--model_name_or_path: {model_name_or_path!r} is no directory with a config.json, no .json file and no "
    if way := how_to_get(model_name_or_path):
        raise UserError(f"{found}name known here. {way}\nNames: {', '.join(config_names())}.")
    beside = [str(one.parent) for one in path.parent.glob("*/config.json")]  # directories with a similar name
    nearest = difflib.get_close_matches(str(path), beside, n=1, cutoff=0.8) or _nearest(path.name)
    raise UserError(
        f"{found}configuration by name. {f'Did you mean {nearest[0]}? ' if nearest else ''}"
        f"Names: {', '.join(config_names())}."
    )


def how_to_get(repository: str) -> str:
    """Return how to get a model by its name at a hub: lines that begin with spaces are commands.

    Return "" for a text that is no such name: a path into a folder that is here, or from `/`, `~` or `.`.
    """
    named = NAME.fullmatch(repository)
    if not named or not named["owner"] or named["owner"] in OUR_FOLDERS or Path(named["owner"]).exists():
        return ""
    name, nearest = named["name"], _nearest(named["name"])
    gated = f"\n{GATED}" if repository.startswith("meta-llama/") else ""
    sizes = f"\nTo plan and rehearse without it: MODEL={nearest[0]}, the nearest size known by name." if nearest else ""
    if named_size(repository) != repository:
        sizes = f"\nTo plan and rehearse without it: MODEL={repository}, whose sizes are known."
    return (
        "It may be a model at Hugging Face or ModelScope. This tells size and licence, fetches it and makes it ours:\n"
        f"    make download MODEL={repository}\n"
        f"Then MODEL=models/{name}. The families that can be imported: docs/families.md.{gated}{sizes}"
    )


def _nearest(name: str) -> list[str]:
    """Return the configuration with nearly this name, if there is one."""
    return difflib.get_close_matches(name.lower(), config_names(), n=1)


def load_config(model_name_or_path: str) -> dict:
    """Return the configuration as a dictionary, its scaled positions as launch/models/rotary_scaling.py has them.

    Raises:
        UserError: If there is none, it is not a JSON object, or a value cannot be right (check_config).
    """
    path = find_config(model_name_or_path)
    config = read_config(path, "a model")
    if "model_type" not in config:
        raise UserError(f"{path}: no key 'model_type'; is this a model's configuration?")
    check_config(config, str(path))
    family = FAMILIES.get(str(config["model_type"]))
    if family and family.rotary and not family.scales_positions:
        require_plain_positions(config, str(path))
    return with_scaling(config, str(path))


def read_config(path: Path, place: str) -> dict:
    """Return the JSON object of a configuration file. place: what its directory is.

    Raises:
        UserError: If there is none.
    """
    require_file(path)
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file. Name the directory of {place}.") from None
    except json.JSONDecodeError as error:
        raise UserError(f"{path}:{error.lineno}: not JSON ({error.msg}).") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 at byte {error.start}. Copy the file again.") from None
    except RecursionError:
        raise UserError(f"{path}: lists or objects are nested too deeply for a configuration.") from None
    except ValueError:
        raise UserError(f"{path}: found a number of thousands of digits. Copy the file again.") from None
    if not isinstance(config, dict):
        raise UserError(f"{path}: not the configuration of {place}.")
    return config


INT32_MAX = 2**31 - 1
FIX = "Correct the value, or copy config.json from the published model again"

COUNTS = [*LAYERS, *EXPERTS]  # of which each has parameters of its own
SIZES = [
    *COUNTS,
    "ffn_dim",
    "ffn_hidden_size",
    "head_dim",
    "hidden_size",
    "inner_hidden_size",
    "intermediate_size",
    "kv_channels",
    "max_position_embeddings",
    "max_sequence_length",
    "model_max_length",
    "moe_k",
    "moe_num_experts",
    "moe_num_shared_experts",
    "moe_intermediate_size",
    "multi_query_group_num",
    "n_embed",
    "n_head",
    "num_attention_heads",
    "num_experts_per_tok",
    "num_key_value_heads",
    "original_max_position_embeddings",
    "padded_vocab_size",
    "seq_length",
    "shared_expert_intermediate_size",
    "vocab_size",
    "word_embed_proj_dim",
]
MOST = 4096
EPSILONS = ["layer_norm_epsilon", "layer_norm_eps", "layernorm_epsilon", "rms_norm_eps"]
POSITIVE = [
    "attention_factor",
    "beta_fast",
    "beta_slow",
    "factor",
    "high_freq_factor",
    "low_freq_factor",
    "rope_ratio",
    "rope_scaling_factor",
    "rope_theta",
]
NOT_NEGATIVE = [
    "init_std",
    "initializer_range",
    "moe_layer_start_index",
    "moe_norm_min",
    "mscale",
    "mscale_all_dim",
    "router_aux_loss_coef",
]
SHARES = [
    "attention_dropout",
    "attention_dropout_prob",
    "attention_probs_dropout_prob",
    "dropout",
    "embedding_dropout_prob",
    "hidden_dropout",
    "hidden_dropout_prob",
    "output_dropout_prob",
]
SWITCHES = [
    "add_bias_linear",
    "add_qkv_bias",
    "alibi",
    "apply_residual_connection_post_layernorm",
    "attention_bias",
    "block_position_encoding",
    "do_layer_norm_before",
    "mlp_bias",
    "multi_query_attention",
    "norm_topk_prob",
    "normalize_before",
    "output_predict",
    "output_router_logits",
    "position_encoding_2d",
    "rmsnorm",
    "tie_word_embeddings",
    "truncate",
    "use_cache",
]
TOKENS = ["bos_token_id", "eos_token_id", "pad_token_id"]
MASKS = ["gmask_token_id", "mask_token_id"]  # compared with the tokenizer when its ids are used
OBJECTS = ["rope_parameters", "rope_scaling"]
# Of a configuration of ours, where a null would not be the default but stay null.
NEVER_NULL = ["hidden_size", "max_position_embeddings", "num_attention_heads", "vocab_size", *EPSILONS]
# Of paddlenlp/transformers/activations.py, which needs Paddle.
ACTIVATIONS = (
    *("gelu", "gelu_10", "gelu_fast", "gelu_new", "gelu_python", "linear", "mish", "quick_gelu", "relu", "relu6"),
    *("sigmoid", "silu", "swish", "tanh"),
)
DTYPES = ("float32", "float16", "bfloat16", "float64")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < math.inf


def _is_integer(value: Any, least: int, most: int = INT32_MAX) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _is_token(value: Any) -> bool:
    """Return whether a value is an id or a list of ids, as eos_token_id may be; -1 is LLaMA's way to have none."""
    ids = value if isinstance(value, list) else [value]
    return bool(ids) and all(_is_integer(token, -1) for token in ids)


# key -> (the values allowed in words, whether a value is one of them)
_ALLOWED: dict[str, tuple[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(SIZES, ("a whole number, 1 or more", lambda value: _is_integer(value, 1))),
    **dict.fromkeys(COUNTS, (f"a whole number from 1 to {MOST:,}", lambda value: _is_integer(value, 1, MOST))),
    **dict.fromkeys(EPSILONS, ("a number above 0, at most 1", lambda value: _is_number(value) and 0 < value <= 1)),
    **dict.fromkeys(POSITIVE, ("a number above 0", lambda value: _is_number(value) and value > 0)),
    **dict.fromkeys(NOT_NEGATIVE, ("a number, 0 or more", lambda value: _is_number(value) and value >= 0)),
    **dict.fromkeys(SHARES, ("a number from 0 to 1", lambda value: _is_number(value) and 0 <= value <= 1)),
    **dict.fromkeys(SWITCHES, ("true or false", lambda value: isinstance(value, bool))),
    **dict.fromkeys((*TOKENS, *MASKS), ("a token id, or a list of token ids", _is_token)),
    **dict.fromkeys(OBJECTS, ("an object", lambda value: isinstance(value, dict))),
    **dict.fromkeys(("dtype", "torch_dtype"), (", ".join(DTYPES), lambda value: value in DTYPES)),
    # A number in GLM's configuration; in ChatGLM's, as paddlenlp writes it, a switch.
    "attention_scale": (
        "a number above 0, or true or false",
        lambda value: isinstance(value, bool) or (_is_number(value) and value > 0),
    ),
    "rope_theta": ("a number above 0, at most 1e15", lambda value: _is_number(value) and 0 < value <= 1e15),
    "model_type": ("a name in quotes", lambda value: isinstance(value, str)),
}


def check_values(values: dict, path: str) -> None:
    """Check each key alone. A null value counts as missing; unknown keys are left to their readers."""
    for key, value in values.items():
        if value is None or key not in _ALLOWED:
            continue
        allowed, is_allowed = _ALLOWED[key]
        if not is_allowed(value):
            raise _fault(path, key, value, allowed)
        if key in OBJECTS:
            check_values(value, f"{path}: {key}")


def check_config(config: dict, path: str) -> None:
    """Check each key alone, then heads against sizes and token ids against the vocabulary, as far as they are there."""
    check_values(config, path)
    rotary = ["rope_theta"] if not config.get("alibi") else []
    for key in (key for key in [*NEVER_NULL, *rotary] if key in config and config[key] is None):
        raise _fault(path, key, None, _ALLOWED[key][0])
    if "hidden_act" in config and config["hidden_act"] not in ACTIVATIONS:
        raise _fault(path, "hidden_act", config["hidden_act"], ", ".join(ACTIVATIONS))
    hidden_size = config.get("hidden_size")
    heads_key = next((name for name in HEADS if config.get(name)), HEADS[-1])
    heads = config.get(heads_key)
    head_size = stated(config, HEAD_SIZE)
    if hidden_size and heads and not head_size:
        if hidden_size % heads:
            raise _fault(path, heads_key, heads, f"a divisor of hidden_size, which is {hidden_size}")
        head_size = hidden_size // heads
    if head_size and head_size % 2 and config.get("rope_theta") and not config.get("alibi"):
        allowed = f"a number of heads of even size: rotary positions turn pairs, and a head has {head_size} elements"
        raise _fault(path, heads_key, heads, allowed)
    for key in KEY_VALUE_HEADS:
        if heads and config.get(key) and heads % config[key]:
            raise _fault(path, key, config[key], f"a divisor of {heads_key}, which is {heads}")
    experts, chosen = stated(config, EXPERTS), config.get("num_experts_per_tok")
    if experts and chosen and chosen > experts:
        raise _fault(path, "num_experts_per_tok", chosen, f"at most the number of experts, {experts}")
    vocab_size = config.get("vocab_size")
    for key in TOKENS if vocab_size else ():
        ids = config.get(key)
        for token in ids if isinstance(ids, list) else [ids]:
            if token is not None and token >= vocab_size:
                raise _fault(path, key, token, f"a token id below vocab_size, which is {vocab_size}")


def _fault(path: str, key: str, value: Any, allowed: str) -> UserError:
    return UserError(f"{path}: {key}: found {shown(repr(value), 100)}, allowed: {allowed}. {FIX}.")
