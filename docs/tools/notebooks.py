"""Write docs/notebooks/*.ipynb, from docs/notebooks/cells.txt: text, and code between fences.

    python -m docs.tools.notebooks             what `make regenerate` runs
    python -m docs.tools.notebooks --execute   run the cells first, on this CPU

A cell that stays as it is keeps its output. To execute takes ipykernel and nbclient
(requirements/compare.txt), the network, and some minutes.
"""

import json
import re
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from data_tools.cli import Parser
from docs.tools.pages import ROOT
from launch.errors import UserError
from launch.guard import guarded

NOTEBOOKS = ROOT / "docs" / "notebooks"


@dataclass(frozen=True)
class Platform:
    """Where a notebook runs.

    Attributes:
        folder: What is kept when the machine stops, or the place for work.
        note: What its users must know of that.
        download: Cell that brings a file from the machine; FILE stands for its path.
    """

    name: str
    title: str
    folder: str
    note: str
    download: str


LINK = "from IPython.display import FileLink\nFileLink(FILE)"
PLATFORMS = (
    Platform(
        "ai-studio", "AI Studio", "/home/aistudio/work", "`/home/aistudio/work` is kept when the machine stops.", LINK
    ),
    Platform(
        "colab", "Colab", "/content",
        "Nothing is kept when the machine stops: download the result, or mount your Drive and name a folder there as "
        "`FOLDER`.",
        "from google.colab import files\nfiles.download(FILE)",
    ),
    Platform(
        "kaggle", "Kaggle", "/kaggle/working",
        "`/kaggle/working` is kept with a saved version of the notebook. Switch Internet on in its settings.",
        LINK,
    ),
)  # fmt: skip


def main(argv: list[str]) -> None:
    """Write the notebooks."""
    parser = Parser("python -m docs.tools.notebooks", __doc__)
    parser.add_argument("--execute", action="store_true", help="run the cells first, and keep what they print")
    outputs = execute() if parser.parse_args(argv).execute else {}
    for platform in PLATFORMS:
        path = NOTEBOOKS / f"{platform.name}.ipynb"
        kept = json.loads(path.read_text(encoding="utf-8"))["cells"] if path.exists() else []
        found = {"".join(cell["source"]): cell["outputs"] for cell in kept if cell["cell_type"] == "code"}
        for number, printed in outputs.items():
            text = json.dumps(printed).replace("PLACE", platform.folder)
            found[filled(cells()[number][1], platform)] = json.loads(text)
        path.write_text(json.dumps(notebook(platform, found), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def cells() -> list[tuple[str, str]]:
    """Return kind and text of each cell. TITLE, FOLDER, NOTE and DOWNLOAD stand for the platform's."""
    parts = (NOTEBOOKS / "cells.txt").read_text(encoding="utf-8").split("```")
    found = []
    for number, part in enumerate(parts):
        text = part.removeprefix("python\n").strip("\n")
        if text:
            found.append(("code" if number % 2 else "markdown", text))
    return found


def filled(text: str, platform: Platform) -> str:
    """Return a cell's text for a platform."""
    text = text.replace('"FOLDER"', json.dumps(platform.folder)).replace("TITLE", platform.title)
    file = json.dumps("build/notebook/kestrel/kestrel.gguf")
    return text.replace("NOTE", platform.note).replace("DOWNLOAD", platform.download).replace("FILE", file)


def notebook(platform: Platform, outputs: dict[str, list]) -> dict:
    """Return a notebook. outputs: of code cells, by their text."""
    made = []
    for number, (kind, text) in enumerate(cells()):
        text = filled(text, platform)
        cell = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": text.splitlines(keepends=True)}
        made.append(cell | ({"execution_count": None, "outputs": outputs.get(text, [])} if kind == "code" else {}))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": made, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def execute() -> dict[int, list]:
    """Return what each code cell prints here, but for the download; PLACE stands for the platform's folder.

    Raises:
        UserError: If a cell or a command in it fails.
    """
    import nbformat
    from nbclient import NotebookClient

    shutil.rmtree(ROOT / "build" / "notebook", ignore_errors=True)  # what the cells made before
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "paddle-llm-recipes").symlink_to(ROOT)
        run = nbformat.reads(json.dumps(notebook(Platform("here", "here", place, "", "pass"), {})), as_version=4)
        NotebookClient(run, timeout=1800, allow_errors=True, resources={"metadata": {"path": place}}).execute()
        printed = {}
        for number, cell in enumerate(run.cells[:-1]):
            if cell.cell_type == "code":
                text = json.dumps(joined(cell.outputs))
                if "error: " in text or '"error"' in text:  # a command that fails ends no cell
                    raise UserError(f"cell {number}: {text}")
                text = text.replace(str(ROOT), "PLACE/paddle-llm-recipes").replace(place, "PLACE")
                printed[number] = json.loads(text)
    return printed


def joined(outputs: list[dict]) -> list[dict]:
    """Return the outputs of a cell with its text in one piece: without colors and lines that were written over."""
    text = "".join(output.get("text", "") for output in outputs)
    text = re.sub(r"\x1b\[\?25[lh]|\x1b\[\d*m", "", text)
    text = re.sub(r"\n?\x1b\[1A\x1b\[2K", "\r", text)
    text = re.sub(r"\r?\x1b\[2K[^\r\n\x1b]*", "", text).replace("\r", "")
    text = re.sub(r"\x1b\[[\d;]*[A-Za-z]", "", text)
    stream = [{"name": "stdout", "output_type": "stream", "text": text}] if text else []
    return stream + [output for output in outputs if "text" not in output]


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))
