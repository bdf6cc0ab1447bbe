"""The roll call of the ranks and the measured network, on forked ranks that are told to be two nodes."""

import re

import pytest

MEET = "tests.nodes.ranks:meet_and_measure"
TWO_NODES = {"PADDLE_NNODES": "2", "PADDLE_LOCAL_SIZE": "1", "PADDLE_LOCAL_RANK": "0"}


def test_ranks_meet_and_measure(ranks):
    first, second = ranks(2, MEET, environment=TWO_NODES)
    # 2 (n - 1) / n x size / time, as nccl-tests count: 6.4 GB/s x 1, 1.5, 1.875
    assert first["bandwidths"] == pytest.approx([6.4e9, 9.6e9, 12e9])
    assert first["lines"][:3] == second["lines"][:3]
    nodes, network, warning, all_reduce = first["lines"]
    versions = r"python \S+, paddlepaddle \S+, paddlenlp \S+, git revision \S+"
    assert re.fullmatch(f"nodes: 2 of 1 rank, alike in {versions} and all flags", nodes)
    assert network == (
        "network: node 0 127.0.0.1 (lo), node 1 127.0.0.1 (lo); NCCL_SOCKET_IFNAME not set, GLOO_SOCKET_IFNAME=lo"
    )
    assert warning == "warning: a loopback address is used, so all nodes are on one machine"
    measured = r"in [\d.]+ ms, [\d.]+ GB/s a rank \(bus bandwidth\)"
    assert re.fullmatch(f"all-reduce: 64 MiB over 2 ranks {measured}", all_reduce)


def test_on_one_node_nothing_is_said(ranks):
    assert [said["lines"] for said in ranks(2, MEET)] == [[], []]


def test_different_flags_are_refused_by_every_rank(ranks):
    told = ranks(2, MEET, True, environment=TWO_NODES)
    where = "0 on rank 0 of node 0 (127.0.0.1); 1 on rank 1 of node 1 (127.0.0.1)"
    error = f"the ranks cannot train together:\n  --seed: {where}"
    assert told == [{"error": error}] * 2


def test_different_flags_are_refused_on_one_node_too(ranks):
    """As ranks started by hand may have them: each would train, with its own seed. No port is opened for it."""
    error = "the ranks cannot train together:\n  --seed: 0 on rank 0 of this node; 1 on rank 1 of this node"
    assert ranks(2, "tests.nodes.ranks:compare_without_a_port") == [error] * 2


def test_a_silent_rank_is_named_with_its_node(ranks):
    """Two ranks of what shall be four: the second node has not come."""
    four = TWO_NODES | {
        "RENDEZVOUS_MINUTES": "0.02",
        "PADDLE_LOCAL_SIZE": "2",
        "PADDLE_TRAINERS_NUM": "4",
        "PADDLE_TRAINER_ENDPOINTS": "127.0.0.1:18734,127.0.0.1:18735,10.0.0.2:18734,10.0.0.2:18735",
    }
    told = ranks(2, MEET, False, four)
    assert told[0] == told[1]
    assert "\n  ranks 2, 3 of node 1 (10.0.0.2) did not come to 127.0.0.1:18734 within 0.02 minutes" in told[0]["error"]
