"""Which node this is: the user's variables and simulated environments of schedulers."""

import pytest

from launch.config.run_config import ONE_NODE, Nodes
from launch.errors import UserError
from launch.nodes.place import expand_hosts, read_nodes

EXPLICIT = {"NNODES": "2", "RANK": "1", "MASTER": "10.0.0.1:8090"}
SLURM = {
    "SLURM_JOB_ID": "1234567",
    "SLURM_NNODES": "3",
    "SLURM_JOB_NUM_NODES": "3",
    "SLURM_JOB_NODELIST": "gpu[01-02,07]",
    "SLURM_NODEID": "2",
    "SLURM_STEP_TASKS_PER_NODE": "1(x3)",
}
SLURM_SOURCE = "SLURM: SLURM_NNODES, SLURM_NODEID, SLURM_JOB_NODELIST"
STEP_SOURCE = "SLURM: SLURM_STEP_NUM_NODES, SLURM_NODEID, SLURM_STEP_NODELIST"
OPEN_MPI = {
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "1",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
}
AI_STUDIO = {
    "PADDLE_TRAINERS": "10.0.0.1,10.0.0.2",
    "PADDLE_TRAINERS_NUM": "2",
    "PADDLE_TRAINER_ID": "1",
    "TRAINER_INSTANCES": "10.0.0.1,10.0.0.2",
    "TRAINER_INSTANCES_NUM": "2",
    "POD_IP": "10.0.0.2",
    "PADDLE_PORT": "6170",
}
KUBERNETES = {
    "PADDLE_TRAINERS_NUM": "2",
    "PADDLE_TRAINER_ENDPOINTS": "10.0.0.1:37777,10.0.0.2:37777",
    "PADDLE_TRAINER_ID": "0",
    "POD_IP": "10.0.0.1",
    "PADDLE_PORT": "37777",
}
ADDRESSES = ("10.0.0.1", "10.0.0.2")


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, ONE_NODE),
        (EXPLICIT, Nodes(2, 1, "10.0.0.1:8090", "NNODES, RANK, MASTER")),
        (SLURM, Nodes(3, 2, "gpu01:24567", SLURM_SOURCE, ("gpu01", "gpu02", "gpu07"))),
        (
            SLURM | {"SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NODELIST": "gpu[02,07]", "SLURM_NODEID": "1"},
            Nodes(2, 1, "gpu02:24567", STEP_SOURCE, ("gpu02", "gpu07")),
        ),
        (SLURM | {"SLURM_NNODES": "5"} | EXPLICIT, Nodes(2, 1, "10.0.0.1:8090", "NNODES, RANK, MASTER")),
        (
            SLURM | {"MASTER": "10.9.9.9:99"},
            Nodes(3, 2, "10.9.9.9:99", "SLURM: SLURM_NNODES, SLURM_NODEID, MASTER", ("gpu01", "gpu02", "gpu07")),
        ),
        (
            OPEN_MPI | {"MASTER": "gpu01:8090"},
            Nodes(2, 1, "gpu01:8090", "Open MPI: OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_RANK, MASTER"),
        ),
        (
            AI_STUDIO,
            Nodes(
                2,
                1,
                "10.0.0.1:6170",
                "AI Studio: TRAINER_INSTANCES_NUM, PADDLE_TRAINER_ID, PADDLE_TRAINERS",
                ADDRESSES,
            ),
        ),
        (
            KUBERNETES,
            Nodes(
                2,
                0,
                "10.0.0.1:37777",
                "AI Studio: PADDLE_TRAINERS_NUM, PADDLE_TRAINER_ID, PADDLE_TRAINER_ENDPOINTS",
                ADDRESSES,
            ),
        ),
        (
            {"PADDLE_NNODES": "2", "PADDLE_RANK": "0", "PADDLE_MASTER": "10.0.0.1:8090"},
            Nodes(2, 0, "10.0.0.1:8090", "Paddle: PADDLE_NNODES, PADDLE_RANK, PADDLE_MASTER"),
        ),
    ],
    ids=[
        "none",
        "explicit",
        "SLURM",
        "srun",
        "all",
        "MASTER",
        "Open MPI",
        "AI Studio",
        "Kubernetes",
        "the launcher's own",
    ],
)
def test_place(variables, expected):
    assert read_nodes(variables) == expected


def test_own_address_tells_the_number_where_nothing_else_does():
    variables = {"PADDLE_TRAINERS": "10.0.0.1,10.0.0.2", "POD_IP": "10.0.0.2"}
    assert read_nodes(variables).rank == 1


def test_endpoints_of_several_ranks_a_node_are_two_nodes():
    endpoints = "10.0.0.1:1,10.0.0.1:2,10.0.0.2:1,10.0.0.2:2"
    variables = {"DISTRIBUTED_TRAINER_ENDPOINTS": endpoints, "POD_IP": "10.0.0.2"}
    assert read_nodes(variables).hosts == ADDRESSES


@pytest.mark.parametrize("alone", [SLURM, OPEN_MPI, AI_STUDIO, EXPLICIT | {"RANK": "0"}])
def test_one_node_on_demand(alone):
    assert read_nodes(alone | {"NNODES": "1"}) == ONE_NODE


@pytest.mark.parametrize(
    "variables",
    [
        {"SLURM_NNODES": "1", "SLURM_NODEID": "0", "SLURM_JOB_NODELIST": "gpu01"},
        {"OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0"},
        {"PADDLE_TRAINERS": "10.0.0.1", "PADDLE_TRAINER_ID": "0", "POD_IP": "10.0.0.1"},
    ],
)
def test_a_job_of_one_node(variables):
    assert read_nodes(variables) == ONE_NODE


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"NNODES": "2"}, "NNODES: 2 nodes need RANK= (this node's number, 0 to 1) and MASTER= (HOST:PORT of"),
        ({"NNODES": "2", "RANK": "0"}, "NNODES: 2 nodes need MASTER= (HOST:PORT of the node with RANK=0"),
        ({"RANK": "1"}, "NNODES: RANK=1 without the number of nodes."),
        ({"MASTER": "10.0.0.1:8090"}, "NNODES: MASTER=10.0.0.1:8090 without the number of nodes."),
        (EXPLICIT | {"RANK": "2"}, "RANK: found 2, but NNODES=2: nodes are numbered from 0 to 1."),
        (EXPLICIT | {"NNODES": "two"}, "NNODES: found 'two', expected a whole number from 1 to 16,384."),
        (EXPLICIT | {"RANK": "-1"}, "RANK: found '-1', expected a whole number from 0 to 1,000,000,000,000."),
        (OPEN_MPI, "OMPI_COMM_WORLD_SIZE: 2 nodes need MASTER= "),
        (
            OPEN_MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "8"},
            "OMPI_COMM_WORLD_LOCAL_SIZE=8: one process a node is needed, it starts the ranks of all cards. Start it "
            "with mpirun --map-by ppr:1:node.",
        ),
        (SLURM | {"SLURM_STEP_TASKS_PER_NODE": "8(x3)"}, "Start it with srun --ntasks-per-node=1."),
        (SLURM | {"SLURM_STEP_TASKS_PER_NODE": "2,1(x2)"}, "Start it with srun --ntasks-per-node=1."),
        (SLURM | {"SLURM_NNODES": "2"}, "SLURM: SLURM_NNODES=2 does not agree with the 3 nodes of SLURM_JOB_NODELIST="),
        ({"SLURM_NNODES": "2", "SLURM_JOB_NODELIST": "gpu[01-02]"}, "SLURM_NNODES: 2 nodes need RANK= "),
        ({"SLURM_NNODES": "2", "SLURM_NODEID": "0"}, "SLURM_NNODES: 2 nodes need MASTER= "),
        (AI_STUDIO | {"PADDLE_TRAINER_ID": "0"}, "PADDLE_TRAINER_ID=0, but POD_IP=10.0.0.2 is number 1 of PADDLE_TRAI"),
        (AI_STUDIO | {"TRAINER_INSTANCES_NUM": "3"}, "TRAINER_INSTANCES_NUM=3 does not agree with the 2 nodes of"),
        (
            AI_STUDIO | {"PADDLE_PORT": "http"},
            "PADDLE_PORT: found 'http', expected a whole number from 0 to 1,000,000,000,000.",
        ),
    ],
)
def test_half_set_and_contradictory(variables, message):
    with pytest.raises(UserError) as refused:
        read_nodes(variables)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("hosts", "names"),
    [
        ("gpu02", ["gpu02"]),
        ("gpu02,gpu07", ["gpu02", "gpu07"]),
        ("node[01-03,07]", ["node01", "node02", "node03", "node07"]),
        ("node[9-11]", ["node9", "node10", "node11"]),
        ("node[099-101]", ["node099", "node100", "node101"]),
        ("node[01-02],login1,gpu[3,5]-ib", ["node01", "node02", "login1", "gpu3-ib", "gpu5-ib"]),
        ("r[0-1]n[0-1]", ["r0n0", "r0n1", "r1n0", "r1n1"]),
        ("cn-0[1-2].hpc.example.org", ["cn-01.hpc.example.org", "cn-02.hpc.example.org"]),
    ],
)
def test_lists_of_hosts_as_scontrol_writes_them_out(hosts, names):
    assert expand_hosts(hosts) == names


@pytest.mark.parametrize("hosts", ["", "node[1-", "node]", "node[]", "node[3-1]", "node[a-b]", "a b", "a,,b", ",a"])
def test_what_is_no_list_of_hosts_is_refused(hosts):
    with pytest.raises(UserError, match="list of hosts: found "):
        expand_hosts(hosts)
