"""What make says of a target that it does not have. Started by the Makefile, with any Python: no packages.

python unknown_target.py TARGET RECIPE_OR_DATA_TOOL ...
"""

import difflib
import re
import sys
from pathlib import Path

MAKEFILE = Path(__file__).resolve().parents[2] / "Makefile"
FORMS = ("", "rehearse-", "print-", "plan-")


def message(target: str, listed: list[str]) -> str:
    """listed: recipes, which have four forms, and data-X."""
    own = re.findall(r"^([a-z-]+):.*## ", MAKEFILE.read_text(encoding="utf-8"), re.MULTILINE)
    forms = [form + name for name in listed if not name.startswith("data-") for form in FORMS]
    near = difflib.get_close_matches(target, [*own, *listed, *forms], n=3, cutoff=0.6)
    meant = f" Did you mean {' or '.join(f'make {name}' for name in near)}?" if near else ""
    return f"error: make {target}: there is no such target.{meant} `make help` lists all."


if __name__ == "__main__":
    print(message(sys.argv[1], sys.argv[2:]), file=sys.stderr)
    sys.exit(2)
