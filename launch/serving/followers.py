"""A model that is sharded over several ranks answers on rank 0, and the others follow.

Rank 0 has the queue, the clients and all choices. Each call of its texts (launch/serving/texts.py) is sent to the other
ranks, a line of JSON each, and made there, too, so that all ranks compute the same step. The lines go through a socket
in a folder that only this user can enter, not through a collective of NCCL, in which a card would wait at full load
for the next request.

A step that fails on all ranks, for lack of memory say, fails as on one: rank 0 forgets its texts, and so do the others.
Where it fails on some ranks only, the others would wait in a collective for ever: the process ends, and so the server.
"""

import json
import os
import signal
import socket
import sys
import tempfile
import traceback
from pathlib import Path

import paddle

from launch.checkpoint.ranks import broadcast, rank, world_size
from launch.errors import UserError
from launch.generation.packed_texts import ComputedPart
from launch.serving.texts import Texts

CALLS = ("add", "append", "remove", "compute", "settle", "clear")
LONGEST_ADDRESS = 107  # bytes, of a socket in a folder: man 7 unix
SECONDS = 30.0  # in which ranks that fail together say so


class Followers:
    """Rank 0's connections to the other ranks."""

    def __init__(self, connections: list[socket.socket]):
        self.connections = connections
        self.answers = [connection.makefile("rb") for connection in connections]
        self.steps = 0

    def send(self, call: str, *arguments) -> None:
        """Send a call to all followers."""
        self.steps += call == "compute"
        line = json.dumps([call, *arguments]).encode() + b"\n"
        for connection in self.connections:
            connection.sendall(line)

    def failed_too(self) -> bool:
        """Return whether all followers report that this step has failed."""
        try:
            for connection, answers in zip(self.connections, self.answers, strict=True):
                connection.settimeout(SECONDS)
                while (step := int(answers.readline() or -1)) not in (-1, self.steps):
                    pass  # of an earlier step, which failed there alone
                if step == -1:
                    return False
                connection.settimeout(None)
        except OSError:
            return False
        return True


class ShardedTexts:
    """The texts on rank 0 of several, with the methods of Texts."""

    def __init__(self, texts: Texts, followers: Followers):
        self.texts = texts
        self.followers = followers
        self.tokens, self.token_bytes, self.prefix_tokens = texts.tokens, texts.token_bytes, texts.prefix_tokens
        self.compiled = texts.compiled

    def clear(self) -> None:
        """Drop all texts."""
        self.followers.send("clear")
        self.texts.clear()

    def add(self, number: int, ids: list[int], most: int, owner: str, scored: int) -> bool:
        """Add a text, unless it has no room now."""
        self.followers.send("add", number, ids, most, owner, scored)
        return self.texts.add(number, ids, most, owner, scored)

    def append(self, tokens: list[tuple[int, int]]) -> None:
        """Append a token to texts."""
        self.followers.send("append", tokens)
        self.texts.append(tokens)

    def remove(self, numbers: list[int]) -> None:
        """Remove texts."""
        self.followers.send("remove", numbers)
        self.texts.remove(numbers)

    def compute(self) -> tuple[list[ComputedPart], paddle.Tensor]:
        """Compute the next tokens on all ranks."""
        self.followers.send("compute")
        try:
            return self.texts.compute()
        except Exception:
            traceback.print_exc(file=sys.stderr)
            _synchronize()
            if not self.followers.failed_too():
                print("a step failed, and not on all ranks alike: the server ends", file=sys.stderr, flush=True)
                os._exit(1)
            raise

    def settle(self, failed: list[int]) -> None:
        """Forget texts whose logits were no numbers."""
        self.followers.send("settle", failed)
        self.texts.settle(failed)


def lead(texts: Texts) -> ShardedTexts:
    """Return the texts of rank 0, while the other ranks follow(). Its end ends them."""
    return ShardedTexts(texts, Followers(_connect()))


def follow(texts: Texts) -> None:
    """Make the calls of rank 0 until it ends, whatever signal asks this rank to end before.

    Raises:
        RuntimeError: If this rank alone has failed.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    [leader] = _connect()
    failed, steps = False, 0
    for line in leader.makefile("rb"):
        call, *arguments = json.loads(line)
        assert call in CALLS, call
        if failed and call != "clear":
            raise RuntimeError(f"rank {rank()} failed, and rank 0 goes on with {call}")
        steps += call == "compute"
        try:
            getattr(texts, call)(*arguments)
            failed = False
            leader.settimeout(None)
        except Exception:
            traceback.print_exc(file=sys.stderr)
            failed = True
            leader.settimeout(SECONDS)
            if call == "compute":
                _synchronize()
                leader.sendall(f"{steps}\n".encode())


def _synchronize() -> None:
    """Wait for this rank's card.

    NCCL's collectives return at once, and one that the other ranks do not join never ends. So a rank that has begun
    more of them than others in a step that fails does not report that it is in step.
    """
    if paddle.get_device() != "cpu":
        paddle.device.synchronize()


def _connect() -> list[socket.socket]:
    """Return the sockets of this rank: on rank 0 one to each other rank, on the others one to rank 0.

    All ranks of a node call it together.
    """
    if rank() > 0:
        leader = socket.socket(socket.AF_UNIX)
        leader.connect(broadcast(None))
        return [leader]
    with tempfile.TemporaryDirectory(prefix="serve-") as folder, socket.socket(socket.AF_UNIX) as server:
        address = str(Path(folder) / "rank-0")
        if len(os.fsencode(address)) > LONGEST_ADDRESS:
            raise UserError(f"TMPDIR: {folder} is too long for the address of a socket. Set a shorter one.")
        server.bind(address)
        server.listen()
        broadcast(address)
        return [server.accept()[0] for _ in range(world_size() - 1)]
