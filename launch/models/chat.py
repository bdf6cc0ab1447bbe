"""Which chat template a model is trained with: one of a family's own, or the user's."""

from pathlib import Path

from launch.errors import UserError
from launch.models.families import family_of_config

TEMPLATES = Path(__file__).parent / "chat_templates"


def template_names() -> list[str]:
    return sorted(path.stem for path in TEMPLATES.glob("*.json"))


def template_file(named: str | None, config: dict) -> Path:
    """The file of --chat_template: a name, a path or None for that of the model's family.

    Raises UserError where there is none.
    """
    if named is None:
        return TEMPLATES / f"{family_of_config(config).chat_template}.json"
    path = Path(named)
    if path.is_dir():
        path = path / "chat_template.json"
    for file in (TEMPLATES / f"{named}.json", path):
        if file.is_file():
            return file
    raise UserError(f"--chat_template: found {named!r}, allowed: {', '.join(template_names())}, or a file's path.")
