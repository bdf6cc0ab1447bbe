r"""A page to plan a run, start it and watch it. It does what the commands do, and nothing else.

    make studio
    python launch/commands/studio.py [--host 127.0.0.1] [--port 8020] \
        [--runs FOLDER ...]

It prints an address with a token, which every request needs: who has it can start trainings as you. What is started
goes on when the page or the studio is closed. docs/studio.md tells more.
"""

import argparse
import asyncio
import os
import secrets
import signal
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])  # the repository, not this folder

from data_tools.cli import Parser, port
from launch.errors import UserError
from launch.guard import guarded
from launch.processes.orphans import end_with_make

TOKEN_VARIABLE = "STUDIO_TOKEN"
SHORTEST_TOKEN = 16  # letters
GRACE_SECONDS = 3


def main(argv: list[str]) -> None:
    """Run the command."""
    end_with_make()
    args = _parse(argv)
    token = _token()

    from launch.serving.event_loop import Addresses, bind
    from launch.studio.runs import WHERE, Runs
    from launch.studio.slow_calls import SlowCalls

    addresses = Addresses(args.host, args.port, 0)
    socket = bind(addresses)
    slow = SlowCalls()
    try:
        asyncio.run(_serve(socket, addresses, token, Runs(args.runs or WHERE), slow))
    finally:
        slow.close()
    print("stopped; what was started goes on")


async def _serve(socket, addresses, token: str, runs, slow) -> None:
    import uvicorn

    from launch.serving.event_loop import ACCEPTED, END_SECONDS, end_within
    from launch.serving.rest_requests import TimedHead
    from launch.studio.app import make_app
    from launch.studio.trying import Trial

    trial = Trial()
    app = make_app(token, runs, trial, slow, addresses.is_local)
    config = uvicorn.Config(
        app,
        http=TimedHead,
        log_level="error",
        access_log=False,
        lifespan="off",
        backlog=ACCEPTED,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    server, stop = uvicorn.Server(config), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    socket.listen()
    running = asyncio.create_task(server.serve(sockets=[socket]))
    while not server.started and not running.done():
        await asyncio.sleep(0.01)
    host = "127.0.0.1" if addresses.host in ("0.0.0.0", "::") else addresses.host
    print(f"open http://{host}:{socket.getsockname()[1]}/#token={token}")
    print("ready (Ctrl-C stops; what was started goes on)", flush=True)
    try:
        await stop.wait()
        end_within(END_SECONDS)
    finally:
        trial.stop()
    server.should_exit = True
    await running


def _token() -> str:
    """Return the token of the environment, so that an address can stay the same, else a new one. No run gets it."""
    token = os.environ.pop(TOKEN_VARIABLE, None) or secrets.token_urlsafe(24)
    if len(token) < SHORTEST_TOKEN or not all(
        letter.isascii() and (letter.isalnum() or letter in "-_") for letter in token
    ):
        raise UserError(
            f"{TOKEN_VARIABLE}: found {len(token)} characters; expected {SHORTEST_TOKEN} or more letters, digits, `-` "
            "and `_`. Leave it out, and the studio makes one."
        )
    return token


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = Parser("python launch/commands/studio.py", __doc__)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on; 0.0.0.0: the network")
    parser.add_argument("--port", type=port, default=8020, help="port to listen on; 0: any free; default %(default)s")
    parser.add_argument(
        "--runs", nargs="+", metavar="FOLDER", help="where runs are looked for; default checkpoints build"
    )
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))
