"""Do the tokenizer's ids and the model's configuration agree?"""

from pathlib import Path

from launch.checkpoint.state.verify import run_config
from launch.config.run_config import RunConfig
from launch.errors import UserError
from launch.families.named_configs import find_config, load_config
from launch.families.tokenizer_files import ROLES, read_tokenizer
from launch.preflight.report import Finding

FIX = "--tokenizer_name_or_path DIRECTORY: the tokenizer that the model was made with"


def check_tokenizer(run: RunConfig) -> list[Finding]:
    """Its ids fit the vocabulary, and bos, eos, pad and unk are those of the configuration, where both state them.

    Nothing for a name, which is downloaded when the run starts, and for a directory without a tokenizer.
    """
    values = run.flags
    model = values.model_name_or_path
    directory = Path(values.tokenizer_name_or_path or model or "").expanduser()
    if not model or not directory.is_dir():
        return []
    try:
        config = run_config(values)
    except UserError:  # told by the check of the model
        return []
    try:
        tokenizer = read_tokenizer(directory)
    except UserError as error:
        return [Finding(False, "tokenizer", str(error), FIX)]
    if tokenizer is None:
        return []
    faults = []
    if tokenizer.size > config["vocab_size"]:
        found = f"{directory} has {tokenizer.size:,} ids, the model's vocabulary {config['vocab_size']:,}"
        faults.append(Finding(False, "tokenizer", found, f"{FIX}; or a model with vocab_size {tokenizer.size}"))
    for role in ROLES:
        mine, theirs = tokenizer.special.get(role), _stated(config.get(f"{role}_token_id"))
        if mine is not None and theirs and mine not in theirs:
            found = f"{role}_token_id is {theirs[0]} in {find_config(model)}, the tokenizer's {role} is {mine}"
            faults.append(Finding(False, "tokenizer", found, f"{FIX}, or correct config.json"))
    found = f"{tokenizer.size:,} ids of {config['vocab_size']:,}"
    if (published := load_config(model)["vocab_size"]) != config["vocab_size"]:
        found += f": the fresh model takes the tokenizer's vocabulary, not {find_config(model).name}'s {published:,}"
    return faults or [Finding(True, "tokenizer", found)]


def _stated(value: int | list[int] | None) -> list[int]:
    """The ids that a configuration allows for a role; a negative one stands for none."""
    ids = value if isinstance(value, list) else [value]
    return [one for one in ids if isinstance(one, int) and one >= 0]
