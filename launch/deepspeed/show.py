"""A translation, to read."""

import shlex

from launch.config.flag_values import split_words
from launch.deepspeed.translate import KINDS, Translation

SEVERAL = "lora_target_modules"  # the one flag here whose words stand apart on a command line


def show(translation: Translation, file: str) -> str:
    """Each flag with the key that it comes from, what has none and why, and all flags in one line."""
    flags = [
        (f"--{flag} {quoted(flag, words)}", f"{one.stated.key} (line {one.stated.line})")
        for one in translation.keys
        for flag, words in one.flags.items()
    ]
    told = [
        (f"line {one.stated.line}", f"{one.stated.key} {one.stated.text}: {one.told}")
        for one in translation.keys
        if one.told
    ]
    line = " ".join(f"--{flag} {quoted(flag, words)}" for flag, words in translation.flags.items())
    parts = [f"{file}, {KINDS[translation.kind]}, in our flags:", *_columns(flags)]
    if told:
        parts += ["without a flag of its own:", *_columns(told)]
    return "\n".join([*parts, "in one line:", f"  {line}"])


def quoted(flag: str, words: str) -> str:
    """As a shell takes them."""
    return shlex.join(split_words(flag, words)) if flag == SEVERAL else shlex.quote(words)


def _columns(rows: list[tuple[str, str]]) -> list[str]:
    width = max((len(left) for left, _ in rows), default=0)
    return [f"  {left:{width}}  {right}" for left, right in rows]
