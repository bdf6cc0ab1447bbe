"""What an out-of-memory error shows of the plan."""

from launch.plan.out_of_memory import planned_lines
from launch.watch.memory import BACKWARD, _message

ARGV = ["launch/run_pretrain.py", "--model_name_or_path", "llama-rehearsal", "--device", "cpu", "--sharding", "stage2"]


def test_the_table_of_the_run_that_died():
    lines = planned_lines(ARGV, {"PADDLE_TRAINERS_NUM": "2"})
    assert any(line.startswith("2 processes: sharding stage2 2") for line in lines)
    assert any(line.startswith("parameters") for line in lines)


def test_nothing_where_nothing_can_be_planned():
    assert planned_lines(["pytest"], {}) == []
    assert planned_lines(["launch/run_pretrain.py", "--model_name_or_path", "llama-70b"], {}) == []


def test_the_message_has_it(monkeypatch):
    monkeypatch.setattr("sys.argv", ARGV)
    monkeypatch.setattr("launch.watch.memory.planned_lines", lambda: planned_lines(ARGV, {}))
    told = _message(MemoryError(), BACKWARD, ["--recompute 1"])
    assert told.index("--recompute 1") < told.index("The plan of this run:") < told.index("The error was:")
