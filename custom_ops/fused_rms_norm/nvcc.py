"""The CUDA compiler of this machine: which architectures it knows, how it is called. Asks no card."""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

# Compute capabilities, from Volta on. Newer cards than these run the PTX of the last.
WANTED = ("70", "75", "80", "86", "89", "90", "100", "120")

# As Paddle's wheels are built; some systems' gcc has another default. (paddle/utils/cpp_extension does the same.)
PADDLES_ABI = "-D_GLIBCXX_USE_CXX11_ABI=1"
INSTALLED = Path("/usr/local")


@dataclass(frozen=True)
class Nvcc:
    """CUDA's compiler.

    Attributes:
        path: Of the program.
        version: Such as "13.0".
        architectures: The ones of WANTED that it compiles for.
    """

    path: Path
    version: str
    architectures: list[str]

    def command(self, source: Path, target: Path) -> list[str]:
        """Compile one file to an object with machine code for every architecture, and PTX of the newest."""
        newest = self.architectures[-1]
        targets = [f"arch=compute_{name},code=sm_{name}" for name in self.architectures]
        targets.append(f"arch=compute_{newest},code=compute_{newest}")
        codes = [word for target in targets for word in ("-gencode", target)]
        flags = ["-O3", "-std=c++17", PADDLES_ABI, "-Xptxas", "-v", "-Xcompiler", "-fPIC", "--threads", "0"]
        return [str(self.path), *flags, *codes, "-c", str(source), "-o", str(target)]

    def include_dirs(self) -> list[str]:
        """Return the folders of CUDA's headers, and of thrust's, which CUDA 13 has in a folder of their own."""
        return [folder for name in ("INCLUDES", "SYSTEM_INCLUDES") for folder in self._folders(name)]

    def link_flags(self) -> list[str]:
        """Return the linker's flags for CUDA's runtime."""
        return [*(f"-L{folder}" for folder in self._folders("LIBRARIES")), "-lcudart_static", "-ldl", "-lrt"]

    def _folders(self, variable: str) -> list[str]:
        """Return the folders that the compiler uses, by the name of its variable.

        They lie elsewhere in NVIDIA's packages, conda's and for other processors.
        """
        output = subprocess.run(
            [self.path, "--dryrun", "-x", "cu", "-E", os.devnull], check=True, capture_output=True, text=True
        ).stderr
        line = re.search(rf"^#\$ {variable}=(.*)$", output, re.MULTILINE)
        words = re.findall(r'"(?:-I|-L)?([^"]+)"', line[1]) if line else []
        return [str(Path(word).resolve()) for word in words if Path(word).is_dir()]


def find_nvcc() -> Nvcc | None:
    """Return the first of candidates() that works; None where there is none."""
    return next(filter(None, map(_identify, candidates())), None)


def candidates() -> list[Path]:
    """Return where an nvcc may lie: below CUDA_HOME or CUDA_PATH, on PATH, in the folders of NVIDIA's installers."""
    folders = [Path(os.environ[name]) / "bin" for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    folders += map(Path, filter(None, os.environ.get("PATH", "").split(os.pathsep)))
    folders.append(INSTALLED / "cuda" / "bin")
    folders += (path / "bin" for path in sorted(INSTALLED.glob("cuda-*"), key=_numbers, reverse=True))
    return [folder / "nvcc" for folder in folders if os.access(folder / "nvcc", os.X_OK)]


def _numbers(path: Path) -> list[int]:
    """Return the version in a folder's name: cuda-12.10 is newer than cuda-12.9."""
    return [int(digits) for digits in re.findall(r"\d+", path.name)]


def _identify(path: Path) -> Nvcc | None:
    """Return the compiler at this path; None where it does not answer, or knows none of the architectures."""
    program = path.resolve()
    try:
        version = re.search(r"release (\d+\.\d+)", _output(program, "--version"))
        known = set(re.findall(r"sm_(\d+)\b", _output(program, "--list-gpu-code")))
    except (OSError, subprocess.CalledProcessError):
        return None
    architectures = [name for name in WANTED if name in known]
    return Nvcc(program, version[1], architectures) if version and architectures else None


def _output(program: Path, argument: str) -> str:
    return subprocess.run([program, argument], check=True, capture_output=True, text=True).stdout
