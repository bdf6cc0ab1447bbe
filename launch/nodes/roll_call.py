"""All members of a run meet at one address before it begins; missing ones are named, and all get one verdict.

The members are the nodes, before each starts its launcher, or the ranks, before each imports Paddle. Member 0 listens,
the others connect and say who they are. It answers all of them at once: with those that report the facts of a node, or
with what is wrong, and then every one ends with the same message. Messages are JSON: nothing that is received is
executed.

Differences between members in what must be the same everywhere are refused, too.
"""

import contextlib
import hashlib
import os
import resource
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from launch.errors import UserError
from launch.nodes.network import Connection, encode, is_loopback, resolve, split_address
from launch.reporting.records import git_revision, package_versions

ROOT = Path(__file__).resolve().parents[2]
# Packages of which two versions may not meet in one run; others only draw or read files.
COMPARED = ("python", "paddlepaddle", "paddlepaddle-gpu", "paddlenlp", "numpy")


def facts(ranks: int) -> dict[str, str]:
    """Return the facts of this node: versions, the state of this repository, its number of ranks."""
    versions = package_versions()
    return {
        **{name: versions[name] for name in COMPARED if name in versions},
        "git revision": git_revision() or "none",
        "sources": _digest_of_sources(),
        "ranks on the node": str(ranks),
    }


def flag_facts(flags: Mapping[str, list[str]]) -> dict[str, str]:
    """Return every flag with its value."""
    return {f"--{name}": " ".join(words) or "1" for name, words in flags.items()}


def differences(
    facts_of_members: Iterable[tuple[int, Mapping[str, str]]], describe: Callable[[list[int]], str]
) -> list[str]:
    """Return one line for each fact that is not the same for all members.

    Of thousands of members the lines have the first facts and values alone: they go to all of them as one message.

    Args:
        facts_of_members: (number of a member, its facts).
        describe: The text of the members with these numbers.
    """
    members = list(facts_of_members)
    names = dict.fromkeys(name for _, known in members for name in known)
    lines = []
    for name in names:
        values: dict[str, list[int]] = {}
        for number, known in members:
            values.setdefault(known.get(name, "none"), []).append(number)
        if len(values) > 1:
            listed = [f"{_short(value)} on {describe(where)}" for value, where in values.items()]
            lines.append(f"{_short(name)}: {'; '.join(_first(listed, SHOWN_VALUES))}")
    return _first(lines, SHOWN_FACTS)


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_LETTERS else f"{text[:SHOWN_LETTERS]}..."


def _first(texts: list[str], limit: int) -> list[str]:
    return texts if len(texts) <= limit else [*texts[:limit], f"and {len(texts) - limit} more"]


def _digest_of_sources() -> str:
    """Return twelve letters that change with any source file: two checkouts with edits are "-dirty" both."""
    digest = hashlib.sha256()
    for folder in ("launch", "data_tools"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:12]


PROTOCOL = "paddle-llm-recipes roll call 1"
GREETING_SECONDS = 5.0  # for a new connection to send its member
RETRY_SECONDS = 0.2
PATIENCE_SECONDS = 5.0  # before the missing members are printed
OTHER_FILES = 512  # which a process of a run has open beside its connections
FILES_OF_A_CALL = 64  # the same until the roll call is over
# Of what differs, what is shown: together less than a message may have.
SHOWN_FACTS, SHOWN_VALUES, SHOWN_MEMBERS, SHOWN_LETTERS = 20, 8, 32, 300
VERDICT_SECONDS = 10.0  # for member 0's answer, on top of its own time-out


@dataclass(frozen=True)
class Meeting:
    """The place and time limit of a roll call.

    Attributes:
        what: "node" or "rank", as a member is called in messages.
        address: "host:port" where member 0 listens.
        nodes: The name of each member's node, in the order of the members.
        seconds: How long to wait for all.
    """

    what: str
    address: str
    nodes: tuple[str, ...]
    seconds: float

    def describe(self, indices: list[int]) -> str:
        """Return members as text: node 1 (gpu02), or ranks 8, 9 of node 1 (10.0.0.2); of many the first."""
        if self.what == "node":
            return self.describe_nodes(indices)
        by_node: dict[str, list[str]] = {}
        for index in indices[:SHOWN_MEMBERS]:
            by_node.setdefault(self.nodes[index], []).append(str(index))
        listed = [
            f"{'ranks' if len(ranks) > 1 else 'rank'} {', '.join(ranks)} of {node}" for node, ranks in by_node.items()
        ]
        return "; ".join(listed) + self._rest(indices)

    def describe_nodes(self, indices: list[int]) -> str:
        """Return the nodes of these members; of many the first."""
        return ", ".join(self.nodes[index] for index in indices[:SHOWN_MEMBERS]) + self._rest(indices)

    def _rest(self, indices: list[int]) -> str:
        more = len(indices) - SHOWN_MEMBERS
        return f" and {more} more" if more > 0 else ""


@dataclass(frozen=True)
class Member:
    """A node or rank that takes part.

    Attributes:
        index: Its number; count: how many members it believes there are.
        facts: What must be the same on all nodes; empty where another member reports it for its node.
        address, interface: Of its node, to be shown.
        flags: What must be the same for all members.
    """

    index: int
    count: int
    facts: Mapping[str, str]
    address: str
    interface: str
    flags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Assembly:
    """The assembled members.

    Attributes:
        members: The ones that report the facts of a node, in order, without their flags.
        connections: From member 0 to all others, by number; from each other to member 0.
    """

    members: tuple[Member, ...]
    connections: dict[int, Connection]


def roll_call(meeting: Meeting, me: Member) -> Assembly:
    """Meet all others.

    Raises:
        UserError: If one does not come in time, comes twice, or differs.
    """
    return _lead(meeting, me) if me.index == 0 else _join(meeting, me)


def _lead(meeting: Meeting, me: Member) -> Assembly:
    """Collect the members, judge, and send all of them the verdict."""
    _allow_open_files(me.count, meeting.what)
    members, connections = {0: me}, {}
    faults, refused = [], []
    deadline = time.monotonic() + meeting.seconds
    waiting = _Waiting(meeting)
    with _listen(meeting.address) as listener:
        while not faults:
            visitor = _accept(listener) if len(members) < me.count else None
            late = time.monotonic() >= deadline
            if visitor is None or late:  # all are there, or nobody comes now: of thousands, not after each that came
                # A member that left while others were awaited may come again.
                for index in [index for index, connection in connections.items() if not connection.is_open()]:
                    del members[index], connections[index]
                missing = [index for index in range(me.count) if index not in members]
                if not missing:
                    break
                waiting.report(missing)
                if late:
                    faults.append(_name_missing(meeting, missing))
            if visitor is None:
                continue
            connection, member = visitor
            fault = _fault_of(meeting, me, member, connections)
            if fault:
                faults.append(fault)
                refused.append(connection)
            else:
                members[member.index], connections[member.index] = member, connection
    order = sorted(members)
    facts_of_members = ((index, members[index].facts) for index in order if members[index].facts)
    faults += differences(facts_of_members, meeting.describe_nodes)
    faults += differences(((index, members[index].flags) for index in order), meeting.describe)
    # Without flags, and of one member a node: the flags of a thousand ranks are longer than a message may be.
    reporting = tuple(replace(members[index], flags={}) for index in order if members[index].facts)
    verdict = encode({"faults": faults, "members": [asdict(member) for member in reporting]})
    for connection in [*connections.values(), *refused]:
        with contextlib.suppress(OSError):  # the next to use the connection notices its end
            connection.send_line(verdict)
    refuse(meeting, faults)
    return Assembly(reporting, connections)


def _allow_open_files(members: int, what: str) -> None:
    """Allow an open file for each member's connection.

    1,024 files is a common limit, which a process may raise to the hard one. Raises UserError where the hard one is too
    low.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = members + OTHER_FILES
    limited = hard != resource.RLIM_INFINITY
    if limited and hard < members + FILES_OF_A_CALL:
        raise UserError(
            f"open files: a process may have {hard} on this node (ulimit -Hn), and {what} 0 needs one for each of "
            f"{members} {what}s, {needed} in all. Raise the limit: ulimit -Hn {needed} as root, "
            f"LimitNOFILE={needed} in systemd's unit, --ulimit nofile={needed} of Docker."
        )
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(needed, hard) if limited else needed, hard))


def _fault_of(meeting: Meeting, me: Member, member: Member, connections: dict[int, Connection]) -> str | None:
    """Return why a new member is refused; None where it is not."""
    number = {"node": "RANK", "rank": "PADDLE_TRAINER_ID"}[meeting.what]
    if member.count != me.count:
        return f"{meeting.what} {member.index} ({member.address}) counts {member.count} {meeting.what}s, not {me.count}"
    if not 0 < member.index < me.count or (member.index in connections and connections[member.index].is_open()):
        return f"{number}={member.index} is there twice; the second is at {member.address}"
    return None


def _name_missing(meeting: Meeting, missing: list[int]) -> str:
    return (
        f"{meeting.describe(missing)} did not come to {meeting.address} within {_minutes(meeting.seconds)}: not "
        "started, ended by an error of its own, or kept away by a firewall"
    )


def _listen(address: str) -> socket.socket:
    """Listen on all interfaces, as the launcher's own meeting point does."""
    _, port = split_address(address)
    try:
        return socket.create_server(("", port), backlog=1024)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise UserError(f"{address}: cannot listen there: {reason}. Another port: MASTER=HOST:PORT.") from None


def _accept(listener: socket.socket) -> tuple[Connection, Member] | None:
    """Return the next member that connects; None when nobody does now, or when it is no member."""
    listener.settimeout(RETRY_SECONDS)
    try:
        connected, _ = listener.accept()
    except TimeoutError:
        return None
    connected.settimeout(GREETING_SECONDS)
    connection = Connection(connected)
    try:
        greeting = connection.receive(GREETING_SECONDS)
        if greeting.pop("protocol", None) == PROTOCOL:
            return connection, _read_member(greeting)
    except (OSError, TypeError):
        pass
    connection.close()
    return None


def _read_member(message: object) -> Member:
    """Return the member that a message describes. Raises TypeError where it describes none."""
    if not isinstance(message, dict):
        raise TypeError
    member = Member(**message)
    texts = [member.address, member.interface]
    for known in (member.facts, member.flags):
        texts += [*known, *known.values()] if isinstance(known, dict) else [known]
    if {type(member.index), type(member.count)} != {int} or {*map(type, texts)} != {str}:
        raise TypeError
    return member


def _join(meeting: Meeting, me: Member) -> Assembly:
    """Connect to member 0, again and again until it is there, and take its verdict."""
    host, port = split_address(meeting.address)
    deadline = time.monotonic() + meeting.seconds
    waiting = _Waiting(meeting)
    while True:
        try:
            connection = Connection(socket.create_connection((host, port), timeout=GREETING_SECONDS))
            connection.send({"protocol": PROTOCOL, **asdict(me)})
            verdict = connection.receive(meeting.seconds + VERDICT_SECONDS)
            refuse(meeting, [str(fault) for fault in verdict["faults"]])
            return Assembly(tuple(map(_read_member, verdict["members"])), {0: connection})
        except (OSError, KeyError, TypeError) as error:  # also from a stranger at that port
            waiting.report([0])
            if time.monotonic() >= deadline:
                raise UserError(_name_leader(meeting, host, error)) from None
            time.sleep(RETRY_SECONDS)


def _name_leader(meeting: Meeting, host: str, error: Exception) -> str:
    text = (
        f"{meeting.describe([0])} did not answer at {meeting.address} within {_minutes(meeting.seconds)} ({error}): "
        "not started, ended by an error of its own, or behind a firewall."
    )
    if is_loopback(resolve(host)):
        text += f" {host} is a loopback address, which no other machine reaches: start node 0 with its own (--host)."
    return text


def refuse(meeting: Meeting, faults: list[str]) -> None:
    """Raise UserError with these faults, if there are any."""
    if faults:
        listed = "\n".join(f"  {fault}" for fault in faults)
        raise UserError(f"the {meeting.what}s cannot train together:\n{listed}")


def _minutes(seconds: float) -> str:
    return "1 minute" if seconds == 60 else f"{seconds / 60:g} minutes"


class _Waiting:
    """After some seconds prints which members are missing, and again when they change."""

    def __init__(self, meeting: Meeting):
        self.meeting = meeting
        self.reported: list[int] = []
        self.at = time.monotonic() + PATIENCE_SECONDS

    def report(self, missing: list[int]) -> None:
        if missing != self.reported and time.monotonic() >= self.at:
            members, limit = self.meeting.describe(missing), _minutes(self.meeting.seconds)
            print(f"waiting at {self.meeting.address} for {members}, up to {limit}", flush=True)
            self.reported = missing
