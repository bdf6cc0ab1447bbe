"""Removed names answer with one sentence that says what to take instead, and exit code 2."""

import re
from pathlib import Path

import pytest

from launch.config import removed
from launch.config.variables import KUBERNETES, NODES, PLAN, RECIPE, SETUP, check_variables
from launch.environment import targets
from launch.errors import UserError
from tests.store import ROOT


def test_a_removed_target_says_what_to_take(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    makefile = Path("Makefile").read_text(encoding="utf-8")
    for name, instead in removed.TARGETS.items():
        assert not re.search(rf"^{name}\b", makefile, re.MULTILINE)
        assert targets.main(["unknown", name]) == 2
        assert capsys.readouterr().err == f"error: make {name} was removed: {instead}.\n"


@pytest.mark.parametrize("name", removed.VARIABLES)
def test_a_removed_variable_says_what_to_take(name):
    assert name not in (*RECIPE, *NODES, *KUBERNETES, *PLAN, *SETUP)
    with pytest.raises(UserError) as refused:
        check_variables({"MAKEFLAGS": f" -- GPUS=2 {name}=x"})
    assert str(refused.value) == f"{name}= was removed: {removed.VARIABLES[name]}."
    check_variables({"MAKEFLAGS": " -- GPUS=2", name: "of another program"})
