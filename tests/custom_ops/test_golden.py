"""Rehearsals use the fused RMSNorm where it is built, and give the stored curves with it as without."""

import os

import pytest

from tests.golden.curves import Curve, read_golden
from tests.recipes.rehearsing import rehearse_well

TARGET = "pretrain-llama7b"  # its learning rate does not magnify the last digit of a float32

pytestmark = pytest.mark.long  # the operator is built first


def test_rehearsal_with_the_operator_gives_the_stored_curve(site, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")]).strip(os.pathsep))
    rehearsed = rehearse_well(TARGET, tmp_path)
    assert "fused RMSNorm: on" in rehearsed.done.stdout
    assert read_golden(TARGET).differences(Curve.of_run(rehearsed.output)) == ""
