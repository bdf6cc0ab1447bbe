"""Runs: started as make starts them, found again on disk, followed, asked to end.

A run is a process in a session of its own, so that it goes on when the page or the studio is closed. What the studio
knows of those that it has started is in build/studio: NAME.json, NAME.log with all that the command prints, NAME.exit
with its exit code, and NAME.stop where the user has asked for its end. Names and notes of the user are in notes.json.
Runs that were started elsewhere are found by their train_log.jsonl below the folders that are looked through.
"""

import json
import os
import re
import shlex
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import BinaryIO

import psutil
from pydantic import BaseModel, Field

from data_tools.formats.atomic import written_aside
from launch.checkpoint.continuation import newest_whole
from launch.checkpoint.manifest import CHECKPOINT
from launch.checkpoint.output_directory import SAVE_NOW, active_run, noted_outputs
from launch.config.flag_values import known_flags
from launch.config.recipe_file import ROOT, load_recipes
from launch.config.variables import NODES, RECIPE
from launch.errors import UserError
from launch.methods.registry import find_method
from launch.preflight.requested import DEMO_FOLDERS
from launch.processes.logs import last_lines, log_path
from launch.processes.orphans import MAKE
from launch.reporting.records import RUN_SUMMARY, TRAIN_LOG
from launch.serving.rest_requests import Text
from launch.studio.needs import demo
from launch.studio.planning import RecipeChoice, method_title
from launch.studio.run_records import evaluation_of, progress_of, records_of, summary_of
from launch.studio.run_result import BASE_RESULTS, StudioTask, result_in

STARTED = Path("build/studio")
WHERE = ("checkpoints", "build")  # below these runs are found, as by make dashboard
REHEARSALS = ROOT / "build" / "rehearsal"  # as launch/rehearsal/rehearse.py has it
ACTIONS = {"rehearse": "make rehearse-", "run": "make "}
CONSOLE = "console"  # all that the command prints; other logs are those of the ranks
SAME_PROCESS = 2.0  # seconds
LINES = 200  # of a log that are shown
RUNNING, FINISHED, FAILED, STOPPED = "running", "finished", "failed", "stopped"
NOTES = STARTED / "notes.json"
LONGEST_REASON, LONGEST_LINE = 4000, 300  # letters
ADDRESS = re.compile(r"(http://127\.0\.0\.1:\d+/)v1\b")  # which a server prints once it answers
ERROR = "error:"  # how the line begins that says why a command has failed
DEMO = "demo"  # a task that trains
MATERIALS = "/rehearsal/materials/"  # in the paths of a rehearsal's models
NO_NAMES = ("model", "output", "base", "best")  # folders of models that their parents name
# Starts a task, hands on the request to stop, and keeps its exit code, whether or not a studio runs at its end.
KEEPS_ITS_CODE = """"${@:2}" & child=$!
trap 'kill -TERM $child' TERM
wait $child; code=$?
while kill -0 $child 2> /dev/null; do wait $child; code=$?; done
echo $code > "$1"; exit $code"""
# What make hands on to its commands, and the variables of a recipe: a run gets those of its own choice alone.
NOT_HANDED_ON = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", MAKE, *RECIPE, *NODES)


@dataclass(frozen=True)
class Started:
    """A run that the studio has started.

    Attributes:
        pid, created: Which process it is, and when it began, for pids come again.
        output: Where the ranks write.
        log_dir: Their logs.
    """

    name: str
    command: str
    action: str
    pid: int
    created: float
    output: str
    log_dir: str

    @classmethod
    def read(cls, path: Path) -> "Started | None":
        """Return the start of a file; None where it cannot be read: damaged, or of another version."""
        try:
            stored = json.loads(path.read_text())
            whole = all(type(stored[field.name]) is field.type for field in fields(cls)) and stored["pid"] > 0
            return cls(**stored) if whole else None
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            return None

    @property
    def process(self) -> psutil.Process | None:
        """None once it has ended."""
        try:
            process = psutil.Process(self.pid)
            moved = abs(process.create_time() - self.created)  # with the clock, from which it is computed
            alive = moved < SAME_PROCESS and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return None
        return process if alive else None


class RunNote(BaseModel):
    """What the user has written about a run."""

    output: Text
    name: Text = Field("", max_length=100)
    tags: Text = Field("", max_length=200)
    note: Text = Field("", max_length=2000)
    hidden: bool = False  # from the list; its files stay


class Runs:
    """The runs of this machine.

    Attributes:
        where: Folders below which runs are looked for.
    """

    def __init__(self, where: Iterable[str] = WHERE):
        self._where = [Path(folder) for folder in where]
        self.children: dict[str, subprocess.Popen] = {}
        self.starting = Lock()

    @property
    def where(self) -> list[Path]:
        """The folders below which runs are looked for, with those of runs elsewhere."""
        here = Path.cwd()
        noted = [Path(os.path.relpath(one) if Path(one).is_relative_to(here) else one) for one in noted_outputs()]
        return [*self._where, *(path for path in noted if not any(path.is_relative_to(top) for top in self._where))]

    def start(self, choice: RecipeChoice, action: str) -> str:
        """Start a choice's recipe and return its output folder. The command checks everything else as usual.

        Raises:
            UserError: For an unknown action, and for a folder in which a run goes on: the command would fail there at
                once, and hide that run.
        """
        if action not in ACTIONS:
            raise UserError(f"action: found {action!r}, allowed: {', '.join(ACTIONS)}.")
        output, log_dir = _folders(choice, action)
        arguments, variables = ["bash", str(choice.recipe.path)], choice.variables | {"ACTION": action}
        with self.starting:
            earlier = self._latest().get(str(output))
            if earlier and earlier.process or active_run(log_dir.parent) is not None:  # which a command locks
                raise UserError(f"OUTPUT: a run goes on in {output}. Stop it first, or choose another OUTPUT.")
            return self._start(action, f"{ACTIONS[action]}{choice.command}", arguments, variables, output, log_dir)

    def resume(self, output: str) -> str:
        """Start a run again by its own command: it goes on from its newest checkpoint. Return its output folder.

        A demo that keeps no checkpoints begins anew.

        Raises:
            UserError: If the studio has not started it, or it cannot be started.
        """
        started = self._latest().get(output)
        if started is None or started.action not in (*ACTIONS, DEMO):
            raise UserError(
                f"run: found {output!r}, which no studio has started. Type its command again in a terminal."
            )
        if started.action == DEMO:
            command = started.command.partition(" ARGS=")[0]  # as it was before it was resumed
            folder = next(path for path, made in DEMO_FOLDERS.items() if made.command == command)
            return self.perform(demo(folder, resumed=True))
        return self.start(_choice_of(started.command), started.action)

    def perform(self, task: StudioTask) -> str:
        """Start a task, a process that is no run, and return its output.

        Raises:
            UserError: If its output is being written, or is there already and the task does not go on with it.
        """
        output = task.output
        with self.starting:
            earlier = self._latest().get(str(output))
            if earlier and earlier.process or (output.exists() and not task.goes_on):
                raise UserError(f"OUTPUT: {output} is there already, or is being written. Name another folder.")
            return self._start(
                task.name, task.command, task.arguments, {"PYTHONPATH": str(ROOT)}, output, output / "log"
            )

    def _start(
        self, action: str, command: str, arguments: list[str], variables: dict[str, str], output: Path, log_dir: Path
    ) -> str:
        name, log = new_log(command.split()[1])
        if action not in ACTIONS:
            arguments = ["bash", "-c", KEEPS_ITS_CODE, "bash", str(STARTED / f"{name}.exit"), *arguments]
        environment = {key: value for key, value in os.environ.items() if key not in NOT_HANDED_ON}
        with log:
            child = subprocess.Popen(
                arguments,
                env=environment | variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.children[name] = child
        started = Started(
            name=name,
            command=command,
            action=action,
            pid=child.pid,
            created=psutil.Process(child.pid).create_time(),
            output=str(output),
            log_dir=str(log_dir),
        )
        with written_aside(STARTED / f"{name}.json") as file:
            file.write(json.dumps(asdict(started)).encode())
        return started.output

    def stop(self, name: str) -> None:
        """Ask a run to end: as after Ctrl-C it saves first.

        By SIGTERM, which a run answers like SIGINT: a shell that starts a studio in the background has it ignore that.

        Raises:
            UserError: If it has ended, or began elsewhere.
        """
        started = self._started().get(name)
        process = started.process if started else None
        if process is None:
            raise UserError(f"run: found {name!r}, which does not run, or was not started here. Use its terminal.")
        (STARTED / f"{name}.stop").touch()
        process.terminate()

    def annotate(self, note: RunNote) -> None:
        """Keep what the user writes about a run."""
        self._known(note.output)
        with self.starting:
            with written_aside(NOTES) as file:
                file.write(json.dumps(_notes() | {note.output: note.model_dump(exclude={"output"})}).encode())

    def save(self, output: str) -> None:
        """Ask a run, also one of a terminal, for a checkpoint after its current step; it goes on.

        Raises:
            UserError: If no run goes on in the folder, or it has not made the folder yet.
        """
        folder = self._known(output)
        row = self._described(folder, self._latest().get(output))
        if row["state"] != RUNNING or not row["trains"]:
            raise UserError(
                f"run: none goes on in {output}, so nothing can be saved. Start it again to go on from there."
            )
        if not folder.is_dir():
            raise UserError(f"run: the one in {output} has not begun to train. Try again after its first step.")
        (folder / SAVE_NOW).touch()

    def in_training(self) -> list[dict]:
        """Return runs that go on, with the largest memory of tensors of a rank; None where it is still unknown."""
        going = [row for row in self.list() if row["state"] == RUNNING and row["trains"]]
        return [
            {"output": row["output"], "peak_memory_bytes": row["progress"].get("peak_memory_bytes")} for row in going
        ]

    def list(self) -> list[dict]:
        """Return all runs, the latest first by their start, so that none changes its place while it goes on.

        Runs started over in the same folder are one. Files that cannot be read are left out.
        """
        found: dict[str, Started | None] = {str(folder): None for folder in self._folders_with_logs()}
        found |= self._latest()
        notes = _notes()
        rows = [
            row | {"about": notes.get(output, {})}
            for output, started in found.items()
            if (row := self._row(output, started))
        ]
        return sorted(rows, key=lambda row: (row["began"], row["output"]), reverse=True)

    def _keep_exit_codes(self) -> None:
        with self.starting:
            for name, child in list(self.children.items()):
                if child.poll() is not None:  # which also takes away the zombie
                    (STARTED / f"{name}.exit").write_text(str(child.returncode))
                    del self.children[name]

    def records(self, output: str, offset: int = 0, identity: str = "") -> dict:
        """Return what records_of does of a run's folder."""
        return records_of(self._known(output), offset, identity)

    def evaluation(self, output: str) -> dict:
        """Return what evaluation_of does of an evaluation's file."""
        return evaluation_of(self._known(output), BASE_RESULTS)

    def log(self, output: str, of: str) -> str:
        """Return the end of a log. of: "console", or the number of a rank."""
        folder = self._known(output)
        started = self._latest().get(output)
        if of == CONSOLE:
            return last_lines(STARTED / f"{started.name}.log", LINES) if started else ""
        if not re.fullmatch("[0-9]{1,5}", of):
            raise UserError(f"log: found {of!r}, allowed: {CONSOLE}, the number of a rank.")
        return last_lines(log_path(Path(started.log_dir) if started else _log_dir(folder), int(of)), LINES)

    def _known(self, output: str) -> Path:
        """Return the folder of a run. Other folders are not read, whatever a request names."""
        folder = Path(output)
        below = "\0" not in output and any(folder.resolve().is_relative_to(top.resolve()) for top in self.where)
        if not below and output not in self._latest():
            raise UserError(f"output: found {output!r}, which is no folder of a run here.")
        return folder

    def _started(self) -> dict[str, Started]:
        """Return the starts, oldest first.

        Files of other users are left out: the studio ends the processes that these files name.
        """
        own = [path for path in STARTED.glob("*.json") if path.is_file() and path.stat().st_uid == os.getuid()]
        found = {path.stem: started for path in own if (started := Started.read(path))}
        # The system's clock of processes ticks every 10 ms: of two starts in one tick the later has the longer name.
        return dict(sorted(found.items(), key=lambda pair: (pair[1].created, len(pair[0]), pair[0])))

    def _latest(self) -> dict[str, Started]:
        """Return for each output the start that is alive, else the last one."""
        latest: dict[str, Started] = {}
        for started in self._started().values():
            if started.output not in latest or not latest[started.output].process:
                latest[started.output] = started
        return latest

    def _folders_with_logs(self) -> Iterator[Path]:
        for top in self.where:
            for folder, below, files in os.walk(top):
                below[:] = [name for name in below if not CHECKPOINT.fullmatch(name)]
                if TRAIN_LOG in files and Path(folder, TRAIN_LOG).is_file():
                    yield Path(folder)

    def _row(self, output: str, started: Started | None) -> dict | None:
        """Return the row of a run; None for a folder that cannot be read or shown as JSON, or has gone meanwhile."""
        try:
            row = self._described(Path(output), started)
            json.dumps(row, ensure_ascii=False, allow_nan=False).encode()
        except (OSError, ValueError, RecursionError):
            return None
        return row if _is_shallow(row) else None

    def _described(self, folder: Path, started: Started | None) -> dict:
        log_dir = Path(started.log_dir) if started else _log_dir(folder)
        running = bool(started and started.process)
        if not running:
            self._keep_exit_codes()  # after its end was seen, whose reason they are
        stopping = bool(started and running and _was_asked_to_end(started))
        elsewhere = not running and folder.is_dir() and active_run(folder) is not None
        state, reason, code = (RUNNING, "", None) if running or elsewhere else _end_of(folder, started)
        log = folder / TRAIN_LOG
        console = STARTED / f"{started.name}.log" if started else log
        summary = summary_of(folder)
        evaluates = not started and summary.get("arguments", {}).get("do_train") is False  # such as the end of a demo
        action = started.action if started else "evaluate" if evaluates else "run"
        trains = action in ACTIONS
        unwritten = started if trains and state != FINISHED else None  # its summary is not there, or of the run before
        files = [path for path in (log, folder / RUN_SUMMARY, console) if path.exists()]
        command = started.command if started else ""
        if unwritten:  # a rehearsal has its own model, data and steps
            given = _arguments(command).items()
            summary["arguments"] = {
                name: value for name, value in given if action != "rehearse" or f"--{name}" in command
            }
        arguments = summary.get("arguments", {})
        title = _title(command, summary.pop("script", ""), str(arguments.get("model_name_or_path") or ""))
        changed = max((path.stat().st_mtime for path in files), default=0.0)
        return {
            "output": str(folder),
            "name": started.name if started else "",
            "command": command,
            "action": action,
            "method": title["method"],
            "model": title["model"],
            "rehearses": action == "rehearse" or MATERIALS in str(arguments.get("model_name_or_path")),
            "state": state,
            "reason": reason,
            "exit_code": code,
            "said": "" if trains or state != RUNNING else last_lines(console, 1)[-LONGEST_LINE:],
            "stopping": stopping,
            "can_stop": running and not stopping,
            "can_resume": (trains or action == DEMO) and state in (STOPPED, FAILED) and bool(started),
            "result": "" if state == RUNNING else result_in(folder),
            "page": page_of(console) if running and not trains else "",
            "saves": (folder / SAVE_NOW).exists(),
            "trains": trains,
            "choice": _given(command) if action in ACTIONS else None,
            "began": started.created if started else changed,
            "changed": changed,
            "ranks": len(list(log_dir.glob("workerlog.*"))),
            "kept": newest.name.rpartition("-")[2] if running and trains and (newest := newest_whole(folder)) else "",
            "progress": progress_of(folder, started.created - SAME_PROCESS if started and running else 0.0),
            "summary": summary,
            "chosen": _chosen(command, title["script"], arguments),
        }


def _choice_of(command: str) -> RecipeChoice:
    """Return the choice that a command of make starts."""
    text = re.sub(r"\$(\$|\(\))", lambda found: found[1].strip("()"), command)  # as launch/config/typed.py writes it
    _, target, *variables = shlex.split(text)
    given = dict(one.split("=", 1) for one in variables)
    return RecipeChoice.read(given | {"recipe": target.removeprefix("rehearse-")})


@lru_cache(maxsize=256)
def _given(command: str) -> dict[str, str] | None:
    """Return what the page's plan is given for a run's command; None of no recipe, or of one of before."""
    try:
        choice = _choice_of(command)
    except (UserError, ValueError):
        return None
    return {"recipe": choice.recipe.target} | choice.variables


@lru_cache(maxsize=64)
def _arguments(command: str) -> dict[str, str]:
    """Return the flags that a run's command and its recipe give; {} of no recipe, or of one of before."""
    try:
        run, _ = _choice_of(command).run(sizes_alone=True)
    except (UserError, ValueError):
        return {}
    return {name: " ".join(words) for name, words in run.explicit.items()}


@lru_cache(maxsize=256)
def _title(command: str, script: str, model: str) -> dict[str, str]:
    """Return a run's method and the short name of its model, and the script with its flags.

    Args:
        command: Of make, "" of a run elsewhere.
        script: Its file of a recipe, or its method's script, as its summary names it.
        model: As its summary names it.
    """
    recipe = None
    with suppress(UserError, ValueError):  # no recipe, or one of before
        choice = _choice_of(command)
        recipe, model = choice.recipe, choice.variables.get("MODEL", "")
    recipe = recipe or next((one for one in load_recipes(ROOT) if str(one.path) == script), None)
    if recipe is None:
        method = find_method(script)
        return {"method": method.title if method else "", "model": _short_name(model), "script": script}
    if not model or MATERIALS in model:
        model = " ".join(recipe.flags.get("model_name_or_path", []))
    return {"method": method_title(recipe), "model": _short_name(model), "script": recipe.script}


def _short_name(model: str) -> str:
    """Return the part of a model's name or path that tells it from others."""
    parts = [part for part in Path(model).parts if part not in NO_NAMES and not CHECKPOINT.fullmatch(part)]
    return parts[-1].removesuffix(".json") if parts else model


def _chosen(command: str, script: str, arguments: dict) -> list[str]:
    """Return the names of the flags that were given; where the command is not known, those that are no defaults."""
    if given := _arguments(command):
        return [name for name in arguments if name in given]
    if not find_method(script):
        return [*arguments]
    known = known_flags(script)
    return [name for name, value in arguments.items() if name in known and str(value) != str(known[name].default)]


def _notes() -> dict[str, dict]:
    """Return what the user has written about runs, by their outputs."""
    try:
        found = json.loads(NOTES.read_text())
        return {key: RunNote(output=key, **value).model_dump(exclude={"output"}) for key, value in found.items()}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return {}


def _is_shallow(value: object, levels: int = 20) -> bool:
    """Return whether a value is shallow enough for JSON: encoders call themselves for each level."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return levels > 0 and all(_is_shallow(part, levels - 1) for part in parts)


def _folders(choice: RecipeChoice, action: str) -> tuple[Path, Path]:
    """Return the folders of the run's output and logs, as launch/rehearsal and LaunchCommand.of_run have them."""
    if action == "rehearse":
        directory = _short(Path(choice.variables.get("OUTPUT") or REHEARSALS / choice.recipe.target))
        return directory / "output", directory / "log"
    run, _ = choice.run(sizes_alone=False)
    output = _short(Path(run.flags.output_dir or "."))
    return output, output / "log"


def _short(path: Path) -> Path:
    """Return the path relative to the current folder where it is below: as a walk through the folders finds it."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _log_dir(output: Path) -> Path:
    """Return the folder of logs of a run that was started elsewhere: in its output, but of a rehearsal beside it."""
    beside = output.parent / "log"
    return beside if output.name == "output" and beside.is_dir() else output / "log"


def page_of(log: Path) -> str:
    """Return the address of a server's page; "" until it answers, and of another task."""
    found = ADDRESS.search(log.read_text(errors="replace"))
    return found[1] if found else ""


def new_log(what: str) -> tuple[str, BinaryIO]:
    """Return a new name, the time and what begins now, and its log, open for writing."""
    STARTED.mkdir(parents=True, exist_ok=True)
    STARTED.chmod(0o700)  # commands and logs are nobody else's
    name, number = f"{time.strftime('%Y%m%d-%H%M%S')}-{what}", 1
    while True:
        unique = name if number == 1 else f"{name}-{number}"
        try:
            return unique, open(STARTED / f"{unique}.log", "xb")
        except FileExistsError:
            number += 1


def _was_asked_to_end(started: Started) -> bool:
    return (STARTED / f"{started.name}.stop").exists()


def _end_of(folder: Path, started: Started | None) -> tuple[str, str, int | None]:
    """Return how a run ended, why, and its exit code.

    A run writes its summary last; the folder of an export or a merge exists only when it is whole; other tasks end well
    by themselves, and a server when it is stopped.
    """
    summary = folder / RUN_SUMMARY
    if started is None:
        return (FINISHED if summary.exists() else STOPPED), "", None
    trained = summary.exists() and summary.stat().st_mtime >= started.created - SAME_PROCESS
    asked = _was_asked_to_end(started)
    try:
        code = int((STARTED / f"{started.name}.exit").read_text())
    except (OSError, ValueError):
        code = None  # a run that ended while no studio ran
    done = trained if started.action in ACTIONS else folder.exists() or (code == 0 and not asked)
    if done and code == 0:
        return FINISHED, "", code
    if asked:
        return STOPPED, "", code
    lines = [line.strip() for line in last_lines(STARTED / f"{started.name}.log", LINES).splitlines() if line.strip()]
    last = max((place for place, line in enumerate(lines) if line.startswith(ERROR)), default=None)
    if not code and last is None:
        return (FINISHED if done else STOPPED), "", code
    error = lines[-1:] if last is None else [line for line in lines[last:] if not line.startswith("|")]
    return FAILED, " ".join(error).removeprefix(ERROR).strip()[:LONGEST_REASON], code
