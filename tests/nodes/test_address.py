"""SLURM's lists of hosts."""

import pytest

from launch.errors import UserError
from launch.nodes.address import expand_hosts


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
def test_as_scontrol_writes_them_out(hosts, names):
    assert expand_hosts(hosts) == names


@pytest.mark.parametrize("hosts", ["", "node[1-", "node]", "node[]", "node[3-1]", "node[a-b]", "a b", "a,,b", ",a"])
def test_what_is_no_list_is_told(hosts):
    with pytest.raises(UserError, match="list of hosts: found "):
        expand_hosts(hosts)
