"""The flags of a shared module, as --help lists them."""

from pathlib import Path

from data_tools.terminal import wrapped
from launch.config.flag_values import load_schema, range_text


def flag_help(script: str) -> str:
    """One paragraph a flag: its type, default, choices and purpose."""
    name = Path(script).stem
    lines = [f"Flags of launch/{name}.py, named as PaddleNLP has them.", ""]
    for flag, known in load_schema(name).items():
        choices = f", one of {', '.join(map(str, known['choices']))}" if known.get("choices") else ""
        if "range" in known:
            choices = f", {range_text(known).partition(', ')[2]}"
        if known.get("words"):
            choices = f", any of {', '.join(known['words'])}"
        lines.append(wrapped(f"--{flag} ({known['type']}, default {known['default']}{choices})", further="        "))
        lines.append(wrapped(known["help"], "    ", "    "))
    return "\n".join(lines)
