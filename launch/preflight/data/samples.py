"""Are there samples for the steps, and how often is each read?"""

from data_tools.formats.tokens.indexed import IndexedDataset
from data_tools.formats.tokens.samples import Split, split_boundaries
from launch.preflight.report import Finding

TRAIN, VALID = 0, 1
NAMES = ("train", "valid")
FIX = (
    "a larger share in --split, more text, or a shorter --max_seq_length; "
    "--do_eval 0 where only the valid split lacks samples"
)


def check_samples(corpora: list[tuple[float | None, IndexedDataset]], values, samples_a_step: int) -> list[Finding]:
    """A split that is needed has samples; a warning where training reads them more than once.

    corpora: with weights, or None for each sample once. values: the flags (FlagValues).
    """
    needed = [number for number, flag in ((TRAIN, values.do_train), (VALID, values.do_eval)) if flag]
    counts = {number: [_count(corpus, number, values) for _, corpus in corpora] for number in needed}
    faults = [
        Finding(False, "samples", _why_none(corpora, number, values), FIX)
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


def _count(corpus: IndexedDataset, number: int, values) -> int:
    first, last = split_boundaries(values.split, len(corpus))[number : number + 2]
    return Split(corpus, NAMES[number], first, last).count_samples(values.max_seq_length)


def _epoch(weights: list[float | None], counts: list[int]) -> int:
    """Samples until the first corpus of a blend is used up; without weights, all there are."""
    if weights[0] is None:
        return sum(counts)
    return int(min(count * sum(weights) / weight for count, weight in zip(counts, weights, strict=True)))


def _why_none(corpora: list[tuple[float | None, IndexedDataset]], number: int, values) -> str:
    parts = []
    for _, corpus in corpora:
        first, last = split_boundaries(values.split, len(corpus))[number : number + 2]
        tokens = int(corpus.sizes[first:last].sum())
        parts.append(f"{corpus.prefix} gives it {last - first} of {len(corpus)} documents, {tokens:,} tokens")
    return (
        f"none in the {NAMES[number]} split (--split {values.split}): {'; '.join(parts)}; a sample needs "
        f"{values.max_seq_length + 1:,}"
    )
