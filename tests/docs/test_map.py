"""The map of the repository in README: every room is on it, and nothing that is not there."""

import re
import subprocess

from docs.tools.pages import ROOT, read
from tests.docs.pages import FENCED, is_there

[MAP] = [body for _, body in FENCED.findall(read(ROOT / "README.md")) if "tests/          mirrors the tree" in body]


def folders(*below: str) -> set[str]:
    files = subprocess.check_output(["git", "ls-files", *below], cwd=ROOT, text=True).splitlines()
    depth = len(below)
    return {file.split("/")[depth] for file in files if file.count("/") > depth}


def test_every_folder_is_on_it():
    named = set(re.findall(r"([a-z_]+)/", MAP))
    assert (folders() | folders("launch")) - named == {".ci", ".devcontainer", ".github"}


def test_what_is_on_it_is_there():
    for line in MAP.splitlines():
        room = ROOT / "launch" if line.startswith("    ") else ROOT
        names = re.match(r"\s*((?:[\w.]+(?:/|\.py|\.sh) ?)+)", line)
        for name in names[1].split() if names else ():
            assert is_there(room / name), name
