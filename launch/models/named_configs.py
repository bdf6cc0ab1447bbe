"""Model configurations by name, from the checked-in files in configs/, from a file or from a model directory."""

import difflib
import json
import re
from pathlib import Path

from launch.errors import UserError

CONFIGS = Path(__file__).parent / "configs"
NAME = re.compile(r"((?P<owner>[\w-][\w.-]*)/)?(?P<name>[\w-][\w.-]*)")


def config_names() -> list[str]:
    return sorted(path.stem for path in CONFIGS.glob("*.json"))


def find_config(model_name_or_path: str) -> Path:
    """The configuration file that a name or a path means.

    Understood, in this order: a model directory with config.json, a path to a .json file, a name of a checked-in
    configuration with or without its owner (`facebook/llama-7b` is `llama-7b`).
    Raises UserError when it is none of these; a path into a folder that is here, or from `/`, `~` or `.`, is no name.
    """
    path = Path(model_name_or_path).expanduser()
    if (path / "config.json").is_file():
        return path / "config.json"
    if path.suffix == ".json" and path.is_file():
        return path
    named = NAME.fullmatch(model_name_or_path)
    if named and named["name"] in config_names() and not (named["owner"] and Path(named["owner"]).is_dir()):
        return CONFIGS / f"{named['name']}.json"
    nearest = difflib.get_close_matches(path.name, config_names(), n=1)
    raise UserError(
        f"--model_name_or_path: {model_name_or_path!r} is no directory with a config.json, no .json file and no "
        f"configuration by name. {f'Did you mean {nearest[0]}? ' if nearest else ''}Names: {', '.join(config_names())}."
    )


def load_config(model_name_or_path: str) -> dict:
    """The configuration as a dictionary. Raises UserError when there is none or it is not a JSON object."""
    path = find_config(model_name_or_path)
    config = read_config(path, "a model")
    if "model_type" not in config:
        raise UserError(f"{path}: no key 'model_type'; is this a model's configuration?")
    return config


def read_config(path: Path, place: str) -> dict:
    """The JSON object of a configuration file. Raises UserError where there is none; place: what its directory is."""
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file. Name the directory of {place}.") from None
    except json.JSONDecodeError as error:
        raise UserError(f"{path}:{error.lineno}: not JSON ({error.msg}).") from None
    if not isinstance(config, dict):
        raise UserError(f"{path}: not the configuration of {place}.")
    return config
