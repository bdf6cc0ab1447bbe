"""From files of preferences to the samples of a run."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from data_tools.dialogues.datasets import Survey, left_out_lines
from data_tools.dialogues.dialogue import Schema
from data_tools.dialogues.encoding import Encoding, check_lengths
from data_tools.dialogues.rows import FIRST_ROWS, Fault, Rows, check_faults
from data_tools.dialogues.samples import SHOWN_OF, BlendedDialogues
from data_tools.formats.errors import DataError
from data_tools.formats.plural import plural
from data_tools.preferences.forms import Preference
from data_tools.preferences.samples import (
    DesiredDataset,
    EncodedPreference,
    PackedPairs,
    PairDataset,
    PreferenceCuts,
    encode_preferences,
)

EncodingOf = Callable[[bool], Encoding]


@dataclass(frozen=True)
class PreferenceSets:
    """The samples of a run, None for a split that was not requested; lines: reports about them, to be printed.

    Attributes:
        train: A PairDataset, DesiredDataset or PackedPairs, or several of them in a BlendedDialogues.
    """

    train: Any
    dev: PairDataset | DesiredDataset | None
    lines: list[str]


def encode_preference_survey(
    found: Survey[Preference],
    encoding_of: EncodingOf,
    paired: bool,
    row_tokens: int | None = None,
    whole: bool = False,
) -> PreferenceSets:
    """Encode all preferences; sources with weights are blended.

    A row that the chat template cannot render is a broken row.

    Args:
        encoding_of: Maps whether a schema is one of chats to the encoding of its rows.
        paired: All rows are pairs, and so are the samples; else samples are single responses, of which a pair makes
            two.
        row_tokens: Pack training pairs into rows of this many tokens, each source for itself.
        whole: As in PairDataset.
        found: The rows.

    Raises:
        DataError: If there are more broken rows than allowed.
    """
    faults = list(found.faults)
    parts = [_dataset([source], encoding_of, paired, whole, faults) for source in found.train]
    dev = _dataset(found.dev, encoding_of, paired, whole, faults) if found.dev else None
    check_faults(faults, found.allowed)
    lines = [_line("training data", parts, found.train)] if parts else []
    train = None
    if parts:
        packed = [PackedPairs(part, row_tokens) for part in parts if row_tokens and isinstance(part, PairDataset)]
        shown = packed or parts
        weights = [source.weight for source in found.sources if source.weight is not None]
        train = shown[0] if len(shown) == 1 else BlendedDialogues(shown, weights)
    if row_tokens and train is not None:
        full = train.tokens.sum() / (2 * train.tokens.size * row_tokens)
        lines.append(f"packed: {train.tokens.size:,} times two rows of up to {row_tokens:,} tokens, {full:.0%} full")
    if dev is not None:
        lines.append(_line("evaluation data", [dev], found.dev))
    return PreferenceSets(train, dev, [*lines, *left_out_lines(found, faults)])


def encode_preference_rows(
    rows: Rows[Preference], encoding: Encoding
) -> tuple[list[EncodedPreference], PreferenceCuts, list[Fault]]:
    """Return the samples of a file, what was dropped of them, and its rows that the chat template cannot render.

    Raises:
        DataError: If the template renders none of the first rows, or the lengths leave no room for a response.
    """
    check_lengths(encoding.src_length, encoding.max_length)
    samples, faults, dropped = [], [], PreferenceCuts(0, 0)
    first = min(FIRST_ROWS, len(rows.entries))
    encoded = encode_preferences(rows.entries, encoding)
    for number, (line, found) in enumerate(zip(rows.lines, encoded, strict=True), 1):
        if isinstance(found, DataError):
            faults.append(Fault(rows.file, line, str(found).rstrip(".")))
            if len(faults) == number == first:
                raise DataError(f"{rows.file}: none of the first rows can be rendered. Line {rows.lines[0]}: {found}")
        elif found.is_equal:
            dropped += PreferenceCuts(0, 0, 1, f"{rows.file}:{line}")
        else:
            samples.append(found)
    return samples, dropped, faults


def unpaired(rows: Rows[Preference]) -> Rows[Preference]:
    """Yield each response for itself: a desired and an undesired one for each pair."""
    entries, lines = [], []
    for preference, line in zip(rows.entries, rows.lines, strict=True):
        alone = [replace(preference, rejected=None), replace(preference, chosen=None)]
        alone = alone if preference.is_pair else [preference]
        entries += alone
        lines += [line] * len(alone)
    return replace(rows, entries=entries, lines=lines)


def _dataset(
    sources: list[list[Rows[Preference]]], encoding_of: EncodingOf, paired: bool, whole: bool, faults: list[Fault]
) -> PairDataset | DesiredDataset:
    """Return the dataset of several sources. faults: receives the rows that cannot be rendered."""
    files = [rows for source in sources for rows in source]
    encodings = {chat: encoding_of(chat) for chat in {rows.schema.chat for rows in files}}
    samples, cuts = [], PreferenceCuts(0, 0)
    for rows in files:
        of_file, dropped, broken = encode_preference_rows(
            rows if paired else unpaired(rows), encodings[rows.schema.chat]
        )
        samples += of_file
        cuts += dropped
        faults += broken
    if not samples:
        raise DataError(f"{', '.join(rows.file for rows in files)}: nothing is left to learn from; {cuts}.")
    if paired:
        return PairDataset(samples, cuts, whole)
    responses = DesiredDataset(samples, cuts, next(iter(encodings.values())).max_length)
    if responses.prompts < 2:
        raise DataError(
            f"{', '.join(rows.file for rows in files)}: all {plural(len(responses), 'response')} to the same prompt; "
            "--loss_type kto compares with responses to other prompts. Give data with two prompts at least."
        )
    return responses


def _line(name: str, parts: list[PairDataset | DesiredDataset], sources: list[list[Rows[Preference]]]) -> str:
    forms: dict[Schema, None] = dict.fromkeys(rows.schema for source in sources for rows in source)
    what = "pair" if isinstance(parts[0], PairDataset) else "response"
    cuts = sum((part.cuts for part in parts), PreferenceCuts(0, 0))
    tokens, labels = sum(int(part.tokens.sum()) for part in parts), sum(part.labels for part in parts)
    count = plural(sum(map(len, parts)), what)
    names = ", ".join(form.name for form in forms)
    return f"{name}: {count} ({names}), {tokens:,} tokens, {labels:,} of responses, {cuts}"


def pair_lines(dataset: Any, decode: Callable[[list[int]], str]) -> list[str]:
    """Return one of the first samples, the shortest, as text lines; each response stands between [[ and ]]."""
    number = min(range(min(len(dataset), SHOWN_OF)), key=lambda i: dataset.tokens[i])
    sample = dataset[number]
    sample = sample[0] if isinstance(sample, list) else sample
    prompt, *responses = (decode(ids.tolist()) for ids in sample[:3] if not isinstance(ids, bool))
    said = "".join(f"\n[[{response}]]" for response in responses)
    names = "chosen, then rejected," if len(responses) == 2 else "the response"
    return [f"a sample; {names} in [[ ]]:", *(f"    {line}" for line in f"{prompt}{said}".split("\n"))]
