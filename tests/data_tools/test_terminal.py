"""What streams can show, and progress on each kind of them."""

import io
import sys

import pytest

from data_tools import progress as module
from data_tools.progress import counted, progress
from data_tools.terminal import has_colours, marks, prepare_streams, width, wrapped


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_colours(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    for environment, coloured in [
        ({}, True),
        ({"NO_COLOR": "1"}, False),
        ({"NO_COLOR": ""}, True),
        ({"TERM": "dumb"}, False),
    ]:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in ({"TERM": "xterm"} | environment).items():
                patch.setenv(name, value)
            assert (has_colours(Terminal()), has_colours(io.StringIO())) == (coloured, False), environment


def no_terminal(descriptor):
    raise OSError("Inappropriate ioctl for device")


@pytest.mark.parametrize(("columns", "expected"), [("60", 60), ("200", 80), ("nonsense", 80), ("", 80)])
def test_width(monkeypatch, columns, expected):
    monkeypatch.setattr("os.get_terminal_size", no_terminal)
    monkeypatch.setenv("COLUMNS", columns)
    assert width() == expected
    lines = wrapped("some words " * 20, "# ", "#    ").splitlines()
    assert max(map(len, lines)) <= expected and lines[0].startswith("# some") and lines[1].startswith("#    ")


def test_what_an_encoding_lacks_and_a_stream_that_is_closed(monkeypatch):
    assert marks(io.TextIOWrapper(io.BytesIO(), encoding="utf-8")) == ("✓", "✗")
    ascii = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    assert marks(ascii) == ("ok", "NO")
    monkeypatch.setattr(sys, "stdout", ascii)
    prepare_streams()
    print("文 a", flush=True)
    assert ascii.buffer.getvalue() == b"? a\n"
    monkeypatch.setattr(sys, "stdout", None)
    prepare_streams()
    print("a", flush=True)
    assert not has_colours(sys.stdout)


@pytest.mark.parametrize("stream", [io.StringIO, Terminal], ids=["a file", "dumb"])
def test_progress_in_lines(monkeypatch, stream):
    """In a log file, and on a terminal that draws over nothing: now and then a line with the time left."""
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(sys, "stderr", said := stream())
    with progress("reading", 2_000_000) as advance, counted("answering", 4) as reach:
        advance(500_000)
        reach(1)
        monkeypatch.setattr(module, "SECONDS_BETWEEN_LINES", 0)
        advance(500_000, 3, 7)
        reach(2)
    lines = said.getvalue().splitlines()
    assert len(lines) == 2 and "\r" not in said.getvalue() and "\033" not in said.getvalue()
    assert lines[0].startswith("reading: 1 of 2 MB, ") and lines[0].endswith(" s left")
    assert lines[1].startswith("answering: 2 of 4, ") and lines[1].endswith(" s left")


def test_the_pace_is_that_behind_the_first_step(monkeypatch):
    """What an earlier start has done costs nothing, and the first step pays for what is made once."""
    monkeypatch.setattr(sys, "stderr", said := io.StringIO())
    monkeypatch.setattr(module, "SECONDS_BETWEEN_LINES", 0)
    clock = iter([0, 50, 50, 50, 60, 60, 60])
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock))
    with counted("evaluating", 100) as reach:
        reach(90)
        reach(94)
    assert said.getvalue() == "evaluating: 90 of 100\nevaluating: 94 of 100, 15 s left\n"


def test_a_bar_on_a_terminal_of_rank_zero_alone(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    for shown in (True, False):
        monkeypatch.setattr(sys, "stderr", said := Terminal())
        with counted("answering", 4, shown=shown) as reach:
            reach(2)
        assert ("answering" in said.getvalue() and "\r" in said.getvalue()) if shown else said.getvalue() == ""
