"""make custom-ops and the doctor: when fused_ln is to be built, and what is said about it."""

import json
import sys
from dataclasses import replace

import pytest

from custom_ops.fused_rms_norm.nvcc import Nvcc
from custom_ops.fused_rms_norm.sources import digest
from launch.devices import fused_ln
from launch.environment import custom_ops
from launch.errors import UserError


@pytest.fixture
def fresh(tmp_path) -> fused_ln.Build:
    return fused_ln.Build(tmp_path, fused_ln.paddle_version(), sources=digest())


def test_what_is_stale_without_cuda_too(fresh, tmp_path, monkeypatch):
    assert custom_ops.staleness(None) == "not built"
    assert custom_ops.staleness(fresh) == ""
    assert custom_ops.staleness(replace(fresh, sources="other")) == "its sources have changed"
    older = replace(fresh, paddle="3.2.0")
    assert custom_ops.staleness(older) == f"built for Paddle 3.2.0, here is {fused_ln.paddle_version()}"
    assert custom_ops.staleness(fused_ln.Build(tmp_path)) == f"the one in {tmp_path} is not ours"
    monkeypatch.delenv("FUSED_LN_CUDA", raising=False)
    monkeypatch.setattr(custom_ops, "is_gpu_build", lambda: True)
    monkeypatch.setattr(custom_ops, "find_nvcc", lambda: None)
    assert custom_ops.staleness(fresh) == ""
    monkeypatch.setattr(custom_ops, "find_nvcc", lambda: Nvcc(fresh.directory / "nvcc", "12.6", ["80"]))
    assert custom_ops.staleness(fresh) == "built without CUDA, here is nvcc 12.6"
    assert custom_ops.staleness(replace(fresh, cuda="12.4", architectures=((8, 0),))) == ""
    monkeypatch.setenv("FUSED_LN_CUDA", "0")
    assert custom_ops.staleness(fresh) == ""
    monkeypatch.delenv("FUSED_LN_CUDA")
    monkeypatch.setattr(custom_ops, "is_gpu_build", lambda: False)
    assert custom_ops.staleness(fresh) == ""


def test_the_doctor_mends_what_is_stale_and_recommends_what_is_missing(monkeypatch, fresh):
    monkeypatch.setattr(custom_ops, "find_build", lambda: None)
    assert custom_ops.check_fused_ln().ok and "make custom-ops" in custom_ops.check_fused_ln().found
    monkeypatch.setattr(custom_ops, "find_build", lambda: replace(fresh, sources="other"))
    finding = custom_ops.check_fused_ln()
    assert (finding.ok, finding.found, finding.fix) == (False, "its sources have changed", "make custom-ops")
    monkeypatch.setattr(custom_ops, "find_build", lambda: replace(fresh, cuda="13.0", architectures=((7, 5), (8, 0))))
    finding = custom_ops.check_fused_ln()
    assert finding.ok
    assert finding.found.endswith("CPUs and cards of compute capability 7.5, 8.0 (CUDA 13.0)")


def test_nothing_is_done_where_it_is_built(monkeypatch, capsys, fresh):
    monkeypatch.setattr(custom_ops, "find_build", lambda: fresh)
    monkeypatch.setattr(custom_ops, "run", lambda command: pytest.fail(f"runs {command}"))
    custom_ops.build()
    assert capsys.readouterr().out.endswith(": nothing to do\n")


def test_a_failure_shows_the_end_of_the_log(monkeypatch, tmp_path):
    monkeypatch.setattr(custom_ops, "LOG", tmp_path / "build" / "custom_ops.log")
    with pytest.raises(UserError, match="no such compiler\nThe whole output is in .*custom_ops.log. It needs g"):
        custom_ops.run([sys.executable, "-c", "print('no such compiler'); raise SystemExit(1)"])


def test_the_record_is_read(monkeypatch, tmp_path):
    package = tmp_path / "fused_ln"
    package.mkdir()
    (package / "__init__.py").write_text("raise AssertionError('it was imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert not fused_ln.find_build().has_record
    record = {"paddle": "3.3.1", "cuda": "13.0", "architectures": ["75", "120"], "sources": "abc"}
    (package / "build.json").write_text(json.dumps(record))
    assert fused_ln.find_build() == fused_ln.Build(package, "3.3.1", "13.0", ((7, 5), (12, 0)), "abc")
