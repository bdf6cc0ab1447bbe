"""The checked-in flags are those that the pinned paddlenlp and our own arguments have."""

from pathlib import Path

FLAGS = Path(__file__).resolve().parents[2] / "launch" / "config" / "flags.json"


def test_flags_json_is_current(ranks):
    [rendered] = ranks(1, "tests.training.run_ranks:flag_schema")
    assert FLAGS.read_text(encoding="utf-8") == rendered, "run: python -m launch.training.flag_schema"
