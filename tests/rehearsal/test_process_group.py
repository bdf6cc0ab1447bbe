"""Groups of processes on a CPU: when the bridges are put up, how processes find each other, values of collectives."""

import numpy as np
import pytest

# Ranks of one machine use shared memory, those of several nodes gloo.
ONE_MACHINE, TWO_NODES = {"PADDLE_NNODES": "1"}, {"PADDLE_NNODES": "2"}

CASES = "tests.rehearsal.process_group_ranks"


def values(ranks_in_group: int) -> np.ndarray:
    """[rank, 6, 2], as process_group_ranks.own_values gives them (that module needs Paddle)."""
    shape = (6, 2)
    return np.stack([np.random.RandomState(rank).randint(-8, 8, shape) for rank in range(ranks_in_group)])


@pytest.mark.parametrize("nodes", [ONE_MACHINE, pytest.param(TWO_NODES, marks=pytest.mark.long)])
def test_values(ranks, nodes):
    all_values = values(3)
    total, largest = all_values.sum(axis=0), all_values.max(axis=0)
    for rank, found in enumerate(ranks(3, f"{CASES}:results", environment=nodes)):
        assert found["sum"] == total.tolist()
        assert found["max"] == largest.tolist()
        assert rank != 2 or found["sum on rank 2"] == total.tolist()
        assert found["broadcast of rank 1"] == all_values[1].tolist()
        assert found["gathered list"] == found["gathered tensor"] == all_values.reshape(18, 2).tolist()
        own_rows = slice(2 * rank, 2 * rank + 2)
        assert found["scattered into a buffer"] == [100, 100, *total[own_rows].flatten(), 100, 100]
        assert found["scattered max"] == largest[own_rows].tolist()
        assert found["exchanged"] == all_values[:, own_rows].reshape(6, 2).tolist()


def test_reduce_scatter_names_shapes_that_do_not_split(ranks):
    for message in ranks(2, f"{CASES}:reduce_scatter_of_wrong_shape"):
        assert message == "ValueError: reduce_scatter over 2 ranks: [6] does not split into [2]"


def test_reduce_scatter_is_out_of_autograds_sight(ranks):
    assert ranks(2, f"{CASES}:is_leaf_after_reduce_scatter") == [True, True]


def test_float16_sums_are_refused(ranks):
    for found in ranks(2, f"{CASES}:float16_sums"):
        for message in found:
            assert message.startswith("UserError: fp16: float16 cannot be summed over processes on a CPU")


def test_bfloat16_sums_are_right(ranks):
    assert ranks(2, f"{CASES}:bfloat16_sum") == [[3.0, 3.0]] * 2


def test_a_written_tensor_keeps_its_gradient(ranks):
    assert ranks(1, f"{CASES}:gradients_after_writing") == [{"tensor": [6.0, 6.0], "value": None}]


def test_a_second_call_does_nothing(ranks):
    assert ranks(1, f"{CASES}:install_twice") == [[True, True, True]]


@pytest.mark.long
def test_too_late(ranks):
    for message in ranks(2, f"{CASES}:install_late"):
        assert message.startswith("RuntimeError: collectives.install() must come before TrainingArguments")


@pytest.mark.parametrize("kind", ["cuda", pytest.param("xpu", marks=pytest.mark.nightly)])
def test_refused_on_a_build_for_cards(ranks, kind):
    ((message, untouched),) = ranks(1, f"{CASES}:install_on_a_gpu_build", kind)
    assert message.startswith("UserError: device: cpu with several processes is a rehearsal")
    assert "--device gpu" in message
    assert untouched


@pytest.mark.long
def test_all_to_all_is_an_error(ranks):
    for message in ranks(2, f"{CASES}:all_to_all"):
        assert message.startswith("NotImplementedError")
        assert "does not support all_to_all" in message


def test_device_number(ranks):
    assert ranks(1, f"{CASES}:device_id") == ["returned"]


def test_all_ranks_get_the_inputs_of_the_first(ranks):
    expected = {"ids": [[0, 1, 2], [3, 4, 5]], "positions": [0.5, 1.5, 2.5], "mask": [True, True]}
    assert ranks(2, f"{CASES}:broadcast_inputs") == [expected, expected]


def test_stages_may_send_to_each_other(ranks):
    expected = [{"ending": "returned", "sum": 140_000.0}, {"ending": "returned", "sum": 70_000.0}]
    assert ranks(2, f"{CASES}:both_stages_send") == expected


@pytest.mark.parametrize(
    ("in_new_group", "nodes"),  # one node: shared memory; two: gloo
    [(False, "1"), *(pytest.param(*case, marks=pytest.mark.long) for case in ((True, "1"), (False, "2"), (True, "2")))],
)
def test_pipeline_of_four_stages(ranks, in_new_group, nodes):
    found = ranks(4, f"{CASES}:pipeline", in_new_group, environment={"PADDLE_NNODES": nodes})
    for rank, received in enumerate(found):
        added_before = sum(10.0**stage for stage in range(rank))
        added_after = sum(10.0**stage for stage in range(rank + 1, 4))
        forward = [[batch + added_before] * (batch + 1) for batch in range(3)] if rank > 0 else []
        backward = [[batch + added_after] * (batch + 1) for batch in range(3)] if rank < 3 else []
        assert received == forward + backward


@pytest.mark.parametrize("dtype", ["float32", pytest.param("int64", marks=pytest.mark.nightly)])
def test_parts_arrive_in_their_place(ranks, dtype):
    _, received = ranks(2, f"{CASES}:parts", dtype)
    whole = np.arange(1, 13)
    for part, found in enumerate(received):
        expected = np.where(np.arange(12) // 4 == part, whole, 0).reshape(2, 6)
        assert found == expected.tolist()


@pytest.mark.long
def test_parts_of_all_ranks_are_gathered(ranks):
    assert ranks(3, f"{CASES}:gathered_parts") == [np.arange(1.0, 13.0).reshape(2, 6).tolist()] * 3


def test_groups_leave_the_common_stores_addresses_alone(ranks):
    for default, second, third in ranks(2, f"{CASES}:published_addresses"):
        assert default == second == third


def test_many_groups_of_four_processes(ranks):
    for rank, found in enumerate(ranks(4, f"{CASES}:sums_in_many_groups")):
        assert len(found) == 2 * sum(rank in members[:-1] for members in found[: len(found) // 2])
        for *members, total in found:
            assert rank in members
            assert total == sum(10.0**member for member in members)


def test_stores_are_answered_at_once(ranks):
    for delayed in ranks(2, f"{CASES}:delays_of_stores"):
        assert delayed == [False, False]
