"""The module fused_ln, RMSNorm as one operator: whether it is built, for which Paddle and which cards. No Paddle here.

    found = find_build()
    print(obstacle(found, "llama", compute_capability=(8, 0)))

The build of custom_ops/fused_rms_norm writes a record beside the module. A module without a record is another one, such
as that of PaddleNLP's external operators, which is for cards only.
"""

import importlib.metadata
import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path

from launch.families.registry import family_of

BUILD = "make custom-ops"

# Its kernels are for cards: forward and backward, since Paddle 3.3 (paddle/phi/kernels/gpu/rms_norm_cuda_kernel.h).
PADDLES_OWN = "paddle.nn.functional.rms_norm"


@dataclass(frozen=True)
class Build:
    """An installed fused_ln.

    Attributes:
        directory: Of the module.
        paddle: Version of Paddle that it was built for, "" without a record.
        cuda: Version of the CUDA compiler, "" for a build for CPUs only.
        architectures: Compute capabilities that it has code for; newer cards run the code of the last one.
        sources: Digest of its sources.
    """

    directory: Path
    paddle: str = ""
    cuda: str = ""
    architectures: tuple[tuple[int, int], ...] = ()
    sources: str = ""

    @property
    def has_record(self) -> bool:
        """Whether the build has a record."""
        return bool(self.paddle)


def find_build() -> Build | None:
    """Return the build that is installed for this Python, if any."""
    spec = importlib.util.find_spec("fused_ln")
    if spec is None or spec.origin is None:
        return None
    directory = Path(spec.origin).parent
    try:
        record = json.loads((directory / "build.json").read_text())
    except (OSError, json.JSONDecodeError):
        return Build(directory)
    architectures = tuple((int(name[:-1]), int(name[-1])) for name in record["architectures"])
    return Build(directory, record["paddle"], record["cuda"] or "", architectures, record["sources"])


def paddle_version() -> str:
    """Return the version of the installed Paddle, or ""."""
    return _version("paddlepaddle-gpu") or _version("paddlepaddle")


def is_gpu_build() -> bool:
    """Return whether the installed Paddle is the build for NVIDIA cards."""
    return bool(_version("paddlepaddle-gpu"))


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def obstacle(build: Build | None, model_type: str, compute_capability: tuple[int, int] | None) -> str:
    """Return why fused_ln cannot be used on a card of this capability, or on a CPU (None); else ""."""
    if not family_of(model_type).fused_rms_norm:
        return f"paddlenlp's code of {model_type} never calls it"
    if build is None:
        return f"the module fused_ln is not built: {BUILD}"
    if not build.has_record:
        return "" if compute_capability else f"the module fused_ln in {build.directory} is not ours: {BUILD}"
    if build.paddle != paddle_version():
        return f"the module fused_ln was built for Paddle {build.paddle}, here is {paddle_version()}: {BUILD}"
    if compute_capability is None:
        return ""
    if not build.cuda:
        return f"the module fused_ln was built without CUDA: {BUILD}, where nvcc is found"
    if compute_capability < build.architectures[0]:
        return (
            f"compute capability {_dotted(compute_capability)}, CUDA {build.cuda} builds it for "
            f"{_dotted(build.architectures[0])} and newer; with an older CUDA: {BUILD} ARGS=--remove, then "
            f"CUDA_HOME=/usr/local/cuda-12.6 {BUILD}"
        )
    return ""


def paddle_has_its_own(model_type: str, compute_capability: tuple[int, int] | None) -> bool:
    """Return whether PADDLES_OWN can take fused_ln's place for this model on a card of this capability; CPU: None."""
    return family_of(model_type).fused_rms_norm and compute_capability is not None


def _dotted(capability: tuple[int, int]) -> str:
    return f"{capability[0]}.{capability[1]}"
