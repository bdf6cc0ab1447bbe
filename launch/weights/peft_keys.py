"""Every key of PEFT 0.21's adapter_config.json: carried over, without effect, or refused with the reason."""

import re
from dataclasses import dataclass
from pathlib import Path

from launch.errors import UserError

CARRIED = (
    *("r", "lora_alpha", "lora_dropout", "use_rslora", "rank_pattern", "alpha_pattern", "target_modules"),
    *("exclude_modules", "layers_to_transform", "layers_pattern", "ensure_weight_tying"),
    *("use_dora", "modules_to_save", "trainable_token_indices"),
)
# Kinds of values of those that are read by their parts.
LARGEST = 2**31  # rank or alpha
KINDS = {
    "rank_pattern": (dict,),
    "alpha_pattern": (dict,),
    "target_modules": (list, str),
    "exclude_modules": (list, str),
    "modules_to_save": (list,),
    "trainable_token_indices": (list, dict),
}
# They describe the file or the way that A and B were trained, and change nothing of what a trained A and B mean.
WITHOUT_EFFECT = (
    *("auto_mapping", "base_model_name_or_path", "revision", "inference_mode", "peft_version", "runtime_config"),
    *("corda_config", "eva_config", "loftq_config", "lora_ga_config", "megatron_core"),
    "qalora_group_size",
)


@dataclass(frozen=True)
class LimitedKey:
    """A key of which some values cannot be carried over.

    Attributes:
        allowed: Values that leave plain LoRA; an absent key has the first one.
        reason: Why others are refused.
        fix: What to do with such an adapter.
    """

    allowed: tuple
    reason: str
    fix: str = ""


MERGE = "merge it with PEFT (merge_and_unload), then import the model"
ALTERED = "training began by taking a part off the base's weights, so A and B do not belong to the base itself"
PLAIN = "save it with PEFT's path_initial_model_for_weight_conversion, which makes a plain LoRA of it"
LIMITED = {
    "peft_type": LimitedKey(("LORA",), "another method than LoRA", MERGE),
    "task_type": LimitedKey((None, "CAUSAL_LM", "SEQ_CLS"), "models here write text or score it"),
    "bias": LimitedKey(("none",), "biases of the base were trained, too", MERGE),
    "fan_in_fan_out": LimitedKey((False,), "of layers whose weights lie the other way, which no family here has"),
    "init_lora_weights": LimitedKey(
        (True, False, None, "gaussian", "eva", "orthogonal", "mica"), ALTERED, PLAIN
    ),
    "lora_bias": LimitedKey((False,), "B has a bias", MERGE),
    "layer_replication": LimitedKey((None, []), "the model has more layers than its base", MERGE),
    "target_parameters": LimitedKey((None, []), "tensors that are no layers were trained", MERGE),
    "megatron_config": LimitedKey((None,), "the layers are those of Megatron"),
    "alora_invocation_tokens": LimitedKey((None, []), "the adapter is off before these tokens of each text"),
    "use_qalora": LimitedKey((False,), "A reads means of several inputs"),
    "use_bdlora": LimitedKey((None, False), "A and B are blocks of larger matrices", MERGE),
    "arrow_config": LimitedKey((None,), "each token chooses among several adapters"),
    "kasa_config": LimitedKey((None,), "a part of the base was taken off, and A and B have a diagonal", MERGE),
    "monteclora_config": LimitedKey((None,), "A and B are samples around trained means"),
    "velora_config": LimitedKey((None,), "its files hold more than A and B", MERGE),
}  # fmt: skip


def check_keys(config: dict, path: Path) -> None:
    """Check every key of an adapter_config.json.

    Raises:
        UserError: For a value that would change what A and B mean, and for an unknown key that is set.
    """
    for key, value in config.items():
        _check_parts(key, value, path)
        limit = LIMITED.get(key)
        is_list = isinstance(value, list) and all(isinstance(one, str) for one in value)
        compared = sorted(value) if is_list else value  # lists stand for sets; 1 is not true
        if limit and not any(type(compared) is type(one) and compared == one for one in limit.allowed):
            allowed = ", ".join(map(repr, limit.allowed))
            fix = f" Or {limit.fix}." if limit.fix else ""
            raise UserError(f"{path}: {key}: found {value!r}, allowed: {allowed}: {limit.reason}.{fix}")
        if not limit and key not in (*CARRIED, *WITHOUT_EFFECT) and value:
            raise UserError(
                f"{path}: {key}: found {value!r}, which PEFT 0.21 does not have. Without this key the adapter is read "
                "as plain LoRA, which may be another one."
            )


def _check_parts(key: str, value: object, path: Path) -> None:
    """Raise UserError where a key that is read by its parts has others."""
    fault = value is not None and key in KINDS and not isinstance(value, KINDS[key])
    if isinstance(value, dict) and key.endswith("_pattern"):
        fault = not all(type(one) in (int, float) and 0 < one < LARGEST for one in value.values())
        fault |= key == "rank_pattern" and not all(type(one) is int for one in value.values())
    patterns = list(value) if isinstance(value, dict) else value if isinstance(value, list) else [value]
    if key.endswith("_modules") or key in ("modules_to_save", "layers_pattern", "rank_pattern", "alpha_pattern"):
        fault |= value is not None and not all(isinstance(one, str) and _compiles(one) for one in patterns)
    if fault:
        raise UserError(f"{path}: {key}: found {value!r}, which PEFT would not read. Copy the file again.")


def _compiles(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True
