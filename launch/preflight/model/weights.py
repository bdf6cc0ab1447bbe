"""Are a model directory's weights whole, and are they those of its configuration? By their headers; none is read."""

from pathlib import Path

from launch.checkpoint.stored_tensor import StoredTensor
from launch.checkpoint.weight_files import Misfits, difference, find_weights, is_computed
from launch.config.run_config import RunConfig
from launch.errors import UserError
from launch.families.named_configs import load_config
from launch.families.parameters import HEAD, Parameter
from launch.families.registry import parameters
from launch.preflight.report import Finding

FIX = "MODEL=DIRECTORY or --model_name_or_path names another; --continue_training 0 starts from random weights"
# Linear layers that paddlenlp joins have other names than the parameters that are known from the configuration alone.
FUSED = ("fuse_attention_qkv", "fuse_attention_ffn")


def check_weights(run: RunConfig) -> list[Finding]:
    """Nothing for a name, which is downloaded when the run starts, and for random weights."""
    values = run.flags
    directory = Path(values.model_name_or_path or "").expanduser()
    if not values.model_name_or_path or not directory.is_dir() or values.continue_training is False:
        return []
    try:
        weights = find_weights(directory)
        config = load_config(str(directory))
        misfits = _misfits(weights, config)
    except (UserError, OSError) as error:
        return [Finding(False, "weights", str(error), FIX)]
    if misfits:
        found = f"{directory}: the weights do not fit its config.json; {misfits}"
        return [Finding(False, "weights", found, f"take both from one model; {FIX}")]
    files = len({tensor.path for tensor in weights.values()})
    size = sum(tensor.nbytes for tensor in weights.values()) / 1e9
    number = "1 file" if files == 1 else f"{files} files"
    return [Finding(True, "weights", f"{len(weights)} tensors, {size:,.1f} GB in {number}")]


def _misfits(weights: dict[str, StoredTensor], config: dict) -> Misfits:
    if any(config.get(name) for name in FUSED):
        return Misfits()  # those are compared when the model is there
    wanted = {parameter.name: parameter for parameter in parameters(config)}
    extra = {name for name in weights.keys() - wanted.keys() if not _may_be_left(name, list(wanted.values()))}
    different = {
        difference(name, str(list(weights[name].shape)), str(list(wanted[name].shape)))
        for name in weights.keys() & wanted.keys()
        if weights[name].shape != wanted[name].shape
    }
    return Misfits(wanted.keys() - weights.keys(), extra, different)


def _may_be_left(name: str, wanted: list[Parameter]) -> bool:
    """Tables that each model computes; and a head saved apart, though it is the word embedding."""
    tied = not any(parameter.kind == HEAD for parameter in wanted)
    return is_computed(name) or (tied and name.startswith("lm_head."))
