"""One side of a comparison, in a process that waits for its turns; requests and replies are JSON lines."""

import json
import os
import subprocess
import tempfile
from pathlib import Path

from data_tools.children import end_process
from launch.errors import UserError


class Worker:
    """A process that answers questions.

    Attributes:
        name: In messages.
        job: The script's argument.
        cores: Cores that it may use, with as many threads.
        variables: Added to its environment.
    """

    def __init__(
        self, name: str, python: str, script: Path, job: dict, cores: set[int], variables: dict[str, str] | None = None
    ):
        self.name = name
        self._log = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            [python, "-W", "ignore", str(script), json.dumps(job)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True,
            env=os.environ
            | {"OMP_NUM_THREADS": str(len(cores)), "TOKENIZERS_PARALLELISM": "false"}
            | (variables or {}),
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )  # fmt: skip

    @property
    def process_id(self) -> int:
        """Number of the process."""
        return self._process.pid

    def answer(self):
        """Return the next line.

        Raises:
            UserError: With the end of the worker's log when it has died.
        """
        line = self._process.stdout.readline()
        if not line:
            self._log.seek(0)
            raise UserError(f"{self.name}: {self._process.args[0]} failed:\n{self._log.read()[-2000:]}")
        return json.loads(line)

    def ask(self, question):
        """Ask a question and return the answer."""
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return self.answer()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        end_process(self._process, self.name)
        self._log.close()
