"""What a run leaves for use: the whole model, or the adapter alone, which is read back from disk and tried."""

import copy
import json
import shutil
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import paddle
from paddlenlp.peft import LoRAModel
from paddlenlp.utils.env import LORA_CONFIG_NAME, PREFIX_CONFIG_NAME, SAFE_PEFT_WEIGHTS_INDEX_NAME

from launch.adapters.adapter_files import ADAPTERS, save_adapter
from launch.adapters.add import PrefixModel
from launch.adapters.lora_files import PISSA_START, TOKEN_IDS
from launch.adapters.pissa import write_as_plain_lora
from launch.checkpoint.checkpoint_writer import NewPart, put_in_place, safetensors_file, write_hashed
from launch.checkpoint.local_tensors import (
    LocalTensor,
    give_to_others,
    local_tensors,
    parts_of_ranks,
    whole_values,
)
from launch.checkpoint.manifest import PARTIAL_MODEL
from launch.checkpoint.parts import Part
from launch.checkpoint.ranks import barrier, gather, on_rank_zero, raise_first, rank
from launch.checkpoint.safetensors_file import read_header
from launch.checkpoint.stored_tensor import convert
from launch.checkpoint.weight_files import listed, read_indexed
from launch.errors import UserError

TRIED = 2  # samples that a saved adapter is tried on


class Result:
    """The result of a run, ready for use.

    Attributes:
        read_back: None where the whole model is trained.
        has_trained: Whether a step was made with a learning rate above 0.
    """

    def __init__(self, trainer):
        self.trainer, self.args = trainer, trainer.args
        self.read_back = ReadBack(trainer.model, trainer.args) if isinstance(trainer.model, ADAPTERS) else None
        self.has_trained = False

    def save(self, directory: Path | None = None) -> None:
        """Write what was trained, for use, and its tokenizer where there is one: the adapter alone or the whole model.

        Args:
            directory: Default the run's own, at its end, where the files appear together when all are whole.

        Raises:
            UserError: On all ranks where they cannot be written, or an adapter does not read back as trained.
        """
        if directory is not None:
            self._write(directory, updated=False)
            return
        output = Path(self.args.output_dir)
        partial = output / PARTIAL_MODEL

        def empty() -> None:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)

        on_rank_zero(empty)
        read_back = self._write(partial, updated=self.has_trained)
        on_rank_zero(lambda: put_in_place(partial, output))
        if rank() == 0 and read_back:
            print(read_back, flush=True)

    def _write(self, directory: Path, updated: bool) -> str | None:
        """Return a line about an adapter that was read back. updated: whether training must have changed it."""
        if not self.read_back:
            self.trainer.save_model(str(directory))
            return None
        save_adapter(self.trainer.model, directory, self.args)
        line = self._read_back_line(*self.read_back.check(directory, self.outcome, updated))
        on_rank_zero(lambda: self._complete(directory))
        return line

    def _complete(self, directory: Path) -> None:
        if self.trainer.checkpointer.model_identity["adapter"].get("pissa"):
            write_as_plain_lora(directory, Path(self.args.output_dir) / PISSA_START)
        if self.trainer.tokenizer is not None:
            self.trainer.tokenizer.save_pretrained(str(directory))

    def _read_back_line(self, changed: int, tensors: int, difference: float) -> str:
        what = "loss" if self.args.pipeline_parallel_degree > 1 else "logits"
        return (
            f"adapter read back from {self.args.output_dir}: {tensors} tensors as trained, {changed} of them not as at "
            f"the beginning; largest difference of the {what} of {self._tried} training samples {difference:.2g}"
        )

    @property
    def _tried(self) -> int:
        """A pipeline takes whole batches only."""
        args = self.args
        if args.pipeline_parallel_degree > 1:
            return args.per_device_eval_batch_size
        return min(TRIED, args.per_device_train_batch_size)

    def outcome(self) -> np.ndarray:
        """Return the logits of the first samples of training, of this rank's part of the vocabulary.

        A pipeline has their loss instead.
        """
        trainer = self.trainer
        inputs = {key: paddle.to_tensor(array) for key, array in trainer.data.first_batch(self._tried).items()}
        pipeline = self.args.pipeline_parallel_degree > 1
        model = trainer.model_wrapped if pipeline else trainer.model
        trainer.loss.start_evaluation()
        model.eval()
        if pipeline:
            outcome, _, _ = trainer.prediction_step(model, inputs, prediction_loss_only=True)
        else:
            with paddle.no_grad(), trainer.autocast_smart_context_manager():
                _, (_, outcome) = trainer.loss(trainer.model, inputs, return_outputs=True)
        model.train()
        return outcome.astype("float32").numpy()


# ---- the whole model on disk as from_pretrained reads it, from any layout
#
# No rank has a whole model in memory. Each pipeline stage writes one file, tensor by tensor: what tensor parallelism or
# stage 3 shards is put together one tensor at a time.


SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
FREE = "Free the disk and start again: the checkpoints are as they were."


def save_whole_model(model, tokenizer, directory: Path | str, training_args) -> None:
    """Write into a directory that holds no other model. Called by all ranks together.

    Raises:
        UserError: On all ranks where a file cannot be written.
    """
    directory = Path(directory)
    stages = max(training_args.pipeline_parallel_degree, 1)
    tensors = local_tensors(model, None, training_args)
    parts = parts_of_ranks(tensors)
    owners: dict[str, int] = {}  # a tied head is on two stages: the first writes it
    for stage, of_rank in sorted(zip(gather(_stage(training_args)), parts, strict=True), key=lambda pair: pair[0]):
        for key in of_rank:
            owners.setdefault(key, stage)
    of_stage = [tensor for tensor in tensors if owners[tensor.key] == _stage(training_args)]
    fault = None
    if training_args.tensor_parallel_rank <= 0 and training_args.dataset_rank == 0:
        whole = [
            NewPart(one.key, one.dtype, Part(one.part.shape), lambda one=one: whole_values(one, parts))
            for one in of_stage
        ]
        fault = _write_weights(directory / _file_name(_stage(training_args), stages), whole)
    else:
        for tensor in of_stage:
            give_to_others(tensor)
    if rank() == 0 and not fault:
        places = {key: _file_name(stage, stages) for key, stage in owners.items()}
        try:
            _write_small(model, tokenizer, directory, places if stages > 1 else None)
        except OSError as error:
            fault = f"{error.strerror or error}"
    raise_first(fault and f"{directory}: the model could not be written: {fault}. {FREE}")


def _write_weights(path: Path, tensors: list[NewPart]) -> str | None:
    """Write the weights and return why a file could not be written, None where it was."""
    pieces = safetensors_file(path.name, tensors).pieces()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_hashed(path, pieces)
    except OSError as error:
        for _ in pieces:  # other ranks put the rest together with this one
            pass
        return f"{path.name}: {error.strerror or error}"
    return None


def _write_small(model, tokenizer, directory: Path, places: dict[str, str] | None) -> None:
    """Write all files but the weights. places: the file of each tensor, where there are several. Raises OSError."""
    if places:
        index = json.dumps({"metadata": {}, "weight_map": dict(sorted(places.items()))}, indent=2) + "\n"
        (directory / INDEX).write_text(index, encoding="utf-8")
    whole_config(model).save_pretrained(str(directory))
    if model.can_generate():
        model.generation_config.save_pretrained(str(directory))
    if tokenizer is not None:
        tokenizer.save_pretrained(str(directory))


def whole_config(model):
    """Return the model's configuration, as of a single process."""
    config = copy.deepcopy(model.config)
    config.dtype = str(next(iter(model.parameters())).dtype).removeprefix("paddle.")
    config.tensor_parallel_degree = 1
    config.use_fused_rope = False  # of this run alone: with it paddlenlp's code cannot answer
    config.architectures = [type(model).__name__]  # paddlenlp reads that of a pipeline, too
    return config


def _stage(training_args) -> int:
    return max(training_args.pipeline_parallel_rank, 0)


def _file_name(stage: int, stages: int) -> str:
    return SINGLE if stages == 1 else f"model-{stage + 1:05d}-of-{stages:05d}.safetensors"


# The largest difference allowed, relative to the largest number: computed twice, a card may add up in another order.
TOLERANCE = {"float32": 1e-6, "bfloat16": 1e-2, "float16": 1e-3}


class ReadBack:
    """A saved adapter is read back from disk, every time: is it what was trained, and was it trained at all?

    check = ReadBack(adapter, training_args)            # before training: remembers checksums
    check.check(directory, outcome, updated=True)       # after save_adapter(adapter, directory, training_args)

    All methods are called by all ranks together.
    """

    def __init__(self, adapter: LoRAModel | PrefixModel, training_args):
        self.adapter, self.training_args = adapter, training_args
        self.dtype = str(adapter.model.config.dtype)
        self.beginning = {
            tensor.key: _checksum(convert(tensor.values(), tensor.dtype, "float32")) for tensor in self._local_tensors()
        }

    def check(self, directory: Path, outcome: Callable[[], np.ndarray], updated: bool) -> tuple[int, int, float]:
        """Fill the adapter from the files of `directory`: nothing may change.

        outcome: computes logits, or what the layout has instead, with the adapter as it is. updated: whether training
        must have changed it. Returns (tensors that training has changed, tensors, largest difference of outcomes).

        Raises:
            UserError: On all ranks where a file does not hold what was trained, or nothing was.
        """
        barrier()  # all files are written
        trained = outcome()
        changed, fault = set(), None
        try:
            changed = self._fill_from(directory)
        except (UserError, OSError, KeyError, ValueError) as error:
            fault = f"{directory}: the adapter does not read back as it was trained: {error}"
        raise_first(fault)
        again = outcome()
        difference = float(np.abs(again - trained).max(initial=0))
        if not difference <= TOLERANCE.get(self.dtype, 1e-6) * float(np.abs(trained).max(initial=1)):
            fault = f"{directory}: the adapter read back gives other logits, by up to {difference:.3g}. Save it again."
        everywhere = set().union(*gather(changed))
        if updated and not everywhere:
            fault = (
                f"{directory}: the adapter is as it was before training: no step has updated it. See loss and |g| in "
                "train_log.jsonl; a loss scale that never fits skips every step."
            )
        raise_first(fault)
        names = set().union(*gather({tensor.key for tensor in self._local_tensors()}))
        return len(everywhere), len(names), max(gather(difference))

    def _fill_from(self, directory: Path) -> set[str]:
        """Return the names of this rank's tensors that differ from their beginning.

        Raises UserError where one differs from what is trained here, or the configuration does.
        """
        self._compare_configuration(directory)
        stored = read_indexed(directory / SAFE_PEFT_WEIGHTS_INDEX_NAME, lambda file: read_header(file)[0])
        changed, different = set(), []
        for tensor in self._local_tensors():
            whole = stored[tensor.key].open()
            if _checksum(replace(tensor.part, flat=None).of(whole)) != self.beginning[tensor.key]:
                changed.add(tensor.key)
            values = convert(tensor.part.of(whole), "float32", tensor.dtype)
            if not np.array_equal(values, tensor.values()):
                different.append(tensor.key)
            tensor.fill(values)
        if different:
            raise UserError(f"other numbers in {listed(different)}")
        return changed

    def _compare_configuration(self, directory: Path) -> None:
        lora = isinstance(self.adapter, LoRAModel)
        mine = self.adapter.lora_config if lora else self.adapter.prefix_config
        stored = json.loads((directory / (LORA_CONFIG_NAME if lora else PREFIX_CONFIG_NAME)).read_text("utf-8"))
        lora_keys = ("r", "lora_alpha", "scaling", "target_modules", TOKEN_IDS)
        for name in lora_keys if lora else ("num_prefix_tokens",):
            if stored.get(name) != (own := getattr(mine, name, None)):
                raise UserError(f"{name} is {stored.get(name)!r}, trained was {own!r}")

    def _local_tensors(self) -> list[LocalTensor]:
        return local_tensors(self.adapter, None, self.training_args)


def _checksum(values: np.ndarray) -> int:
    return zlib.crc32(np.ascontiguousarray(values).data)
