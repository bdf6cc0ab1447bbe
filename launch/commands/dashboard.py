r"""Serve the VisualDL dashboards of all runs below some directories.

    python launch/commands/dashboard.py [--logdir DIR ...] \
        [--port 8040] [--host 127.0.0.1] [--language en|zh]

Without --logdir it shows all runs below ./checkpoints and ./build. It sends no data anywhere, listens on this machine
only unless --host says otherwise, and stops with Ctrl-C.
"""

import argparse
import os
import socket
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])  # the repository, not this folder

from data_tools.cli import Parser, port
from launch.errors import UserError
from launch.guard import guarded
from launch.processes.orphans import end_with_make

DEFAULT_DIRECTORIES = ["checkpoints", "build"]
RECORD_FILES = "vdlrecords.*.log"


def main(argv: list[str]) -> None:
    """Run the command."""
    end_with_make()
    args = _parse(argv)
    directories = [path for path in args.logdir or DEFAULT_DIRECTORIES if any(Path(path).rglob(RECORD_FILES))]
    if not directories:
        raise UserError(
            f"--logdir: no VisualDL records below {', '.join(args.logdir or DEFAULT_DIRECTORIES)}. "
            "Train with --report_to visualdl first (make demo does), or name the output directory of a run."
        )
    _require_free(args.host, args.port)
    address = f"http://{args.host}:{args.port}/app/scalar"
    print(f"dashboards of {', '.join(directories)}: {address}  (Ctrl-C stops)", flush=True)
    os.execv(sys.executable, server_command(directories, args.host, args.port, args.language))


def server_command(directories: list[str], host: str, port: int, language: str) -> list[str]:
    """Return the command of VisualDL's own server.

    Without --disable-telemetry it phones home, without --language some browsers get 500.
    """
    safe = ["-P"] if sys.version_info >= (3, 11) else []  # no module of the current folder
    return [
        *(sys.executable, "-W", "ignore", *safe, "-m", "visualdl.server.app"),
        *("--logdir", *directories),
        *("--host", host, "--port", str(port)),
        *("--language", language),
        "--disable-telemetry",
    ]


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = Parser("python launch/commands/dashboard.py", __doc__)
    parser.add_argument("--logdir", nargs="+", help="output directories of runs, or directories above them")
    parser.add_argument("--port", type=port, default=8040, help="port to listen on; default %(default)s")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on; 0.0.0.0: the network")
    parser.add_argument("--language", choices=["en", "zh"], default="en", help="of the pages; default %(default)s")
    return parser.parse_args(argv)


def _require_free(host: str, port: int) -> None:
    """Raise UserError where the address cannot be taken."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise UserError(
                f'--host {host} --port {port}: {error.strerror}. Choose another: ARGS="--port {port + 10}".'
            ) from None


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))
