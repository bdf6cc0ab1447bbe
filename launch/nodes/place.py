"""How many nodes a run has, which of them this is, and where they meet: from NNODES, RANK, MASTER or a scheduler."""

from collections.abc import Mapping
from dataclasses import dataclass

from launch.errors import UserError
from launch.nodes.schedulers import NOTHING, Scheduler, ask

VARIABLES = {"NNODES": "count", "RANK": "rank", "MASTER": "master"}  # the user's -> the field of a scheduler's


@dataclass(frozen=True)
class Nodes:
    """The machines of a run.

    count:  how many
    rank:   this one's number, from 0
    master: "host:port" of node 0, where all meet; None on one node
    source: where these came from, to tell
    hosts:  names of all nodes where a scheduler has told them, else empty
    """

    count: int = 1
    rank: int = 0
    master: str | None = None
    source: str = ""
    hosts: tuple[str, ...] = ()

    def name(self, rank: int) -> str:
        """node 1 (gpu02)"""
        return f"node {rank} ({self.hosts[rank]})" if self.hosts else f"node {rank}"

    def describe(self) -> str:
        return f"{self.count}, this is {self.rank}, they meet at {self.master} ({self.source})"


ONE_NODE = Nodes()


def read_nodes(variables: Mapping[str, str]) -> Nodes:
    """The nodes as the user's variables and the environment have them; the user's win, one by one.

    Raises UserError where something is missing or contradictory.
    """
    if variables.get("NNODES") == "1" and variables.get("RANK") in (None, "", "0"):
        return ONE_NODE  # whatever a scheduler says
    wished = {name for name in VARIABLES if variables.get(name)}
    scheduler, told = (None, NOTHING) if wished == set(VARIABLES) else ask(variables)
    sources = {name: name if name in wished else told.said.get(field) for name, field in VARIABLES.items()}
    count = _number(variables, "NNODES", 1) if "NNODES" in wished else told.count
    rank = _number(variables, "RANK", 0) if "RANK" in wished else told.rank
    if count is None:
        _refuse_without_count(variables)
        return ONE_NODE
    if count == 1 and not rank:
        return ONE_NODE
    _refuse_missing(count, sources)
    if rank >= count:
        numbers = f"nodes are numbered from 0 to {count - 1}"
        raise UserError(f"{sources['RANK']}: found {rank}, but {sources['NNODES']}={count}: {numbers}.")
    return Nodes(
        count=count,
        rank=rank,
        master=variables["MASTER"] if "MASTER" in wished else told.master,
        source=_describe_sources(list(sources.values()), scheduler),
        hosts=told.hosts if len(told.hosts) == count else (),
    )


def _describe_sources(names: list[str], scheduler: Scheduler | None) -> str:
    """SLURM: SLURM_NNODES, SLURM_NODEID, MASTER"""
    listed = ", ".join(dict.fromkeys(names))
    return listed if set(names) <= set(VARIABLES) else f"{scheduler.name}: {listed}"


def _refuse_without_count(variables: Mapping[str, str]) -> None:
    found = [f"{name}={variables[name]}" for name in ("RANK", "MASTER") if variables.get(name)]
    if found:
        raise UserError(
            f"NNODES: {' and '.join(found)} without the number of nodes. Several nodes: NNODES=2 RANK=0 "
            "MASTER=HOST:PORT on the first, RANK=1 on the other; one node: leave it out."
        )


def _refuse_missing(count: int, sources: Mapping[str, str | None]) -> None:
    meanings = {
        "NNODES": "the number of nodes",
        "RANK": f"this node's number, 0 to {count - 1}",
        "MASTER": "HOST:PORT of the node with RANK=0, such as 10.0.0.1:8090",
    }
    missing = [f"{name}= ({meanings[name]})" for name, source in sources.items() if source is None]
    if missing:
        raise UserError(f"{sources['NNODES']}: {count} nodes need {' and '.join(missing)}, too; one node: NNODES=1.")


def _number(variables: Mapping[str, str], name: str, least: int) -> int:
    value = variables[name]
    if not value.isdecimal() or int(value) < least:
        raise UserError(f"{name}: found {value!r}, expected a whole number from {least}.")
    return int(value)
