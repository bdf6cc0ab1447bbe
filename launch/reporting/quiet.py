"""What Paddle and paddlenlp report about themselves, kept off the terminal one by one. All other warnings are shown."""

import contextlib
import io
import logging
import os
import signal
import sys
import warnings
from collections.abc import Iterator

# A pattern for the beginning of a warning -> why it is of no use.
WARNINGS = {
    "No ccache found": "a run compiles nothing",
    "Setuptools is replacing distutils": "paddlenlp still imports distutils, and works with either",
    "amp_guard can only be enabled on CUDAPlace": "our own line gives the precision of a CPU: float32",
    r"Current global rank \d+ is not in group": "every rank makes all groups of a layout, also those of other ranks",
    "No shared comm will be constructed": "embedding and head share no weights, or lie on one stage",
    "For pipeline parallel with sharding, the sharding overlap": "a line of preflight says that it is ignored",
    "nccl reduce_avg requires paddle compiled with cuda": "gradients are then summed and divided: the same mean",
    r"The `forward` method of <class 'paddlenlp\..*'> is patched": "paddlenlp patches its own models",
    r"\s*\S*\s*Warning:\s*API \"paddle\.incubate\.nn\.functional\.swiglu": "the pinned paddlenlp calls it by that name",
}
# The beginning of a logged message -> why it is of no use.
MESSAGES = {
    "Asynchronous saving is not supported for single card": "nobody requested asynchronous saving",
    "The current device (cpu) does not support empty cache": "there is no cache of a CPU to empty",
    "Reset tensor_parallel_degree of": "an adapter takes the layout of its model, whichever it was trained in",
    "optimizer not run, scale_before": "our own line says so, once and with the step",
    "While using ClipGradByGlobalNorm in": "a layout clips by the same global norm",
}
# The beginning of a line that Paddle writes to stderr while it is imported or starts ranks -> why it is of no use.
LINES = {
    "WARNING: OMP_NUM_THREADS set to": "we share the cores among the ranks; Paddle's wheels have MKL, not OpenBLAS",
    "PLEASE USE OMP_NUM_THREADS WISELY": "as above",
    "======================= Modified FLAGS detected": "switches that we have set, as our own line says",
    "FLAGS(name=": "as above",
    "=======================================================================": "as above",
}
# paddlenlp's logger, that of Paddle's sharding and that of fleet. Their progress is in our own lines.
LOGGERS = ["PaddleNLP", "root", "paddle.distributed.fleet.utils.log_util"]


def import_paddle_quietly() -> None:
    """Import Paddle without its advice on OMP_NUM_THREADS, and filter what is known to be of no use.

    Filters are for the rest of the process; a second call does no harm.
    """
    os.environ.setdefault("GLOG_minloglevel", "2")
    # scikit-learn, which paddlenlp imports, sets it to FALSE: a process forked after an operator has run would hang.
    # Not only where it is unset: a process whose parent has imported scikit-learn inherits FALSE.
    os.environ["KMP_INIT_AT_FORK"] = "TRUE"
    for name in LOGGERS:
        logger = logging.getLogger(name)
        if _is_worth_showing not in logger.filters:
            logger.addFilter(_is_worth_showing)
    for pattern in WARNINGS:
        warnings.filterwarnings("ignore", message=pattern)
    with interrupts_held(), known_lines_left_out(), _warnings_of_the_import():
        import paddle  # noqa: F401
    # Paddle makes INFO the level of all loggers that have none of their own.
    logging.getLogger().setLevel(logging.WARNING)


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
    """Hold Ctrl-C until the end of the block: in the middle of an import of C++ it is lost, or half of it."""
    received: list[int] = []
    previous = signal.signal(signal.SIGINT, lambda number, frame: received.append(number))
    try:
        yield
    except Exception:
        if not received:  # else what failed is a command that Paddle starts, and that Ctrl-C has ended
            raise
    finally:
        signal.signal(signal.SIGINT, previous)
    if received:
        signal.raise_signal(signal.SIGINT)


@contextlib.contextmanager
def known_lines_left_out() -> Iterator[None]:
    """Hold stderr until the end of the block, and leave LINES out."""
    written = io.StringIO()
    try:
        with contextlib.redirect_stderr(written):
            yield
    finally:
        lines = written.getvalue().splitlines(keepends=True)
        sys.stderr.write("".join(line for line in lines if not line.startswith(tuple(LINES))))


@contextlib.contextmanager
def _warnings_of_the_import() -> Iterator[None]:
    """Show warnings at the end of the block, by the filters that were there before it.

    Paddle has every warning shown each time from its import on (paddle/utils/decorator_utils.py).
    """
    with warnings.catch_warnings(record=True) as caught:
        yield
    for warning in caught:
        warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


def _is_worth_showing(record: logging.LogRecord) -> bool:
    return record.levelno > logging.INFO and not record.getMessage().startswith(tuple(MESSAGES))
