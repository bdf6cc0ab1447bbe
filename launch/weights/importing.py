"""A Hugging Face model directory to one of ours: whole, or not at all."""

import json
from dataclasses import dataclass
from pathlib import Path

from data_tools.progress import progress
from launch.families.named_configs import read_config
from launch.families.registry import Family, family_of_config
from launch.weights.configuration import has_unit_head, our_config
from launch.weights.convert import new_tensor, plan
from launch.weights.files import find_torch_weights
from launch.weights.safetensors_writer import write_safetensors
from launch.weights.tokenizer import import_tokenizer
from launch.weights.whole import written_whole

CONFIG = "config.json"


@dataclass(frozen=True)
class Imported:
    """What has been written. tokenizer: a line about it."""

    family: Family
    parameters: int
    dtypes: list[str]
    tokenizer: str


def import_directory(source: Path, target: Path, dtype: str | None, shard_bytes: int) -> Imported:
    """Write `target`, a model directory of ours, from `source`. Memory: some pieces of a tensor.

    dtype: of the weights; None: as they are. Nothing is read but what an import needs, nothing of it is run.
    Raises UserError, and leaves nothing behind, where source is not what it should be or target is there already.
    """
    theirs = read_config(source / CONFIG, "a Hugging Face model")
    config = our_config(theirs, str(source / CONFIG))
    family = family_of_config(config)
    conversions = plan(config, find_torch_weights(source), has_unit_head(theirs))
    tensors = [new_tensor(one, dtype) for one in conversions]
    dtypes = sorted({one.dtype for one in tensors})
    config |= {"architectures": [family.model_class], "dtype": dtypes[0] if len(dtypes) == 1 else "float32"}
    with written_whole(target) as directory:
        with progress("importing", sum(one.nbytes for one in tensors)) as advance:
            write_safetensors(directory, tensors, shard_bytes, advance)
        tokenizer = import_tokenizer(source, directory, family)
        (directory / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    return Imported(family, sum(one.parameter.size for one in conversions), dtypes, tokenizer)
