"""What must be the same on all nodes."""

from launch.nodes.alike import differences, facts


def test_facts_of_this_node():
    known = facts({"bf16": ["1"], "do_train": [], "input_dir": ["0.7", "a"]}, ranks=8)
    assert {"python", "paddlepaddle", "paddlenlp", "git revision", "sources"} <= set(known)
    flags = [known[name] for name in ("--bf16", "--do_train", "--input_dir", "ranks on the node")]
    assert flags == ["1", "1", "0.7 a", "8"]


def test_each_difference_is_named_with_node_and_value():
    first = {"python": "3.11.7", "paddlenlp": "3.0.0b4", "--bf16": "1"}
    second = first | {"paddlenlp": "3.0.0b3"}
    third = {"python": "3.11.7", "paddlenlp": "3.0.0b4"}
    assert differences([("node 0", first), ("node 1", second), ("node 2 (gpu07)", third)]) == [
        "paddlenlp: 3.0.0b4 on node 0, node 2 (gpu07); 3.0.0b3 on node 1",
        "--bf16: 1 on node 0, node 1; none on node 2 (gpu07)",
    ]
    assert differences([("node 0", first), ("node 1", dict(first))]) == []
