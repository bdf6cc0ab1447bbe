"""What the ranks of the tests of saving do. Imported in ranks only."""

import builtins
import contextlib
import errno
import io
import os
import signal
import time
from functools import partial
from pathlib import Path

from launch.reporting.records import TRAIN_LOG


def pretrain(argv: list[str], at_step: int = 0, event: str = "", rank: int = 0) -> dict:
    """Run run_pretrain's main as its script does, with an event in one rank at the end of a step.

    event: "SIGTERM" or "SIGINT" to itself; "save-now", the file; "disk full", from here on, as fsync tells it;
    "read-only", "read-only but for the log": the output directory is so from here on; "no memory", for the thread that
    writes; "no room for the model", at the end; "no report", in which a rank tells what it wrote.
    Returns the exit code, what was said, and the step that was reached.
    """
    from launch.guard import guarded
    from launch.train import train_method
    from launch.training.reporter import LogLastStep

    reached = []
    upstream = LogLastStep.on_step_end

    def on_step_end(self, args, state, control, **kwargs):
        reached.append(state.global_step)
        if state.global_step == at_step and args.process_index == rank:
            _happen(event, Path(args.output_dir))
        upstream(self, args, state, control, **kwargs)

    LogLastStep.on_step_end = on_step_end
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        exit_code = guarded(partial(train_method, "run_pretrain"), argv)
    return {"exit_code": exit_code, "stdout": out.getvalue(), "stderr": err.getvalue(), "steps": reached}


def _happen(event: str, output: Path) -> None:
    if event.startswith("SIG"):
        os.kill(os.getpid(), getattr(signal, event))
    elif event == "save-now":
        (output / "save-now").touch()
    elif event == "disk full":
        _wait_for_a_checkpoint(output)
        from launch.checkpoint import checkpoint_writer

        def fsync(descriptor):
            raise OSError(28, "No space left on device")

        checkpoint_writer.os.fsync = fsync
    elif event == "no room for the model":
        from launch.training import result

        def write_hashed(path, pieces):
            next(pieces)
            raise OSError(28, "No space left on device")

        result.write_hashed = write_hashed
    elif event == "no memory":
        from launch.checkpoint.local_tensors import LocalTensor

        def values(held):
            raise MemoryError

        LocalTensor.values = values
    elif event == "no report":
        _wait_for_a_checkpoint(output)
        from launch.checkpoint import checkpoint_writer

        def write_report(path, report):
            raise OSError(28, "No space left on device")

        checkpoint_writer._write_report = write_report
    elif event.startswith("read-only"):
        _refuse_writing_below(output, but=TRAIN_LOG if event.endswith("log") else None)


def _refuse_writing_below(folder: Path, but: str | None) -> None:
    """As the kernel does it on a read-only file system, to root as well."""

    def refused(function, writes):
        def call(path, *args, **kwargs):
            below = isinstance(path, (str, Path)) and Path(path).is_relative_to(folder)
            if below and writes(*args, **kwargs) and Path(path).name != but:
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
            return function(path, *args, **kwargs)

        return call

    io.open = builtins.open = refused(open, lambda mode="r", *args, **kwargs: set(mode) & set("wax+"))
    os.mkdir = refused(os.mkdir, lambda *args, **kwargs: True)


def _wait_for_a_checkpoint(output: Path) -> None:
    """The fault is for the next one: the thread that writes this one may not be done yet."""
    deadline = time.monotonic() + 60
    while not list(output.glob("checkpoint-*")) and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.5)  # what follows the rename: its folder is flushed


def peak_of_save(argv: list[str]) -> dict:
    """Bytes of host memory that Paddle and NumPy take beyond what training has, while a checkpoint and the final model
    are written; and the bytes of the whole model."""
    import tracemalloc

    from paddle.base import core

    from launch.train import train_method
    from launch.training.trainer import Trainer

    peaks = {}

    def measured(name):
        upstream = getattr(Trainer, name)

        def method(trainer, *args, **kwargs):
            core.host_memory_stat_reset_peak_value("Allocated", 0)
            before = core.host_memory_stat_current_value("Allocated", 0)
            tracemalloc.start()
            upstream(trainer, *args, **kwargs)
            peaks[name] = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            peaks[name] += core.host_memory_stat_peak_value("Allocated", 0) - before

        setattr(Trainer, name, method)

    measured("_save_checkpoint")
    measured("save_model")
    train_method("run_pretrain", argv)
    return peaks
