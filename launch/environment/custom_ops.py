"""Build the module fused_ln (custom_ops/fused_rms_norm) into .venv, unless the installed one is up to date.

make custom-ops     half a minute; gcc, and nvcc for Paddle's GPU build
python launch/environment/custom_ops.py --remove
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path[0] = str(ROOT)  # the repository, not launch/environment/

from custom_ops.fused_rms_norm.nvcc import find_nvcc
from custom_ops.fused_rms_norm.sources import digest
from data_tools.cli import Parser
from launch.devices.fused_ln import BUILD, Build, find_build, is_gpu_build, paddle_version
from launch.errors import UserError
from launch.guard import guarded
from launch.preflight.report import Finding

SOURCE = ROOT / "custom_ops" / "fused_rms_norm"
LOG = ROOT / "build" / "custom_ops.log"
PIP = [sys.executable, "-W", "ignore", "-m", "pip", "--disable-pip-version-check"]


def main(argv: list[str]) -> None:
    """Run the command."""
    parser = Parser("python launch/environment/custom_ops.py", __doc__)
    parser.add_argument("--remove", action="store_true", help="uninstall fused_ln")
    args = parser.parse_args(argv)
    if args.remove:
        run([*PIP, "uninstall", "--yes", "fused_ln"])
        print("custom-ops: fused_ln removed")
    else:
        build()


def build() -> None:
    """Build and install a missing or outdated fused_ln and try to load it.

    Raises:
        UserError: If that fails.
    """
    found = find_build()
    reason = staleness(found)
    if found and not reason:
        print(f"custom-ops: {describe(found)}: nothing to do")
        return
    print(f"custom-ops: building fused_ln ({reason}), about half a minute", flush=True)
    run([*PIP, "install", "--no-build-isolation", "--no-deps", "--force-reinstall", "--verbose", str(SOURCE)])
    run([sys.executable, "-W", "ignore", "-c", "import fused_ln"])
    built = find_build()
    assert built is not None, "it has just been imported"
    print(f"custom-ops: {describe(built)}")


def staleness(found: Build | None) -> str:
    """Return why fused_ln has to be built, or ""."""
    if found is None:
        return "not built"
    if not found.has_record:
        return f"the one in {found.directory} is not ours"
    if found.paddle != paddle_version():
        return f"built for Paddle {found.paddle}, here is {paddle_version()}"
    if found.sources != digest():
        return "its sources have changed"
    if not found.cuda and is_gpu_build() and os.environ.get("FUSED_LN_CUDA") != "0" and (nvcc := find_nvcc()):
        return f"built without CUDA, here is nvcc {nvcc.version}"
    return ""


def describe(found: Build) -> str:
    """Return a line about a build."""
    cards = ", ".join(f"{major}.{minor}" for major, minor in found.architectures)
    devices = f"CPUs and cards of compute capability {cards} (CUDA {found.cuda})" if found.cuda else "CPUs"
    return f"fused_ln is built for Paddle {found.paddle}, {devices}"


def check_fused_ln() -> Finding:
    """Return the doctor's check. A missing fused_ln is no fault: everything runs without it."""
    found = find_build()
    if found is None:
        return Finding(True, "fused RMSNorm", f"not built: {BUILD} makes RMSNorm faster, on CPUs and on cards")
    reason = staleness(found)
    return Finding(not reason, "fused RMSNorm", reason or describe(found), BUILD if reason else "")


def run(command: list[str]) -> None:
    """Run one step with its output in the log.

    Raises:
        UserError: With the end of the log if it fails.
    """
    LOG.parent.mkdir(exist_ok=True)
    with open(LOG, "w") as log:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=ROOT)
    if done.returncode:
        tail = "\n  | ".join(LOG.read_text(errors="replace").splitlines()[-15:])
        raise UserError(
            f"building fused_ln failed:\n  | {tail}\nThe whole output is in {os.path.relpath(LOG)}. It needs g++ "
            f"(apt-get install g++), and where nvcc is what fails, FUSED_LN_CUDA=0 {BUILD} leaves CUDA out; recipes "
            "run without fused_ln."
        )


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))
