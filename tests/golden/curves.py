"""The stored curve of each recipe's rehearsal, <target>.json: what it was when somebody last looked at it."""

import json
import platform
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from launch.cpu.settings import this_processor
from launch.reporting.records import package_versions, read_train_log

DIRECTORY = Path(__file__).parent
# Relative, of a loss and of a gradient norm, on any processor: they round differently.
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Curve:
    """Loss and gradient norm of every step, with all their digits."""

    losses: list[float]
    grad_norms: list[float]

    @classmethod
    def of_run(cls, output: Path) -> "Curve":
        steps = [record for record in read_train_log(output) if "loss" in record]
        return cls([step["loss"] for step in steps], [step["grad_norm"] for step in steps])

    def differences(self, other: "Curve") -> str:
        """Where the other leaves this one by more than TOLERANCE, in words; empty where it does not."""
        found = []
        for name, ours, theirs in (
            ("losses", self.losses, other.losses),
            ("gradient norms", self.grad_norms, other.grad_norms),
        ):
            if len(ours) != len(theirs):
                found.append(f"{len(theirs)} {name} instead of {len(ours)}")
                continue
            far = np.abs(np.array(theirs) / np.array(ours) - 1)
            if not far.max() <= TOLERANCE:  # NaN is far, too
                step = int(np.flatnonzero(~(far <= TOLERANCE))[0])
                found.append(
                    f"{name} from step {step + 1} on: {theirs[step]!r} instead of {ours[step]!r},"
                    f" at most {far.max():.1e} away (allowed: {TOLERANCE:.0e})"
                )
        return "; ".join(found)


def golden_file(target: str) -> Path:
    return DIRECTORY / f"{target}.json"


def read_golden(target: str) -> Curve:
    stored = json.loads(golden_file(target).read_text(encoding="utf-8"))
    return Curve(stored["losses"], stored["grad_norms"])


def write_golden(target: str, curve: Curve, reason: str) -> None:
    """Store a curve with where it comes from and why it replaces the one before."""
    processor = this_processor()
    stored = {
        "reason": reason,
        "processor": processor.name if processor else platform.machine(),
        "versions": package_versions(),
        **asdict(curve),
    }
    golden_file(target).write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
