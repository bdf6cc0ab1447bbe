"""An elastic run on one node: meet the others, start the ranks, watch both, stop the ranks, meet again.

The ranks of a generation are started by the recipe itself, in a process of its own, with the NNODES, RANK and MASTER of
that generation: checks, batch, roll call and resume are those of any run. launch/nodes/membership.py decides when a
generation begins and ends.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Protocol

import psutil

from data_tools.language import localized
from launch.checkpoint import fence
from launch.checkpoint.output_directory import AUTO, begin_generation, lock_start, newest_whole
from launch.config.flag_values import Flags
from launch.config.recipe_file import Recipe
from launch.config.run_config import Nodes, RunConfig
from launch.config.variables import ELASTIC, apply_variables, elastic_range, exit_code_of_stopped
from launch.errors import UserError
from launch.nodes.meeting import wait_seconds
from launch.nodes.membership import (
    BEAT_SECONDS,
    BROKEN,
    FINISHED,
    KILL,
    LOST_SECONDS,
    PROTOCOL,
    STOP,
    STOPPED,
    Coordinator,
    Terms,
)
from launch.nodes.network import Connection, split_address
from launch.nodes.roll_call import facts, flag_facts
from launch.processes.logs import HUNG, LOST_CODE
from launch.processes.orphans import adopt_orphans, recorded_signals, signal_at_parents_end
from launch.processes.supervise import SignalsOfMake

POLL_SECONDS = 0.1
CONNECT_SECONDS = 2.0
RETRY_SECONDS = 1.0
STOPPED_CODE = 75  # of the recipe's process, where the ranks were stopped before their last step and have saved


class Ranks(Protocol):
    """The ranks of this node, with whatever starts and watches them."""

    def start(self, start: dict) -> None:
        """Start those of a generation. start: generation, index, count, port."""
        ...

    def ended(self) -> int | None:
        """Their exit code, None while any process of theirs is left. Call it while they run."""
        ...

    def signal(self, number: int) -> None: ...

    def kill(self) -> None:
        """Once is not enough: call it until they have ended."""
        ...


class Node:
    """This node in a run. number: its RANK. address: "host:port" of the coordinator. is_superseded: whether a later
    generation than the one with this number has begun."""

    def __init__(
        self,
        number: int,
        address: str,
        facts: Mapping[str, str],
        ranks: Ranks,
        wait_seconds: float,
        is_superseded: Callable[[int], bool] = lambda number: False,
    ):
        self.number, self.address, self.facts, self.ranks = number, split_address(address), facts, ranks
        self.wait_seconds, self.is_superseded = wait_seconds, is_superseded
        self._connection: Connection | None = None
        self._generation: int | None = None  # whose ranks run here
        self._order: str | None = None
        self._signal: int | None = None  # that told this node to leave
        self._exit_code: int | None = None
        self._alone_since = self._heard = self._beaten = self._tried = time.monotonic()
        self._why = "it does not answer"

    def step(self) -> int | None:
        """Look at the coordinator and at the ranks once, and do what follows. Returns the exit code at the end.

        Raises UserError where the run has ended with a mistake, or the coordinator stays away.
        """
        if self._connection is not None:
            self._listen()
        elif self._generation is None and self._signal is None:
            self._connect()
        if self._generation is not None:
            self._look_at_ranks()
        if self._exit_code is not None and self._generation is None:
            self.close()
            return self._exit_code
        return None

    def leave(self, number: int) -> None:
        """End this node's part after a signal: its ranks save first. After a second signal they do not."""
        if self._signal is None and self._generation is None:
            self._exit_code = 128 + number
        self._signal = number
        self._send({"leaving": True})
        if self._generation is not None:
            self.ranks.signal(number)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.finish()
            self._connection.close()
            self._connection = None

    # ---- the coordinator

    def _connect(self) -> None:
        now = time.monotonic()
        if now - self._alone_since > self.wait_seconds:
            host, port = self.address
            raise UserError(
                f"MASTER: no word from node 0 at {host}:{port} for {self.wait_seconds / 60:g} minutes ({self._why}): "
                "not started, ended, or kept away by a firewall. The checkpoints are as they were."
            )
        if now - self._tried < RETRY_SECONDS:
            return
        try:
            self._connection = Connection(socket.create_connection(self.address, timeout=CONNECT_SECONDS))
            self._connection.send({"protocol": PROTOCOL, "node": self.number, "facts": dict(self.facts)})
        except OSError as error:
            self._why = str(error)
            self.close()
        self._heard = self._tried = time.monotonic()

    def _listen(self) -> None:
        assert self._connection is not None
        try:
            while True:
                message = self._connection.receive(0.0)
                self._heard = time.monotonic()
                if "busy" not in message:
                    self._alone_since = self._heard
                self._obey(message)
        except TimeoutError:
            if time.monotonic() - self._heard > LOST_SECONDS:
                self._lose(f"silent for {LOST_SECONDS:g} seconds")
        except OSError as error:
            self._lose(str(error))
        if time.monotonic() - self._beaten >= BEAT_SECONDS:
            self._beaten = time.monotonic()
            self._send({"beat": True})

    def _obey(self, message: dict) -> None:
        if "start" in message and self._signal is None:
            start = message["start"]
            self._generation, self._order = start["generation"], None
            self.ranks.start(start)
        elif "order" in message and self._generation is not None:
            self._order = message["order"]
            if self._order == STOP:
                self.ranks.signal(signal.SIGTERM)
        elif "busy" in message:
            raise ConnectionRefusedError(message["busy"])
        elif "end" in message:
            if message["why"]:
                raise UserError(message["why"])
            self._exit_code = STOPPED_CODE if message["end"] is None else message["end"]

    def _lose(self, why: str) -> None:
        """The coordinator: without it nobody may train. Ranks that a signal has told to save may do so."""
        if self._generation is not None:
            line = f"elastic: node 0 is gone ({why}): the ranks here are ended"
            print(localized(line), file=sys.stderr, flush=True)
        self.close()
        self._why = why
        if self._signal is None:
            self._order = KILL

    def _send(self, message: dict) -> None:
        if self._connection is not None:
            with contextlib.suppress(OSError):  # it is lost at the next look
                self._connection.send(message)

    # ---- the ranks

    def _look_at_ranks(self) -> None:
        if self._order == KILL:
            self.ranks.kill()
        code = self.ranks.ended()
        if code is None:
            return
        assert self._generation is not None
        generation, self._generation = self._generation, None
        if self._signal is not None:
            self._exit_code = code
            self._send({"ended": self._meaning(code, generation) or BROKEN})
            return
        how = self._meaning(code, generation)
        if how is None:
            line = f"elastic: node {self.number} leaves the run: its ranks failed"
            print(localized(line), file=sys.stderr, flush=True)
            self._exit_code = code
        self._send({"ended": how or BROKEN})

    def _meaning(self, code: int, generation: int) -> str | None:
        """How the ranks ended; None where they failed by a fault of this node."""
        if code == 0:
            return FINISHED
        if code == STOPPED_CODE or self._order == STOP:
            return STOPPED
        if code in (LOST_CODE, HUNG) or self._order == KILL or self.is_superseded(generation):
            return BROKEN
        return None


class RecipeProcess:
    """The ranks of this node, under the recipe's own process. master: as the user gave it."""

    def __init__(self, command: list[str], master: str):
        self.command, self.master = command, master
        self._process: subprocess.Popen | None = None

    def start(self, start: dict) -> None:
        count, host = start["count"], split_address(self.master)[0]
        variables = {
            "NNODES": str(count),
            "RANK": str(start["index"]),
            "MASTER": f"{host}:{start['port']}" if count > 1 else "",
            "STOPPED_EXIT_CODE": str(STOPPED_CODE),
            fence.GENERATION: fence.label(start["generation"], self.master),
        }
        self._process = subprocess.Popen(
            self.command,
            stdin=subprocess.DEVNULL,
            env={name: value for name, value in os.environ.items() if name != ELASTIC} | variables,
            start_new_session=True,  # a terminal's Ctrl-C reaches the node's loop alone
            preexec_fn=lambda: signal_at_parents_end(signal.SIGTERM),
        )

    def ended(self) -> int | None:
        assert self._process is not None
        code = self._process.poll()
        if code is None or psutil.wait_procs(psutil.Process().children(), timeout=0)[1]:
            return None
        return code if code >= 0 else 128 - code

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def terms(recipe: Recipe, variables: Mapping[str, str], own: Flags, wait_seconds: float) -> Terms:
    """With how many nodes the run can go on. own: flags of the command line.

    Raises UserError where the samples of a step can be kept on no number of nodes.
    """
    least, most = elastic_range(variables)
    batches, refusal = {}, None
    for count in range(least, most + 1):
        try:
            run, _ = apply_variables(recipe, variables, Nodes(count), own)
            batches[count] = run.global_batch
        except UserError as error:
            refusal = error
    if not batches:
        assert refusal is not None
        raise refusal
    if len(set(batches.values())) > 1:
        found = ", ".join(f"{batch} on {count}" for count, batch in batches.items())
        raise UserError(
            f"{ELASTIC}: the samples of a step would change with the number of nodes: {found}. State the batch in the "
            "recipe or by ARGS, not in CONFIG."
        )
    return Terms(tuple(batches), most, wait_seconds)


def follow(node: Node, coordinator: Coordinator | None) -> int:
    """Run this node's part to its end; the exit code. Call it from the main thread of a process of its own."""
    adopt_orphans()
    make = SignalsOfMake()
    try:
        with recorded_signals() as signals:
            while True:
                if coordinator:
                    coordinator.step()
                exit_code = node.step()
                if exit_code is not None:
                    return exit_code
                signals += make.received()
                if signals:
                    node.leave(signals.pop(0))
                time.sleep(POLL_SECONDS)
    finally:
        node.close()
        if coordinator:
            coordinator.close()


def start_elastic(recipe: Recipe, run: RunConfig, own: Flags, command: list[str]) -> int:
    """This node's part in an elastic run; the exit code. run: on as many nodes as it may have. command: starts the
    recipe for one generation."""
    master, output = run.nodes.master, run.flags.output_dir
    assert master is not None  # several nodes have one
    _refuse_flags(run)
    agreed = terms(recipe, os.environ, own, wait_seconds())
    known = facts(run.processes // run.nodes.count) | flag_facts(run.words) | {ELASTIC: os.environ[ELASTIC]}
    coordinator = None
    if run.nodes.rank == 0:
        lock_start(output)  # until this process ends: between generations nothing else holds the directory
        print(localized(f"elastic: {agreed.describe()} can train; waiting for the others at {master}"), flush=True)
        coordinator = Coordinator(
            master, agreed, known, lambda: begin_generation(output, master), lambda: newest_whole(output)
        )
    ranks = RecipeProcess(command, master)
    node = Node(run.nodes.rank, master, known, ranks, agreed.wait_seconds, lambda number: fence.newest(output) > number)
    exit_code = follow(node, coordinator)
    return exit_code_of_stopped(os.environ) if exit_code == STOPPED_CODE else exit_code


def _refuse_flags(run: RunConfig) -> None:
    """Raises UserError for flags that would count for each generation alone."""
    flags = run.flags
    if flags.overwrite_output_dir or flags.resume_from_checkpoint not in (None, AUTO):
        raise UserError(
            f"{ELASTIC}: each generation continues from the newest checkpoint of --output_dir. Leave out "
            "--overwrite_output_dir and --resume_from_checkpoint."
        )
    if flags.max_run_minutes:
        raise UserError(
            f"{ELASTIC}: --max_run_minutes would count from the start of each generation. Leave it out, and have the "
            "scheduler send SIGTERM."
        )
