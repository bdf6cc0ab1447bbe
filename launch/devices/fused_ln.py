"""The module fused_ln, RMSNorm as one operator: whether it is built, for which Paddle and which cards. No Paddle here.

Where it can be used, launch/switches/fused_rms_norm.py says.

The build of custom_ops/fused_rms_norm writes a record beside the module. A module without a record is another one, such
as that of PaddleNLP's external operators, which is for cards only.
"""

import importlib.metadata
import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path

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

    @property
    def oldest(self) -> str:
        """The least compute capability that it has code for: 7.5."""
        return "{}.{}".format(*self.architectures[0])


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
