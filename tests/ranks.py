"""Run functions on several ranks that share one import of Paddle.

    def test_x(ranks):
        first, second = ranks(2, "tests.rehearsal.cases:losses", "stage2")

calls losses("stage2") from tests/rehearsal/cases.py on two ranks and gives what each returned, through JSON
(floats exact). Arrays are better saved by the function into a directory of the test. A rank that raises fails
the test with its traceback.

One server process a session (`python -m tests.ranks`) imports Paddle and forks the ranks of every call,
because pytest's own process must not import it: it would cost every run seconds, and operators run before a
fork break the ranks.
"""

import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from data_tools.children import close_in_children, end_process
from launch.processes.fork import TIMED_OUT, Outcome, run_ranks
from launch.processes.logs import last_lines, log_path
from launch.upstream import correct
from tests.store import ROOT

WITHOUT = "TESTS_WITHOUT"  # environment variable: the correction (a file of launch/upstream) that ranks do not make


class RankServer:
    """The test's end: starts the server at the first call, and anew should it have died."""

    def __init__(self):
        self.process: subprocess.Popen | None = None

    def __call__(
        self,
        n: int,
        function: str,
        *args,
        environment: dict[str, str] | None = None,
        time_limit: float = 300,
    ) -> list:
        """What each of n ranks returned from function ("package.module:name"), called with args (JSON)."""
        with tempfile.TemporaryDirectory() as directory:
            job = _job(n, function, args, environment, time_limit, directory)
            outcome = self._ask(job)
            if outcome["exit_code"] != 0:
                raise AssertionError(_explain(job, outcome))
            return [json.loads(_result_path(directory, rank).read_text()) for rank in range(n)]

    def outcome(
        self,
        n: int,
        function: str,
        *args,
        directory: Path,
        environment: dict[str, str] | None = None,
        time_limit: float = 300,
        grace: float = 5.0,
    ) -> Outcome:
        """How a run of n ranks ended that need not end well; their logs are in directory. grace: see run_ranks."""
        Path(directory).mkdir(parents=True, exist_ok=True)
        job = _job(n, function, args, environment, time_limit, str(directory)) | {"grace": grace}
        return Outcome(**self._ask(job))

    def close(self) -> None:
        if self.process:
            self.process.stdin.close()
            end_process(self.process, "the server of ranks", 30)
            self.process = None

    def start(self) -> None:
        """Unless it runs."""
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", "tests.ranks"],
                cwd=ROOT,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            close_in_children(self.process.stdin, self.process.stdout)

    def _ask(self, job: dict) -> dict:
        self.start()
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        try:
            answer = self.process.stdout.readline()
        except BaseException:  # a time limit: the next one who asks must not get this answer
            self.process.kill()
            self.close()
            raise
        if not answer:
            raise RuntimeError("the server of ranks has died; see why: python -m tests.ranks < /dev/null")
        return json.loads(answer)


def _job(n: int, function: str, args: tuple, environment, time_limit: float, directory: str) -> dict:
    return {
        "n": n,
        "function": function,
        "args": args,
        # One thread, as with two ranks: another worker of pytest has the other core, and results do not depend on it.
        "environment": {"OMP_NUM_THREADS": "1"} | (environment or {}),
        "time_limit": time_limit,
        "directory": directory,
        "grace": 5.0,
    }


def _result_path(directory: str, rank: int) -> Path:
    return Path(directory) / f"result.{rank}.json"


def _explain(job: dict, outcome: dict) -> str:
    lines = [f"{job['function']} on {job['n']} ranks ended with exit codes {outcome['exit_codes']}"]
    if outcome["exit_code"] == TIMED_OUT:
        lines.append(f"after its time limit of {job['time_limit']} s")
    shown = range(job["n"]) if outcome["failed_rank"] is None else [outcome["failed_rank"]]
    for rank in shown:
        lines.append(f"--- rank {rank} ---\n{last_lines(log_path(job['directory'], rank), 60)}")
    return "\n".join(lines)


def serve() -> None:
    """Import once, then answer one line of JSON with another until stdin ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not come between the answers
    import paddle  # noqa: F401

    correct(["import_of_everything"])
    import paddlenlp.trainer  # noqa: F401
    import paddlenlp.transformers  # noqa: F401

    import launch.training.finetune
    import launch.training.pretrain
    import launch.training.run  # noqa: F401

    for line in sys.stdin:
        job = json.loads(line)
        outcome = run_ranks(
            job["n"],
            partial(_run_job, job),
            job["directory"],
            environment=job["environment"],
            time_limit=job["time_limit"],
            grace=job["grace"],
        )
        print(json.dumps(vars(outcome)), file=answers, flush=True)


def _run_job(job: dict, rank: int) -> None:
    if left_out := os.environ.get(WITHOUT):
        importlib.import_module(f"launch.upstream.{left_out}").correct = lambda: None
    module, _, name = job["function"].partition(":")
    result = getattr(importlib.import_module(module), name)(*job["args"])
    _result_path(job["directory"], rank).write_text(json.dumps(result))
    # A rank that leaves takes its sockets with it, rank 0 the store of all: the others may still be connecting.
    while not all(_result_path(job["directory"], other).exists() for other in range(job["n"])):
        time.sleep(0.002)


if __name__ == "__main__":
    serve()
