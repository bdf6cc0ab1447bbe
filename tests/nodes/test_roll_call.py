"""The roll call, with members that are threads of this process."""

import contextlib
import json
import resource
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from launch.errors import UserError
from launch.nodes.roll_call import Meeting, Member, _accept, _allow_open_files, roll_call
from tests.nodes.mock_members import attend
from tests.processes.waiting import wait_for

FACTS = {"python": "3.11.7"}


@pytest.fixture
def meeting() -> Meeting:
    """Of three nodes at a port that was just free; long enough for all."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return Meeting("node", f"127.0.0.1:{port}", ("node 0 (a)", "node 1 (b)", "node 2 (c)"), seconds=60)


def member(index: int, **changes) -> Member:
    return replace(Member(index, 3, FACTS, f"10.0.0.{index}", "eth0"), **changes)


def hold(meeting: Meeting, *members: Member) -> list:
    """What each member's roll call gave: the numbers of all who are there, or the error."""

    def attend(one: Member):
        try:
            return [other.index for other in roll_call(meeting, one).members]
        except UserError as error:
            return str(error)

    with ThreadPoolExecutor(len(members)) as threads:
        return list(threads.map(attend, members))


def test_all_are_there(meeting):
    assert hold(meeting, member(2), member(0), member(1)) == [[0, 1, 2]] * 3


def test_flags_of_a_thousand_ranks_are_no_message(meeting):
    """32 members with the flags of 40 each: together more than a line may have."""
    count, flags = 32, {"--long": "x" * 50_000}
    many = replace(meeting, what="rank", nodes=("node 0 (a)",) * 16 + ("node 1 (b)",) * 16)
    members = [member(index, count=count, flags=flags, facts={} if index % 16 else FACTS) for index in range(count)]
    assert hold(many, *members) == [[0, 16]] * count


def test_differences_of_a_thousand_ranks_are_one_message():
    """Each with 2,000 letters of its own: together more than a line may have."""
    error, answers = attend(1000, lambda index: {"--output_dir": f"{index} {'x' * 2000}"} | {f"--{index}": "1"})
    faults = answers[0]["faults"]
    assert error.count("\n") == len(faults) == 21 and answers == [answers[0]] * 999
    shown = f"--output_dir: 0 {'x' * 298}... on rank 0 of node 0 (10.0.0.1); 1 {'x' * 298}... on rank 1 of node 0"
    assert faults[0].startswith(shown) and faults[0].endswith(" on rank 7 of node 0 (10.0.0.1); and 992 more")
    assert faults[1].startswith("--0: 1 on rank 0 of node 0 (10.0.0.1); none on ranks 1, 2, 3, 4, 5, 6, 7 of node 0")
    assert faults[1].endswith("; rank 32 of node 4 (10.0.0.1) and 967 more") and faults[20] == "and 981 more"


def test_who_is_missing_is_named_to_all(meeting):
    told = hold(replace(meeting, seconds=0.6), member(0), member(2))
    assert told[0] == told[1]
    assert told[0].startswith("the nodes cannot train together:\n  node 1 (b) did not come to 127.0.0.1:")
    assert " within 0.01 minutes: not started, " in told[0]


def test_a_silent_first_node_is_named(meeting):
    (told,) = hold(replace(meeting, seconds=0.6), member(1))
    assert told.startswith("node 0 (a) did not answer at 127.0.0.1:") and "Connection refused" in told
    assert told.endswith(
        "127.0.0.1 is a loopback address, which no other machine reaches: start node 0 with its own (--host)."
    )


def test_another_number_of_nodes(meeting):
    told = hold(meeting, member(0), member(1, count=2))
    assert told[0] == told[1] == "the nodes cannot train together:\n  node 1 (10.0.0.1) counts 2 nodes, not 3"


def test_two_nodes_with_one_number(meeting):
    with ThreadPoolExecutor(3) as threads:
        calls = [threads.submit(hold, meeting, one) for one in (member(0), member(1), member(1, address="10.0.0.9"))]
        told = [call.result()[0] for call in calls]
    assert told[0].startswith("the nodes cannot train together:\n  RANK=1 is there twice; the second is at 10.0.0.")
    assert told == [told[0]] * 3


def test_strangers_are_ignored_and_a_node_may_start_anew(meeting):
    """A browser, a node of another version of this protocol, and one that went away before all were there."""
    host, port = meeting.address.split(":")
    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(hold, meeting, member(0))
        connected = []
        wait_for(lambda: not connected or connected[0])

        def connect() -> bool:
            try:
                connected.append(socket.create_connection((host, int(port))))
            except OSError:
                return False
            return True

        wait_for(connect)
        connected[0].sendall(b"GET / HTTP/1.1\r\n\r\n")
        greeting = b'{"protocol": "paddle-llm-recipes roll call %d", "index": 1, "count": 3, "facts": {}, '
        other, gone = (socket.create_connection((host, int(port))) for _ in range(2))
        other.sendall(greeting % 2 + b'"address": "", "interface": ""}\n')
        gone.sendall(greeting % 1 + b'"address": "", "interface": ""}\n')
        gone.close()
        last = threads.submit(hold, meeting, member(2))
        time.sleep(1)  # node 2 is there, and node 1, that went away, is not counted
        anew = threads.submit(hold, meeting, member(1))
        assert [call.result() for call in (first, anew, last)] == [[[0, 1, 2]]] * 3
        connected[0].close()
        other.close()


def test_members_that_come_and_go_do_not_move_the_limit(meeting):
    host, port = meeting.address.split(":")
    line = json.dumps(GREETING).encode() + b"\n"
    with ThreadPoolExecutor(1) as thread:
        first = thread.submit(hold, replace(meeting, seconds=0.6), member(0))
        end = time.monotonic() + 20
        while not first.done() and time.monotonic() < end:
            with contextlib.suppress(OSError), socket.create_connection((host, int(port))) as one:
                one.sendall(line)
            time.sleep(0.02)
        was_done = first.done()  # before nobody comes any more
        assert "did not come" in first.result()[0] and was_done


def test_the_limit_of_open_files_is_raised_as_needed():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, before[1]))
        _allow_open_files(1024, "rank")
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (1024 + 512, before[1])
        _allow_open_files(8, "rank")
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (1024 + 512, before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_limit_of_open_files_below_the_ranks_is_refused(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    raised = []
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: raised.append(limits))
    _allow_open_files(4096 - 64, "rank")
    assert raised == [(4096, 4096)]
    with pytest.raises(UserError) as error:
        _allow_open_files(4096 - 63, "rank")
    assert str(error.value) == (
        "open files: a process may have 4096 on this node (ulimit -Hn), and rank 0 needs one for each of 4033 ranks, "
        "4545 in all. Raise the limit: ulimit -Hn 4545 as root, LimitNOFILE=4545 in systemd's unit, "
        "--ulimit nofile=4545 of Docker."
    )


GREETING = {"protocol": "paddle-llm-recipes roll call 1", "index": 1, "count": 3, "facts": FACTS, "flags": {}}
GREETING |= {"address": "", "interface": ""}


@pytest.mark.parametrize(
    "sent",
    [
        json.dumps(GREETING | {"index": "1"}),
        json.dumps(GREETING | {"index": True}),
        json.dumps(GREETING | {"count": [3]}),
        json.dumps(GREETING | {"facts": [1]}),
        json.dumps(GREETING | {"flags": {"--seed": {}}}),
        json.dumps(GREETING | {"flags": None}),
        json.dumps(GREETING | {"address": 7}),
        json.dumps(GREETING | {"more": 7}),
        "[" * 100_000,
    ],
    ids=lambda sent: sent[:20] + sent[-60:],
)
def test_a_greeting_of_wrong_types_is_a_strangers(sent):
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as one:
        one.sendall(sent.encode() + b"\n")
        assert _accept(listener) is None
        assert one.recv(1) == b""


def test_a_stranger_at_the_place_of_the_first_is_not_listened_to(meeting):
    """Its verdict is none: who comes goes on to look for the first."""
    host, port = meeting.address.split(":")
    with ThreadPoolExecutor(1) as threads, socket.create_server((host, int(port))) as listener:
        joining = threads.submit(hold, replace(meeting, seconds=0.1), member(1))
        one, _ = listener.accept()
        one.recv(100)
        time.sleep(0.1)
        one.sendall(b'{"faults": [], "members": [7]}\n')
        one.close()
        listener.close()
        assert "did not answer at" in joining.result()[0]


def test_a_port_in_use_is_told(meeting):
    with socket.create_server(("", int(meeting.address.split(":")[1]))):
        (told,) = hold(meeting, member(0))
    assert told == f"{meeting.address}: cannot listen there: Address already in use. Another port: MASTER=HOST:PORT."
