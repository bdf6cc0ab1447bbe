"""The trained model on disk as from_pretrained reads it, from any layout, without a whole model in any rank's memory.

Each pipeline stage writes one file, tensor by tensor: what tensor parallelism or stage 3 divides is put together one
tensor at a time.
"""

import copy
import json
from pathlib import Path

from launch.checkpoint.ranks import gather
from launch.checkpoint.state.parts import Part
from launch.checkpoint.state.tensors import Held, held_tensors
from launch.checkpoint.state.whole import Parts, give_to_others, parts_of_ranks, whole_values
from launch.checkpoint.state.write import NewTensor, safetensors_file, write_hashed
from launch.training.ranks import raise_first, rank

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
FREE = "Free the disk and start again: nothing is left to train, and the checkpoints are as they were."


def save_whole_model(model, tokenizer, directory: Path | str, training_args) -> None:
    """Write into a directory that holds no other model. Called by all ranks together.

    Raises UserError on all ranks where a file cannot be written.
    """
    directory = Path(directory)
    stages = max(training_args.pipeline_parallel_degree, 1)
    held = held_tensors(model, None, training_args)
    parts = parts_of_ranks(held)
    owners: dict[str, int] = {}  # a tied head is on two stages: the first writes it
    for stage, of_rank in sorted(zip(gather(_stage(training_args)), parts, strict=True), key=lambda pair: pair[0]):
        for key in of_rank:
            owners.setdefault(key, stage)
    of_stage = [one for one in held if owners[one.key] == _stage(training_args)]
    fault = None
    if training_args.tensor_parallel_rank <= 0 and training_args.dataset_rank == 0:
        fault = _write(directory / _file_name(_stage(training_args), stages), [_whole(one, parts) for one in of_stage])
    else:
        for one in of_stage:
            give_to_others(one)
    if rank() == 0 and not fault:
        places = {key: _file_name(stage, stages) for key, stage in owners.items()}
        try:
            _write_small(model, tokenizer, directory, places if stages > 1 else None)
        except OSError as error:
            fault = f"{error.strerror or error}"
    raise_first(fault and f"{directory}: the model could not be written: {fault}. {FREE}")


def _write(path: Path, tensors: list[NewTensor]) -> str | None:
    """Why a file could not be written, None where it was."""
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
    """All but the weights. places: the file of each tensor, where there are several. Raises OSError."""
    if places:
        index = json.dumps({"metadata": {}, "weight_map": dict(sorted(places.items()))}, indent=2) + "\n"
        (directory / INDEX).write_text(index, encoding="utf-8")
    whole_config(model).save_pretrained(str(directory))
    if model.can_generate():
        model.generation_config.save_pretrained(str(directory))
    if tokenizer is not None:
        tokenizer.save_pretrained(str(directory))


def whole_config(model):
    """The model's configuration, as of a single process."""
    config = copy.deepcopy(model.config)
    config.dtype = str(next(iter(model.parameters())).dtype).removeprefix("paddle.")
    config.tensor_parallel_degree = 1
    config.architectures = [type(model).__name__]  # paddlenlp reads that of a pipeline, too
    return config


def _whole(held: Held, parts: Parts) -> NewTensor:
    return NewTensor(held.key, held.dtype, Part(held.part.shape), lambda: whole_values(held, parts))


def _stage(training_args) -> int:
    return max(training_args.pipeline_parallel_rank, 0)


def _file_name(stage: int, stages: int) -> str:
    return SINGLE if stages == 1 else f"model-{stage + 1:05d}-of-{stages:05d}.safetensors"
