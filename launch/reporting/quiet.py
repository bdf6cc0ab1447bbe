"""Warnings of Paddle and paddlenlp that tell a user nothing, kept off the terminal. All others are shown."""

import logging

# The beginning of a message -> why it is of no use.
NOISE = {
    "Asynchronous saving is not supported for single card": "nobody asked for asynchronous saving",
    "The current device (cpu) does not support empty cache": "there is no cache of a CPU to empty",
    "While using ClipGradByGlobalNorm in GroupShardedOptimizerStage2": "sharding clips by the same global norm",
}
LOGGERS = ["PaddleNLP", "root"]  # paddlenlp's, and the one of Paddle's sharding


def silence_noise() -> None:
    """Filter the known messages out of the loggers of this process."""
    for name in LOGGERS:
        logger = logging.getLogger(name)
        if _is_worth_showing not in logger.filters:
            logger.addFilter(_is_worth_showing)


def _is_worth_showing(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith(tuple(NOISE))
