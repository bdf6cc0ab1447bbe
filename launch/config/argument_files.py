"""PaddleNLP's files of arguments (its llm/config/) as flags of a method.

    flags, lines = read_arguments("sft_argument.json", "finetune_generation")
    # {"model_name_or_path": ["meta-llama/Meta-Llama-3-8B"], ...}, and lines to print about the file

A key is the flag of its name, or of the name that launch/config/aliases.py has for it today. What has no effect here is
left out with a line; what cannot be done is refused. paddlenlp's own reader (paddlenlp/trainer/argparser.py, read_json)
passes each value on as text, so that "1e-4" is a number here, too.
"""

import difflib
from pathlib import Path
from typing import Any

from launch.config.aliases import DROPPED, REFUSED, RENAMED, UNREADABLE, refusal, todays_flags
from launch.config.flag import Flag
from launch.config.flag_values import Flags, known_flags, split_words
from launch.config.key_files import YAML, Stated, read_source
from launch.config.paddleformers import paddlenlp_entries
from launch.errors import UserError
from launch.methods.method import ArgumentFiles, Method
from launch.methods.registry import METHODS, method_of

SUFFIXES = (".json", *YAML)


# Files of PaddleNLP's for which there is no method here.
OTHERS = (
    ArgumentFiles("PaddleNLP's PPO or GRPO", frozenset({"actor_model_name_or_path", "rl_algorithm"})),
    ArgumentFiles("quantization after training", frozenset({"do_ptq", "do_gptq", "do_awq", "load_quant_model"})),
    ArgumentFiles("a process reward model", frozenset({"process_reward"})),
    ArgumentFiles("a reward model of PPO", frozenset({"normalizer_type", "normalize_score_during_training"})),
    ArgumentFiles("embeddings", frozenset({"max_query_len", "max_passage_len"})),
)
# The first that has a key of the file is meant.
OURS = tuple((files, method) for method in reversed(METHODS) for files in method.files)
KINDS = (*((files, None) for files in OTHERS), *OURS)


def is_argument_file(word: str) -> bool:
    """Return whether the first word of a command line is a file of arguments, as paddlenlp's parser takes it."""
    return not word.startswith("--") and Path(word).suffix in SUFFIXES


def read_arguments(file: str, script: str) -> tuple[Flags, list[str]]:
    """Return the flags that a file states for a method, and lines to print: how many there are, what is left out.

    Raises:
        UserError: With file, line and key: for all unknown keys at once, for a value of a wrong kind, for what
            cannot be done here, and where the file is for another method.
    """
    stated = read_source(file)
    count = len(stated)
    kind = _required_kind(stated, method_of(script))
    implied, told = (kind.implied if kind else {}), []
    if kind and kind.stage and _stage(stated):
        stated, implied, told = paddlenlp_entries(stated, method_of(script))
    known = known_flags(script)
    faults = [fault for entry in stated if (fault := _fault(entry, known))]
    if faults:
        raise UserError("\n".join(faults))
    given = [entry for entry in stated if entry.value not in (None, [])]
    one_text = Flag("str")  # for a key of PaddleNLP's alone
    expected = {entry.key: known.get(RENAMED.get(entry.key, entry.key), one_text) for entry in given}
    flags, lines = todays_flags({entry.key: _words(entry, expected[entry.key]) for entry in given})
    refused = [f"{entry.place}: {refusal(entry.key)}" for entry in given if entry.key in flags.keys() - known.keys()]
    if refused:
        raise UserError("\n".join(refused))
    flags, line = _metric(flags, method_of(script))
    return implied | flags, [
        f"{file}: {count} keys read, {len(flags)} flags made of them",
        *told,
        *lines,
        *([line] if line else []),
    ]


def kind_of(stated: list[Stated]) -> tuple[ArgumentFiles, Method | None, Stated] | None:
    """Return what the file is for, its method if there is one, and the key that tells it; None where no key does."""
    if stage := _stage(stated):
        found = ((kind, method) for kind, method in OURS if kind.stage == stage.value)
        kind, method = next(found, (ArgumentFiles(f"the stage {stage.value}", frozenset()), None))
        return kind, method, stage
    for kind, method in KINDS:
        for entry in stated:
            if entry.key in kind.keys and entry.value not in (None, False, 0, ""):
                return kind, method, entry
    return None


def _stage(stated: list[Stated]) -> Stated | None:
    """Return the entry that tells a file of PaddleFormers or ERNIEKit."""
    return next((entry for entry in stated if entry.key == "stage"), None)


def _required_kind(stated: list[Stated], wanted: Method) -> ArgumentFiles | None:
    """Return what the file is for. Raises UserError for a file of another method."""
    found = kind_of(stated)
    if found is None:
        return None
    kind, method, entry = found
    if method is None:
        *titles, last = (files.title for files, _ in OURS)
        raise UserError(
            f"{entry.place}: this is a file for {kind.title}, which has no module here. "
            f"Files for {', '.join(titles)} and {last} can be used."
        )
    if method is not wanted:
        raise UserError(
            f"{entry.place}: this is a file for {kind.title}, {method.program}, not "
            f"{wanted.program}. Give it to that module, or to a recipe of it."
        )
    return kind


def _fault(entry: Stated, known: dict[str, Flag]) -> str | None:
    """Return what is wrong with a key or its value by itself."""
    name = RENAMED.get(entry.key, entry.key)
    if name in known:
        allowed = None if entry.value is None else _allowed(entry, name, known[name])
        return f"{entry.place}: found {entry.text}; allowed: {allowed}" if allowed else None
    of_others = {*RENAMED, *DROPPED, *REFUSED, *UNREADABLE}
    if entry.key in of_others:
        return None
    near = difflib.get_close_matches(entry.key, sorted({*known, *of_others}), 1)
    meant = f". Did you mean {near[0]}?" if near else ""
    return f"{entry.place}: no argument of PaddleNLP that is known here{meant}"


def _allowed(entry: Stated, name: str, expected: Flag) -> str | None:
    """Return the expected value, None where it is right."""
    several = expected.many or expected.words
    if isinstance(entry.value, dict) or (isinstance(entry.value, list) and not several):
        return "one value"
    if isinstance(entry.value, bool) and expected.range:
        return expected.range_text
    words = _words(entry, expected)
    values = split_words(name, words[0]) if expected.words else words
    return next(filter(None, map(expected.expectation, values)), None)


def _words(entry: Stated, expected: Flag) -> list[str]:
    """Return the value as arguments of a command line."""
    values = entry.value if isinstance(entry.value, list) else [entry.value]
    words = [_word(value, expected) for value in values]
    return words if expected.many else [" ".join(words)]


def _word(value: Any, expected: Flag) -> str:
    if value is False and "no" in (expected.choices or ()):
        return "no"  # which YAML takes for false
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float) and expected.kind == "int" and value.is_integer():
        return str(int(value))
    return str(value)


def _metric(flags: Flags, method: Method) -> tuple[Flags, str]:
    """Leave out --metric_for_best_model accuracy where it is not measured and the method forgives it.

    PaddleNLP's files of fine-tuning have it.
    """
    metric = " ".join(flags.get("metric_for_best_model", []))
    forgives = any(files.forgives_metric for files in method.files)
    if not forgives or not metric or metric.removeprefix("eval_") in method.metrics:
        return flags, ""
    rest = {name: words for name, words in flags.items() if name != "metric_for_best_model"}
    return rest, f"--metric_for_best_model {metric} is left out: an evaluation of pretraining has the loss alone"
