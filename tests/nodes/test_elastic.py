"""Nodes of an elastic run that come, go, stop and are cut off: all in this process, by a clock that the tests turn,
with ranks that only note what happens to them."""

import socket

import pytest

from launch.config.recipe_file import Recipe
from launch.errors import UserError
from launch.nodes import membership
from launch.nodes.membership import KILL_SECONDS, LAST_CALL_SECONDS, LOST_SECONDS, Coordinator, Terms
from launch.nodes.network import split_address
from launch.processes import elastic
from launch.processes.elastic import LOST_CODE, STOPPED_CODE, Node
from tests.nodes.test_recipe import end
from tests.nodes.two_nodes import FIRST, TwoNodes, free_port
from tests.recipes.machine import ROOT

WAIT = 100.0
FACTS = {"paddlenlp": "3.0.0b4"}


class FakeRanks:
    """running: the generation they run in. code: how they have ended. saves: whether a signal has them save and end."""

    def __init__(self):
        self.started: list[dict] = []
        self.signals: list[int] = []
        self.running, self.code, self.saves = None, None, True

    def start(self, start):
        self.started.append(start)
        self.running, self.code = start["generation"], None

    def ended(self):
        return self.code

    def end(self, code):
        self.running, self.code = None, code

    def signal(self, number):
        self.signals.append(number)
        if self.saves:
            self.end(STOPPED_CODE)

    def kill(self):
        if self.running is not None:
            self.end(137)


class Cluster:
    """Nodes with a coordinator beside node 0. A stopped node, in `stopped`, does nothing until it is taken out."""

    def __init__(self, monkeypatch, counts, most):
        self.now = 0.0
        for module in (membership, elastic):
            monkeypatch.setattr(module.time, "monotonic", lambda: self.now)
        self.address = f"{FIRST}:{free_port()}"
        self.terms = Terms(counts, most, WAIT)
        self.newest = 0
        self.checkpoint = 0
        self.nodes: dict[int, Node] = {}
        self.ranks: dict[int, FakeRanks] = {}
        self.stopped: set[int] = set()
        self.ended: dict[int, int | str] = {}
        self.coordinator: Coordinator | None = None

    def begin(self) -> int:
        self.newest += 1
        return self.newest

    def start(self, *numbers: int, facts=FACTS) -> None:
        for number in numbers:
            if number == 0:
                self.coordinator = Coordinator(self.address, self.terms, FACTS, self.begin, lambda: self.checkpoint)
            self.ranks[number] = FakeRanks()
            self.nodes[number] = Node(
                number, self.address, facts, self.ranks[number], WAIT, lambda generation: self.newest > generation
            )
            self.ended.pop(number, None)

    def kill(self, number: int) -> None:
        """With all that runs there: the connections close, nothing is said."""
        self.nodes.pop(number).close()
        self.ranks[number].running = None
        if number == 0:
            self.close()

    def close(self) -> None:
        if self.coordinator:
            self.coordinator._listener.close()
            for member in self.coordinator._members.values():
                member.connection.close()
            self.coordinator = None

    def step(self) -> None:
        if self.coordinator and 0 not in self.stopped:
            self.coordinator.step()
        for number, node in list(self.nodes.items()):
            if number in self.stopped:
                continue
            try:
                code = node.step()
            except UserError as error:
                code = str(error)
            if code is not None:
                self.ended[number] = code
                self.kill(number)

    def run(self, seconds: float) -> None:
        for _ in range(int(seconds * 2)):
            self.now += 0.5
            self.step()

    def until(self, condition, seconds: float = WAIT) -> None:
        """Within so many seconds."""
        end = self.now + seconds
        while not condition():
            assert self.now < end, f"in vain: {self.training()}, ended {self.ended}"
            self.run(0.5)

    def training(self) -> dict[int, int]:
        return {number: ranks.running for number, ranks in self.ranks.items() if ranks.running}

    def trains(self, generation: int, *numbers: int):
        return lambda: self.training() == dict.fromkeys(numbers, generation)


@pytest.fixture
def cluster(monkeypatch):
    made = []

    def make(counts=(2, 3), most=3):
        made.append(Cluster(monkeypatch, counts, most))
        return made[-1]

    yield make
    for one in made:
        for node in one.nodes.values():
            node.close()
        one.close()


@pytest.fixture
def three(cluster):
    """Three nodes that train, of which two would do."""
    nodes = cluster()
    nodes.start(0, 1, 2)
    nodes.until(nodes.trains(1, 0, 1, 2))
    return nodes


def test_nodes_are_numbered_anew_in_each_generation_and_meet_at_another_port(three):
    assert [three.ranks[number].started[-1]["index"] for number in range(3)] == [0, 1, 2]
    three.kill(1)
    three.until(three.trains(2, 0, 2))
    first, second = three.ranks[2].started
    assert (first["index"], first["count"]) == (2, 3) and (second["index"], second["count"]) == (1, 2)
    assert second["nodes"] == [0, 2] and first["port"] != second["port"]


def test_a_killed_node_is_noticed_at_once_and_the_ranks_of_all_others_end(three):
    three.kill(1)
    three.until(lambda: not three.training(), seconds=2)
    three.until(three.trains(2, 0, 2), seconds=LAST_CALL_SECONDS + 2)


def test_a_stopped_node_is_lost_in_the_stated_time_and_comes_back(three):
    three.stopped.add(1)
    three.until(lambda: three.training() == {1: 1}, seconds=LOST_SECONDS + 2)
    three.until(three.trains(2, 0, 2) if not three.ranks[1].running else lambda: three.training() == {0: 2, 1: 1, 2: 2})
    three.stopped.clear()
    three.until(three.trains(3, 0, 1, 2))
    assert three.ranks[0].signals == [15]  # the others saved and ended for it


def test_a_slow_node_is_not_lost(three):
    """It answers now and then."""
    for _ in range(5):
        three.stopped.add(1)
        three.run(LOST_SECONDS - 2)
        three.stopped.clear()
        three.run(1)
    assert three.training() == {0: 1, 1: 1, 2: 1}


def test_a_restarted_master_goes_on_with_the_next_generation(three):
    three.kill(0)
    three.until(lambda: not three.training(), seconds=2)
    three.run(WAIT / 2)
    three.start(0)
    three.until(three.trains(2, 0, 1, 2))


def test_without_a_master_the_others_end_with_its_address(three):
    three.kill(0)
    three.until(lambda: len(three.ended) == 2, seconds=WAIT + 5)
    assert three.ended[1].startswith(f"MASTER: no word from node 0 at {three.address} for 1.66667 minutes (")


def test_too_few_nodes_end_with_an_error(three):
    three.kill(1)
    three.kill(2)
    three.until(lambda: 0 in three.ended, seconds=WAIT + 5)
    assert three.ended[0] == "ELASTIC: 1 of at least 2 nodes were here for 1.66667 minutes."


def test_a_run_waits_for_a_replacement_however_long_it_has_trained(three):
    three.run(3 * WAIT)
    three.kill(1)
    three.kill(2)
    three.run(WAIT - 5)
    assert not three.ended
    three.start(1)
    three.until(three.trains(2, 0, 1))


def test_a_second_node_of_one_number_ends_with_the_reason(three):
    other = Node(1, three.address, FACTS, FakeRanks(), WAIT)
    with pytest.raises(UserError, match="another node with RANK=1 is here"):
        for _ in range(int(WAIT + 10)):
            three.run(1)
            other.step()
    assert three.training() == {0: 1, 1: 1, 2: 1}


def test_all_nodes_that_are_told_to_end_save_before_they_do(three):
    """The signal reaches them at the same time; the ranks of node 0 end first."""
    for number in (1, 2):
        three.ranks[number].saves = False  # it takes them a while
    for number in range(3):
        three.nodes[number].leave(15)
    three.until(lambda: three.ended == {0: STOPPED_CODE})
    three.run(3)
    for number in (1, 2):
        three.ranks[number].end(STOPPED_CODE)
    three.until(lambda: three.ended == dict.fromkeys(range(3), STOPPED_CODE))


def test_a_spare_node_that_leaves_stops_nobody(cluster):
    nodes = cluster(counts=(2, 4), most=4)
    nodes.start(0, 1, 2)
    nodes.until(nodes.trains(1, 0, 1))
    nodes.nodes[2].leave(15)
    nodes.until(lambda: 2 in nodes.ended)
    nodes.start(2, 3)
    nodes.until(nodes.trains(2, 0, 1, 2, 3))


def test_ranks_that_nothing_ends_cost_their_node_and_not_the_run(three):
    three.ranks[1].kill = lambda: None  # they wait for a disk that is gone
    three.kill(2)
    three.start(2)
    three.until(lambda: three.training() == {0: 2, 1: 1, 2: 2}, seconds=KILL_SECONDS + LAST_CALL_SECONDS + 5)


def test_a_run_that_lost_a_node_after_its_last_step_finishes_again(three):
    three.ranks[1].end(0)
    three.run(1)
    three.kill(2)  # it was writing the model
    three.until(three.trains(2, 0, 1))
    assert not three.ended


@pytest.mark.parametrize(
    "line",
    [
        b'{"protocol": "paddle-llm-recipes elastic 1", "node": 1, "facts": {"paddlenlp": 1}}',
        b'{"protocol": "paddle-llm-recipes elastic 1", "node": 1, "facts": {"python": []}}',
        b'{"protocol": "paddle-llm-recipes elastic 1", "node": [], "facts": {}}',
        b"GET / HTTP/1.1",
        b"\xff\x00[[[[",
    ],
)
def test_what_strangers_send_changes_nothing(cluster, line):
    nodes = cluster()
    nodes.start(0)
    with socket.create_connection(split_address(nodes.address)) as stranger:
        stranger.sendall(line + b"\n")
        nodes.run(3)
        assert stranger.recv(1000) == b""  # closed, without a word
    nodes.start(1, 2)
    nodes.until(nodes.trains(1, 0, 1, 2))


def test_only_as_many_nodes_train_as_the_batch_allows(cluster, capsys):
    nodes = cluster(counts=(1, 2, 4), most=4)
    nodes.start(0, 1, 2)
    nodes.until(nodes.trains(1, 0, 1))
    assert "generation 1: nodes 0, 1 train; nodes 2 wait: 1, 2 or 4 nodes can train" in capsys.readouterr().out
    nodes.run(2 * LAST_CALL_SECONDS)
    assert nodes.training() == {0: 1, 1: 1}  # a third is no reason to stop
    nodes.start(3)
    nodes.until(nodes.trains(2, 0, 1, 2, 3))


def test_ranks_that_fail_take_their_node_out_and_the_others_go_on(three):
    three.ranks[2].end(7)
    three.ranks[1].end(LOST_CODE)
    three.until(three.trains(2, 0, 1))
    assert three.ended == {2: 7}


def test_ranks_of_an_earlier_generation_do_not_take_their_node_out(three):
    three.stopped.add(2)
    three.until(lambda: three.training() == {0: 2, 1: 2, 2: 1})
    three.ranks[2].end(2)  # they were refused to write
    three.stopped.clear()
    three.until(three.trains(3, 0, 1, 2))
    assert not three.ended


def test_all_end_when_all_steps_are_done(three):
    for number in (1, 2, 0):
        three.ranks[number].end(0)
        three.run(2)
    three.until(lambda: three.ended == {0: 0, 1: 0, 2: 0})


def test_a_run_that_was_stopped_ends_and_is_not_started_again(three):
    for ranks in three.ranks.values():
        ranks.end(STOPPED_CODE)
    three.until(lambda: three.ended == dict.fromkeys(range(3), STOPPED_CODE))
    assert three.newest == 1


def test_a_node_that_is_told_to_end_saves_and_the_others_go_on(three):
    three.nodes[1].leave(15)
    for number in (0, 2):  # the ranks agree to stop
        three.ranks[number].end(STOPPED_CODE)
    three.until(three.trains(2, 0, 2))
    assert three.ended == {1: STOPPED_CODE} and three.ranks[1].signals == [15]


def test_a_node_with_another_version_is_refused_and_the_run_goes_on(cluster):
    nodes = cluster()
    nodes.start(0, 1)
    nodes.until(nodes.trains(1, 0, 1))
    nodes.start(2, facts={"paddlenlp": "2.8.1"})
    nodes.until(lambda: 2 in nodes.ended)
    assert nodes.ended[2] == ("node 2 cannot train with node 0:\n  paddlenlp: 3.0.0b4 on node 0; 2.8.1 on node 2")
    assert nodes.training() == {0: 1, 1: 1}


def test_the_same_ranks_do_not_fail_for_ever(three):
    for generation in (1, 2, 3):
        three.until(three.trains(generation, 0, 1, 2))
        for ranks in three.ranks.values():
            ranks.end(LOST_CODE)
    three.until(lambda: len(three.ended) == 3)
    assert three.ended[1] == "3 times in a row the ranks of nodes 0, 1, 2 ended without a new checkpoint"


def test_a_checkpoint_in_between_counts_as_progress(three):
    for generation in range(1, 6):
        three.until(three.trains(generation, 0, 1, 2))
        three.checkpoint += 1
        for ranks in three.ranks.values():
            ranks.end(LOST_CODE)
    three.until(three.trains(6, 0, 1, 2))


# ---- the recipe's variable


def run_recipe(tmp_path, *flags: str, **variables: str) -> str:
    """What a recipe of one rank a node says that is refused."""
    nodes = TwoNodes(tmp_path, "print('never')")
    given = {"NNODES": "", "ELASTIC": "1:2"} | variables
    ((code, _, err),) = end(nodes.start(0, *flags, **given))
    assert code == 2
    return err


@pytest.mark.parametrize(
    "variables, flags, message",
    [
        (
            {"ELASTIC": "2"},
            (),
            "ELASTIC: found '2', expected MIN:MAX, the least and the largest number of nodes, such as",
        ),
        ({"ELASTIC": "3:2"}, (), "ELASTIC: found '3:2', expected MIN:MAX"),
        ({"NNODES": "3"}, (), "NNODES=3 does not agree with ELASTIC=1:2. Leave NNODES out."),
        (
            {"ACTION": "print"},
            (),
            "ELASTIC: `make print-X` is for a number of nodes that does not change. Say NNODES=N.",
        ),
        ({}, ("--max_run_minutes", "5"), "ELASTIC: --max_run_minutes would count from the start of each generation."),
        ({}, ("--overwrite_output_dir", "1"), "ELASTIC: each generation continues from the newest checkpoint"),
        ({"MASTER": "10.99.99.99:8090"}, (), "MASTER: 10.99.99.99 is not an address of this machine"),
    ],
)
def test_what_elastic_refuses(tmp_path, variables, flags, message):
    assert run_recipe(tmp_path, *flags, **variables).startswith(f"error: {message}")


def test_the_numbers_of_nodes_that_keep_the_samples_of_a_step():
    recipe = Recipe.load(ROOT / "recipes" / "llama-7b" / "pretrain.sh")
    found = {
        steps: elastic.terms(
            recipe, {"ELASTIC": "1:4", "ARGS": f"--gradient_accumulation_steps {steps}"}, {}, WAIT
        ).counts
        for steps in (1, 2, 12)
    }
    assert found == {1: (1,), 2: (1, 2), 12: (1, 2, 3, 4)}
