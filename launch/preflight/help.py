"""The flags of a shared module, as --help lists them."""

import textwrap
from pathlib import Path

from launch.models.flag_values import load_schema


def flag_help(script: str) -> str:
    """One paragraph a flag: its type, default, choices and purpose, 80 columns wide."""
    name = Path(script).stem
    lines = [f"Flags of launch/{name}.py (PaddleNLP's names; README.md tells how to start it):", ""]
    for flag, known in load_schema(name).items():
        choices = f", one of {', '.join(map(str, known['choices']))}" if known.get("choices") else ""
        if known.get("words"):
            choices = f", any of {', '.join(known['words'])}"
        lines.append(f"--{flag} ({known['type']}, default {known['default']}{choices})")
        lines += textwrap.wrap(known["help"], 80, initial_indent="    ", subsequent_indent="    ")
    return "\n".join(lines)
