"""Two runs pointed at one output directory: the second is refused, while the first lives."""

import errno
import fcntl
import os
import subprocess
import sys

import pytest

from launch.checkpoint.output_directory import active_run, lock_output, lock_start, move_checkpoint
from launch.errors import UserError
from tests.store import ROOT


def test_the_second_is_refused_as_long_as_the_first_lives(tmp_path):
    code = (
        f"from launch.checkpoint.output_directory import lock_output\nlock_output({str(tmp_path)!r}); print(1); input()"
    )
    first = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert first.stdout.readline() == "1\n"
    with pytest.raises(UserError, match=rf"in use by another run \(process {first.pid} on "):
        lock_output(tmp_path)
    first.kill()
    first.communicate()
    os.close(lock_output(tmp_path))


def test_a_linked_checkpoint_stays_with_the_run_that_made_it(tmp_path):
    other, own = tmp_path / "other" / "checkpoint-4", tmp_path / "own"
    (own / "earlier").mkdir(parents=True)
    other.mkdir(parents=True)
    (own / "checkpoint-4").symlink_to("../other/checkpoint-4")
    move_checkpoint(own / "checkpoint-4", own / "earlier" / "checkpoint-4")
    assert other.is_dir() and not (own / "checkpoint-4").is_symlink()
    assert (own / "earlier" / "checkpoint-4").samefile(other)
    move_checkpoint(other, tmp_path / "moved")
    assert (tmp_path / "moved").is_dir() and not other.exists()


@pytest.fixture
def nfs(monkeypatch):
    """flock as NFS has it: an exclusive lock needs a descriptor that can write."""
    flock = fcntl.flock

    def strict(descriptor: int, operation: int) -> None:
        if operation & fcntl.LOCK_EX and fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", strict)


def test_on_nfs_a_run_and_a_start_are_seen(nfs, tmp_path):
    held = lock_output(tmp_path)
    assert active_run(tmp_path) == f"process {os.getpid()} on {os.uname().nodename}"
    os.close(held)
    assert active_run(tmp_path) is None
    starting = lock_start(tmp_path)
    assert active_run(tmp_path) == "one that starts"
    with pytest.raises(UserError, match=r"in use by another run \(one that starts\)"):
        lock_start(tmp_path)
    os.close(lock_output(tmp_path))  # its own rank 0
    os.close(starting)
    assert active_run(tmp_path) is None


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_without_locks_nothing_is_held(number, monkeypatch, tmp_path):
    os.close(lock_start(tmp_path))
    assert list(tmp_path.iterdir()) == [], "where there are locks, a start leaves no file"
    monkeypatch.setattr(fcntl, "flock", lambda *of: (_ for _ in ()).throw(OSError(number, os.strerror(number))))
    os.close(lock_start(tmp_path))
    os.close(lock_output(tmp_path))
    assert active_run(tmp_path) is None


def test_a_fault_of_the_disk_is_no_file_system_without_locks(monkeypatch, tmp_path):
    monkeypatch.setattr(fcntl, "flock", lambda *of: (_ for _ in ()).throw(OSError(errno.EIO, "broken")))
    with pytest.raises(OSError, match="broken"):
        lock_start(tmp_path)
