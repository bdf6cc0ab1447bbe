"""The CUDA compiler of this machine: which architectures it knows, how it is called. Asks no card."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

# Of compute capability: from Volta on. What newer compilers know beyond this list runs what the last one's PTX gives.
WANTED = ("70", "75", "80", "86", "89", "90", "100", "120")


@dataclass(frozen=True)
class Nvcc:
    """path: of the program; version: "13.0"; architectures: of WANTED those that it compiles for."""

    path: Path
    version: str
    architectures: list[str]

    @property
    def toolkit(self) -> Path:
        """Where its headers and libraries lie. The program may be a script that calls it: it is asked."""
        asked = subprocess.run(
            [self.path, "--dryrun", "-x", "cu", "-E", os.devnull], check=True, capture_output=True, text=True
        )
        return Path(re.search(r"^#\$ TOP=(.*)$", asked.stderr, re.MULTILINE)[1]).resolve()

    def command(self, source: Path, target: Path) -> list[str]:
        """Compiles one file to an object with machine code for every architecture, and PTX of the newest."""
        newest = self.architectures[-1]
        targets = [f"arch=compute_{name},code=sm_{name}" for name in self.architectures]
        targets.append(f"arch=compute_{newest},code=compute_{newest}")
        codes = [word for target in targets for word in ("-gencode", target)]
        flags = ["-O3", "-std=c++17", "-Xptxas", "-v", "-Xcompiler", "-fPIC", "--threads", "0"]
        return [str(self.path), *flags, *codes, "-c", str(source), "-o", str(target)]

    def include_dirs(self) -> list[str]:
        """CUDA's headers, and thrust's, which CUDA 13 has in a folder of their own."""
        include = self.toolkit / "include"
        return [str(path) for path in (include, include / "cccl") if path.is_dir()]

    def link_flags(self) -> list[str]:
        folders = [self.toolkit / name for name in ("lib64", "lib", "targets/x86_64-linux/lib")]
        return [*(f"-L{folder}" for folder in folders if folder.is_dir()), "-lcudart_static", "-ldl", "-lrt"]


def find_nvcc() -> Nvcc | None:
    """The compiler on PATH or below CUDA_HOME; None where there is none."""
    path = shutil.which("nvcc", path=os.pathsep.join([f"{os.environ.get('CUDA_HOME', '')}/bin", os.environ["PATH"]]))
    if path is None:
        return None
    program = Path(path).resolve()
    version = re.search(r"release (\d+\.\d+)", _output(program, "--version"))[1]
    known = set(re.findall(r"sm_(\d+)\b", _output(program, "--list-gpu-code")))
    return Nvcc(program, version, [name for name in WANTED if name in known])


def _output(program: Path, argument: str) -> str:
    return subprocess.run([program, argument], check=True, capture_output=True, text=True).stdout
