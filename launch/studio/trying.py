"""Ask the result of a run: the repository's own server, one at a time, as a child of the studio that ends with it.

The page may reach no address but the studio's, which passes questions on to the server, and its streams back.
"""

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

import httpx
import psutil
from fastapi import APIRouter, Body
from fastapi.responses import StreamingResponse

from data_tools.children import end_process
from data_tools.dialogues.chat_template import directory_template
from data_tools.formats.errors import DataError
from launch.environment.hub_clients import destination
from launch.errors import UserError
from launch.prediction.model_flags import default_device
from launch.processes.logs import last_lines
from launch.processes.orphans import signal_at_parents_end
from launch.serving.rest_requests import FewKeys, Text
from launch.studio.run_result import ANY_PORTS, COMMANDS, RunResult, StudioTask, files_in
from launch.studio.runs import NOT_HANDED_ON, STARTED, Runs, new_log, page_of
from launch.weights.gguf_export import QUANTS

SERVE = COMMANDS / "serve.py"
KEY_VARIABLE = "SERVE_API_KEY"  # as launch/commands/serve.py has it
LINES = 40  # of its log that are shown
SECONDS_TO_CONNECT = 10.0
BASE, RESULT = "base", "result"  # names of the models that are served


class Trial:
    """The server of one result; none at first, and after `stop`."""

    def __init__(self):
        self.process: subprocess.Popen | None = None
        self.result: RunResult | None = None
        self.log = Path(os.devnull)
        self.key = ""

    def start(self, result: RunResult) -> None:
        """Load a result, in place of the one before.

        Only in the main thread: the kernel ends the server together with the thread that started it.
        """
        self.stop()
        models = ["--model_name_or_path", result.base or result.folder, "--model_name", BASE if result.base else RESULT]
        if result.base:
            models += ["--adapter", f"{RESULT}={result.folder}"]
        name, log = new_log("try")
        environment = {key: value for key, value in os.environ.items() if key not in NOT_HANDED_ON}
        self.result, self.log, self.key = result, STARTED / f"{name}.log", secrets.token_urlsafe(24)
        with log:
            self.process = subprocess.Popen(
                [sys.executable, str(SERVE), *ANY_PORTS, *models],
                env=environment | {KEY_VARIABLE: self.key},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=lambda: signal_at_parents_end(signal.SIGKILL),
            )

    def stop(self) -> None:
        """Stop the server at once: it has nothing that could be lost."""
        if self.process:
            self.process.kill()
            end_process(self.process, "the server of Try")
        self.process = self.result = None

    def state(self) -> dict:
        """Return the state. state: none, loading, ready or ended. models: models that can be asked. log: its end."""
        if self.process is None or self.result is None:
            return {"state": "none", "folder": "", "base": "", "models": [], "log": ""}
        state = "ended" if self.process.poll() is not None else "ready" if page_of(self.log) else "loading"
        models = [BASE, RESULT] if self.result.base else [RESULT]
        about = {"state": state, "folder": self.result.folder, "base": self.result.base}
        return about | {"models": models, "log": last_lines(self.log, LINES)}

    def ask(self, path: str, body: dict) -> AsyncIterator[bytes]:
        """Return the events of an answer, as the server sends them, which also checks the request.

        Args:
            path: Below /v1/: completions or chat/completions.
            body: Of the request, whose model is BASE or RESULT.

        Raises:
            UserError: If no server answers.
        """
        page = page_of(self.log)
        if not page or self.process is None or self.process.poll() is not None:
            raise UserError("model: none is loaded. Load one first, and wait until it answers.")
        return self._events(f"{page}v1/{path}", body)

    async def _events(self, address: str, body: dict) -> AsyncIterator[bytes]:
        """Yield the events. A refusal is an event, too, as a later failure is. A server that ends sends no [DONE]."""
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        timeout = httpx.Timeout(None, connect=SECONDS_TO_CONNECT)  # the server has a limit of its own
        try:
            async with (
                httpx.AsyncClient(trust_env=False, timeout=timeout) as client,
                client.stream("POST", address, content=json.dumps(body | {"stream": True}), headers=headers) as reply,
            ):
                if reply.is_error:
                    yield b"data: " + await reply.aread() + b"\n\n"
                    return
                async for part in reply.aiter_bytes():
                    yield part
        except httpx.HTTPError:
            return


Given = Annotated[dict[Text, Text], FewKeys, Body()]
Asked = Annotated[dict[Text, Any], FewKeys, Body()]


def add_requests(api: APIRouter, trial: Trial, runs: Runs) -> None:
    """Add the requests of this part of the page. Those that start and end a server are `async`: in the main thread."""

    @api.post("/result")
    def result(given: Given) -> dict:
        found = _result(given)
        return {
            "folder": found.folder,
            "name": found.name,
            "kind": found.kind,
            "base": found.base,
            "weights_bytes": found.weights_bytes,
            "chat": _chats(Path(found.folder)),
            "files": files_in(Path(found.folder)),
            "tasks": {
                name: {
                    "command": one.command,
                    "lacks": one.lacks,
                    "output": str(one.output),
                    "files": files_in(one.output),
                }
                for name, one in _tasks(found, given).items()
            },
            "quants": [*QUANTS],
            "free_bytes": psutil.virtual_memory().available if default_device() == "cpu" else None,
            "training": runs.in_training(),
        }

    @api.post("/held_out")
    def held_out(given: Given) -> dict:
        return _result(given).held_out()

    @api.get("/evaluation")
    def evaluation(output: Text) -> dict:
        return runs.evaluation(output)

    @api.post("/task/{target}")
    def perform(target: str, given: Given) -> str:
        tasks = _tasks(_result(given), given)
        if target not in tasks:
            raise UserError(f"target: found {target!r}, allowed here: {', '.join(tasks)}.")
        if target == "push":
            destination(given.get("to", ""))
        return runs.perform(tasks[target])

    @api.get("/trial")
    def state() -> dict:
        return trial.state()

    @api.post("/trial/start")
    async def start(given: Given) -> None:
        trial.start(_result(given))

    @api.post("/trial/stop")
    async def stop() -> None:
        trial.stop()

    @api.post("/trial/completions")
    async def complete(body: Asked) -> StreamingResponse:
        return StreamingResponse(trial.ask("completions", body), media_type="text/event-stream")

    @api.post("/trial/chat/completions")
    async def chat(body: Asked) -> StreamingResponse:
        return StreamingResponse(trial.ask("chat/completions", body), media_type="text/event-stream")


def _chats(folder: Path) -> bool:
    """Return True if the model or adapter of a folder was trained on chats, or came with a chat template."""
    try:
        return directory_template(folder) is not None
    except DataError:  # which the server that loads it reports
        return False


def _result(given: dict[str, str]) -> RunResult:
    return RunResult.read(given.get("folder", ""), given.get("base", ""))


def _tasks(result: RunResult, given: dict[str, str]) -> dict[str, StudioTask]:
    return result.tasks(given.get("output", ""), given.get("to", ""), given.get("quant", ""))
