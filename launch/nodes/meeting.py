"""The two roll calls of a run on several nodes: of the nodes, before their launchers start, and of the ranks.

The first exists only where a recipe starts the run. The second is made by every rank, also under a
`paddle.distributed.launch --nnodes 2` typed by hand.
"""

import os
from collections.abc import Mapping

from launch.errors import UserError
from launch.nodes.address import address_towards, interface_of, is_loopback, resolve, split_address
from launch.nodes.alike import facts
from launch.nodes.link import Link
from launch.nodes.place import Nodes
from launch.nodes.roll_call import Assembly, Meeting, Member, roll_call

WAIT_VARIABLE = "RENDEZVOUS_MINUTES"
WAIT_MINUTES = 10.0  # nodes are started by hand one after the other, or by a scheduler at once
SHOWN = ("python", "paddlepaddle", "paddlepaddle-gpu", "paddlenlp", "git revision")


def meet_nodes(nodes: Nodes, flags: Mapping[str, list[str]], ranks: int) -> Link:
    """Wait for the other nodes; what keeps us connected with them. ranks: of this node.

    Raises UserError, on all nodes the same, when one is missing or not alike.
    """
    host, _ = split_address(nodes.master)
    me = _member(nodes.rank, nodes.count, resolve(host), facts(flags, ranks))
    meeting = Meeting("node", nodes.master, tuple(map(nodes.name, range(nodes.count))), wait_seconds())
    assembly = roll_call(meeting, me)
    return Link({meeting.nodes[index]: connection for index, connection in assembly.connections.items()})


def meet_ranks(flags: Mapping[str, list[str]], on_cpu: bool) -> list[str]:
    """Wait for all ranks of all nodes; the lines to tell. Does nothing, [], where there is one node.

    on_cpu: gloo will connect the ranks. By itself it takes the interface of this machine's name, which /etc/hosts
    often gives to loopback; so it gets the one that leads to node 0, unless GLOO_SOCKET_IFNAME is set.

    Reads the place of this rank from what paddle.distributed.launch has set. They meet at rank 0's own endpoint,
    which nothing else uses. Raises UserError, on all ranks the same, when one is missing or not alike.
    """
    count, per_node = (int(os.environ.get(name, "1")) for name in ("PADDLE_TRAINERS_NUM", "PADDLE_LOCAL_SIZE"))
    if int(os.environ.get("PADDLE_NNODES", "1")) == 1:
        return []
    rank = int(os.environ["PADDLE_TRAINER_ID"])
    endpoints = os.environ["PADDLE_TRAINER_ENDPOINTS"].split(",")
    nodes = tuple(f"node {index // per_node} ({split_address(one)[0]})" for index, one in enumerate(endpoints))
    is_first_of_node = os.environ.get("PADDLE_LOCAL_RANK", "0") == "0"
    me = _member(rank, count, split_address(endpoints[0])[0], facts(flags, per_node) if is_first_of_node else {})
    assembly = roll_call(Meeting("rank", endpoints[0], nodes, wait_seconds()), me)
    for connection in assembly.connections.values():
        connection.close()
    if on_cpu:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", me.interface)
    return _describe(assembly, per_node)


def wait_seconds() -> float:
    """How long to wait for the others, from RENDEZVOUS_MINUTES."""
    value = os.environ.get(WAIT_VARIABLE) or str(WAIT_MINUTES)
    try:
        minutes = float(value)
    except ValueError:
        minutes = 0.0
    if not 0 < minutes < float("inf"):
        raise UserError(f"{WAIT_VARIABLE}: found {value!r}, expected minutes above 0, such as {WAIT_MINUTES:g}.")
    return 60 * minutes


def _member(index: int, count: int, leader: str, known: Mapping[str, str]) -> Member:
    address = leader if index == 0 else address_towards(leader)
    return Member(index, count, known, address, interface_of(address))


def _describe(assembly: Assembly, per_node: int) -> list[str]:
    """The two lines of a run on several nodes: that they are alike, and how they are connected."""
    first = [member for member in assembly.members if member.facts]
    alike = ", ".join(f"{name} {first[0].facts[name]}" for name in SHOWN if name in first[0].facts)
    where = ", ".join(f"node {number} {one.address} ({one.interface})" for number, one in enumerate(first))
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
