"""Which nodes an elastic run has now: they come, go and are lost, and its ranks are started anew each time.

Node 0 runs the Coordinator, at the address of MASTER. Every node, 0 among them, stays connected with it and sends a
beat each second, as the coordinator does. A node whose connection closes is lost at once, one that is silent (stopped,
out of power, cut off) after LOST_SECONDS. The nodes that train together are a generation. The coordinator

    begins one       when the ranks of the last one have ended everywhere, and enough nodes are here
    orders "kill"    when a node of it is lost, or its ranks failed on one
    orders "stop"    when more nodes could train than do: the ranks save and end

Messages are JSON, one a line: nothing that is received is executed. Nothing here waits: `step` is called again and
again.
"""

import contextlib
import os
import random
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from data_tools.language import localized
from launch.errors import UserError
from launch.nodes.network import Connection
from launch.nodes.roll_call import differences, listen

PROTOCOL = "paddle-llm-recipes elastic 1"
BEAT_SECONDS = 1.0
LOST_SECONDS = 20.0  # without a beat
LAST_CALL_SECONDS = 15.0  # for further nodes, once enough are here
GREETING_SECONDS = 5.0  # for a new connection to say who it is
FAREWELL_SECONDS = 2.0  # for the nodes to read the last message
KILL_SECONDS = 60.0  # for ranks to end after SIGKILL; one that waits for a dead card or disk never does
MOST_VISITORS = 64  # that have not said who they are
MOST_IN_VAIN = 3  # generations of the same nodes that end without a new checkpoint
PORTS = "35100:64000"  # from which Paddle's launcher takes its own, too, unless PORT_RANGE is set

# Orders to the nodes of a generation, and how its ranks ended on a node.
STOP, KILL = "stop", "kill"
FINISHED, STOPPED, BROKEN = "finished", "stopped", "broken"
MISTAKE = 2  # exit code of a run that cannot go on as the user wants it


@dataclass(frozen=True)
class Terms:
    """counts: numbers of nodes that can train, ascending. most: nodes in all. wait_seconds: for enough of them."""

    counts: tuple[int, ...]
    most: int
    wait_seconds: float

    def usable(self, present: int) -> int:
        """How many of the nodes that are here can train, 0 where they are too few."""
        return max((count for count in self.counts if count <= present), default=0)

    def describe(self) -> str:
        """2, 3 or 4 nodes"""
        *others, last = map(str, self.counts)
        return f"{', '.join(others)} or {last} nodes" if others else f"{last} nodes"


@dataclass
class _Member:
    """A node that is connected. heard: when. trains: whether it is in the generation. runs: whether its ranks do."""

    connection: Connection
    heard: float
    trains: bool = False
    runs: bool = False


class Coordinator:
    """address: "host:port" where it listens. facts: what must be the same on all nodes.

    begin: starts the next generation, and gives its number. progress: something that changes with each checkpoint.
    """

    def __init__(
        self,
        address: str,
        terms: Terms,
        facts: Mapping[str, str],
        begin: Callable[[], int],
        progress: Callable[[], object] = lambda: None,
    ):
        self.terms, self.facts = terms, facts
        self._begin, self._progress = begin, progress
        self._listener = listen(address)
        self._listener.setblocking(False)
        self._visitors: list[tuple[Connection, float]] = []
        self._members: dict[int, _Member] = {}
        self._changed = self._short_since = self._beaten = time.monotonic()
        self._order: str | None = None  # to the nodes of this generation
        self._killed = 0.0  # when the order was KILL
        self._is_broken = False  # whether this generation has lost a node or a rank
        self._ends: set[str] = set()  # how the ranks of this generation ended
        self._in_vain: tuple[object, int] = (None, 0)
        self._reported = ""
        self._has_ended = False

    def step(self) -> None:
        """Look at all connections once, and do what follows."""
        self._greet()
        for number, member in list(self._members.items()):
            self._hear(number, member)
        if time.monotonic() - self._beaten >= BEAT_SECONDS:
            self._beaten = time.monotonic()
            self._tell(self._members, {"beat": True})
        if any(member.runs for member in self._members.values()):
            self._short_since = time.monotonic()
            self._watch()
        elif self._members and not self._has_ended:
            self._form()

    def close(self) -> None:
        """Close all connections, once the nodes have read what was sent: a reset would lose it."""
        self._listener.close()
        for member in self._members.values():
            member.connection.finish()
        deadline = time.monotonic() + FAREWELL_SECONDS
        for member in self._members.values():
            with contextlib.suppress(OSError):
                while True:
                    member.connection.receive(max(deadline - time.monotonic(), 0.0))
            member.connection.close()

    # ---- nodes come

    def _greet(self) -> None:
        with contextlib.suppress(OSError):  # nobody, or somebody who is gone
            while len(self._visitors) < MOST_VISITORS:
                self._visitors.append((Connection(self._listener.accept()[0]), time.monotonic()))
        waiting, self._visitors = self._visitors, []
        for connection, since in waiting:
            try:
                self._admit(connection, connection.receive(0.0))
            except TimeoutError:
                if time.monotonic() - since < GREETING_SECONDS:
                    self._visitors.append((connection, since))
                else:
                    connection.close()
            except OSError:
                connection.close()

    def _admit(self, connection: Connection, hello: dict) -> None:
        number, facts = hello.get("node"), hello.get("facts")
        if (
            hello.get("protocol") != PROTOCOL
            or type(number) is not int
            or not isinstance(facts, dict)
            or not all(isinstance(value, str) for value in facts.values())
        ):
            connection.close()
            return
        found = differences([(0, self.facts), (number, facts)], lambda numbers: f"node {numbers[0]}")
        if not 0 <= number < self.terms.most:
            found.append(f"RANK: nodes are numbered from 0 to {self.terms.most - 1}")
        if found:
            faults = "\n".join(f"  {line}" for line in found)
            connection.send({"end": MISTAKE, "why": f"node {number} cannot train with node 0:\n{faults}"})
            connection.finish()
        elif number in self._members:
            connection.send({"busy": f"another node with RANK={number} is here, or was until a moment ago"})
            connection.finish()
        else:
            self._members[number] = _Member(connection, time.monotonic())
            self._changed = time.monotonic()
            self._say(f"node {number} is here")

    # ---- nodes report, and go

    def _hear(self, number: int, member: _Member) -> None:
        try:
            while True:
                message = member.connection.receive(0.0)
                member.heard = time.monotonic()
                if message.get("ended") in (FINISHED, STOPPED, BROKEN):
                    self._note_end(member, message["ended"])
                if "leaving" in message and member.runs:
                    self._order = self._order or STOP  # its ranks save, and all others with them
        except TimeoutError:
            if time.monotonic() - member.heard > LOST_SECONDS:
                self._lose(number, f"silent for {LOST_SECONDS:g} seconds")
        except OSError as error:
            self._lose(number, str(error))

    def _note_end(self, member: _Member, how: str) -> None:
        member.runs = False
        self._ends.add(how)
        self._is_broken |= how == BROKEN

    def _lose(self, number: int, why: str) -> None:
        member = self._members.pop(number)
        member.connection.close()
        self._changed = time.monotonic()
        self._is_broken |= member.runs
        self._say(f"node {number} is gone ({why})")

    # ---- what follows

    def _watch(self) -> None:
        """While ranks run."""
        training = [number for number, member in self._members.items() if member.trains]
        order = self._order
        if self._is_broken:
            order = KILL
        elif order is None and self.terms.usable(len(self._members)) > len(training) and self._is_settled():
            order = STOP
            self._say("more nodes can train: the run saves and goes on with them")
        if order != self._order:
            self._order, self._killed = order, time.monotonic()
            self._tell(training, {"order": order})
        elif order == KILL and time.monotonic() - self._killed > KILL_SECONDS:
            for number in [number for number in training if self._members[number].runs]:
                self._lose(number, f"its ranks have not ended {KILL_SECONDS:g} seconds after SIGKILL")

    def _form(self) -> None:
        """While no ranks run: begin the next generation, or end."""
        if FINISHED in self._ends and not self._is_broken:  # else what comes after the last step may be missing
            self._end(0, "")
            return
        if STOPPED in self._ends and self._order is None and not self._is_broken:  # not by us: the run was told to stop
            self._end(None, "")
            return
        here = sorted(self._members)
        count = self.terms.usable(len(here)) if 0 in here else 0
        if not count:
            self._wait_for_more(here)
            return
        self._short_since = time.monotonic()
        if not self._is_settled():
            return
        chosen = here[:count]
        if self._has_failed_often(chosen):
            why = f"{MOST_IN_VAIN} times in a row the ranks of nodes {_listed(chosen)} ended without a new checkpoint"
            self._end(MISTAKE, why)
            return
        try:
            generation = self._begin()
        except UserError as error:
            self._end(MISTAKE, str(error))
            return
        self._order, self._is_broken, self._ends = None, False, set()
        port = free_port()
        for index, number in enumerate(chosen):
            start = {"generation": generation, "index": index, "count": count, "port": port, "nodes": chosen}
            self._members[number].runs = True
            self._tell([number], {"start": start})
        for number, member in self._members.items():
            member.trains = number in chosen
        spare = [number for number in here if number not in chosen]
        waits = f"; nodes {_listed(spare)} wait: {self.terms.describe()} can train" if spare else ""
        self._say(f"generation {generation}: nodes {_listed(chosen)} train{waits}")

    def _wait_for_more(self, here: list[int]) -> None:
        least, waited = self.terms.counts[0], time.monotonic() - self._short_since
        if waited > self.terms.wait_seconds:
            minutes = f"{self.terms.wait_seconds / 60:g} minutes"
            self._end(MISTAKE, f"ELASTIC: {len(here)} of at least {least} nodes were here for {minutes}.")
        else:
            self._say(f"nodes {_listed(here)} are here; at least {least} are needed")

    def _is_settled(self) -> bool:
        """Whether all nodes are here, or no other has come or gone for a while."""
        is_full = len(self._members) == self.terms.most
        return is_full or time.monotonic() - self._changed >= LAST_CALL_SECONDS

    def _has_failed_often(self, chosen: list[int]) -> bool:
        state = (chosen, self._progress())
        before, times = self._in_vain
        self._in_vain = (state, times + 1 if state == before else 0)
        return self._in_vain[1] >= MOST_IN_VAIN

    def _end(self, exit_code: int | None, why: str) -> None:
        """exit_code: None for a run that was stopped and has saved."""
        self._has_ended = True
        self._tell(self._members, {"end": exit_code, "why": why})

    def _tell(self, numbers, message: dict) -> None:
        for number in numbers:
            with contextlib.suppress(OSError):  # it is lost at the next look
                self._members[number].connection.send(message)

    def _say(self, line: str) -> None:
        if line != self._reported:
            print(f"elastic: {localized(line)}", flush=True)
        self._reported = line


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))


def free_port() -> int:
    """A port of PORT_RANGE that nobody uses now. Another one for each generation: ranks of two never meet."""
    first, _, last = (os.environ.get("PORT_RANGE") or PORTS).partition(":")
    ports = list(range(int(first), int(last)))
    for port in random.sample(ports, len(ports)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            return port
    raise UserError(f"PORT_RANGE: no port of {first}:{last} is free on node 0.")
