"""From files of dialogues to the samples of fine-tuning. What must be known before: data_tools.formats.sft_files."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from data_tools.formats.blended import BlendedDataset
from data_tools.formats.encoding import Encoded, Encoding, encode_dialogue
from data_tools.formats.errors import DataError
from data_tools.formats.rows import Fault, Rows, check_faults, read_rows
from data_tools.formats.sft_files import Source, find_sources
from data_tools.formats.sft_samples import BlendedDialogues, DialogueDataset


@dataclass(frozen=True)
class Columns:
    """Keys of question and answer, None where the first rows of each file tell."""

    prompt: str | None = None
    response: str | None = None


@dataclass(frozen=True)
class Survey:
    """What the files hold. train, dev: by source, then by file."""

    sources: list[Source]
    train: list[list[Rows]]
    dev: list[list[Rows]]

    @property
    def faults(self) -> list[Fault]:
        return [fault for source in [*self.train, *self.dev] for rows in source for fault in rows.faults]


def survey(named: str, wanted: tuple[str, ...], columns: Columns, max_broken_rows: int) -> Survey:
    """Read every row of the files that --dataset_name_or_path names.

    wanted: "train", "dev" or both. Raises DataError when files are missing, of no known schema, hold more broken rows
    than allowed, or a source has no file to train on; or none has one to evaluate on.
    """
    sources = find_sources(named)
    if "train" in wanted:
        for source in sources:
            if not source.train:
                raise DataError(f"{source.dev[0].parent} has data to evaluate on, but none to train on: train.json.")
    if "dev" in wanted and not any(source.dev for source in sources):
        raise DataError(
            f"no data to evaluate on in {named}: expected dev.json beside train.json. Add it, or --do_eval 0."
        )
    found = Survey(
        sources,
        [_read(source.train, columns) for source in sources] if "train" in wanted else [],
        [_read(source.dev, columns) for source in sources] if "dev" in wanted else [],
    )
    check_faults(found.faults, max_broken_rows)
    return found


def _read(files: tuple[Path, ...], columns: Columns) -> list[Rows]:
    return [read_rows(file, columns.prompt, columns.response) for file in files]


@dataclass(frozen=True)
class Datasets:
    """The samples of a run, None where not wanted; lines: what there is to tell about them."""

    train: DialogueDataset | None
    dev: DialogueDataset | None
    lines: list[str]


def encode_survey(found: Survey, encoding_of: Callable[[bool], Encoding]) -> Datasets:
    """Encode all dialogues; sources with weights are blended.

    encoding_of: from whether a schema is one of chats to how its dialogues are encoded.
    """
    train = dev = None
    lines = []
    if found.train:
        parts = [_encoded(source, encoding_of) for source in found.train]
        train, used = _mixed(parts, [source.weight for source in found.sources])
        lines.append(_line("training data", train, [rows for source in found.train for rows in source]))
        if used:
            lines.append(f"blend: an epoch uses {used} samples of its files")
    if found.dev:
        dev = DialogueDataset(one for source in found.dev for one in _encoded(source, encoding_of))
        lines.append(_line("evaluation data", dev, [rows for source in found.dev for rows in source]))
    if found.faults:
        lines.append(f"broken rows left out: {len(found.faults)}, the first {found.faults[0]}")
    return Datasets(train, dev, lines)


def _encoded(source: list[Rows], encoding_of: Callable[[bool], Encoding]) -> list[Encoded]:
    samples = []
    for rows in source:
        encoding = encoding_of(rows.schema.chat)
        samples += [encode_dialogue(dialogue, encoding) for dialogue in rows.dialogues]
    return samples


def _mixed(parts: list[list[Encoded]], weights: list[float | None]) -> tuple[DialogueDataset, str]:
    """The samples of all parts, and how many of each where weights leave some out."""
    if len(parts) == 1:
        return DialogueDataset(parts[0]), ""
    blend = BlendedDataset(parts, weights)
    used = ", ".join(f"{used:,} of {len(part):,}" for used, part in zip(blend.samples_used, parts, strict=True))
    return BlendedDialogues(blend), used


def _line(name: str, dataset: DialogueDataset, rows: Iterable[Rows]) -> str:
    schemas = ", ".join(dict.fromkeys(one.schema.name for one in rows))
    return (
        f"{name}: {len(dataset):,} dialogues ({schemas}), {dataset.tokens.sum():,} tokens, "
        f"{dataset.counted.sum():,} of answers, {dataset.cuts}"
    )
