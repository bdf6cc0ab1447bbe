"""The flags of a method: does it know each one and can it read each value, and the list that --help prints."""

import ast
import difflib
from dataclasses import fields
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from data_tools.terminal import wrapped
from launch.config import flags as flag_classes
from launch.config.aliases import refusal
from launch.config.flag import Flag
from launch.config.flag_values import Flags, known_flags, split_words
from launch.methods.registry import method_of
from launch.preflight.report import Finding


def check_flags(script: str, flags: Flags) -> list[Finding]:
    """Return one finding for each flag at fault; one for all when none is."""
    known = known_flags(script)
    faults = [fault for name, words in flags.items() if (fault := _fault(name, words, known))]
    return faults or [Finding(True, "flags", f"{len(flags)}, all known")]


def _fault(name: str, words: list[str], known: dict[str, Flag]) -> Finding | None:
    if name not in known:
        # PaddleNLP's parser has --no_recompute for --recompute 0, and the like for all flags that are on by default.
        positive = known.get(name.removeprefix("no_"))
        negates = name.startswith("no_") and not words and positive is not None and positive.default is True
        return None if negates else _unknown(name, known)
    expected = known[name]
    if not words and expected.kind != "bool" and not expected.alone:
        return Finding(False, f"--{name}", "found no value", f"--{name} VALUE ({expected.kind})")
    if len(words) > 1 and not expected.many:
        together = " ".join(words)
        fix = f'--{name} "{together}"' if expected.words else f"--{name} {words[0]}"
        return Finding(False, f"--{name}", f"found {len(words)} values: {together}", f"one value: {fix}")
    for value in words:
        for word in split_words(name, value) if expected.words else [value]:
            allowed = expected.expectation(word)
            if allowed:
                return Finding(False, f"--{name}", f"found {word!r}", f"allowed: {allowed}")
    return None


def _unknown(name: str, known: dict[str, Flag]) -> Finding:
    reason = refusal(name)
    if reason:
        return Finding(False, f"--{name}", f"a flag of PaddleNLP: {reason}", "leave it out")
    nearest = difflib.get_close_matches(name, known, n=1)
    fix = f"did you mean --{nearest[0]}?" if nearest else "leave it out; --help lists all flags"
    return Finding(False, f"--{name}", "unknown flag", fix)


def flag_help(script: str) -> str:
    """Return one paragraph a flag: its type, default, choices and purpose."""
    purposes = purposes_of(script)
    lines = [f"Flags of {method_of(script).program}, named as PaddleNLP has them.", ""]
    for name, flag in known_flags(script).items():
        choices = f", one of {', '.join(flag.choices)}" if flag.choices else ""
        if flag.range:
            choices = f", {flag.range_text.partition(', ')[2]}"
        if flag.words:
            choices = f", any of {', '.join(flag.words)}"
        lines.append(wrapped(f"--{name} ({flag.kind}, default {flag.default}{choices})", further="        "))
        lines.append(wrapped(purposes[name], "    ", "    "))
    return "\n".join(lines)


def purposes_of(script: str) -> dict[str, str]:
    """Return {flag: what it is for} of a method, by name or script."""
    own = {field.name: field.metadata["help"] for kind in method_of(script).arguments for field in fields(kind)}
    return _purposes() | own


@lru_cache
def _purposes() -> dict[str, str]:
    """Return {flag: what it is for}, from the texts below the fields of launch/config/flags.py."""
    tree = ast.parse(Path(flag_classes.__file__).read_text(encoding="utf-8"))
    nodes = [node for kind in tree.body if isinstance(kind, ast.ClassDef) for node in kind.body]
    purposes = {}
    for field, text in pairwise(nodes):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(purpose))):
                purposes[name] = " ".join(purpose.split())
    return purposes
