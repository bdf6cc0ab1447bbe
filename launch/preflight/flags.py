"""The flags of a method: does it know each one and can it read each value, and the list that --help prints."""

import difflib

from data_tools.terminal import wrapped
from launch.config.aliases import refusal
from launch.config.flag_values import Flags, expectation, load_schema, range_text, split_words
from launch.methods.registry import method_of
from launch.preflight.report import Finding


def check_flags(script: str, flags: Flags) -> list[Finding]:
    """Return one finding for each flag at fault; one for all when none is."""
    known = load_schema(script)
    faults = [fault for name, words in flags.items() if (fault := _fault(name, words, known))]
    return faults or [Finding(True, "flags", f"{len(flags)}, all known")]


def _fault(name: str, words: list[str], known: dict) -> Finding | None:
    if name not in known:
        return None if _is_negation(name, words, known) else _unknown(name, known)
    expected = known[name]
    if not words and expected["type"] != "bool" and "alone" not in expected:
        return Finding(False, f"--{name}", "found no value", f"--{name} VALUE ({expected['type']})")
    if len(words) > 1 and not expected.get("many"):
        together = " ".join(words)
        fix = f'--{name} "{together}"' if "words" in expected else f"--{name} {words[0]}"
        return Finding(False, f"--{name}", f"found {len(words)} values: {together}", f"one value: {fix}")
    for value in words:
        for word in split_words(name, value) if "words" in expected else [value]:
            allowed = expectation(word, expected)
            if allowed:
                return Finding(False, f"--{name}", f"found {word!r}", f"allowed: {allowed}")
    return None


def _is_negation(name: str, words: list[str], known: dict) -> bool:
    """Return whether a flag is like --no_recompute for --recompute 0.

    PaddleNLP's parser has it for flags that are on by default.
    """
    positive = known.get(name.removeprefix("no_"))
    return name.startswith("no_") and not words and positive is not None and positive["default"] is True


def _unknown(name: str, known: dict) -> Finding:
    reason = refusal(name)
    if reason:
        return Finding(False, f"--{name}", f"a flag of PaddleNLP: {reason}", "leave it out")
    nearest = difflib.get_close_matches(name, known, n=1)
    fix = f"did you mean --{nearest[0]}?" if nearest else "leave it out; --help lists all flags"
    return Finding(False, f"--{name}", "unknown flag", fix)


def flag_help(script: str) -> str:
    """Return one paragraph a flag: its type, default, choices and purpose."""
    lines = [f"Flags of {method_of(script).program}, named as PaddleNLP has them.", ""]
    for flag, known in load_schema(script).items():
        choices = f", one of {', '.join(map(str, known['choices']))}" if known.get("choices") else ""
        if "range" in known:
            choices = f", {range_text(known).partition(', ')[2]}"
        if known.get("words"):
            choices = f", any of {', '.join(known['words'])}"
        lines.append(wrapped(f"--{flag} ({known['type']}, default {known['default']}{choices})", further="        "))
        lines.append(wrapped(known["help"], "    ", "    "))
    return "\n".join(lines)
