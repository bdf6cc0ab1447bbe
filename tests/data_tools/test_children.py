"""Helpers end with who uses them; nobody waits for one without a limit."""

import multiprocessing
import signal
import subprocess
import sys
import time

import pytest

from data_tools.children import close_in_children, end_process

DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"


@pytest.mark.parametrize(
    ("program", "code"), [("import time; print(flush=True); time.sleep(600)", -signal.SIGTERM), (DEAF, -signal.SIGKILL)]
)
def test_a_process_that_does_not_end_is_terminated_then_killed(capfd, program, code):
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    process.stdout.readline()
    assert end_process(process, "the deaf one", 0.1) == code
    process.stdout.close()
    expected = f"the deaf one (process {process.pid}) has not ended within 0.1 s: it was killed\n"
    assert capfd.readouterr().err == expected


def test_so_is_a_forked_one():
    process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
    process.start()
    assert end_process(process, "sleeper", 0.1) == -signal.SIGTERM


def test_a_process_that_ends_is_not_spoken_of(capfd):
    reader = "import sys; sys.stdin.read(); sys.exit(7)"
    process = subprocess.Popen([sys.executable, "-c", reader], stdin=subprocess.PIPE)
    process.stdin.close()
    assert end_process(process, "reader", 60) == 7
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("text", [False, True])
def test_a_forked_process_holds_no_pipe_and_sends_nothing_of_its_parents(text):
    process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=text)
    close_in_children(process.stdin, process.stdout)
    process.stdin.write("once" if text else b"once")  # waits in the buffer, of which a forked process has a copy

    def forget() -> None:
        assert process.stdin.closed and process.stdout.closed
        process.stdin = process.stdout = None
        time.sleep(600)

    forked = multiprocessing.get_context("fork").Process(target=forget)
    forked.start()
    assert process.communicate(timeout=60)[0] == ("once" if text else b"once")  # to the end of the pipe
    assert forked.is_alive()
    forked.kill()
    end_process(forked, "the forked one")
