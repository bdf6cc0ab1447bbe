"""What Paddle and paddlenlp say about themselves, kept off the terminal. Warnings that are not named here are shown."""

import contextlib
import io
import logging
import os
import signal
import warnings
from collections.abc import Iterator

# The beginning of a message -> why it is of no use.
NOISE = {
    "Asynchronous saving is not supported for single card": "nobody asked for asynchronous saving",
    "The current device (cpu) does not support empty cache": "there is no cache of a CPU to empty",
    "Reset tensor_parallel_degree of": "an adapter takes the layout of its model, whichever it was trained in",
    "optimizer not run, scale_before": "our own line says so, once and with the step",
    "While using ClipGradByGlobalNorm in GroupShardedOptimizerStage2": "sharding clips by the same global norm",
}
LOGGERS = ["PaddleNLP", "root"]  # paddlenlp's, and the one of Paddle's sharding


def import_paddle_quietly() -> None:
    """Import Paddle without its advice on OMP_NUM_THREADS, its warnings at import and paddlenlp's INFO log."""
    warnings.filterwarnings("ignore")
    os.environ.setdefault("GLOG_minloglevel", "2")
    # scikit-learn, which paddlenlp imports, sets it to FALSE: a process forked after an operator has run would hang.
    # Not only where it is unset: a process whose parent has imported scikit-learn inherits FALSE.
    os.environ["KMP_INIT_AT_FORK"] = "TRUE"
    logging.disable(logging.INFO)
    for name in LOGGERS:
        logger = logging.getLogger(name)
        if _is_worth_showing not in logger.filters:
            logger.addFilter(_is_worth_showing)
    with interrupts_held(), contextlib.redirect_stderr(io.StringIO()):
        import paddle  # noqa: F401


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
    """Ctrl-C takes effect at the end of the block: in the middle of an import of C++ it is lost, or half of it."""
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


def _is_worth_showing(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith(tuple(NOISE))
