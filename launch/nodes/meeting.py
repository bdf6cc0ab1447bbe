"""The two roll calls of a run on several nodes: of the nodes, before their launchers start, and of the ranks.

The first exists only where a recipe starts the run. The second is made by every rank, also under a
`paddle.distributed.launch --nnodes 2` typed by hand. The ranks of one node open no port of ours: they compare their
flags in the store by which Paddle connects them.
"""

import contextlib
import json
import os
import time
from collections.abc import Mapping

from data_tools.formats.json_files import quoted
from launch.config.run_config import Nodes
from launch.errors import UserError
from launch.nodes.network import Link, address_towards, interface_of, is_loopback, resolve, split_address
from launch.nodes.roll_call import (
    RETRY_SECONDS,
    Assembly,
    Meeting,
    Member,
    differences,
    facts,
    flag_facts,
    refuse,
    roll_call,
)

WAIT_VARIABLE = "RENDEZVOUS_MINUTES"
MOST_MINUTES = 525_600  # a year
WAIT_MINUTES = 10.0  # nodes are started by hand one after the other, or by a scheduler at once
IN_KUBERNETES = "KUBERNETES_SERVICE_HOST"  # set in every container of a pod
PLACE = (("PADDLE_TRAINER_ID", "0"), ("PADDLE_TRAINERS_NUM", "1"))
SHOWN = ("python", "paddlepaddle", "paddlepaddle-gpu", "paddlenlp", "git revision")


def meet_nodes(nodes: Nodes, flags: Mapping[str, list[str]], ranks: int) -> Link:
    """Wait for the other nodes; returns the connections to them. ranks: how many this node has.

    Raises:
        UserError: On all nodes the same, when one is missing or not alike.
    """
    assert nodes.master is not None  # several nodes have one
    host, _ = split_address(nodes.master)
    me = _member(nodes.rank, nodes.count, resolve(host), facts(ranks), flags)
    meeting = Meeting("node", nodes.master, tuple(map(nodes.name, range(nodes.count))), wait_seconds(os.environ))
    assembly = roll_call(meeting, me)
    return Link({meeting.nodes[index]: connection for index, connection in assembly.connections.items()})


def await_master(nodes: Nodes) -> None:
    """Wait in Kubernetes until the name of node 0 is known here, and on node 0 that it means this pod.

    A pod gets its name after it has started. Elsewhere a name that is unknown now stays so, which the checks report.
    """
    if not os.environ.get(IN_KUBERNETES):
        return
    assert nodes.master is not None  # several nodes have one
    host, _ = split_address(nodes.master)
    deadline = time.monotonic() + wait_seconds(os.environ)
    while time.monotonic() < deadline:
        with contextlib.suppress(UserError):
            address = resolve(host)
            if nodes.rank or address_towards(address) == address:
                return
        time.sleep(RETRY_SECONDS)


def meet_ranks(flags: Mapping[str, list[str]], on_cpu: bool) -> list[str]:
    """Wait for all ranks of all nodes; returns the lines to print. Does nothing on one node: see compare_flags.

    on_cpu: gloo will connect the ranks. By itself it takes the interface of this machine's name, which /etc/hosts
    often gives to loopback; so it gets the one that leads to node 0, unless GLOO_SOCKET_IFNAME is set.

    Reads the place of this rank from what paddle.distributed.launch has set. They meet at rank 0's own endpoint,
    which nothing else uses yet.

    Raises:
        UserError: On all ranks the same, when one is missing or not alike.
    """
    if not _several_nodes():
        return []
    rank, count = _place()
    per_node = int(os.environ.get("PADDLE_LOCAL_SIZE", "1"))
    endpoints = os.environ["PADDLE_TRAINER_ENDPOINTS"].split(",")
    nodes = tuple(
        f"node {index // per_node} ({split_address(endpoint)[0]})" for index, endpoint in enumerate(endpoints)
    )
    reports_facts = os.environ.get("PADDLE_LOCAL_RANK", "0") == "0"  # of its node
    me = _member(rank, count, split_address(endpoints[0])[0], facts(per_node) if reports_facts else {}, flags)
    assembly = roll_call(Meeting("rank", endpoints[0], nodes, wait_seconds(os.environ)), me)
    for connection in assembly.connections.values():
        connection.close()
    if on_cpu:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", me.interface)
    return _describe(assembly, per_node)


def compare_flags(flags: Mapping[str, list[str]]) -> None:
    """Compare the flags of the ranks of one node: ranks started by hand with different flags would train all the same.

    Needs Paddle: the flags pass through its store, which rank 0 opens here rather than with the first group. Does
    nothing on several nodes (meet_ranks) and where there is one rank.

    Raises:
        UserError: On all ranks the same.
    """
    rank, count = _place()
    if count == 1 or _several_nodes():
        return
    from paddle.base import core

    store = core.create_or_get_global_tcp_store()
    # Paddle's stub has str for the values; bytes are taken, too.
    store.set(f"flags/{rank}", json.dumps(flag_facts(flags)).encode())  # pyright: ignore[reportArgumentType]
    reported = [(index, json.loads(bytes(store.get(f"flags/{index}")))) for index in range(count)]
    if store.add("flags/read", 1) == count:
        store.set("flags/all_read", b"1")  # pyright: ignore[reportArgumentType]
    store.wait("flags/all_read")  # rank 0 would take the store with it
    meeting = Meeting("rank", "", ("this node",) * count, 0)
    refuse(meeting, differences(reported, meeting.describe))


def _several_nodes() -> bool:
    return int(os.environ.get("PADDLE_NNODES", "1")) > 1


def _place() -> tuple[int, int]:
    """Return (this rank, number of ranks)."""
    rank, count = (int(os.environ.get(name, default)) for name, default in PLACE)
    return rank, count


def wait_seconds(variables: Mapping[str, str]) -> float:
    """Return the seconds to wait for the other nodes, from RENDEZVOUS_MINUTES. Raise UserError where it is no time."""
    value = variables.get(WAIT_VARIABLE) or str(WAIT_MINUTES)
    try:
        minutes = float(value)
    except ValueError:
        minutes = 0.0
    if not 0 < minutes <= MOST_MINUTES:
        raise UserError(
            f"{WAIT_VARIABLE}: found {quoted(value)}, expected minutes above 0, at most {MOST_MINUTES:,}, such as "
            f"{WAIT_MINUTES:g}."
        )
    return 60 * minutes


def _member(index: int, count: int, leader: str, known: Mapping[str, str], flags: Mapping[str, list[str]]) -> Member:
    address = leader if index == 0 else address_towards(leader)
    return Member(index, count, known, address, interface_of(address), flag_facts(flags))


def _describe(assembly: Assembly, per_node: int) -> list[str]:
    """Return the two lines of a run on several nodes: that they are alike, and how they are connected."""
    first = [member for member in assembly.members if member.facts]
    alike = ", ".join(f"{name} {first[0].facts[name]}" for name in SHOWN if name in first[0].facts)
    where = ", ".join(f"node {number} {member.address} ({member.interface})" for number, member in enumerate(first))
    variables = ", ".join(
        f"{name}={os.environ[name]}" if name in os.environ else f"{name} not set"
        for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
    )
    lines = [
        f"nodes: {len(first)} of {per_node} {'ranks' if per_node > 1 else 'rank'}, alike in {alike} and all flags",
        f"network: {where}; {variables}",
    ]
    if any(is_loopback(member.address) for member in first):
        lines.append("warning: a loopback address is used, so all nodes are on one machine")
    return lines
