"""Faults of Paddle and paddlenlp that are corrected here, one file each, and the means to do it narrowly.

Each file is named after its fault, says what upstream does, and has a function correct() that puts it right in this
process and may be called twice. CORRECTIONS names those that every training process needs.
"""

import importlib

CORRECTIONS: tuple[str, ...] = ("stage3_weight_decay",)


def correct() -> None:
    """Apply every correction of CORRECTIONS. For a process that has imported Paddle."""
    for name in CORRECTIONS:
        importlib.import_module(f"launch.upstream.{name}").correct()
