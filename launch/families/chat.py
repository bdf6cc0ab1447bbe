"""Which chat template a model is trained and asked with: the one that is named, its own, or its family's."""

from dataclasses import replace
from pathlib import Path

from data_tools.formats.dialogues.chat_template import (
    TOKENIZER_CONFIG,
    ChatTemplate,
    directory_template,
    load_template,
    special_tokens,
)
from launch.errors import UserError
from launch.families.registry import family_of_config

TEMPLATES = Path(__file__).parent / "chat_templates"
NONE = "none"  # --chat_template none: the bare texts


def template_names() -> list[str]:
    return sorted(path.stem for path in TEMPLATES.glob("*.json"))


def find_template(named: str | None, directory: Path | None, config: dict) -> ChatTemplate | None:
    """The template of --chat_template, else that of the tokenizer's directory, else that of the model's family.

    named: a name of template_names(), a file, a directory, "none", or None where no flag is given. directory: of the
    tokenizer, where it is known. None: the bare texts. Raises UserError where there is none of that name, DataError
    where one cannot be read.
    """
    if named == NONE:
        return None
    tokens = special_tokens(directory) if directory else {}
    if named is None:
        own = directory_template(directory) if directory else None
        return own or family_chat_template(directory, config)
    if named in template_names():
        return _shipped(named, "of --chat_template", tokens)
    path = Path(named)
    template = directory_template(path) if path.is_dir() else load_template(path, tokens) if path.is_file() else None
    if template is None:
        raise UserError(
            f"--chat_template: found {named!r}, allowed: {', '.join(template_names())}, {NONE}, a file's path, or a "
            "directory whose tokenizer has one."
        )
    return replace(template, tokens=tokens or template.tokens)


def family_chat_template(directory: Path | None, config: dict) -> ChatTemplate:
    """That of the model's family. directory: of the tokenizer."""
    tokens = special_tokens(directory) if directory else {}
    return _shipped(_family_template(directory, config), "of the model's family", tokens)


def template_line(template: ChatTemplate | None) -> str:
    """What a start says about it."""
    return f"chat template: {template.origin if template else 'none, the bare texts'}"


def _shipped(name: str, origin: str, tokens: dict[str, str]) -> ChatTemplate:
    return replace(load_template(TEMPLATES / f"{name}.json", tokens), origin=f"{name} ({origin})")


def _family_template(directory: Path | None, config: dict) -> str:
    family = family_of_config(config)
    if directory is None:
        return family.chat_template
    for token, template in family.chat_template_by_token:
        files = (directory / name for name in (TOKENIZER_CONFIG, "tokenizer.json"))
        if any(f'"{token}"'.encode() in file.read_bytes() for file in files if file.is_file()):
            return template
    return family.chat_template
