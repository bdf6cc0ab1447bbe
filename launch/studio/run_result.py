"""What a run leaves, a model or an adapter of a base: what it takes to load, and what can be done with it.

result = RunResult.read("checkpoints/llama-7b-lora")
result.base                                 # as its configuration names it
result.tasks("")["merge"].command           # make merge ADAPTER=... MODEL=... OUTPUT=...
"""

import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from data_tools.formats.benchmarks.files import find_form
from data_tools.formats.errors import DataError
from launch.adapters import lora_files
from launch.checkpoint.continuation import newest_whole
from launch.checkpoint.manifest import CHECKPOINT
from launch.config.recipe_file import ROOT
from launch.config.typed import typed
from launch.errors import UserError
from launch.families.named_configs import load_config, read_config
from launch.families.registry import parameters
from launch.prediction.model_flags import default_device
from launch.prediction.trained_rows import data_files, first_turns, flag_of_run, system_text
from launch.weights.gguf_export import QUANTS

COMMANDS = ROOT / "launch" / "commands"
MODEL, LORA, PREFIX = "model", "LoRA", "prefix"
FOUND_BY = {LORA: lora_files.CONFIG, PREFIX: "prefix_config.json", MODEL: "config.json"}
ANY_PORTS = ("--port", "0", "--grpc_port", "0")  # free ones
SHARED_NAMES = ("model", "lora")  # of the folders of every demo
# Two commands after each other, of which the one that goes on gets the signal to end.
IN_TURN = "trap 'kill $!' TERM; {} & wait $! && {{ {} & wait $!; }}"
BASE_RESULTS = "-base"  # ends the name of the base's results, beside those of its adapter
BYTES = {"cpu": 4, "gpu": 2}  # of a weight, as launch/commands/serve.py keeps most models


@dataclass(frozen=True)
class StudioTask:
    """A process that the page starts and that is no run, such as an export.

    Attributes:
        name: What it does, as the target of make.
        command: Of make.
        arguments: The process that it starts.
        output: The new folder or file; of a task that makes none, a name for it.
        goes_on: Whether it goes on with an output that is there.
        source: The folder that it reads, where that comes from another task.
    """

    name: str
    command: str
    arguments: list[str]
    output: Path
    goes_on: bool = False
    source: Path = Path()

    @property
    def lacks(self) -> str:
        """Why it cannot start now: "export" or "folder"; "" where it can."""
        return "export" if not self.source.is_dir() else "folder" if self.output.exists() else ""


def files_in(output: Path) -> list[dict]:
    """Return the names and sizes of an output's files, the largest first; [] where it is not there."""
    found = [output] if output.is_file() else output.iterdir() if output.is_dir() else []
    sizes = [{"name": one.name, "bytes": one.stat().st_size} for one in found if one.is_file()]
    return sorted(sizes, key=lambda one: (-one["bytes"], one["name"]))


def result_in(run: Path) -> str:
    """Return the folder with the result of a run: its output or, where it has none, its newest whole checkpoint."""
    if _kind_in(run):
        return str(run)
    newest = newest_whole(run)
    return str(newest) if newest and _kind_in(newest) else ""


def _kind_in(folder: Path) -> str | None:
    return next((kind for kind, name in FOUND_BY.items() if (folder / name).is_file()), None)


@dataclass(frozen=True)
class RunResult:
    """The result of a run.

    Attributes:
        kind: MODEL, LORA or PREFIX.
        base: The model that an adapter belongs to, "" of a model.
    """

    folder: str
    kind: str
    base: str

    @classmethod
    def read(cls, folder: str, base: str = "") -> "RunResult":
        """Return the result in a folder.

        Args:
            base: "" for the base that the adapter, or its run, names.
            folder: Of a run, a model or an adapter.

        Raises:
            UserError: If there is no result (yet).
        """
        path = Path(os.path.expanduser(folder))
        if not folder or "\0" in folder + base or not path.is_dir():
            raise UserError(
                f"folder: found {folder!r}, which is none. Name the folder of a run, a model or an adapter."
            )
        kind = _kind_in(path)
        if kind is None:
            newest = newest_whole(path)
            fix = f"Name its newest checkpoint: {newest}." if newest else "A run writes it at its end."
            raise UserError(f"folder: {path} has no model and no adapter. {fix}")
        if kind == MODEL:
            return cls(str(path), kind, "")
        named = base or _named_base(path) or flag_of_run(path, "model_name_or_path")
        if not named:
            raise UserError(f"base: {path} does not name the model that it belongs to. Give it as its base.")
        return cls(str(path), kind, named)

    @property
    def weights_bytes(self) -> int | None:
        """About what the model takes in memory, without an adapter; None where its sizes are not known."""
        try:
            sizes = parameters(load_config(self.base or self.folder))
        except UserError:
            return None
        return BYTES[default_device()] * sum(parameter.size for parameter in sizes)

    def tasks(self, output: str, to: str = "", quant: str = "") -> dict[str, StudioTask]:
        """Return what can be done with the result, by the target of make (gguf is another export).

        Args:
            output: The new folder; "": one with the name of the run.
            to: HUB:OWNER/NAME, where an export is sent.
            quant: Type of the matrices of a GGUF file; "": q8_0.

        Raises:
            UserError: For a folder or a type that cannot be.
        """
        quant = quant or "q8_0"
        if quant not in QUANTS:
            raise UserError(f"QUANT: found {quant!r}, allowed: {', '.join(QUANTS)}.")
        if "\0" in output:
            raise UserError(f"output: found {output!r}, which is no name of a folder.")
        model = {"MODEL": self.base or self.folder}
        model |= {"ADAPTER": f"{self._served_name()}={self.folder}"} if self.base else {}
        flags = ["--model_name_or_path", model["MODEL"], *(["--adapter", model["ADAPTER"]] if self.base else [])]
        further = [*([] if self.base else ["--model_name", self._served_name()]), *ANY_PORTS]
        given = model | {"ARGS": shlex.join(further)}
        serve = {"serve": _task("serve", given, ["serve.py", *flags, *further], f"served:{self.folder}")}
        if self.kind == PREFIX:
            return serve
        exported = target = os.path.expanduser(output) if output else f"exported/{self.name}"
        other_base = ["--base", self.base] if self.kind == LORA and self.base != _named_base(Path(self.folder)) else []
        arguments = ["export.py", self.folder, target, *other_base]
        given = {"MODEL": self.folder, "OUTPUT": target, "ARGS": shlex.join(other_base)}
        found = {"export": _task("export", given, arguments)}
        target = target if output else f"{exported}-gguf"
        merge = self._merge(_free(f"{target}-merged"))  # of a LoRA first, into a new folder beside the target
        lora = self.kind == LORA
        found["gguf"] = (
            _in_turn(merge, _gguf(str(merge.output), target, quant)) if lora else _gguf(self.folder, target, quant)
        )
        form, held_out = self._held_out()
        if held_out:
            found["evaluate"] = self._evaluate(form, held_out)
        if self.kind == LORA:
            found["merge"] = self._merge(os.path.expanduser(output) if output else f"models/{self.name}-merged")
        to = to or "hf:OWNER/NAME"
        push = _task("push", {"MODEL": exported, "TO": to}, ["push.py", exported, to], to)
        return found | serve | {"push": replace(push, source=Path(exported))}

    def _evaluate(self, form: str, held_out: str) -> StudioTask:
        """Return the task that measures a model; of an adapter, the base without it first."""
        target = _free(f"evaluations/{self.name}", ".json", BASE_RESULTS)
        chat = ["--apply_chat_template"] if form == "chat" else []

        def measured(model: dict[str, str], output: str) -> StudioTask:
            given = model | {"TASKS": f"{form}={held_out}", "OUTPUT": output, "ARGS": " ".join(chat)}
            flags = ["--model_name_or_path", model["MODEL"], "--tasks", given["TASKS"]]
            flags += ["--adapter_path", self.folder] if "ADAPTER" in model else []
            return _task("evaluate", given, ["evaluate.py", *flags, "--output_file", output, *chat])

        if not self.base:
            return measured({"MODEL": self.folder}, target)
        base = {"MODEL": self.base}
        return _in_turn(
            measured(base, str(Path(target).with_stem(Path(target).stem + BASE_RESULTS))),
            measured(base | {"ADAPTER": self.folder}, target),
        )

    def _merge(self, target: str) -> StudioTask:
        given = {"ADAPTER": self.folder, "MODEL": self.base, "OUTPUT": target}
        flags = ["--model_name_or_path", self.base, "--adapter_path", self.folder, "--output_dir", target]
        return _task("merge", given, ["merge.py", *flags])

    def _served_name(self) -> str:
        """Return the name of the result for clients, which is not that of its base."""
        path = Path(self.folder)
        name = f"{path.parent.name}-{path.name}" if path.name in SHARED_NAMES and path.parent.name else self.name
        return f"{name}-{self.kind.lower()}" if self.base and name == Path(self.base).resolve().name else name

    def held_out(self) -> dict:
        """Return the first questions of the rows that the run was evaluated on, and the system text that it has seen.

        Returns:
            "system": the commonest, "" for none. "questions": each with the keys asked, reference and system.
        """
        asked = first_turns(Path(self.folder), "dev.json")
        return {"system": system_text(Path(self.folder)), "questions": asked}

    def _held_out(self) -> tuple[str, str]:
        """Return the form of the rows that the run was evaluated on, and their file; "" twice without questions."""
        try:
            return next(
                ((find_form([file]), str(file)) for file in data_files(Path(self.folder), "dev.json")), ("", "")
            )
        except (DataError, OSError):  # preferences
            return "", ""

    @property
    def name(self) -> str:
        """The run's name; a checkpoint's includes its step. A rehearsal calls its folder `output`."""
        path = Path(self.folder).resolve()
        run, step = (path.parent, f"-{path.name}") if CHECKPOINT.fullmatch(path.name) else (path, "")
        return (run.parent.name if run.name == "output" else run.name) + step


def _gguf(model: str, target: str, quant: str) -> StudioTask:
    given = {"MODEL": model, "OUTPUT": target, "FORMAT": "gguf", "QUANT": quant}
    return _task("export", given, ["export.py", model, target, "--format", "gguf", "--quant", quant])


def _in_turn(first: StudioTask, then: StudioTask) -> StudioTask:
    both = IN_TURN.format(shlex.join(first.arguments), shlex.join(then.arguments))
    return replace(then, command=f"{first.command} && {then.command}", arguments=["bash", "-c", both])


def _free(name: str, suffix: str = "", beside: str = "") -> str:
    """Return a name that no file has: this one, or with the first free number. beside: ends one that is free, too."""
    names = (f"{name}{f'-{number}' if number > 1 else ''}" for number in count(1))
    return next(
        f"{one}{suffix}" for one in names if not any(Path(f"{one}{end}{suffix}").exists() for end in ("", beside))
    )


def _task(target: str, given: Mapping[str, str], arguments: list[str], output: str = "") -> StudioTask:
    """Return a task. arguments: of the command, as the Makefile has them."""
    command = f"make {target}" + "".join(f" {name}={typed(value)}" for name, value in given.items() if value)
    words = [sys.executable, str(COMMANDS / arguments[0]), *arguments[1:]]
    return StudioTask(target, command, words, Path(output or given["OUTPUT"]))


def _named_base(adapter: Path) -> str:
    """Return the base that a LoRA's configuration names; "" of a prefix, whose configuration names none."""
    path = adapter / lora_files.CONFIG
    return str(read_config(path, "a LoRA adapter").get("base_model_name_or_path") or "") if path.is_file() else ""
