"""Is what trains installed in the Python that runs this?"""

import importlib.util
import sys

from launch.preflight.report import Finding

PACKAGES = ("paddle", "paddlenlp")


def check_installed() -> list[Finding]:
    """Looks for the packages without importing them."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        return [Finding(False, "python", f"{sys.executable} has no {', '.join(missing)}", "make setup")]
    return [Finding(True, "python", sys.executable)]
