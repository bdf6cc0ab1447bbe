"""Save checkpoints of a training: each rank its part, all or nothing, at once or in the background.

saver = Saver(checkpointer, asynchronous=True)
saver.save()                # in the background: returns when all is copied to host memory
saver.settle()              # waits; raises UserError on all ranks where the save has failed
"""

import json
import tempfile
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import paddle
from paddle.base import core
from paddlenlp.peft import LoRAModel
from paddlenlp.utils.env import SAFE_PEFT_WEIGHTS_INDEX_NAME

from launch.checkpoint import random_state
from launch.checkpoint.checkpoint_writer import (
    NewFile,
    NewPart,
    PartialCheckpoint,
    json_file,
    remove_old,
    safetensors_file,
)
from launch.checkpoint.local_tensors import MODEL, OPTIMIZER, LocalTensor, local_tensors, trains_all
from launch.checkpoint.manifest import RUN, Manifest, rank_file, tensor_file
from launch.checkpoint.parts import Part
from launch.checkpoint.ranks import gather, on_rank_zero, rank, world_size
from launch.errors import UserError
from launch.reporting.records import git_revision, how_to_mend, package_versions
from launch.training.result import whole_config
from launch.training.resuming import layout_of

POLL_SECONDS = 1.0  # between looks at what the ranks have written
WEIGHTS_INDEX = "model.safetensors.index.json"  # makes a directory one that from_pretrained reads


class Saver:
    """The part of the trainer that saves checkpoints.

    Attributes:
        asynchronous: Write in a thread, from copies in host memory.
    """

    def __init__(self, checkpointer, asynchronous: bool = False):
        self.checkpointer, self.trainer = checkpointer, checkpointer.trainer
        self.asynchronous = asynchronous
        self.last: Path | None = None  # the newest whole checkpoint, as far as this rank knows
        self._plan: SavePlan | None = None
        self._copies: dict[tuple[str, str], np.ndarray] = {}  # reused: allocating costs more than copying
        self._pending: tuple[threading.Thread, PartialCheckpoint] | None = None
        self._failure: str | None = None
        self._tokenizer_files: list[NewFile] | None = None
        self._software = {"versions": package_versions(), "git_revision": git_revision()} if rank() == 0 else {}

    def save(self) -> None:
        """Write a checkpoint of the step just done.

        Raises:
            UserError: On all ranks where it, or one before, failed.
        """
        self.settle()
        partial = PartialCheckpoint(self._args.output_dir, self.trainer.state.global_step, rank(), world_size())
        try:
            on_rank_zero(partial.prepare)
        except (OSError, UserError) as error:
            raise self._error(f"{partial.final} could not be written: {error}") from None
        files, manifest = self._files(), self._manifest()
        thread = threading.Thread(target=self._write, args=(partial, files, manifest), daemon=True)
        thread.start()
        self._pending = thread, partial
        if not self.asynchronous:
            self.settle()

    def settle(self) -> None:
        """Wait until the checkpoint is written.

        Raises:
            UserError: On all ranks where that failed.
        """
        if self._pending is None:
            return
        thread, partial = self._pending
        with self.checkpointer.watched_saving() as moved:
            failure = self._wait(thread, partial, moved)
        self._pending = None
        if failure:
            raise self._error(failure)
        self.last = partial.final

    def _error(self, failure: str) -> UserError:
        kept = f"{self.last} is as it was" if self.last else "there is none before it"
        mend = "Leave more host memory to the ranks" if "MemoryError" in failure else how_to_mend(failure)
        return UserError(f"{failure}. Of the checkpoints before it, {kept}. {mend} and start again.")

    def _wait(self, thread: threading.Thread, partial: PartialCheckpoint, moved: Callable[[], None]) -> str | None:
        """Wait until all ranks have written; the failure of the first rank that failed, else None.

        Called by all ranks together. moved: called whenever any of them has made progress.
        """
        before = None
        while True:
            thread.join(POLL_SECONDS)
            ranks = gather((thread.is_alive(), partial.written, self._failure))
            if ranks != before:
                moved()
            failure = next((failure for *_, failure in ranks if failure), None)
            partial.given_up = failure
            if not any(writes for writes, *_ in ranks):
                return failure
            before = ranks

    @property
    def failed(self) -> bool:
        """Whether this rank knows of a save in the background that failed."""
        return self._failure is not None

    @property
    def _args(self):
        return self.trainer.args

    def _write(self, partial: PartialCheckpoint, files: list[NewFile], manifest: Manifest) -> None:
        """Write the files without other ranks: no collective may run in the background."""
        try:
            # CUDA has a current device per thread, card 0 at first, whatever paddle.set_device said; using card 0 would
            # create a context there, about 0.4 GiB a rank.
            kind, _, number = paddle.get_device().partition(":")
            if kind == "gpu":
                core.set_cuda_current_device_id(int(number))  # pyright: ignore[reportAttributeAccessIssue]  # in no stub
            partial.write(files)
            if rank() == 0:
                partial.finish(manifest)
                self._remove_old(partial.final)
        except Exception as error:  # an error that ends a thread is seen by nobody
            self._failure = str(error) or repr(error)

    # ---- what is written

    def _files(self) -> list[NewFile]:
        """Return the files that this rank writes."""
        trainer, args = self.trainer, self._args
        optimizer = None if args.ignore_save_lr_and_optim else trainer.optimizer
        tensors = local_tensors(trainer.model, optimizer, args)
        plan = self._plan = self._plan or agree_on_writers(tensors)
        mine = [self._new_tensor(tensor) for tensor in tensors if (tensor.kind, tensor.key) in plan.mine]
        kinds = [tensor.kind for tensor in tensors if (tensor.kind, tensor.key) in plan.mine]
        files = []
        for kind in (MODEL, OPTIMIZER):
            tensors = [tensor for tensor, its_kind in zip(mine, kinds, strict=True) if its_kind == kind]
            if tensors:
                files.append(safetensors_file(tensor_file(kind, rank(), world_size()), tensors))
        files.append(json_file(rank_file(rank()), {"random_state": random_state.capture()}))
        return files + (self._common_files(plan) if rank() == 0 else [])

    def _new_tensor(self, local: LocalTensor) -> NewPart:
        if not self.asynchronous:
            return NewPart(local.key, local.dtype, local.part, local.values)
        values = local.values()
        copy = self._copies.setdefault((local.kind, local.key), np.empty_like(values))
        np.copyto(copy, values)
        return NewPart(local.key, local.dtype, local.part, lambda: copy)

    def _common_files(self, plan: "SavePlan") -> list[NewFile]:
        """Return the files that are the same for all ranks."""
        trainer = self.trainer
        files = [json_file(RUN, self.checkpointer.run_state())]
        if trains_all(trainer.model):
            files.append(
                json_file("config.json", json.loads(whole_config(trainer.model).to_json_string(use_diff=False)))
            )
        # A LoRA's checkpoint is read like the run's result; not PiSSA's, whose base lacks the product it began with.
        lora = isinstance(trainer.model, LoRAModel) and "pissa" not in self.checkpointer.model_identity["adapter"]
        if plan.writers is not None and (lora or trains_all(trainer.model)):
            places = {key: tensor_file(MODEL, writer, world_size()) for key, writer in plan.writers.items()}
            index = SAFE_PEFT_WEIGHTS_INDEX_NAME if lora else WEIGHTS_INDEX
            files.append(json_file(index, {"metadata": {}, "weight_map": places}))
            if lora:
                files += _files_of(trainer.model.lora_config.save_pretrained)
        if trainer.tokenizer is not None:
            self._tokenizer_files = self._tokenizer_files or _files_of(trainer.tokenizer.save_pretrained)
            files += self._tokenizer_files
        return files

    def _manifest(self) -> Manifest:
        trainer = self.trainer
        state = self.checkpointer.run_state()
        return Manifest(
            files={},
            global_step=state["global_step"],
            consumed_samples=state["consumed_samples"],
            consumed_tokens=state["consumed_tokens"],
            topology=layout_of(self._args),
            trained_only=not trains_all(trainer.model),
            data=self.checkpointer.data_identity(),
            model=self.checkpointer.model_identity,
            arguments=trainer.flags,
            **self._software,
        )

    # ---- what is kept

    def _remove_old(self, newest: Path) -> None:
        """Keep --save_total_limit of them; the new one is whole before an old one goes."""
        limit = self._args.save_total_limit
        if limit and limit > 0:  # -1 and 0: all of them
            remove_old(newest, limit, self.checkpointer.best)


def _files_of(save: Callable[[str], None]) -> list[NewFile]:
    """Return the files that `save(directory)` writes."""
    with tempfile.TemporaryDirectory() as directory:
        save(directory)
        contents = {path.name: path.read_bytes() for path in sorted(Path(directory).iterdir()) if path.is_file()}
    return [NewFile(name, lambda data=data: iter([data])) for name, data in contents.items()]


# ---- which rank writes what: each tensor once, by one of the ranks that have an equal copy of it


@dataclass(frozen=True)
class Copy:
    """A tensor that a rank has."""

    kind: str
    key: str
    part: Part
    nbytes: int


@dataclass(frozen=True)
class SavePlan:
    """The plan of a save.

    Attributes:
        mine: (kind, key) of the tensors that this rank writes.
        writers: Key of each parameter -> the rank that writes it; None where parameters are sharded over several
            files.
    """

    mine: frozenset[tuple[str, str]]
    writers: dict[str, int] | None


def agree_on_writers(tensors: Iterable[LocalTensor]) -> SavePlan:
    """Agree on the writer of each tensor. All ranks call it together."""
    mine = [Copy(tensor.kind, tensor.key, tensor.part, tensor.nbytes) for tensor in tensors]
    copies = gather(mine)
    writers = assign_writers(copies)
    whole = all(copy.part.is_whole for copies_of_rank in copies for copy in copies_of_rank if copy.kind == MODEL)
    parameters = {copy.key: writer for copy, writer in writers.items() if copy.kind == MODEL}
    return SavePlan(
        mine=frozenset((copy.kind, copy.key) for copy, writer in writers.items() if writer == rank()),
        writers=parameters if whole else None,
    )


def assign_writers(copies: list[list[Copy]]) -> dict[Copy, int]:
    """Return the rank that writes each tensor: among its owners, the rank with the fewest bytes to write so far.

    The result depends on nothing else, so it is the same on all ranks.

    Args:
        copies: The tensors of each rank.
    """
    ranks_of: dict[Copy, list[int]] = {}
    for owner, copies_of_rank in enumerate(copies):
        for copy in copies_of_rank:
            ranks_of.setdefault(copy, []).append(owner)
    bytes_to_write = [0] * len(copies)
    writers = {}
    for copy, owners in ranks_of.items():
        writers[copy] = min(owners, key=lambda owner: bytes_to_write[owner])
        bytes_to_write[writers[copy]] += copy.nbytes
    return writers
