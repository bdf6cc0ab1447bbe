"""The import of Paddle is not torn by Ctrl-C."""

import signal

import pytest

from launch.reporting.quiet import interrupts_held


def test_ctrl_c_takes_effect_at_the_end(ctrl_c):
    done = []
    with pytest.raises(KeyboardInterrupt), interrupts_held():
        signal.raise_signal(signal.SIGINT)
        done.append("the rest")
    assert done == ["the rest"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_fails_because_of_it_is_it(ctrl_c):
    with pytest.raises(KeyboardInterrupt), interrupts_held():
        signal.raise_signal(signal.SIGINT)
        int("")


def test_other_errors_are_raised():
    with pytest.raises(ValueError, match="invalid literal"), interrupts_held():
        int("")
