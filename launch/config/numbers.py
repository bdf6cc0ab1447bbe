"""Whole numbers that a user or a scheduler gives: each has a range, which is checked before anything has that size."""

from data_tools.cli import MOST_CARDS, MOST_NODES, whole_number
from data_tools.formats.json_files import shown
from launch.errors import UserError

MOST = {"GPUS": MOST_CARDS, "PROCESSES": MOST_CARDS, "NNODES": MOST_NODES}
MOST |= {"GPU_MEMORY_GB": 10_000, "STOPPED_EXIT_CODE": 255, "RESTARTS": 2**31 - 1}
MOST_OF_OTHERS = 10**12


def read_count(name: str, value: str, least: int = 1) -> int:
    """Return the value of a variable or flag. Raise UserError for one out of its range."""
    most = MOST.get(name, MOST_OF_OTHERS)
    found = whole_number(value, least, most)
    if found is None:
        raise UserError(f"{name}: found {shown(value)!r}, expected a whole number from {least} to {most:,}.")
    return found
