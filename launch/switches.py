"""Three-state switches: what a flag such as --use_flash_attention may say."""

CHOICES = ("auto", "on", "off", "required")
ALIASES = {"0": "off", "1": "on", "false": "off", "true": "on"}


def switch(value: str) -> str:
    """`value` as one of auto, on, off, required; 0/false and 1/true mean off and on. Raises ValueError for others."""
    choice = ALIASES.get(value.lower(), value.lower())
    if choice not in CHOICES:
        raise ValueError(f"found {value!r}, allowed: {', '.join(CHOICES)} (or 0/1, false/true)")
    return choice
