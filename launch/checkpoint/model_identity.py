"""Which model a run trains: its configuration, the adapter, and the frozen base below an adapter. No Paddle.

A run that goes on with another model of the same shapes would train on without a word: other positions, another
epsilon, another base below a LoRA.
"""

import hashlib
from pathlib import Path

from launch.checkpoint.manifest import read_manifest
from launch.checkpoint.output_directory import continued
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
SAMPLE = 1024  # elements of each tensor of a base that are looked at


def model_identity(config: dict, adapter: dict | None = None, base: str | None = None) -> dict:
    """As JSON. adapter: what decides what it adds. base: of base_fingerprint, below an adapter."""
    computes = {key: config[key] for key in sorted(COMPUTES & config.keys()) if config[key] is not None}
    return {"config": computes, "adapter": adapter or {}, "base": base}


def base_fingerprint(directory: Path) -> str:
    """SHA-256 of names, dtypes, shapes and the first elements of all tensors of a model directory."""
    from launch.checkpoint.weight_files import find_weights  # here: a plan runs without NumPy

    digest = hashlib.sha256()
    for name, tensor in sorted(find_weights(directory).items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.first(SAMPLE).tobytes())
    return digest.hexdigest()


def differences(before: dict, now: dict) -> list[str]:
    """Lines about what is another model now. before, now: of model_identity; {}, of old checkpoints, says nothing."""
    found = []
    for part in ("config", "adapter") if before else ():
        for key in sorted(before[part].keys() | now[part].keys()):
            was, is_now = before[part].get(key, "not stated"), now[part].get(key, "not stated")
            if was != is_now:
                found.append(f"{key} {is_now}, was {was}")
    if before and before["base"] != now["base"]:
        found.append("the base below the adapter has other weights")
    return found


def model_changed(found: list[str]) -> str:
    """What differences mean, and what to do."""
    from launch.checkpoint.weight_files import listed  # here: a plan runs without NumPy

    return (
        f"the model is not that of the run so far: {listed(found)}. Give the former model and flags; to go on with "
        "this one: --resume_changed model; to start from the weights at step 0: --ignore_load_lr_and_optim 1."
    )


# ---- the configuration of a run's model


def run_config(values) -> dict:
    """The configuration of a run's model, as a dictionary, with the vocabulary of its tokenizer or of its checkpoint.

    values: the flags by their names, as attributes. Raises UserError where there is no such model.
    """
    config = load_config(values.model_name_or_path or "")
    size = fresh_vocabulary(config, values, vocabulary_so_far(continued(values), config))
    return config if size is None else config | {"vocab_size": size}


def vocabulary_so_far(checkpoint: Path | None, config: dict) -> int | None:
    """vocab_size of the model in a checkpoint. One that does not state its model was made when fresh models had the
    vocabulary of their configuration."""
    if checkpoint is None:
        return None
    return read_manifest(checkpoint).model.get("config", {}).get("vocab_size", config["vocab_size"])
