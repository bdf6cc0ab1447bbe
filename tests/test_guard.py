"""How every command ends: mistakes of the user, wrong paths and full disks as one line, all else as it is."""

import errno
import os
import signal

import pytest

from launch.errors import UserError
from launch.guard import guarded


class PanicException(BaseException):
    """As pyo3 has it, by which Python calls tokenizers."""


def ending_with(error: BaseException):
    def main(argv):
        raise error

    return main


@pytest.mark.parametrize(
    ("error", "exit_code", "told"),
    [
        (UserError("--x: found 1"), 2, "error: --x: found 1\n"),
        (OSError(errno.ENOSPC, "No space left on device"), 2, "error: No space left on device. Free some"),
        (OSError(errno.EDQUOT, "Disk quota exceeded", "a"), 2, "error: Disk quota exceeded: a. Free some"),
        (
            OSError(errno.EFBIG, "File too large"),
            2,
            "error: File too large: a file may not grow beyond what `ulimit -f`",
        ),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "a"), 2, "error: No such file or directory: a\n"),
        (IsADirectoryError(errno.EISDIR, "Is a directory", "a"), 2, "error: Is a directory: a\n"),
        (PermissionError(errno.EACCES, "Permission denied", "a"), 2, "error: Permission denied: a\n"),
        (OSError(errno.ENAMETOOLONG, "File name too long", "a"), 2, "error: File name too long: a\n"),
        (UserError("a\x1b]0;b\x07\r\x9b2J\u202e字\td"), 2, "error: a\\x1b]0;b\\x07\\r\\x9b2J\\u202e字\td\n"),
        (PanicException("unwrap()"), 2, "error: a file of the tokenizer is damaged: unwrap(). Copy it again.\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        pytest.param(UserError("a b " * 3000), 2, f"error: {'a b ' * 2498}a ...\n", id="long"),
    ],
)
def test_ends_that_are_told(capsys, error, exit_code, told):
    assert guarded(ending_with(error), []) == exit_code
    said = capsys.readouterr().err
    assert said.startswith(told) and said.count("\n") == 1


@pytest.mark.parametrize(
    "error", [OSError(errno.EIO, "Input/output error", "a"), OSError(errno.EACCES, "Permission denied"), KeyError("a")]
)
def test_other_errors_keep_their_traceback(error):
    with pytest.raises(type(error)):
        guarded(ending_with(error), [])


@pytest.mark.parametrize("other", [ImportError("initialization failed"), UserError("cannot train on these texts")])
def test_ctrl_c_of_which_code_in_c_makes_another_exception(capsys, ctrl_c, other):
    def main(argv):
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt as interrupt:
            raise other from interrupt

    assert guarded(main, []) == 130
    assert capsys.readouterr().err == "interrupted\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_is_left_after_ctrl_c_is_said_where_it_is_known(capsys):
    assert guarded(ending_with(KeyboardInterrupt()), [], "the same command goes on") == 130
    assert capsys.readouterr().err == "interrupted: the same command goes on\n"


def test_ctrl_c_that_is_ignored_stays_so():
    """As the shell has it for what runs in the background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert guarded(lambda argv: signal.raise_signal(signal.SIGINT), []) == 0
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_pipe_that_nobody_reads_any_more(monkeypatch, capfd):
    with open(os.devnull, "w") as nowhere:
        monkeypatch.setattr("sys.stdout", nowhere)
        assert guarded(ending_with(BrokenPipeError(errno.EPIPE, "Broken pipe")), []) == 141
