"""setup.py: what it leaves in an environment, and takes away again; the CUDA kernels where there is nvcc."""

import importlib.util
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from custom_ops.fused_rms_norm.nvcc import find_nvcc
from tests.custom_ops.kernels import SOURCE

pytestmark = pytest.mark.long

PIP = [sys.executable, "-W", "ignore", "-m", "pip", "--disable-pip-version-check"]


def succeed(command: list, **options) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> tuple[Path, Path]:
    """A new environment that sees the packages of this one: its Python, its own site-packages."""
    folder = tmp_path_factory.mktemp("environment")
    succeed([sys.executable, "-m", "venv", "--without-pip", folder])
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin" / "python", packages


@pytest.mark.parametrize("way", ["pip install", "setup.py install"])
def test_nothing_leaks_and_uninstalling_leaves_nothing(environment, way):
    python, packages = environment
    before, tree = set(os.listdir(packages)), set(os.listdir(SOURCE))
    if way == "pip install":
        succeed([*PIP, "--python", python, "install", "--no-build-isolation", "--no-deps", SOURCE])
    else:
        succeed([python, "-W", "ignore", "setup.py", "install"], cwd=SOURCE)
    new = set(os.listdir(packages)) - before
    assert "fused_ln" in new and len(new) == 2, new  # the package and its metadata
    assert set(os.listdir(SOURCE)) - tree <= {"__pycache__"}
    code = "import paddle as p, fused_ln; print(float(fused_ln.fused_rms_norm(p.ones([2, 64]), p.ones([64]))[0].sum()))"
    assert float(succeed([python, "-W", "ignore", "-c", code]).split()[-1]) == pytest.approx(128, rel=1e-5)
    succeed([*PIP, "--python", python, "uninstall", "--yes", "fused_ln"])
    assert set(os.listdir(packages)) == before


def test_paddles_openmp_runtime_has_all_that_is_called(site):
    """What it lacks another runtime in the process would answer, if there is one, whose threads have other numbers."""

    def symbols(library: Path, *flags: str) -> set[str]:
        lines = succeed(["nm", "--dynamic", *flags, library]).splitlines()
        return {name for line in lines if (name := line.split()[-1].partition("@")[0]).startswith(("GOMP_", "omp_"))}

    [built] = (site / "fused_ln").glob("_ops*.so")
    runtime = Path(importlib.util.find_spec("paddle").origin).parent / "libs" / "libiomp5.so"
    called = symbols(built, "--undefined-only")
    assert "GOMP_parallel" in called
    assert called - symbols(runtime, "--defined-only") == set()


@pytest.mark.skipif(find_nvcc() is None, reason="no nvcc here")
def test_cuda_kernels_compile_without_spilling_registers(tmp_path):
    nvcc = find_nvcc()
    chosen = [nvcc.architectures[0], nvcc.architectures[-1]]
    flags = [word for name in chosen for word in ("-gencode", f"arch=compute_{name},code=sm_{name}")]
    command = [nvcc.path, "-O3", "-std=c++17", "-Xptxas", "-v", *flags, "-c", SOURCE / "csrc" / "rms_norm_cuda.cu"]
    report = succeed([*command, "-o", tmp_path / "cuda.o"])
    spills = [line.strip() for line in report.splitlines() if "spill stores" in line]
    assert len(spills) > 50
    assert {line for line in spills if ", 0 bytes spill stores, 0 bytes spill loads" not in line} == set()


@pytest.mark.skipif(find_nvcc() is None, reason="no nvcc here")
def test_the_program_that_checks_them_compiles(tmp_path):
    nvcc = find_nvcc()
    source = SOURCE / "harness" / "check.cu"
    succeed([nvcc.path, "-std=c++17", f"-arch=sm_{nvcc.architectures[-1]}", "-c", source, "-o", tmp_path / "check.o"])
