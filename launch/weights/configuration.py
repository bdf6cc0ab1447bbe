"""A Hugging Face config.json to ours, as launch/families/configs has them, and back."""

from launch.errors import UserError
from launch.families.family import HuggingFace, Values
from launch.families.named_configs import TOKENS, check_config, check_values
from launch.families.registry import FAMILIES, family_of_config


def our_config(theirs: dict, path: str) -> dict:
    """Our configuration from the values of a config.json. path: of the file, for messages.

    Raises UserError for a model that is of no family of ours, or has a setting that its family lacks here.
    """
    check_values(theirs, path)
    published = _published(theirs)
    if published is None:
        allowed = ", ".join(sorted({family.published.model_type for family in FAMILIES.values()}))
        raise UserError(f"{path}: model_type: found {theirs.get('model_type')!r}, allowed: {allowed}.")
    config = published.read_config(Values(theirs, path))
    tokens = {key: theirs[key] for key in TOKENS if theirs.get(key) is not None}
    config |= {key: value[0] if isinstance(value, list) else value for key, value in tokens.items()}
    check_config(config, path)
    return config


def has_unit_head(theirs: dict) -> bool:
    """Whether the head's rows are divided by their lengths when the model runs."""
    published = _published(theirs)
    return published is not None and published.unit_head(theirs)


def their_config(ours: dict, dtype: str) -> dict:
    """The values of a Hugging Face config.json. dtype: of the weights."""
    tokens = {key: ours[key] for key in TOKENS if ours.get(key) is not None}
    return family_of_config(ours).published.write_config(ours) | tokens | {"torch_dtype": dtype}


def _published(theirs: dict) -> HuggingFace | None:
    """How the family publishes its models that reads this config.json; None: no family of ours does."""
    candidates = (family.published for family in FAMILIES.values())
    return next(
        (one for one in candidates if one.model_type == theirs.get("model_type") and one.recognizes(theirs)), None
    )
