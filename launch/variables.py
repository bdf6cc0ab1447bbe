"""The variables of make's command line: which a recipe knows, and which was likely meant by one it does not."""

import difflib
import re
from collections.abc import Mapping

from launch.errors import UserError

RECIPE = ("MODEL", "DATA", "OUTPUT", "GPUS", "DEVICES", "GPU_MEMORY_GB", "CARD", "PROCESSES", "ARGS", "FORMAT")
NODES = ("NNODES", "RANK", "MASTER", "RENDEZVOUS_MINUTES")
PLAN = ("METHOD", "RECIPE")  # of make fit and make verify-gpu
SETUP = ("DEVICE", "CUDA", "PYTHON")  # of the Makefile itself


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
