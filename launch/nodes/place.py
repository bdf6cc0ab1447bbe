"""How many nodes a run has, which of them this is, and where they meet: from NNODES, RANK, MASTER or a scheduler.

Sources for the variables that schedulers set on each node: Open MPI 5 documentation, "Environment variables set
for MPI applications"; srun(1), "OUTPUT ENVIRONMENT VARIABLES"; paddle/distributed/cloud_utils.py (PaddleCloud, which
AI Studio is built on, and its Kubernetes operator); paddle/distributed/launch/context/args_envs.py (the launcher's
own).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product

from data_tools.cli import whole_number
from launch.config.numbers import MOST, MOST_OF_OTHERS, read_count
from launch.config.run_config import ONE_NODE, Nodes
from launch.errors import UserError

DEFAULT_PORT = 8090
# Jobs that share a node shall not meet at the same port: each takes one of these by its number.
FIRST_JOB_PORT, JOB_PORTS = 20000, 10000


def _split_hosts(hosts: str) -> list[str]:
    """Return ["10.0.0.1", "10.0.0.2"] for "10.0.0.1:6170,10.0.0.1:6171,10.0.0.2:6170"."""
    return list(dict.fromkeys(word.strip().partition(":")[0] for word in hosts.split(",") if word.strip()))


HOST = r"(?:[^,\[\]\s]+|\[[^\[\]\s]*\])+"  # text and brackets; a comma outside of brackets ends it
HOST_LIST = re.compile(f"{HOST}(?:,{HOST})*")
BRACKETS = re.compile(r"\[([^\[\]]*)\]")


def expand_hosts(hosts: str) -> list[str]:
    """Return ["node01", "node02", "node07"] for "node[01-02,07]"; several brackets in a name are all combinations.

    As `scontrol show hostnames` does it: numbers keep their leading zeros, the last bracket counts fastest.

    Raises:
        UserError: For a text that is no such list.
    """
    if not HOST_LIST.fullmatch(hosts):
        raise UserError(f"list of hosts: found {hosts!r}, expected one such as node[01-03,07],login1.")
    found = []
    for name in re.findall(HOST, hosts):
        parts = BRACKETS.split(name)  # text, bracket, text, bracket, ..., text
        choices = [[part] if number % 2 == 0 else _expand_ranges(part, name) for number, part in enumerate(parts)]
        found += ["".join(chosen) for chosen in product(*choices)]
    return found


def _expand_ranges(ranges: str, name: str) -> list[str]:
    """Return ["01", "02", "07"] for "01-02,07"."""
    numbers = []
    for part in ranges.split(","):
        first, dash, last = part.partition("-")
        last = last if dash else first
        least, most = (whole_number(end, 0, MOST_OF_OTHERS) for end in (first, last))
        if least is None or most is None or not 0 <= most - least < MOST["NNODES"]:
            raise UserError(f"list of hosts: found [{ranges}] in {name!r}, expected such as [01-03,07].")
        numbers += [str(number).zfill(len(first)) for number in range(least, most + 1)]
    return numbers


@dataclass(frozen=True)
class Scheduler:
    """The variables of one scheduler; where one field has several, the first that is set counts.

    Attributes:
        count: Number of nodes.
        rank: This node's number, from 0.
        master: "host:port" where the nodes meet.
        hosts: All nodes in the order of their numbers, as `split` reads them.
        own: This node's address, as in hosts.
        port: Where the first node may listen.
        job: Number of the job.
        tasks: How many processes were started on this node: each would start the whole node's ranks.
        start: How one process a node is started.
    """

    name: str
    start: str
    count: tuple[str, ...] = ()
    rank: tuple[str, ...] = ()
    master: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    port: tuple[str, ...] = ()
    job: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    split: Callable[[str], list[str]] = _split_hosts


SCHEDULERS = (
    Scheduler(
        "Open MPI",
        start="mpirun --map-by ppr:1:node",
        count=("OMPI_COMM_WORLD_SIZE",),
        rank=("OMPI_COMM_WORLD_RANK",),
        tasks=("OMPI_COMM_WORLD_LOCAL_SIZE",),
    ),
    Scheduler(
        "SLURM",
        start="srun --ntasks-per-node=1",
        count=("SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
        rank=("SLURM_NODEID",),
        hosts=("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"),
        job=("SLURM_JOB_ID",),
        tasks=("SLURM_STEP_TASKS_PER_NODE",),
        split=expand_hosts,
    ),
    Scheduler(
        "Paddle",
        start="the same command once on each node",
        count=("PADDLE_NNODES",),
        rank=("PADDLE_RANK",),
        master=("PADDLE_MASTER",),
    ),
    Scheduler(
        "AI Studio",
        start="the same command once on each node",
        count=("TRAINER_INSTANCES_NUM", "PADDLE_TRAINERS_NUM"),
        rank=("PADDLE_TRAINER_ID",),
        hosts=("PADDLE_TRAINERS", "TRAINER_INSTANCES", "PADDLE_TRAINER_ENDPOINTS", "DISTRIBUTED_TRAINER_ENDPOINTS"),
        own=("POD_IP",),
        port=("PADDLE_PORT",),
    ),
)


@dataclass(frozen=True)
class SchedulerFacts:
    """The values of a scheduler's variables; None, or empty, where they are missing.

    Attributes:
        variables: Field -> its variable.
    """

    variables: Mapping[str, str]
    count: int | None = None
    rank: int | None = None
    master: str | None = None
    hosts: tuple[str, ...] = ()


NOTHING = SchedulerFacts({})


def read_scheduler(variables: Mapping[str, str]) -> tuple[Scheduler | None, SchedulerFacts]:
    """Return the first scheduler of the table whose variables are set, and their values.

    Raises:
        UserError: If they contradict each other, or where more than one process a node was started.
    """
    for scheduler in SCHEDULERS:
        if _first(variables, scheduler.count) or _first(variables, scheduler.hosts):
            return scheduler, _read(scheduler, variables)
    return None, NOTHING


def _read(scheduler: Scheduler, variables: Mapping[str, str]) -> SchedulerFacts:
    names = {
        field: name
        for field in ("count", "rank", "master", "hosts", "own", "port", "job", "tasks")
        if (name := _first(variables, getattr(scheduler, field)))
    }
    hosts = scheduler.split(variables[names["hosts"]]) if "hosts" in names else []
    count = _number_or_none(variables, names.get("count"))
    if count is None:
        count, names["count"] = len(hosts), names["hosts"]
    elif hosts and len(hosts) != count:
        raise UserError(
            f"{scheduler.name}: {names['count']}={count} does not agree with the {len(hosts)} nodes of "
            f"{names['hosts']}={variables[names['hosts']]}. NNODES=, RANK= and MASTER= together win over it."
        )
    if count > 1:
        _require_one_task(scheduler, variables, names.get("tasks"))
    rank = _number_or_none(variables, names.get("rank"))
    if "own" in names and variables[names["own"]] in hosts:
        own = hosts.index(variables[names["own"]])
        if rank is None:
            rank, names["rank"] = own, names["own"]
        elif rank != own:
            raise UserError(
                f"{scheduler.name}: {names['rank']}={rank}, but {names['own']}={variables[names['own']]} is number "
                f"{own} of {names['hosts']}={variables[names['hosts']]}. NNODES=, RANK= and MASTER= together win over "
                "it."
            )
    master = variables[names["master"]] if "master" in names else None
    if hosts and master is None:
        master, names["master"] = f"{hosts[0]}:{_port(variables, names)}", names["hosts"]
    return SchedulerFacts(names, count, rank, master, tuple(hosts))


def _require_one_task(scheduler: Scheduler, variables: Mapping[str, str], name: str | None) -> None:
    """Raise UserError for several processes a node. SLURM writes the processes a node as "8(x2)" or "2,1"."""
    if name and set(re.findall(r"(\d+)(?:\(x\d+\))?", variables[name])) != {"1"}:
        raise UserError(
            f"{scheduler.name}: {name}={variables[name]}: one process a node is needed, it starts the ranks of all "
            f"cards. Start it with {scheduler.start}."
        )


def _port(variables: Mapping[str, str], names: Mapping[str, str]) -> int:
    port, job = (_number_or_none(variables, names.get(field)) for field in ("port", "job"))
    if port is not None:
        return port
    return DEFAULT_PORT if job is None else FIRST_JOB_PORT + job % JOB_PORTS


def _first(variables: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((name for name in names if variables.get(name)), None)


def _number_or_none(variables: Mapping[str, str], name: str | None) -> int | None:
    if name is None:
        return None
    return read_count(name, variables[name], 0)


VARIABLES = {"NNODES": "count", "RANK": "rank", "MASTER": "master"}  # the user's -> the field of a scheduler's


def read_nodes(variables: Mapping[str, str]) -> Nodes:
    """Return the nodes from the user's variables and the scheduler's; a variable of the user overrides the scheduler's.

    Raises:
        UserError: If something is missing or contradictory.
    """
    if variables.get("NNODES") == "1" and variables.get("RANK") in (None, "", "0"):
        return ONE_NODE  # whatever a scheduler says
    given = {name for name in VARIABLES if variables.get(name)}
    scheduler, from_scheduler = (None, NOTHING) if given == set(VARIABLES) else read_scheduler(variables)
    sources = {
        name: name if name in given else from_scheduler.variables.get(field) for name, field in VARIABLES.items()
    }
    count = read_count("NNODES", variables["NNODES"]) if "NNODES" in given else from_scheduler.count
    rank = read_count("RANK", variables["RANK"], 0) if "RANK" in given else from_scheduler.rank
    if count is None:
        _refuse_without_count(variables)
        return ONE_NODE
    if count == 1 and not rank:
        return ONE_NODE
    _refuse_missing(count, sources)
    assert rank is not None  # its source is there
    if rank >= count:
        numbers = f"nodes are numbered from 0 to {count - 1}"
        raise UserError(f"{sources['RANK']}: found {rank}, but {sources['NNODES']}={count}: {numbers}.")
    names = [name for name in sources.values() if name]
    source = ", ".join(dict.fromkeys(names))
    if scheduler and set(names) - set(VARIABLES):  # such as "SLURM: SLURM_NNODES, SLURM_NODEID, MASTER"
        source = f"{scheduler.name}: {source}"
    return Nodes(
        count=count,
        rank=rank,
        master=variables["MASTER"] if "MASTER" in given else from_scheduler.master,
        source=source,
        hosts=from_scheduler.hosts if len(from_scheduler.hosts) == count else (),
    )


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
