"""The variables of make's command line: which a recipe knows, and which was likely meant by one it does not."""

import difflib
import re
import shlex
from collections.abc import Mapping

from launch.errors import UserError

RECIPE = ("MODEL", "DATA", "OUTPUT", "GPUS", "DEVICES", "GPU_MEMORY_GB", "CARD", "PROCESSES", "ARGS", "FORMAT")
NODES = ("NNODES", "RANK", "MASTER", "RENDEZVOUS_MINUTES")
PLAN = ("METHOD",)  # of make fit
SETUP = ("DEVICE", "CUDA", "PYTHON")  # of the Makefile itself


def given_variables(environment: Mapping[str, str]) -> str:
    """Those of a recipe as they were given, to be put behind a target of make: " DATA=mine GPUS=2"."""
    names = [name for name in (*RECIPE, *NODES) if environment.get(name)]
    return "".join(f" {name}={shlex.quote(environment[name])}" for name in names)


def check_variables(environment: Mapping[str, str]) -> None:
    """Raises UserError for a variable of make's command line whose name is nearly that of another: GPU=4.

    What else is in the environment is not looked at: it is there for other programs. GNU make hands its command line
    on in MAKEFLAGS, the variables after ` -- `, spaces in their values escaped.
    """
    known = (*RECIPE, *NODES, *PLAN, *SETUP)
    _, _, overrides = environment.get("MAKEFLAGS", "").partition(" -- ")
    for name in re.findall(r"(?:^|(?<!\\)\s)(\w+)[:+?]*=", overrides):
        nearest = difflib.get_close_matches(name.upper(), known, n=1, cutoff=0.75)
        if name not in known and nearest:
            raise UserError(f"{name}: found on make's command line, no recipe knows it. Did you mean {nearest[0]}?")
