"""Model configurations by name, from the checked-in files in configs/, from a file or from a model directory."""

import difflib
import json
import re
from pathlib import Path

from launch.errors import UserError
from launch.families.config_check import check_config

CONFIGS = Path(__file__).parent / "configs"
NAME = re.compile(r"((?P<owner>[\w-][\w.-]*)/)?(?P<name>[\w-][\w.-]*)")

GATED = "Meta asks for consent to its licence on the model's page; then `.venv/bin/huggingface-cli login` comes first."
# Folders that our commands write to: a path below one that is not there yet is no name.
OUR_FOLDERS = ("models", "runs", "exported", "checkpoints", "build", "data")


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
    found = f"--model_name_or_path: {model_name_or_path!r} is no directory with a config.json, no .json file and no "
    if way := how_to_get(model_name_or_path):
        raise UserError(f"{found}name known here. {way}\nNames: {', '.join(config_names())}.")
    nearest = _nearest(path.name)
    raise UserError(
        f"{found}configuration by name. {f'Did you mean {nearest[0]}? ' if nearest else ''}"
        f"Names: {', '.join(config_names())}."
    )


def how_to_get(repository: str) -> str:
    """What to do with the name of a model at Hugging Face: lines that begin with spaces are commands.

    "" for what can be no such name: a path into a folder that is here, or from `/`, `~` or `.`.
    """
    named = NAME.fullmatch(repository)
    if not named or not named["owner"] or named["owner"] in OUR_FOLDERS or Path(named["owner"]).exists():
        return ""
    name, nearest = named["name"], _nearest(named["name"])
    gated = f"\n{GATED}" if repository.startswith("meta-llama/") else ""
    sizes = f"\nTo plan and rehearse without it: MODEL={nearest[0]}, the nearest size known by name." if nearest else ""
    return (
        "It may be a model at Hugging Face. Two commands, the first needs the network, download it and make it ours:\n"
        f"    .venv/bin/huggingface-cli download {repository} --local-dir models/hf/{name}\n"
        f"    make import MODEL=models/hf/{name} OUTPUT=models/{name}\n"
        f"Then MODEL=models/{name}. The families that can be imported: docs/families.md.{gated}{sizes}"
    )


def _nearest(name: str) -> list[str]:
    """The configuration with nearly this name, if there is one."""
    return difflib.get_close_matches(name.lower(), config_names(), n=1)


def load_config(model_name_or_path: str) -> dict:
    """The configuration as a dictionary.

    Raises UserError when there is none, it is not a JSON object, or a value cannot be right (config_check.py).
    """
    path = find_config(model_name_or_path)
    config = read_config(path, "a model")
    if "model_type" not in config:
        raise UserError(f"{path}: no key 'model_type'; is this a model's configuration?")
    check_config(config, str(path))
    return config


def read_config(path: Path, place: str) -> dict:
    """The JSON object of a configuration file. Raises UserError where there is none; place: what its directory is."""
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
    if not isinstance(config, dict):
        raise UserError(f"{path}: not the configuration of {place}.")
    return config
