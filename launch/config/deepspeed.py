"""Translate a configuration of DeepSpeed or accelerate, or arguments of Hugging Face's Trainer, to our flags.

    translation = translate(read_source("ds_config.json", lenient=True))
    translation.flags               # {"sharding": "stage2 offload", "fp16": "1", ...}

A row of deepspeed_keys.json has its `key` and one of: `flag`, which takes the value, `how` saying through which
function of HOW; `values`, each with the flags that it means, `other` saying why any other has none; `why` there is no
counterpart, `off` listing the values that ask for nothing. `note` is for the page of the documentation.
"""

import difflib
import json
import math
import shlex
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from launch.config.flag_values import all_flags, split_words
from launch.config.key_files import YAML, Stated
from launch.errors import UserError

TABLE = Path(__file__).with_name("deepspeed_keys.json")
KINDS = {
    "deepspeed": "a configuration of DeepSpeed",
    "accelerate": "a configuration of accelerate",
    "transformers": "arguments of Hugging Face's Trainer",
}
AUTO = "auto"
NUMBERS = {"int": "a whole number", "float": "a number"}
LARGEST_EXPONENT = 127  # of a loss scale of two to that power, which is a float32

Words = dict[str, str]  # {flag: its words}


@dataclass(frozen=True)
class Translated:
    """The translation of one key.

    Attributes:
        flags: {} where it needs none, or has no counterpart: then `remark` says why.
    """

    stated: Stated
    flags: Words
    remark: str = ""


@dataclass(frozen=True)
class Translation:
    """The translation of a file.

    Attributes:
        kind: A key of KINDS.
        keys: In the order of the file.
        unknown: Messages about the keys that are none of its kind.
    """

    kind: str
    keys: list[Translated]
    unknown: list[str]

    @property
    def flags(self) -> Words:
        """All flags of the keys."""
        return {flag: words for key in self.keys for flag, words in key.flags.items()}


@lru_cache
def table() -> dict[str, list[dict]]:
    """Return {kind: rows} of deepspeed_keys.json."""
    return json.loads(TABLE.read_text(encoding="utf-8"))


def translate(stated: list[Stated]) -> Translation:
    """Translate a file.

    Raises:
        UserError: With file, line and key for a value of a wrong kind, and where two keys give one flag two values.
    """
    kind = max(KINDS, key=lambda kind: sum(_row(kind, entry.key) is not None for entry in stated))
    config = {entry.key: entry.value for entry in stated}
    known = [row["key"] for row in table()[kind]]
    keys, unknown = [], []
    for entry in stated:
        if entry.value == {} and any(key.startswith(f"{entry.key}.") for key in known):
            continue  # an empty section
        if row := _row(kind, entry.key):
            keys.append(_translated(entry, row, config))
        else:
            near = difflib.get_close_matches(entry.key, known, 1)
            nearest = f"; the nearest that is known: {near[0]}" if near else ""
            unknown.append(f"{entry.place}: no key of {KINDS[kind]} that is known here{nearest}")
    _check_agreement(keys)
    return Translation(kind, keys, unknown)


def _row(kind: str, key: str) -> dict | None:
    rows, parts = {row["key"]: row for row in table()[kind]}, key.split(".")
    sections = (f"{'.'.join(parts[:count])}.*" for count in range(len(parts) - 1, 0, -1))
    return next((rows[name] for name in (key, *sections) if name in rows), None)


def _translated(stated: Stated, row: dict, config: dict) -> Translated:
    if "why" in row:
        return Translated(stated, {}, "" if stated.value in row.get("off", ()) else row["why"])
    if "values" in row:
        return _by_value(stated, row)
    flags = [row["flag"]] if isinstance(row["flag"], str) else row["flag"]
    if stated.value == AUTO:
        return Translated(stated, {}, _filled_in(flags))
    how = HOW[row.get("how", "same")]
    words = how(stated, flags, config)
    return Translated(stated, words or {}, "" if words is not None else f"{row['note']}, which is not stated here")


def _by_value(stated: Stated, row: dict) -> Translated:
    values = row["values"]
    word = stated.value if isinstance(stated.value, str) else json.dumps(stated.value)
    if word in values:
        return Translated(stated, parse_words(values[word]))
    if word == AUTO and "auto" in row:
        return Translated(stated, {}, _filled_in([row["auto"]]))
    if "other" in row:
        return Translated(stated, {}, row["other"])
    raise UserError(f"{stated.place}: found {stated.text}; expected one of {', '.join(values)}")


def _filled_in(flags: list[str]) -> str:
    return f"the Trainer fills it in; here {' '.join(f'--{flag}' for flag in flags)} says it"


def parse_words(text: str) -> Words:
    """Return --a 1 --b "x y" as {"a": "1", "b": "x y"}."""
    words = shlex.split(text)
    return {flag.removeprefix("--"): value for flag, value in zip(words[::2], words[1::2], strict=True)}


def _check_agreement(keys: list[Translated]) -> None:
    seen: dict[str, Translated] = {}
    for key in keys:
        for flag, words in key.flags.items():
            before = seen.setdefault(flag, key)
            if before.flags[flag] != words:
                raise UserError(
                    f"{key.stated.place}: found {key.stated.text}, but {before.stated.key} in line "
                    f"{before.stated.line} is {before.stated.text}: both are --{flag}. Keep one."
                )


# ---- from a value to words


def _same(stated: Stated, flags: list[str], config: dict) -> Words:
    return {flags[0]: _word(stated, flags[0], stated.value)}


def _word(stated: Stated, flag: str, value: Any) -> str:
    """Return a value as the flag takes it."""
    kind = all_flags()[flag].kind
    if kind in NUMBERS:
        return _number(stated, value, kind)
    if kind == "bool":
        if not isinstance(value, bool):
            raise UserError(f"{stated.place}: found {stated.text}; expected true or false")
        return str(int(value))
    return value if isinstance(value, str) else json.dumps(value)


def _number(stated: Stated, value: Any, kind: str) -> str:
    if isinstance(value, str) and Path(stated.file).suffix in YAML:
        with suppress(ValueError):
            value = float(value)  # 1e-4, which YAML takes for a text
    fits = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < math.inf
    if not fits or (kind == "int" and value != int(value)):
        raise UserError(f"{stated.place}: found {stated.text}; expected {NUMBERS[kind]}")
    return f"{int(value)}" if value == int(value) else repr(value)


def _sharding(stated: Stated, flags: list[str], config: dict) -> Words:
    stage = stated.value
    if type(stage) is not int or stage not in (0, 1, 2, 3):
        raise UserError(f"{stated.place}: found {stated.text}; expected 0, 1, 2 or 3")
    section = stated.key.rpartition(".")[0]
    kinds = [f"{section}.offload_{kind}" for kind in ("optimizer", "param")]
    offloads = any("cpu" in (config.get(f"{name}.device"), config.get(f"{name}_device")) for name in kinds)
    older = ("cpu_offload", "cpu_offload_params", "cpu_offload_param")
    offloads |= any(config.get(f"{section}.{name}") is True for name in older)
    if stage == 0:
        return {}
    if stage == 1:
        return {"sharding": "stage1"} | ({"offload_optim": "1"} if offloads else {})
    return {"sharding": f"stage{stage} offload" if offloads else f"stage{stage}"}


FSDP = {
    **dict.fromkeys(("FULL_SHARD", "HYBRID_SHARD", "1", "4", "true"), "stage3"),
    **dict.fromkeys(("SHARD_GRAD_OP", "HYBRID_SHARD_ZERO2", "2", "5", "false"), "stage2"),
    **dict.fromkeys(("NO_SHARD", "3"), ""),
}


def _fsdp(stated: Stated, flags: list[str], config: dict) -> Words:
    """Return the stage of a strategy, by its name or number, or of version 2's fsdp_reshard_after_forward."""
    word = stated.value if isinstance(stated.value, str) else json.dumps(stated.value)
    if word not in FSDP:
        raise UserError(f"{stated.place}: found {stated.text}; expected one of {', '.join(FSDP)}")
    offload = " offload" if config.get("fsdp_config.fsdp_offload_params") is True else ""
    return {flags[0]: FSDP[word] + offload} if FSDP[word] else {}


def _neftune(stated: Stated, flags: list[str], config: dict) -> Words:
    return {} if stated.value is None else {"neftune": "1", flags[0]: _number(stated, stated.value, "float")}


def _power_of_two(stated: Stated, flags: list[str], config: dict) -> Words:
    exponent = int(_number(stated, stated.value, "int"))
    if not 0 <= exponent <= LARGEST_EXPONENT:
        raise UserError(f"{stated.place}: found {stated.text}; expected 0 to {LARGEST_EXPONENT}")
    return {flags[0]: str(2**exponent)}


def _each(stated: Stated, flags: list[str], config: dict) -> Words:
    if not isinstance(stated.value, list) or len(stated.value) != len(flags):
        raise UserError(f"{stated.place}: found {stated.text}; expected a list of {len(flags)} numbers")
    return {flag: _number(stated, value, "float") for flag, value in zip(flags, stated.value, strict=True)}


def _times_learning_rate(stated: Stated, flags: list[str], config: dict) -> Words | None:
    rates = [config.get(key) for key in ("optimizer.params.lr", "scheduler.params.warmup_max_lr")]
    rate = next((rate for rate in rates if isinstance(rate, (int, float))), None)
    return None if rate is None else {flags[0]: repr(float(_number(stated, stated.value, "float")) * rate)}


def _plus_source(stated: Stated, flags: list[str], config: dict) -> Words | None:
    source = config.get("max_source_length")
    if not isinstance(source, int):
        return None
    return {flags[0]: str(int(_number(stated, stated.value, "int")) + source)}


def _listed(stated: Stated, flags: list[str], config: dict) -> Words:
    words = stated.value if isinstance(stated.value, list) else str(stated.value).split(",")
    return {flags[0]: " ".join(str(word).strip() for word in words)}


def _prefix(stated: Stated, flags: list[str], config: dict) -> Words:
    return {} if stated.value is None else {"prefix_tuning": "1", flags[0]: _number(stated, stated.value, "int")}


HOW: dict[str, Callable[[Stated, list[str], dict], Words | None]] = {
    "same": _same,
    "sharding": _sharding,
    "fsdp": _fsdp,
    "neftune": _neftune,
    "power_of_two": _power_of_two,
    "each": _each,
    "times_learning_rate": _times_learning_rate,
    "plus_source": _plus_source,
    "words": _listed,
    "prefix": _prefix,
}


SEVERAL = "lora_target_modules"  # the one flag here whose words stand apart on a command line


def show(translation: Translation, file: str) -> str:
    """Return each flag with the key that it comes from, keys without one and why, and all flags in one line."""
    flags = [
        (f"--{flag} {quoted(flag, words)}", f"{key.stated.key} (line {key.stated.line})")
        for key in translation.keys
        for flag, words in key.flags.items()
    ]
    remarks = [
        (f"line {key.stated.line}", f"{key.stated.key} {key.stated.text}: {key.remark}")
        for key in translation.keys
        if key.remark
    ]
    line = " ".join(f"--{flag} {quoted(flag, words)}" for flag, words in translation.flags.items())
    parts = [f"{file}, {KINDS[translation.kind]}, in our flags:", *_columns(flags)]
    if remarks:
        parts += ["without a flag of its own:", *_columns(remarks)]
    return "\n".join([*parts, "in one line:", f"  {line}"])


def quoted(flag: str, words: str) -> str:
    """Return words as a shell takes them."""
    return shlex.join(split_words(flag, words)) if flag == SEVERAL else shlex.quote(words)


def _columns(rows: list[tuple[str, str]]) -> list[str]:
    width = max((len(left) for left, _ in rows), default=0)
    return [f"  {left:{width}}  {right}" for left, right in rows]
