"""What a run leaves, a model or an adapter of a base: what it takes to load, and how it is exported and merged.

result = RunResult.read("checkpoints/llama-7b-lora")
result.base                                 # as its configuration names it
result.conversions("")["merge"].command     # make merge ADAPTER=... MODEL=... OUTPUT=...
"""

import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from launch.adapters import lora_files
from launch.checkpoint.continuation import newest_whole
from launch.checkpoint.manifest import CHECKPOINT
from launch.config.recipe_file import ROOT
from launch.config.typed import typed
from launch.errors import UserError
from launch.families.named_configs import load_config, read_config
from launch.families.registry import parameters
from launch.prediction.model_flags import default_device
from launch.reporting.records import arguments_of, read_summary

COMMANDS = ROOT / "launch" / "commands"
MODEL, LORA, PREFIX = "model", "LoRA", "prefix"
FOUND_BY = {LORA: lora_files.CONFIG, PREFIX: "prefix_config.json", MODEL: "config.json"}
BYTES = {"cpu": 4, "gpu": 2}  # of a weight, as launch/commands/serve.py keeps most models


@dataclass(frozen=True)
class StudioTask:
    """A process that the page starts and that is no run, such as an export.

    Attributes:
        name: What it does, as the target of make.
        command: Of make.
        arguments: The process that it starts.
        output: The new folder or file.
        goes_on: Whether it goes on with an output that is there.
    """

    name: str
    command: str
    arguments: list[str]
    output: Path
    goes_on: bool = False


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
        named = base or _named_base(path) or _flag_of_run(path, "model_name_or_path")
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

    def conversions(self, output: str) -> dict[str, StudioTask]:
        """Return the conversions by the target of make.

        Args:
            output: The new folder; "": one with the name of the run.
        """
        if self.kind == PREFIX:
            return {}
        if "\0" in output:
            raise UserError(f"output: found {output!r}, which is no name of a folder.")
        target = os.path.expanduser(output) if output else f"exported/{self._name()}"
        other_base = ["--base", self.base] if self.kind == LORA and self.base != _named_base(Path(self.folder)) else []
        arguments = ["export.py", self.folder, target, *other_base]
        given = {"MODEL": self.folder, "OUTPUT": target, "ARGS": shlex.join(other_base)}
        found = {"export": _conversion("export", given, arguments)}
        if self.kind == MODEL:
            target = target if output else f"exported/{self._name()}-gguf"
            given = {"MODEL": self.folder, "OUTPUT": target, "FORMAT": "gguf", "QUANT": "q8_0"}
            arguments = ["export.py", self.folder, target, "--format", "gguf", "--quant", "q8_0"]
            found["gguf"] = _conversion("export", given, arguments)
        if held_out := self._held_out():
            names = (f"evaluations/{self._name()}{f'-{number}' if number > 1 else ''}.json" for number in count(1))
            target, task = next(name for name in names if not Path(name).exists()), f"pairs={held_out}"
            model = {"MODEL": self.base, "ADAPTER": self.folder} if self.base else {"MODEL": self.folder}
            given = model | {"TASKS": task, "OUTPUT": target}
            flags = ["--model_name_or_path", model["MODEL"], "--tasks", task]
            flags += ["--adapter_path", self.folder] if self.base else []
            found["evaluate"] = _conversion("evaluate", given, ["evaluate.py", *flags, "--output_file", target])
        if self.kind == LORA:
            target = target if output else f"models/{self._name()}-merged"
            given = {"ADAPTER": self.folder, "MODEL": self.base, "OUTPUT": target}
            flags = ["--model_name_or_path", self.base, "--adapter_path", self.folder, "--output_dir", target]
            found["merge"] = _conversion("merge", given, ["merge.py", *flags])
        return found

    @property
    def serve_command(self) -> str:
        """The command that serves the result for programs."""
        adapter = f" ADAPTER={typed(f'result={self.folder}')}" if self.base else ""
        return f"make serve MODEL={typed(self.base or self.folder)}{adapter}"

    @property
    def push_command(self) -> str:
        """The command that sends its export to a hub."""
        return f"make push MODEL={typed(f'exported/{self._name()}')} TO=hf:OWNER/NAME"

    def _held_out(self) -> str:
        """Return the file of questions that the run was evaluated on, "" where there is none."""
        file = Path(_flag_of_run(Path(self.folder), "dataset_name_or_path"), "dev.json")
        return str(file) if file.is_file() else ""

    def _name(self) -> str:
        """Return the run's name; a checkpoint's includes its step. A rehearsal calls its folder `output`."""
        path = Path(self.folder).resolve()
        run, step = (path.parent, f"-{path.name}") if CHECKPOINT.fullmatch(path.name) else (path, "")
        return (run.parent.name if run.name == "output" else run.name) + step


def _conversion(target: str, given: Mapping[str, str], arguments: list[str]) -> StudioTask:
    """Return a conversion. arguments: of the command, as the Makefile has them."""
    command = f"make {target}" + "".join(f" {name}={typed(value)}" for name, value in given.items() if value)
    return StudioTask(
        target, command, [sys.executable, str(COMMANDS / arguments[0]), *arguments[1:]], Path(given["OUTPUT"])
    )


def _named_base(adapter: Path) -> str:
    """Return the base that a LoRA's configuration names; "" of a prefix, whose configuration names none."""
    path = adapter / lora_files.CONFIG
    return str(read_config(path, "a LoRA adapter").get("base_model_name_or_path") or "") if path.is_file() else ""


def _flag_of_run(result: Path, name: str) -> str:
    """Return a flag of the run in the summary of its output folder; "" without one."""
    run = result.parent if CHECKPOINT.fullmatch(result.name) else result
    try:
        return str(arguments_of(read_summary(run)).get(name) or "")
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return ""
