"""Write the Plan part of the studio as a page without a server, for any host of files.

    make studio-static OUTPUT=build/studio-page
    python -m http.server --bind 127.0.0.1 --directory build/studio-page

The planner itself runs in the browser, in WebAssembly: its numbers are those of make plan-X. Python for it, Pyodide,
comes from npm; what arrives is compared with a checksum.
"""

import argparse
import base64
import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])  # the repository, not this folder

from data_tools.cli import Parser
from launch.config.recipe_file import ROOT
from launch.errors import UserError
from launch.guard import guarded

PACKAGE, SHA512 = (
    "pyodide@314.0.7",
    "0YvXxEhfEdpLfb/XkM2BFAeMROq0iMUX2bzzH9pOttyMcWkwq+HbE5uyuGD82LN7y2q+SNvi/6V5JEsOlD2R1A==",
)
PYODIDE = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json")
LICENCE = f"""\
{PACKAGE}, unchanged, from npm. Mozilla Public License 2.0: https://mozilla.org/MPL/2.0/
Source: https://github.com/pyodide/pyodide
It contains CPython: Python Software Foundation License: https://docs.python.org/3/license.html
"""
PAGE = ROOT / "launch" / "studio" / "page"
PLANNER = {".py", ".json", ".po", ".sh", ".jinja"}  # files of the planner


def main(argv: list[str]) -> None:
    output = _parse(argv).output
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise UserError(f"--output: found {output}, which is not an empty folder. Name another.")
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent) as aside:
        folder = Path(aside) / "page"
        (folder / "pyodide").mkdir(parents=True)
        _write_pyodide(Path(aside), folder / "pyodide")
        _write_planner(folder)
        _write_page(folder)
        folder.replace(output)
    print(f"written: {output}. To look at it: python3 -m http.server --bind 127.0.0.1 --directory {output}")


def _write_pyodide(aside: Path, folder: Path) -> None:
    """Raises UserError where npm is absent or does not get the package, and where its checksum is another."""
    npm = shutil.which("npm")
    if npm is None:
        raise UserError("npm: not found. It fetches Python for the browser: install Node.js, which has it.")
    words = [npm, "pack", PACKAGE, "--silent", "--prefer-offline", "--pack-destination", str(aside)]
    done = subprocess.run(words, capture_output=True, text=True)
    [*archives] = aside.glob("*.tgz")
    if done.returncode or len(archives) != 1:
        raise UserError(
            f"npm: {PACKAGE} was not fetched: {done.stderr.strip()[-500:]} Check the network and try again."
        )
    found = base64.b64encode(hashlib.sha512(archives[0].read_bytes()).digest()).decode()
    if found != SHA512:
        raise UserError(
            f"{PACKAGE}: found sha512 {found}, expected {SHA512}. Nothing of it was used; ask another registry."
        )
    with tarfile.open(archives[0]) as archive:
        for name in PYODIDE:
            source = archive.extractfile(f"package/{name}")
            assert source, name  # the checksum says that it is there
            (folder / name).write_bytes(source.read())
    (folder / "LICENCE.txt").write_text(LICENCE)


def _write_planner(folder: Path) -> None:
    """The planner's code, and how many bytes the page loads, for its progress."""
    with zipfile.ZipFile(folder / "planner.zip", "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
        for room in ("data_tools", "launch", "recipes"):
            for path in sorted((ROOT / room).rglob("*")):
                if path.suffix in PLANNER:
                    archive.write(path, path.relative_to(ROOT))
    loaded = [folder / "planner.zip", *(folder / "pyodide" / name for name in PYODIDE if not name.endswith(".mjs"))]
    (folder / "planner.json").write_text(json.dumps({"bytes": sum(path.stat().st_size for path in loaded)}))


def _write_page(folder: Path) -> None:
    shutil.copytree(PAGE, folder / "page")
    script = '<script type="module" src="page/main.js"></script>'
    page = (PAGE / "index.html").read_text(encoding="utf-8")
    before = script.replace("main", "static")  # modules run in their order
    (folder / "index.html").write_text(page.replace(script, f"{before}\n{script}"), encoding="utf-8")
    (folder / "page" / "index.html").unlink()


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = Parser("python launch/commands/studio_static.py", __doc__)
    parser.add_argument(
        "--output", type=Path, default=Path("build/studio-page"), help="new folder of the page; default %(default)s"
    )
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))
