"""Is what trains installed in the Python that runs this?"""

import importlib.util
import sys

from launch.preflight.report import Finding

# By the names they are imported under: what trains, and what the checks themselves read with.
PACKAGES = ("paddle", "paddlenlp", "numpy", "psutil", "tool_helpers", "sentencepiece", "safetensors")


def check_installed() -> list[Finding]:
    """Looks for the packages without importing them."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        return [Finding(False, "python", f"{sys.executable} has no {', '.join(missing)}", "make setup")]
    return [Finding(True, "python", sys.executable)]
