"""Builds and installs the module fused_ln: RMSNorm as one operator of Paddle.

    make custom-ops                                      from the repository, into its .venv
    pip install --no-build-isolation .                   here, with the Python that has Paddle
    python setup.py install                              the same

gcc alone builds the CPU kernels. Where nvcc is found (below CUDA_HOME, on PATH, in /usr/local/cuda) and Paddle is a GPU
build, the CUDA kernels are built, too, for every architecture that this nvcc knows; no card is needed.
FUSED_LN_CUDA=0 leaves them out, FUSED_LN_CUDA=1 insists on them. What is built lies in build/ of the repository.
"""

import json
import os
import sys
from pathlib import Path

import paddle
from paddle.utils.cpp_extension import CppExtension
from setuptools import setup
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from nvcc import PADDLES_ABI, Nvcc, find_nvcc  # noqa: E402
from sources import digest, headers  # noqa: E402

VERSION = "0.1.0"


class BuildKernels(build_ext):
    """setuptools' own, not Paddle's: that one prints compilation errors and goes on, and installs its scaffolding.

    Adds the object that nvcc makes, and the record of what was built.
    """

    def build_extension(self, extension):
        """Compile the CUDA kernels where there is a compiler, then the extension, and record how it was built."""
        nvcc = wanted_nvcc()
        if nvcc:
            objects = Path(self.build_temp) / "cuda.o"
            objects.parent.mkdir(parents=True, exist_ok=True)
            self.spawn([*nvcc.command(HERE / "csrc" / "rms_norm_cuda.cu", objects)])
            extension.extra_objects = [str(objects)]
        super().build_extension(extension)
        record = Path(self.get_ext_fullpath(extension.name)).parent / "build.json"
        record.write_text(json.dumps(built(nvcc), indent=1) + "\n")


def built(nvcc: Nvcc | None) -> dict:
    """Return the record of the build, which launch/devices/fused_ln.py compares with the machine."""
    return {
        "paddle": paddle.__version__,
        "cuda": nvcc.version if nvcc else None,
        "architectures": nvcc.architectures if nvcc else [],
        "sources": digest(),
    }


def wanted_nvcc() -> Nvcc | None:
    """Return the CUDA compiler to use; None for a build for CPUs alone."""
    requested = os.environ.get("FUSED_LN_CUDA", "")
    nvcc = find_nvcc() if requested != "0" and (requested == "1" or paddle.is_compiled_with_cuda()) else None
    if requested == "1" and nvcc is None:
        sys.exit("error: FUSED_LN_CUDA=1, and there is no nvcc below CUDA_HOME, on PATH or in /usr/local/cuda*/bin")
    return nvcc


def extension():
    """Return the extension to build."""
    nvcc = wanted_nvcc()
    return CppExtension(
        name="fused_ln._ops",
        sources=["csrc/fused_ln.cc", "csrc/training.cc", "csrc/products.cc"],
        depends=[str(path) for path in headers()],
        include_dirs=nvcc.include_dirs() if nvcc else [],
        define_macros=[("PADDLE_WITH_CUDA", None), ("FUSED_LN_WITH_CUDA", None)] if nvcc else [],
        extra_compile_args=["-std=c++17", PADDLES_ABI, "-O3", "-g0", "-fopenmp"],
        # OpenMP's runtime is the one that Paddle ships and has loaded: beside a second one forked processes hang.
        extra_link_args=["-Wl,-s", "-l:libiomp5.so", "-ldl", *(nvcc.link_flags() if nvcc else [])],
    )


os.chdir(HERE)
kind = "cuda" if wanted_nvcc() else "cpu"
folder = HERE.parents[1] / "build" / "fused_rms_norm" / f"paddle-{paddle.__version__}-{kind}"
folder.mkdir(parents=True, exist_ok=True)
setup(
    name="fused_ln",
    version=VERSION,
    packages=["fused_ln"],
    ext_modules=[extension()],
    cmdclass={"build_ext": BuildKernels},
    options={"build": {"build_base": str(folder)}, "egg_info": {"egg_base": str(folder)}},
    zip_safe=False,
)
