"""Which nvcc is taken, and what it and g++ are called with."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from custom_ops.fused_rms_norm import nvcc
from tests.custom_ops.kernels import SOURCE


def put_nvcc(folder: Path, version: str, code: str = "sm_75 sm_80 sm_90") -> Path:
    """A program that answers as nvcc does, and writes what else it is called with to `calls` beside it."""
    program = folder / "bin" / "nvcc"
    program.parent.mkdir(parents=True)
    (folder / "target/include").mkdir(parents=True)
    (folder / "target/lib").mkdir()
    program.write_text(
        f"""#!/bin/sh
case "$1" in
--version) echo "Cuda compilation tools, release {version}, V{version}.48" ;;
--list-gpu-code) echo "{code}" ;;
--dryrun) cat >&2 <<END
#$ TOP={folder}/bin/..
#$ INCLUDES="-I{folder}/bin/../target/include"  
#$ SYSTEM_INCLUDES="-isystem" "{folder}/bin/../target/include/cccl"  
#$ LIBRARIES=  "-L{folder}/bin/../target/lib/stubs" "-L{folder}/bin/../target/lib"
END
;;
*) echo "$@" >> {folder}/calls ;;
esac
"""
    )
    program.chmod(0o755)
    return program


@pytest.fixture
def machine(monkeypatch, tmp_path) -> Path:
    """A machine without nvcc, whose /usr/local is this folder."""
    monkeypatch.setattr(nvcc, "INSTALLED", tmp_path / "local")
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path / 'path' / 'bin'}:/usr/bin:/bin")
    return tmp_path


def found() -> tuple[str, str] | None:
    compiler = nvcc.find_nvcc()
    return (str(compiler.path), compiler.version) if compiler else None


def test_the_newest_that_is_installed_then_its_link_then_path_then_cuda_home(machine, monkeypatch):
    assert found() is None
    for version in ("12.6", "12.10", "9.2"):
        newest = put_nvcc(machine / "local" / f"cuda-{version}", version)
    newest = machine / "local/cuda-12.10/bin/nvcc"
    assert found() == (str(newest), "12.10")
    (machine / "local/cuda").symlink_to("cuda-12.6")
    assert found() == (str(machine / "local/cuda-12.6/bin/nvcc"), "12.6")
    on_path = put_nvcc(machine / "path", "12.4")
    assert found() == (str(on_path), "12.4")
    named = put_nvcc(machine / "home", "11.8")
    monkeypatch.setenv("CUDA_HOME", str(machine / "home"))
    assert found() == (str(named), "11.8")


def test_one_that_fails_or_compiles_for_no_wanted_card_is_passed_over(machine):
    put_nvcc(machine / "path", "10.2", code="sm_30 sm_35")
    broken = put_nvcc(machine / "local/cuda", "12.0")
    broken.write_text("#!/bin/sh\nexit 127\n")
    right = put_nvcc(machine / "local/cuda-12.9", "12.9")
    assert found() == (str(right), "12.9")


def test_headers_and_libraries_are_where_it_says(machine):
    put_nvcc(machine / "local/cuda", "12.6")
    compiler = nvcc.find_nvcc()
    assert compiler.include_dirs() == [str(machine / "local/cuda/target/include")]
    assert compiler.link_flags()[0] == f"-L{machine}/local/cuda/target/lib"


def test_architectures_are_those_that_it_knows(machine):
    put_nvcc(machine / "local/cuda", "13.0", code="sm_75 sm_80 sm_86 sm_89 sm_90 sm_100 sm_103 sm_120 sm_121")
    command = " ".join(nvcc.find_nvcc().command(Path("a.cu"), Path("a.o")))
    assert "sm_70" not in command and "arch=compute_75,code=sm_75" in command
    assert "arch=compute_120,code=compute_120" in command and "103" not in command


@pytest.mark.long
def test_both_compilers_are_told_paddles_abi(machine, monkeypatch):
    put_nvcc(machine / "home", "12.6")
    compiler = machine / "g++"
    compiler.write_text(f'#!/bin/sh\necho "$@" >> {machine}/calls\nexit 1\n')
    compiler.chmod(0o755)
    told = {"CUDA_HOME": str(machine / "home"), "FUSED_LN_CUDA": "1", "CC": str(compiler), "CXX": str(compiler)}
    command = [sys.executable, "-W", "ignore", "setup.py", "build", "--build-base", str(machine / "build")]
    done = subprocess.run(command, cwd=SOURCE, env=os.environ | told, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    for calls in (machine / "home/calls", machine / "calls"):
        assert "-D_GLIBCXX_USE_CXX11_ABI=1" in calls.read_text().split(), calls
