"""Start one command many times, by forks of a process that has imported it: its imports are most of what it costs.

    for done in start_often("-m data_tools.verify", [(folder, ["nowhere"]), (folder, ["empty"])], tmp_path): ...

What a command does before its imports, and with how many modules, is tested by starting it as users do.
"""

import importlib
import json
import os
import runpy
import subprocess
import sys
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def start_often(
    program: str, cases: list[tuple[Path, list[str]]], aside: Path, environment: dict[str, str], imports: str = ""
) -> list[subprocess.CompletedProcess]:
    """program: "launch/x.py" or "-m data_tools.x"; cases: a folder and arguments each; aside: for what they print;
    imports: a module that the program itself imports later."""
    jobs = [[str(folder), [os.fsencode(word).hex() for word in words]] for folder, words in cases]
    job = [program, imports, str(aside), jobs]
    codes = subprocess.run(
        [sys.executable, "-m", "tests.forked_commands"],
        cwd=ROOT,
        env=environment,
        input=json.dumps(job),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return [
        subprocess.CompletedProcess([program, *words], code, *[_printed(aside, number, kind) for kind in (1, 2)])
        for number, ((_, words), code) in enumerate(zip(cases, json.loads(codes), strict=True))
    ]


def start_forked(
    program: str, folder: Path, words: list[str], environment: dict[str, str], aside: Path
) -> subprocess.CompletedProcess:
    """Start the command in a fork of this process, which has imported it. Modules in PYTHONPATH replace ours."""
    number = len(list(aside.glob("*.1")))
    pid = os.fork()
    if pid == 0:
        _be_command(program, str(folder), words, f"{aside}/{number}", environment)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return subprocess.CompletedProcess([program, *words], code, *[_printed(aside, number, kind) for kind in (1, 2)])


def _printed(aside: Path, number: int, descriptor: int) -> str:
    return (aside / f"{number}.{descriptor}").read_text(encoding="utf-8", errors="surrogateescape")


def main() -> None:
    program, imports, aside, cases = json.load(sys.stdin)
    module = program.removeprefix("-m ").removesuffix(".py").replace("/", ".")
    for name in filter(None, (module, imports)):
        importlib.import_module(name)
    codes = []
    for number, (folder, words) in enumerate(cases):
        pid = os.fork()
        if pid == 0:
            _be_command(program, folder, [os.fsdecode(bytes.fromhex(word)) for word in words], f"{aside}/{number}")
        codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    print(json.dumps(codes))


def _be_command(
    program: str, folder: str, words: list[str], output: str, environment: dict[str, str] | None = None
) -> None:
    """Never returns."""
    code = 1
    try:
        for descriptor in (1, 2):
            os.dup2(os.open(f"{output}.{descriptor}", os.O_WRONLY | os.O_CREAT, 0o600), descriptor)
        sys.stdout, sys.stderr = open(1, "w"), open(2, "w", buffering=1, errors="backslashreplace")
        if environment is not None:
            os.environ.clear()
            os.environ.update(environment)
            _replace_modules(environment.get("PYTHONPATH"))
        os.chdir(folder)
        path = str(ROOT / program)
        sys.argv = [path, *words]
        if program.startswith("-m "):
            sys.path[0] = folder
            runpy.run_module(program.removeprefix("-m "), run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = os.path.dirname(path)
            runpy.run_path(path, run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _replace_modules(folder: str | None) -> None:
    if folder:
        for module in Path(folder).iterdir():
            sys.modules.pop(module.stem, None)
        sys.path.insert(1, folder)  # the first is the command's
        if (Path(folder) / "sitecustomize.py").exists():
            importlib.import_module("sitecustomize")


if __name__ == "__main__":
    main()
