"""Values of variables reach commands as they are: make, shells and Kubernetes take nothing in them as their own."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from launch.config.typed import typed, within_quotes
from launch.environment.start import NAMED, filled_in
from launch.errors import UserError
from tests.store import ROOT

NASTY = "a '\"; touch pwned; $(touch pwned) $(shell touch pwned) `touch pwned` $HOME $ \\ #é\n~ %s * {a,b}"
VALUES = (NASTY, " a", "\ta", "\na", "a ", "a\\", "$", "$$(HOME)", "${HOME}", "$(", "`", "'", '"', "#a", "-n", "~/a")
LISTS = {"ARGS", "ADAPTER", "TASKS", "COMPARE"}  # whose values are words


def test_names_are_filled_in():
    variables = {"MODEL": NASTY, "ADAPTER": "a=b 'c d=$(x) *' ~/e", "GPUS": "", "ARGS": "--x '' \"y z\""}
    words = ["x.py", "--m:MODEL", "--adapter:ADAPTER...", "--gpus:GPUS", ":OUTPUT", "not:MODEL", ":ARGS..."]
    home = str(Path.home())
    assert list(filled_in(words, variables)) == [
        *("x.py", "--m", NASTY, "--adapter", "a=b", "c d=$(x) *", f"{home}/e", "not:MODEL", "--x", "", "y z")
    ]
    with pytest.raises(UserError, match=r"^ARGS=--x 'a: No closing quotation$"):
        list(filled_in([":ARGS..."], {"ARGS": "--x 'a"}))


def test_what_is_typed_arrives(tmp_path):
    (tmp_path / "Makefile").write_text("x:\n\t@printf '%s\\0' \"$$V\"\n")
    lines = [f"make V={typed(value)}" for value in VALUES]
    lines += [f'make V="{within_quotes(value)}"' for value in VALUES if not value[0].isspace()]
    done = subprocess.run(["bash", "-c", "\n".join(lines)], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split("\0")[:-1] == [*VALUES, *(value for value in VALUES if not value[0].isspace())]
    assert not (tmp_path / "pwned").exists()


@pytest.fixture
def folder(tmp_path):
    """The Makefile with a recipe, where each command writes its words and its variables into the file `told`."""
    makefile = (ROOT / "Makefile").read_text()
    (tmp_path / "Makefile").write_text(makefile.replace("launch/environment/start.py", "start.py"))
    for name in ("launch", "data_tools"):
        (tmp_path / name).symlink_to(ROOT / name)
    for name in ("requirements", "recipes/tiny", ".venv/bin", "bin"):
        (tmp_path / name).mkdir(parents=True)
    start = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]), file=open('told', 'a'))\n"
    (tmp_path / "start.py").write_text(start)
    for name in (".venv/bin/python", "bin/uv"):
        (tmp_path / name).write_text(f'#!/bin/sh\nexec {sys.executable if "python" in name else "true"} "$@"\n')
        (tmp_path / name).chmod(0o755)
    (tmp_path / "recipes" / "tiny" / "pretrain.sh").write_text(
        "# Small.\n# Hardware  some\nexec .venv/bin/python start.py $ACTION :MODEL :DATA :OUTPUT :CONFIG\n"
    )
    return tmp_path


def make(folder: Path, *words: str) -> list[tuple[list[str], dict[str, str]]]:
    """The words and variables of each command that was started."""
    environment = os.environ | {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    done = subprocess.run(["make", "-k", *words], cwd=folder, env=environment, capture_output=True, text=True)
    assert not list(folder.rglob("pwned")), done.stdout + done.stderr
    told = folder / "told"
    return [tuple(json.loads(line)) for line in told.read_text().splitlines()] if told.exists() else []


@pytest.mark.long
def test_no_target_takes_a_value_of_a_variable_for_its_own(folder):
    """Every target, with every variable that the Makefile names."""
    makefile = (folder / "Makefile").read_text()
    own = set(re.findall(r"^([A-Z_]+) :?=", makefile, re.M)) | {"ONLY"}
    handed_on = {name for _, name, _ in NAMED.findall(makefile)} | {"MODEL", "DATA", "OUTPUT", "CONFIG"}
    names = ({name for name in re.findall(r"\$+\(?([A-Z_]+)", makefile)} | handed_on) - own - {"PPID", "PYTHON"}
    given = {name: shlex.quote(NASTY) if name in LISTS else NASTY for name in names}
    given["RECIPE"] = NASTY.replace("%", "")
    targets = {word for line in re.findall(r"^\.PHONY: (.*)", makefile, re.M) for word in line.split()} - {"$(1)"}
    targets = {target for target in targets if re.fullmatch(r"[\w-]+", target)} - {"clean"}
    targets |= {"data-clean", *(f"{form}pretrain-tiny" for form in ("", "rehearse-", "print-", "plan-", "k8s-"))}
    assert len(targets) > 35 and len(names) > 15
    calls = make(folder, *sorted(targets), *(f"{name}={value.replace('$', '$$')}" for name, value in given.items()))
    for words, variables in calls:
        for name in (found[2] for word in words if (found := NAMED.fullmatch(word))):
            assert variables[name] == (f"--only=recipe-{given['RECIPE']}" if name == "ONLY" else given[name]), words
    found = {found[2] for words, _ in calls for word in words if (found := NAMED.fullmatch(word))}
    assert found == handed_on - {"NAME", "OWNER", "TASKS"}  # of comments; not read beside COMPARE
    assert {words[0] for words, _ in calls} >= {"run", "rehearse", "print", "plan", "k8s"}


def test_a_dollar_that_make_would_take_as_its_own_is_refused(folder):
    """In every variable that the Makefile names."""
    names = set(re.findall(r"[$:]\(?([A-Z_]{2,})\b", (folder / "Makefile").read_text())) - {"PPID"}
    assert len(names) > 25
    for name in names:
        for value in ("$(shell touch pwned)", "a$b", "$$$"):
            command = ["make", "print-pretrain-tiny", f"{name}={value}"]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
            said = f"{name}={value}: make takes $ as its own. Write $$ for it.  Stop."
            assert done.returncode == 2 and said in done.stderr, done.stderr
    assert not list(folder.rglob("pwned")) and not (folder / "told").exists()


def test_a_target_and_a_python_with_any_name_are_not_there(folder):
    nasty = "x';touch pwned;'$(touch pwned)`touch pwned`"
    words, _ = make(folder, nasty)[-1]
    assert words[:3] == ["launch/environment/targets.py", "unknown", nasty]
    make(folder, "help", "setup", f"PYTHON={nasty.replace('$', '$$')}")
