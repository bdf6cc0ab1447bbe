"""Are the dialogues, or the preferences, there, can every row be read, and what do they look like to the model?"""

from dataclasses import replace
from pathlib import Path

from data_tools.dialogues.chat_template import ChatTemplate
from data_tools.dialogues.datasets import Survey, survey
from data_tools.dialogues.encoding import Encoding
from data_tools.dialogues.rows import Rows, check_faults, unused_line
from data_tools.dialogues.samples import SHOWN_OF
from data_tools.formats.errors import DataError
from data_tools.formats.plural import plural
from data_tools.text.encoders import JsonEncoder, SentencePieceEncoder, load_encoder
from launch.config.flag_values import FlagValues
from launch.config.run_config import RunConfig
from launch.errors import UserError
from launch.families.encoding import find_template, template_line
from launch.families.named_configs import load_config
from launch.families.registry import Family, family_of_config
from launch.methods.method import RowKind
from launch.preflight.report import Finding

MEASURED = 200  # dialogues that are rendered and encoded, of each kind of rows, at most: half a second of long ones


def rows_to_train_on(run: RunConfig) -> int:
    """Return how many rows of the user's data a run of fine-tuning trains on; 0 where they are not here, or broken."""
    values = run.flags
    try:
        found = survey(values.dataset_name_or_path or "", ("train",), _kind(run).reader, values.max_broken_rows or 0)
    except DataError:
        return 0
    return sum(len(rows.entries) for source in found.train for rows in source)


def check_rows(run: RunConfig, shows: bool = True) -> list[Finding]:
    """Read every row that --dataset_name_or_path names, compare the lengths.

    Render some rows with the chat template where `shows`.
    """
    values, kind = run.flags, _kind(run)
    found, findings = _read_rows(values, kind)
    lengths = _check_lengths(values)
    return [*findings, *_check_template(values, found, kind, shows and not lengths), *lengths]


def _kind(run: RunConfig) -> RowKind:
    assert run.method.row_kind is not None  # of a method that reads rows
    return run.method.row_kind(run.flags)


def _read_rows(values: FlagValues, kind: RowKind) -> tuple[Survey | None, list[Finding]]:
    if not values.dataset_name_or_path:
        fix = "--dataset_name_or_path FOLDER or DATA=FOLDER, with train.json and dev.json"
        return None, [Finding(False, "data", "no --dataset_name_or_path", fix)]
    wanted = tuple(name for name, needed in (("train", values.do_train), ("dev", values.do_eval)) if needed)
    try:
        found = survey(values.dataset_name_or_path, wanted, kind.reader, values.max_broken_rows or 0)
    except DataError as error:
        return None, [Finding(False, "data", str(error), "DATA=FOLDER or --dataset_name_or_path names other data")]
    parts = []  # such as "train 114,599 dialogues (content/summary)"
    for name, source in (("train", found.train), ("dev", found.dev)):
        if source:
            rows = [part for of_one in source for part in of_one]
            schemas = ", ".join(dict.fromkeys(part.schema.name for part in rows))
            parts.append(f"{name} {plural(sum(len(part.entries) for part in rows), kind.rows)} ({schemas})")
    if unused := unused_line(found.files):
        parts.append(unused)
    if found.faults:
        parts.append(f"broken rows left out: {len(found.faults)}, the first {found.faults[0]}")
    return found, [Finding(True, "data", "; ".join(parts) or "none needed")]


def _check_template(values: FlagValues, found: Survey | None, kind: RowKind, shows: bool) -> list[Finding]:
    """Check the template; where it `shows`, a sample and what the lengths cut.

    The tokenizer counts where its directory is there.
    """
    directory = tokenizer_directory(values)
    fix = "--chat_template NAME or FILE, or none: the bare texts"
    try:
        config = load_config(values.model_name_or_path or "")
        family = family_of_config(config)
    except UserError:  # reported by the check of the model
        return []
    findings = []
    if found is None:
        return []
    first_of_each = {rows.schema.chat: rows for rows in reversed(found.files)}  # chats and others differ in templates
    for rows in first_of_each.values():
        try:
            template = template_of(rows, directory, config, values)
            looked = _look(template, rows, found, kind, directory, family, values) if shows else []
            findings += [Finding(True, "chat template", template_line(template).partition(": ")[2]), *looked]
        except (UserError, DataError) as error:
            findings.append(Finding(False, "--chat_template", str(error), fix))
    return findings


def tokenizer_directory(values: FlagValues) -> Path | None:
    """Return the tokenizer's directory; None where it is not on this machine."""
    directory = Path(values.tokenizer_name_or_path or values.model_name_or_path or "").expanduser()
    return directory if directory.is_dir() else None


def template_of(rows: Rows, directory: Path | None, config: dict, values: FlagValues) -> ChatTemplate | None:
    """Return the chat template that training applies.

    Without --chat_template, chat rows use a template and plain rows none.

    Args:
        rows: Of a file.
        directory: Of the tokenizer.
        config: The model's.
        values: The flags.

    Raises:
        UserError, DataError: As find_template.
    """
    return find_template(values.chat_template or (None if rows.schema.chat else "none"), directory, config)


def encoder_of(directory: Path | None, family: Family) -> SentencePieceEncoder | JsonEncoder | None:
    """Return the tokenizer of a directory; None where it cannot show what the model reads.

    That is where the family has marks between question and answer, no token ends an answer, or the tokenizer is
    damaged, which its own check reports.
    """
    try:
        encoder = load_encoder(directory) if directory else None
    except DataError:
        return None
    return None if family.answer_marks or (encoder and encoder.eos_id is None) else encoder


def encoding_of(
    template: ChatTemplate | None, encoder: SentencePieceEncoder | JsonEncoder | None, values: FlagValues
) -> Encoding:
    """Return how training makes ids of rows, but for the token that some tokenizers put in front.

    Without an encoder the template is tried all the same.
    """
    return Encoding(
        template=template,
        encode=encoder.encode_chat if encoder else lambda text: [0],
        locate=encoder.locate_chat if encoder else None,
        last=values.trained_answers == "last",
        begin=(),
        eos=encoder.eos_id or 0 if encoder else 0,
        src_length=values.src_length or 0,
        max_length=values.max_length or 0,
    )


def spread(rows: Rows) -> Rows:
    """Return some of the first rows, and some of the others at even distances."""
    count = len(rows.entries)
    others = MEASURED - SHOWN_OF
    step = max(1, -(-(count - SHOWN_OF) // others))
    indices = [*range(min(SHOWN_OF, count)), *range(SHOWN_OF, count, step)]
    return replace(
        rows, entries=[rows.entries[index] for index in indices], lines=[rows.lines[index] for index in indices]
    )


def _look(
    template: ChatTemplate | None,
    rows: Rows,
    found: Survey,
    kind: RowKind,
    directory: Path | None,
    family: Family,
    values: FlagValues,
) -> list[Finding]:
    """Return a sample and what is cut, without the marks that a family has between question and answer.

    Raises DataError where more rows are broken than allowed, with the rows that the template cannot render.
    """
    encoder = encoder_of(directory, family)
    dataset, faults = kind.encode(spread(rows), encoding_of(template, encoder, values))
    check_faults([*found.faults, *faults], values.max_broken_rows or 0)
    if encoder is None:
        return []
    limits = f"--src_length {values.src_length} --max_length {values.max_length}"
    if not len(dataset):
        return [
            Finding(False, "lengths", f"{limits}: nothing is left to learn from; {dataset.cuts}", "raise --max_length")
        ]
    measured, cuts, longest = plural(len(dataset), kind.samples), dataset.cuts, f"{dataset.longest:,}"
    return [
        Finding(
            True,
            "lengths",
            f"of {measured}: {cuts}, the longest has {longest} tokens, {limits}",
            cuts.fix,
            warns=bool(cuts.fix),
        ),
        Finding(True, "sample", "\n".join(kind.show(dataset, encoder.decode_chat))),
    ]


def _check_lengths(values: FlagValues) -> list[Finding]:
    prompt, sample = values.src_length or 0, values.max_length or 0
    if prompt < sample:
        return []
    found = f"{prompt}, no less than --max_length {sample}: no room for an answer"
    return [Finding(False, "--src_length", found, f"--max_length {2 * prompt}, or a shorter --src_length")]
