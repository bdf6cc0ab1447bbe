"""What identifies the model of a run: its configuration, its adapter, and the frozen base of an adapter. No Paddle.

A resumed run compares it: another model of the same shapes (another epsilon, another base of a LoRA) would otherwise
train on without an error.
"""

import hashlib
from pathlib import Path

from launch.checkpoint.continuation import Continuation
from launch.checkpoint.manifest import Manifest
from launch.families import named_configs
from launch.families.named_configs import load_config
from launch.families.tokenizer_files import fresh_vocabulary

# Keys of a configuration that decide what the model computes. Numbers of positions are left out: they grow with the
# length of the samples, which is part of the data's identity.
COMPUTES = {
    "model_type",
    "hidden_act",
    "activation_function",
    *named_configs.SIZES,
    *named_configs.EPSILONS,
    *named_configs.POSITIVE,
    *named_configs.SWITCHES,
    *named_configs.OBJECTS,
} - {"max_position_embeddings", "max_sequence_length", "model_max_length", "seq_length", "use_cache", "output_predict"}
SAMPLE = 1024  # elements of each tensor of a base that are hashed


def model_identity(
    config: dict, adapter: dict | None = None, base: str | None = None, reference: str | None = None
) -> dict:
    """Return a JSON object.

    adapter: what decides what it computes. base: base_fingerprint of its base; reference: of the weights before
    training, where the loss compares with them and no base is kept.
    """
    computes = {key: config[key] for key in sorted(COMPUTES & config.keys()) if config[key] is not None}
    return {"config": computes, "adapter": adapter or {}, "base": base, "reference": reference}


def base_fingerprint(directory: Path) -> str:
    """Return the SHA-256 of names, dtypes, shapes and first elements of all tensors of a model directory."""
    from launch.checkpoint.weight_files import find_weights  # here: a plan runs without NumPy

    digest = hashlib.sha256()
    for name, tensor in sorted(find_weights(directory).items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.first(SAMPLE).tobytes())
    return digest.hexdigest()


def differences(before: dict, now: dict) -> list[str]:
    """Return a line for each difference of two model identities.

    Old checkpoints have {}, or no reference or teacher, which differs from nothing.
    """
    found = []
    for part in ("config", "adapter") if before else ():
        for key in sorted(before[part].keys() | now[part].keys()):
            was, is_now = before[part].get(key, "missing"), now[part].get(key, "missing")
            if was != is_now:
                found.append(f"{key} {is_now}, was {was}")
    if before and before["base"] != now["base"]:
        found.append("the base below the adapter has other weights")
    for key, name in (("reference", "the reference, which is the model before training,"), ("teacher", "the teacher")):
        weights = (before.get(key), now.get(key))
        if None not in weights and weights[0] != weights[1]:
            found.append(f"{name} has other weights")
    return found


def model_changed(found: list[str]) -> str:
    """Return the refusal of a run whose model has `differences`."""
    from launch.checkpoint.weight_files import listed  # here: a plan runs without NumPy

    return (
        f"the model is not that of the run so far: {listed(found)}. Give the former model and flags; to go on with "
        "this one: --resume_changed model; to start from the weights at step 0: --ignore_load_lr_and_optim 1."
    )


# ---- the configuration of a run's model


def run_config(values) -> dict:
    """Return the configuration of a run's model, with the vocabulary size of its tokenizer or of its checkpoint.

    Args:
        values: The flags, as attributes.

    Raises:
        UserError: If there is no such model.
    """
    config = load_config(values.model_name_or_path or "")
    size = fresh_vocabulary(config, values, lambda: vocabulary_so_far(Continuation.of(values).manifest, config))
    return config if size is None else config | {"vocab_size": size}


def vocabulary_so_far(manifest: Manifest | None, config: dict) -> int | None:
    """Return the vocab_size of the model in a checkpoint.

    Old checkpoints lack it: their models have the vocabulary of the configuration.
    """
    return manifest and manifest.model.get("config", {}).get("vocab_size", config["vocab_size"])
