"""Token files: are they whole and made with the tokenizer of the run, and are there samples for all of its steps?"""

from pathlib import Path

import numpy as np

from data_tools.formats.errors import DataError
from data_tools.formats.tokens.blend import find_corpora
from data_tools.formats.tokens.indexed import IndexedDataset
from data_tools.formats.tokens.samples import Split, split_boundaries
from data_tools.formats.tokens.summary import read_summary
from data_tools.text.encoders import JSON_NAME, fingerprint, load_encoder
from launch.checkpoint.model_identity import run_config
from launch.config.flag_values import Flags, FlagValues
from launch.config.run_config import RunConfig
from launch.errors import UserError
from launch.preflight.report import Finding

TRAIN, VALID = 0, 1
NAMES = ("train", "valid")
SAMPLES_FIX = (
    "a larger share in --split, more text, or a shorter --max_seq_length; "
    "--do_eval 0 where only the valid split lacks samples"
)
SAMPLED_BLOCKS = 16
BLOCK_TOKENS = 1 << 18
TOKENIZER_FIX = "--tokenizer_name_or_path DIRECTORY: that of the data; or tokenize the text again with the run's own"
IDS_FIX = "tokenize with the model's own tokenizer, or give the model that the data were made for"


def check_data(flags: Flags) -> list[Finding]:
    """Open every corpus that --input_dir names; one finding for each at fault, one for all when none is."""
    if not flags.get("input_dir"):
        return [Finding(False, "data", "no --input_dir", "--input_dir FOLDER or DATA=FOLDER, with pairs X.bin, X.idx")]
    try:
        corpora = find_corpora(" ".join(flags["input_dir"]))
    except DataError as error:
        return [_fault(error)]
    faults, tokens = [], 0
    for _, prefix in corpora:
        try:
            tokens += IndexedDataset(prefix).tokens.size
        except DataError as error:
            faults.append(_fault(error))
    number = "1 corpus" if len(corpora) == 1 else f"{len(corpora)} corpora"
    return faults or [Finding(True, "data", f"{number}, {tokens:,} tokens")]


def _fault(error: DataError) -> Finding:
    return Finding(False, "data", str(error), "DATA=FOLDER or --input_dir names other data")


def check_data_fit(run: RunConfig) -> list[Finding]:
    """Check that ids are within the vocabulary and samples suffice. [] where another check reports a fault already."""
    values = run.flags
    if not values.input_dir:
        return []
    try:
        corpora = [(weight, IndexedDataset(prefix)) for weight, prefix in find_corpora(values.input_dir)]
        vocab_size = run_config(values)["vocab_size"]
        samples_a_step = run.global_batch
    except (DataError, UserError):
        return []
    try:
        samples = _check_samples(corpora, values, samples_a_step)
    except DataError as error:  # of --split
        samples = [Finding(False, "samples", str(error), "--split 949,50,1")]
    return [*_check_token_ids([corpus for _, corpus in corpora], vocab_size), *samples]


def _check_token_ids(corpora: list[IndexedDataset], vocab_size: int) -> list[Finding]:
    """Compare the largest id with the vocabulary: the recorded one, else a sample's."""
    faults, largest, sampled = [], 0, 0
    for corpus in corpora:
        summary = read_summary(corpus)
        sampled += summary is None
        found = largest_of_sample(corpus) if summary is None else summary.largest_id
        largest = max(largest, found)
        if found >= vocab_size:
            fault = f"{corpus.tokens_path}: token id {found}, the model has the ids 0 to {vocab_size - 1}"
            faults.append(Finding(False, "ids", fault, IDS_FIX))
    how = f" ({sampled} of {len(corpora)} corpora sampled: training reads every id when it starts)" if sampled else ""
    return faults or [Finding(True, "ids", f"up to {largest:,} of the model's {vocab_size:,}{how}")]


def largest_of_sample(corpus: IndexedDataset) -> int:
    """Return the largest id of evenly spaced blocks, first and last included; all ids of a corpus up to 4 M tokens."""
    starts = np.linspace(0, max(0, corpus.tokens.size - BLOCK_TOKENS), SAMPLED_BLOCKS).astype(np.int64)
    return max(int(corpus.tokens[start : start + BLOCK_TOKENS].max()) for start in starts)


def _check_samples(
    corpora: list[tuple[float | None, IndexedDataset]], values: FlagValues, samples_a_step: int
) -> list[Finding]:
    """Check that each needed split has samples; warn where training reads them more than once.

    corpora: (weight, corpus); without weights each sample is read once.
    """
    needed = [number for number, flag in ((TRAIN, values.do_train), (VALID, values.do_eval)) if flag]
    counts: dict[int, list[int]] = {}
    for number in needed:
        counts[number] = []
        for _, corpus in corpora:
            first, last = split_boundaries(values.split or "", len(corpus))[number : number + 2]
            split = Split(corpus, NAMES[number], first, last)
            counts[number].append(split.count_samples(values.max_seq_length or 0))
    faults = [
        Finding(False, "samples", _why_none(corpora, number, values), SAMPLES_FIX)
        for number in needed
        if not _epoch([weight for weight, _ in corpora], counts[number])
    ]
    if faults or TRAIN not in needed:
        return faults
    epoch = _epoch([weight for weight, _ in corpora], counts[TRAIN])
    wanted = values.max_steps * samples_a_step
    found = f"{wanted:,} needed for {values.max_steps:,} steps of {samples_a_step:,}, {epoch:,} there"
    if wanted > epoch:
        found += f": each is read {wanted / epoch:.1f} times"
    return [Finding(True, "samples", found, warns=wanted > epoch)]


def _epoch(stated: list[float | None], counts: list[int]) -> int:
    """Return the samples until the first corpus of a blend is used up; without weights, all there are."""
    weights = [weight for weight in stated if weight is not None]  # all corpora have one, or none has
    if not weights:
        return sum(counts)
    return int(min(count * sum(weights) / weight for count, weight in zip(counts, weights, strict=True)))


def _why_none(corpora: list[tuple[float | None, IndexedDataset]], number: int, values: FlagValues) -> str:
    parts = []
    for _, corpus in corpora:
        first, last = split_boundaries(values.split or "", len(corpus))[number : number + 2]
        tokens = int(corpus.sizes[first:last].sum())
        parts.append(f"{corpus.prefix} gives it {last - first} of {len(corpus)} documents, {tokens:,} tokens")
    return (
        f"none in the {NAMES[number]} split (--split {values.split}): {'; '.join(parts)}; a sample needs "
        f"{(values.max_seq_length or 0) + 1:,}"
    )


def check_made_with(run: RunConfig) -> list[Finding]:
    """Return a fault for each corpus that was made with another tokenizer than --tokenizer_name_or_path or the model's.

    No finding for a name, which is downloaded, and for data without a summary.

    A sentencepiece model is recognized by its hash. A tokenizer.json changes when it is saved or imported, so it is
    recognized by the size of its vocabulary.
    """
    values = run.flags
    directory = Path(values.tokenizer_name_or_path or values.model_name_or_path or "").expanduser()
    if not values.input_dir or not directory.is_dir():
        return []
    try:
        corpora = [IndexedDataset(prefix) for _, prefix in find_corpora(values.input_dir)]
        encoder = load_encoder(directory)
    except DataError:  # reported by the checks of data and tokenizer
        return []
    key = "vocab_size" if encoder.path.name == JSON_NAME else "tokenizer"
    own = {"vocab_size": encoder.vocab_size, "tokenizer": fingerprint(encoder)}
    faults = []
    for corpus in corpora:
        summary = read_summary(corpus)
        made = summary.made if summary else {}
        if made.get(key) and made[key] != own[key]:
            found = f"{corpus.prefix} was made with {_describe(made)}, the run's {encoder.path} is {_describe(own)}"
            faults.append(Finding(False, "tokenizer", found, TOKENIZER_FIX))
    return faults


def _describe(tokenizer: dict) -> str:
    """Return a tokenizer's description: "a tokenizer of 4,096 ids (SHA-256 0123456789ab...)".

    A merged corpus lacks the count.
    """
    ids = f" of {tokenizer['vocab_size']:,} ids" if "vocab_size" in tokenizer else ""
    return f"a tokenizer{ids} (SHA-256 {tokenizer.get('tokenizer', 'unknown')[:12]}...)"
