"""Does the shared module know every flag, and can it read every value?"""

import difflib

from launch.config.aliases import refusal
from launch.config.flag_values import ALIASES, CHOICES, NO, YES, Flags, load_schema, read_number, split_words
from launch.preflight.report import Finding


def check_flags(script: str, flags: Flags) -> list[Finding]:
    """One finding for each flag at fault; one for all when none is."""
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
            allowed = _expectation(word, expected)
            if allowed:
                return Finding(False, f"--{name}", f"found {word!r}", f"allowed: {allowed}")
    return None


def _is_negation(name: str, words: list[str], known: dict) -> bool:
    """--no_recompute for --recompute 0: PaddleNLP's parser has it for flags that are on by default."""
    positive = known.get(name.removeprefix("no_"))
    return name.startswith("no_") and not words and positive is not None and positive["default"] is True


def _unknown(name: str, known: dict) -> Finding:
    reason = refusal(name)
    if reason:
        return Finding(False, f"--{name}", f"a flag of PaddleNLP 2.6: {reason}", "leave it out")
    nearest = difflib.get_close_matches(name, known, n=1)
    fix = f"did you mean --{nearest[0]}?" if nearest else "leave it out; --help lists all flags"
    return Finding(False, f"--{name}", "unknown flag", fix)


def _expectation(word: str, expected: dict) -> str | None:
    """What a value should have been, None where it is right."""
    kind = expected["type"]
    if kind == "bool":
        return None if word.lower() in (*YES, *NO) else "1 or 0 (true, false)"
    if kind == "switch":
        return None if word.lower() in (*CHOICES, *ALIASES) else ", ".join(CHOICES)
    if kind in ("int", "float"):
        try:
            read_number(expected, word)
        except ValueError as error:
            return str(error)
    choices = expected.get("choices") or expected.get("words")
    return ", ".join(map(str, choices)) if choices and word not in map(str, choices) else None
