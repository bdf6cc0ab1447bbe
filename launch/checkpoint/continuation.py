"""Which checkpoint does a run continue? Decided from the flags and the directories alone, and passed on. No Paddle.

--resume_from_checkpoint auto    the newest whole one in --output_dir, if there is one
                         none    the run starts at step 0
                         PATH    this checkpoint
--overwrite_output_dir 1         the run starts at step 0; preflight refuses it beside auto and PATH
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launch.checkpoint.manifest import Manifest, checkpoints, examine, is_foreign

AUTO, NONE = "auto", "none"  # of --resume_from_checkpoint, beside a path
Examined = tuple[Manifest | None, str | None]


def by_sizes(checkpoint: Path) -> Examined:
    """Examine the sizes of a checkpoint's files."""
    return examine(checkpoint, hashes=False)


@dataclass(frozen=True)
class Continuation:
    """The checkpoint that a run continues.

    Attributes:
        checkpoint: None for a run from step 0. A named one is here even if it has a fault.
        manifest: The checkpoint's, read once; None where it has a fault.
        fault: The fault of a named checkpoint.
        named: The user has named the checkpoint.
        passed_over: Newer checkpoints than the one that `auto` takes, each with its fault, or None for PaddleNLP's
            own.
    """

    checkpoint: Path | None = None
    manifest: Manifest | None = None
    fault: str | None = None
    named: bool = False
    passed_over: tuple[tuple[Path, str | None], ...] = ()

    @classmethod
    def of(
        cls,
        flags,
        examined: Callable[[Path], Examined] = by_sizes,
        agreed: Callable[[Callable[[], Any]], Any] = lambda question: question(),
    ) -> "Continuation":
        """Choose the checkpoint.

        Args:
            flags: An object with the values of the flags.
            examined: Returns the manifest of a checkpoint, or its fault.
            agreed: Returns one answer to a question about the directories, the same for all ranks that choose together.
        """
        requested = flags.resume_from_checkpoint or NONE
        if not flags.do_train or requested == NONE or (requested == AUTO and flags.overwrite_output_dir):
            return cls()
        if requested != AUTO:
            manifest, fault = examined(Path(requested))
            return cls(Path(requested), manifest, fault, named=True)
        passed_over: list[tuple[Path, str | None]] = []
        for checkpoint in agreed(lambda: checkpoints(flags.output_dir) if flags.output_dir else []):
            if agreed(lambda checkpoint=checkpoint: is_foreign(checkpoint)):
                passed_over.append((checkpoint, None))
                continue
            manifest, fault = examined(checkpoint)
            if fault is None:
                return cls(checkpoint, manifest, passed_over=tuple(passed_over))
            passed_over.append((checkpoint, fault))
        return cls(passed_over=tuple(passed_over))

    @property
    def damaged(self) -> list[Path]:
        """The newer checkpoints that are put aside as damaged."""
        return [checkpoint for checkpoint, fault in self.passed_over if fault]


def newest_whole(output: str | Path) -> Path | None:
    """Return the newest checkpoint of an output directory whose files have the sizes of its manifest."""
    return next((path for path in checkpoints(output) if by_sizes(path)[1] is None), None)
