"""What must be the same on all nodes."""

from launch.nodes.roll_call import differences, facts, flag_facts


def test_facts_of_this_node():
    known = facts(ranks=8)
    assert {"python", "paddlepaddle", "paddlenlp", "git revision", "sources"} <= set(known)
    assert known["ranks on the node"] == "8"


def test_flags_with_their_values():
    told = flag_facts({"bf16": ["1"], "do_train": [], "input_dir": ["0.7", "a"]})
    assert told == {"--bf16": "1", "--do_train": "1", "--input_dir": "0.7 a"}


def name(numbers: list[int]) -> str:
    return ", ".join(("node 0", "node 1", "node 2 (gpu07)")[number] for number in numbers)


def test_each_difference_is_named_with_node_and_value():
    first = {"python": "3.11.7", "paddlenlp": "3.0.0b4", "--bf16": "1"}
    second = first | {"paddlenlp": "3.0.0b3"}
    third = {"python": "3.11.7", "paddlenlp": "3.0.0b4"}
    assert differences([(0, first), (1, second), (2, third)], name) == [
        "paddlenlp: 3.0.0b4 on node 0, node 2 (gpu07); 3.0.0b3 on node 1",
        "--bf16: 1 on node 0, node 1; none on node 2 (gpu07)",
    ]
    assert differences([(0, first), (1, dict(first))], name) == []
