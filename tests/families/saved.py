"""Tiny models of all families, saved once for all tests: tests/families/family_ranks.py, save_all()."""

from launch.families.registry import FAMILIES
from tests.store import kept


def saved_families(ranks) -> str:
    """Return the folder of the models, each under its family's name. It is read alone."""
    make = "tests.families.family_ranks:save_all"
    return str(kept("families", lambda folder: ranks(1, make, list(FAMILIES), str(folder)))[0])
