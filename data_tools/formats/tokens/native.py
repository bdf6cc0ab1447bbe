"""The index builder of tool_helpers (Megatron-LM's C++ loop): arguments in words, and no prints."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from tool_helpers import helpers


def build_sample_index(sizes: np.ndarray, sequence_length: int) -> np.ndarray:
    """Cut documents, in the order given, into samples of `sequence_length` tokens and one for the last label.

    sizes: int32[documents], tokens of each. Returns int32[samples + 1, 2]: row k is (document, offset of its
    token) where sample k begins; the last token of sample k is the first of sample k + 1, so each label
    counts once. samples = (tokens - 1) // sequence_length; the few tokens behind the last whole sample are
    left out.
    """
    order = np.arange(sizes.size, dtype=np.int32)
    epochs = 1
    with _stdout_silenced():
        return helpers.build_sample_idx(sizes, order, sequence_length, epochs, int(sizes.sum(dtype=np.int64)))


@contextmanager
def _stdout_silenced() -> Iterator[None]:
    """build_sample_idx prints five lines from C++ at every call: send them nowhere."""
    sys.stdout.flush()
    stdout = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)
        os.close(nowhere)
