"""What the ranks of the tests of run_pretrain do."""

import contextlib
import io


def pretrain(argv: list[str]) -> dict:
    """Run launch/run_pretrain.py's main as its script does: its exit code and what it said."""
    from launch.guard import guarded
    from launch.run_pretrain import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        exit_code = guarded(main, argv)
    return {"exit_code": exit_code, "stdout": out.getvalue(), "stderr": " ".join(err.getvalue().split())}


def make_corpus(prefix: str, vocab_size: int, largest_id: int) -> None:
    """40 documents of 100 random ids up to largest_id, which occurs."""
    import numpy as np

    from data_tools.formats.tokens.indexed import IndexedWriter

    ids = np.random.default_rng(0)
    with IndexedWriter(prefix, vocab_size) as corpus:
        for _ in range(40):
            corpus.add_document([*ids.integers(0, largest_id, size=99), largest_id])


def flag_schema() -> str:
    """launch/config/flags.json as it should be."""
    from launch.training.flag_schema import render

    return render()
