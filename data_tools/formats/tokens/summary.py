"""PREFIX.summary.json: what the writer of a corpus knew about it, so that nobody has to read every token again.

And token counts, with the loss that no model of single tokens can beat.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from data_tools.formats.atomic import written_aside
from data_tools.formats.errors import DataError
from data_tools.formats.json_files import read_object
from data_tools.formats.tokens.indexed import IndexedDataset

READ_BYTES = 1 << 20


@dataclass(frozen=True)
class Summary:
    """The stored summary of a corpus.

    Attributes:
        largest_id: Of all tokens.
        sha256: Of the whole .bin.
        made: How, for people.
        content_key: Names the corpus (IndexedDataset.content_key).
    """

    documents: int
    tokens: int
    largest_id: int
    sha256: str
    content_key: str
    made: dict


def write_summary(prefix: str | Path, made: dict, largest_id: int | None = None, sha256: str | None = None) -> Summary:
    """Write the summary of a finished corpus. What is not given is read from the .bin.

    Raises:
        DataError: If the corpus is not whole.
    """
    corpus = IndexedDataset(prefix)
    summary = Summary(
        documents=len(corpus),
        tokens=corpus.tokens.size,
        largest_id=corpus.largest_id() if largest_id is None else largest_id,
        sha256=sha256 or file_sha256(corpus.tokens_path),
        content_key=corpus.content_key(),
        made=made,
    )
    with written_aside(summary_path(prefix)) as file:
        file.write(json.dumps(asdict(summary), indent=2, ensure_ascii=False).encode() + b"\n")
    return summary


def read_summary(corpus: IndexedDataset) -> Summary | None:
    """Return the summary of this corpus; None where there is none, or where its content is another.

    Reads the .idx and up to 64 MiB of the .bin (IndexedDataset.content_key), not every token.
    """
    try:
        summary = Summary(**read_object(summary_path(corpus.prefix)))
    except (DataError, TypeError):  # damaged, or with other keys
        return None
    kinds = {"documents": int, "tokens": int, "largest_id": int, "sha256": str, "content_key": str, "made": dict}
    if not all(isinstance(getattr(summary, name), kind) for name, kind in kinds.items()):
        return None
    return summary if summary.content_key == corpus.content_key() else None


def check_hash(corpus: IndexedDataset) -> tuple[str, bool]:
    """Return (SHA-256 of the .bin, whether there was a summary to compare it with).

    Raises:
        DataError: If they differ.
    """
    found = file_sha256(corpus.tokens_path)
    if not summary_path(corpus.prefix).is_file():
        return found, False
    summary = read_summary(corpus)
    if summary is None or summary.sha256 != found:
        raise DataError(
            f"{corpus.prefix}: not what {summary_path(corpus.prefix)} was written for: changed since, or damaged. "
            "Copy all three files again, or make it again."
        )
    return found, True


def check_vocabulary(corpus: IndexedDataset, vocab_size: int) -> None:
    """Raise DataError where an id is beyond the vocabulary. Reads every token only where no summary answers."""
    summary = read_summary(corpus)
    if summary is None or summary.largest_id >= vocab_size:
        corpus.check_vocabulary(vocab_size)  # names id and document


def summary_path(prefix: str | Path) -> Path:
    """Return the path of a corpus' summary."""
    return Path(f"{prefix}.summary.json")


def file_sha256(path: str | Path) -> str:
    """Return the SHA-256 of a file."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(READ_BYTES):
            digest.update(block)
    return digest.hexdigest()


def token_counts(corpus: IndexedDataset) -> np.ndarray:
    """Return int64[largest id + 1]: how often each id occurs."""
    counts = np.zeros(corpus.largest_id() + 1, dtype=np.int64)
    for block in corpus.blocks():
        counts += np.bincount(block, minlength=counts.size)
    return counts


def unigram_cross_entropy(corpus: IndexedDataset) -> float:
    """Return the cross-entropy, in nats a token, of the best unigram model of this very text: -sum p ln p.

    p are the token frequencies of the text itself. No unigram model estimated elsewhere (on the training text, with any
    smoothing) has a lower cross-entropy on this text. A loss below it shows that the model uses context.
    """
    counts = token_counts(corpus)
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())
