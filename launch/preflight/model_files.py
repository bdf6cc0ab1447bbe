"""The requested model: its configuration, the headers of its weights, and its tokenizer. No weights are read."""

import os
from collections.abc import Mapping
from pathlib import Path

from launch.checkpoint.model_identity import run_config
from launch.checkpoint.parts import MODEL
from launch.checkpoint.stored_tensor import StoredTensor
from launch.checkpoint.weight_files import Misfits, Weight, difference, find_weights, is_computed
from launch.config.flag_values import Flags
from launch.config.run_config import RunConfig
from launch.errors import UserError
from launch.families.named_configs import find_config, load_config
from launch.families.parameters import HEAD, SCORE, gives_scores
from launch.families.registry import family_of_config, parameters
from launch.families.tokenizer_files import ROLES, read_tokenizer
from launch.preflight.report import Finding

MODEL_FLAG = "model_name_or_path"
WEIGHTS_FIX = "MODEL=DIRECTORY or --model_name_or_path names another; --continue_training 0 starts from random weights"
# paddlenlp fuses linear layers under names that differ from those of launch.families.parameters.
FUSED = ("fuse_attention_qkv", "fuse_attention_ffn")
TOKENIZER_FIX = "--tokenizer_name_or_path DIRECTORY: the tokenizer that the model was made with"


def check_model(flags: Flags) -> list[Finding]:
    """Check that --model_name_or_path names a configuration of a supported family."""
    if not flags.get("model_name_or_path"):
        return [Finding(False, "model", "no --model_name_or_path", "--model_name_or_path NAME, or MODEL=DIRECTORY")]
    name = flags["model_name_or_path"][0]
    try:
        family = family_of_config(load_config(name))
    except UserError as error:
        return [Finding(False, "model", str(error), "MODEL=DIRECTORY or --model_name_or_path names another")]
    return [Finding(True, "model", f"{name} ({family.title})")]


def check_weights(run: RunConfig) -> list[Finding]:
    """Check that the weights of a model directory fit its config.json. Warn for a name whose weights are not here.

    [] for random weights, and where the check of the model refuses.
    """
    values = run.flags
    directory = Path(values.model_name_or_path or "").expanduser()
    if not values.model_name_or_path or values.continue_training is False:
        return []
    if not directory.is_dir():
        return weights_of_name(values.model_name_or_path)
    try:
        weights = find_weights(directory)
        misfits = _misfits(weights, load_config(str(directory)), run.method.reward_model)
    except (UserError, OSError) as error:
        return [Finding(False, "weights", str(error), WEIGHTS_FIX)]
    if misfits:
        found = f"{directory}: the weights do not fit its config.json; {misfits}"
        return [Finding(False, "weights", found, f"take both from one model; {WEIGHTS_FIX}")]
    # Tensors of a checkpoint may be divided over files.
    paths = {tensor.path for tensor in weights.values() if isinstance(tensor, StoredTensor)}
    files = len(paths or list(directory.glob(f"{MODEL}-*.safetensors")))
    size = sum(tensor.nbytes for tensor in weights.values()) / 1e9
    number = "1 file" if files == 1 else f"{files} files"
    return [Finding(True, "weights", f"{len(weights)} tensors, {size:,.1f} GB in {number}")]


def weights_of_name(name: str) -> list[Finding]:
    """Return a warning where PaddleNLP has not downloaded the weights; its own folder is in paddlenlp/utils/env.py."""
    kept = Path(os.environ.get("PPNLP_HOME") or Path.home() / ".paddlenlp") / "models" / name
    if any(kept.glob("*.safetensors")) or any(kept.glob("*.pdparams")) or not check_model({MODEL_FLAG: [name]})[0].ok:
        return []
    found = (
        f"{name}: not here. The start asks PaddleNLP's hub for this name, which does not have every model; make "
        "download MODEL=OWNER/NAME gets any, and MODEL=models/NAME then names it"
    )
    return [Finding(True, "weights", found, warns=True)]


def _misfits(weights: Mapping[str, Weight], config: dict, reward_model: bool) -> Misfits:
    """Return the tensors that do not fit.

    reward_model: whether a reward model begins with them, with an output layer of its own.
    """
    if any(config.get(name) for name in FUSED):
        return Misfits()  # compared when the model is built
    expected = {parameter.name: parameter for parameter in parameters(config)}
    if gives_scores(config) and not reward_model:
        return Misfits(extra={f"{SCORE}, of a reward model, which writes no text"})
    tied = not any(parameter.kind == HEAD for parameter in expected.values())
    extra = {  # but for a table that each model computes, and a tied head
        name
        for name in weights.keys() - expected.keys()
        if not is_computed(name) and not (tied and name.startswith("lm_head."))
    }
    different = {
        difference(name, str(list(weights[name].shape)), str(list(expected[name].shape)))
        for name in weights.keys() & expected.keys()
        if weights[name].shape != expected[name].shape
    }
    return Misfits(expected.keys() - weights.keys(), extra, different)


def check_tokenizer(run: RunConfig) -> list[Finding]:
    """Check that the tokenizer's ids fit the vocabulary, and its bos, eos, pad and unk config.json.

    Where eos agrees, bos may differ: only the tokenizer's is used. [] for a name, which is downloaded when the run
    starts, and for a directory without a tokenizer.
    """
    values = run.flags
    model = values.model_name_or_path
    directory = Path(values.tokenizer_name_or_path or model or "").expanduser()
    if not model or not directory.is_dir():
        return []
    try:
        config = run_config(values)
    except UserError:  # the check of the model reports it
        return []
    try:
        tokenizer = read_tokenizer(directory)
    except UserError as error:
        return [Finding(False, "tokenizer", str(error), TOKENIZER_FIX)]
    if tokenizer is None:
        return []
    faults = []
    if tokenizer.size > config["vocab_size"]:
        found = f"{directory} has {tokenizer.size:,} ids, the model's vocabulary {config['vocab_size']:,}"
        faults.append(
            Finding(False, "tokenizer", found, f"{TOKENIZER_FIX}; or a model with vocab_size {tokenizer.size}")
        )
    found = f"{tokenizer.size:,} ids of {config['vocab_size']:,}"
    for role in ROLES:
        own, stated = tokenizer.special.get(role), _stated(config.get(f"{role}_token_id"))
        if own is None or not stated or own in stated:
            continue
        if role == "bos" and tokenizer.special.get("eos") in _stated(config.get("eos_token_id")):
            # That of DeepSeek-R1-Distill-Qwen is right, and its config.json has the bos of the Qwen it is made from.
            found += f": a text begins with the tokenizer's bos, {own}, not with config.json's, {stated[0]}"
            continue
        different = f"{role}_token_id is {stated[0]} in {find_config(model)}, the tokenizer's {role} is {own}"
        faults.append(Finding(False, "tokenizer", different, f"{TOKENIZER_FIX}, or correct config.json"))
    if (published := load_config(model)["vocab_size"]) != config["vocab_size"]:
        found += f": the fresh model takes the tokenizer's vocabulary, not {find_config(model).name}'s {published:,}"
    return faults or [Finding(True, "tokenizer", found)]


def _stated(value: int | list[int] | None) -> list[int]:
    """Return the ids that a configuration allows for a role; a negative id means none."""
    ids = value if isinstance(value, list) else [value]
    return [value for value in ids if isinstance(value, int) and value >= 0]
