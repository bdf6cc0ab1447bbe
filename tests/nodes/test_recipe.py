"""One recipe on two nodes, with a launcher like Paddle's: meeting, refusals, and that no node is left alone."""

import os
import signal

import psutil
import pytest

from tests.nodes.two_nodes import TwoNodes
from tests.processes.waiting import gone, wait_for

SLEEP = """
    print(os.getpid(), flush=True)
    time.sleep(600)
"""


def end(*nodes) -> list[tuple[int, str, str]]:
    """(exit code, stdout, stderr) of each node when all have ended."""
    told = [node.communicate(timeout=100) for node in nodes]
    return [(node.returncode, out, err) for node, (out, err) in zip(nodes, told, strict=True)]


@pytest.fixture
def sleeping(tmp_path):
    """Two nodes whose ranks sleep: (nodes, processes of the recipes, pids of the ranks)."""
    nodes = TwoNodes(tmp_path, SLEEP)
    processes = [nodes.start(rank) for rank in (0, 1)]
    wait_for(lambda: all(nodes.log(rank) for rank in (0, 1)))
    yield nodes, processes, [int(nodes.log(rank)) for rank in (0, 1)]
    for process in processes:
        if process.poll() is None:
            process.kill()


def test_both_run_and_keep_their_logs_apart(tmp_path):
    nodes = TwoNodes(tmp_path, "print('I am node', node)")
    first, second = end(nodes.start(0), nodes.start(1))
    assert (first[0], second[0]) == (0, 0), first[2] + second[2]
    assert "✓ nodes 2, this is 1, they meet at 127.0.0.2:" in " ".join(second[1].split())
    assert first[1].endswith(
        "all 2 nodes are here; rank 0 reports on node 0, this one's logs: out/log/node-0\nI am node 0\n"
    )
    assert [nodes.log(rank) for rank in (0, 1)] == ["I am node 0\n", "I am node 1\n"]


def test_a_node_that_never_comes_is_named(tmp_path):
    nodes = TwoNodes(tmp_path, "print('never')", minutes="0.02")
    ((code, _, err),) = end(nodes.start(0))
    assert code == 2
    assert err.startswith("error: the nodes cannot train together:\n  node 1 did not come to 127.0.0.2:")
    assert nodes.log(0) == ""


def test_another_version_and_another_flag_are_refused_on_both(tmp_path):
    """Node 1 finds a paddlenlp 2.8.1 first on its path."""
    nodes = TwoNodes(tmp_path, "print('never')")
    other = tmp_path / "other" / "paddlenlp-2.8.1.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: paddlenlp\nVersion: 2.8.1\n")
    path = f"{nodes.machine.stubs}:{other.parent}"
    first, second = end(nodes.start(0), nodes.start(1, "--seed", "7", PYTHONPATH=path))
    assert (first[0], second[0]) == (2, 2)
    assert (
        first[2]
        == second[2]
        == (
            "error: the nodes cannot train together:\n"
            "  paddlenlp: 3.0.0b4 on node 0; 2.8.1 on node 1\n"
            "  --seed: none on node 0; 7 on node 1\n"
        )
    )


def test_a_failing_node_stops_the_other(tmp_path):
    nodes = TwoNodes(
        tmp_path,
        """
        if node == "1":
            print("CUDA out of memory")
            sys.exit(7)
        time.sleep(600)
        """,
    )
    first, second = end(nodes.start(0), nodes.start(1))
    assert (first[0], second[0]) == (7, 7)
    assert first[2] == ("\nnode 1 ended with exit code 7: stopped here, too; the log of this node is out/log/node-0\n")
    assert second[1].endswith("CUDA out of memory\n") and "rank 0 of this node failed with exit code 7" in second[2]


def test_a_node_that_goes_while_ranks_start_is_the_reason_and_the_trace_stays_in_the_log(tmp_path):
    """Node 0's rank fails on the lost connection, with a trace of gloo's, before it hears of node 1's end."""
    nodes = TwoNodes(
        tmp_path,
        """
        launcher = __file__ + ".launcher"
        if node == "1":  # ends when node 0's launcher has
            while not os.path.islink(launcher) or os.path.exists("/proc/" + os.readlink(launcher)):
                time.sleep(0.02)
            sys.exit(7)
        os.symlink(str(os.getppid()), launcher)
        raise RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:4567")
        """,
    )
    first, _ = end(nodes.start(0), nodes.start(1))
    assert first[0] == 7
    assert first[2] == (
        "\nnode 1 ended with exit code 7: the ranks here have lost it; their traces are in out/log/node-0\n"
    )
    assert "gloo" not in first[1] and "Connection closed by peer" in nodes.log(0)


def test_ctrl_c_on_one_node_ends_both(sleeping):
    _, processes, ranks = sleeping
    processes[1].send_signal(signal.SIGINT)
    ended = end(*processes)
    assert [code for code, _, _ in ended] == [130, 130]
    assert "node 1 ended with exit code 130: stopped here, too" in ended[0][2]
    assert all(gone(pid) for pid in ranks)


def test_a_node_that_is_killed_leaves_nothing_and_stops_the_other(sleeping):
    _, processes, ranks = sleeping
    here = psutil.Process(processes[0].pid)
    below = [process.pid for process in here.children(recursive=True)]
    os.kill(here.pid, signal.SIGKILL)
    (code, _, err) = end(processes[1])[0]
    assert code == 1
    assert "node 0 is gone (closed by the other side): stopped here, too" in err
    wait_for(lambda: all(gone(pid) for pid in [*ranks, *below]))


def test_the_time_to_wait_is_checked(tmp_path):
    nodes = TwoNodes(tmp_path, "", minutes="soon")
    ((code, _, err),) = end(nodes.start(0))
    assert code == 2
    assert err == "error: RENDEZVOUS_MINUTES: found 'soon', expected minutes above 0, at most 525,600, such as 10.\n"
