"""The trained model on disk as from_pretrained reads it, from any layout, without a whole model in any rank's memory.

Each pipeline stage writes one file, tensor by tensor: what tensor parallelism or stage 3 divides is put together one
tensor at a time.
"""

import copy
import json
from pathlib import Path

from data_tools.formats.atomic import written_aside
from launch.checkpoint.state.parts import Part
from launch.checkpoint.state.tensors import Held, held_tensors
from launch.checkpoint.state.whole import Parts, parts_of_ranks, whole_values
from launch.checkpoint.state.write import NewTensor, safetensors_file
from launch.training.ranks import barrier, gather, rank

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"


def save_whole_model(model, tokenizer, directory: Path | str, training_args) -> None:
    """Called by all ranks together. Raises DataError where a file cannot be written."""
    directory = Path(directory)
    stages = max(training_args.pipeline_parallel_degree, 1)
    held = held_tensors(model, None, training_args)
    parts = parts_of_ranks(held)
    owners: dict[str, int] = {}  # a tied head is on two stages: the first writes it
    for stage, of_rank in sorted(zip(gather(_stage(training_args)), parts, strict=True), key=lambda pair: pair[0]):
        for key in of_rank:
            owners.setdefault(key, stage)
    whole = [_whole(one, parts) for one in held if owners[one.key] == _stage(training_args)]
    if training_args.tensor_parallel_rank <= 0 and training_args.dataset_rank == 0:
        with written_aside(directory / _file_name(_stage(training_args), stages)) as file:
            for piece in safetensors_file("", whole).pieces():
                file.write(piece)
    else:
        for one in whole:
            one.values()  # takes part in putting it together
    if rank() == 0:
        _write_index(directory, {key: _file_name(stage, stages) for key, stage in owners.items()})
        whole_config(model).save_pretrained(str(directory))
        if model.can_generate():
            model.generation_config.save_pretrained(str(directory))
        if tokenizer is not None:
            tokenizer.save_pretrained(str(directory))
    barrier()


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


def _write_index(directory: Path, places: dict[str, str]) -> None:
    """Of several files; an earlier run's is removed where there is one file now."""
    if set(places.values()) == {SINGLE}:
        (directory / INDEX).unlink(missing_ok=True)
        return
    with written_aside(directory / INDEX) as file:
        file.write((json.dumps({"metadata": {}, "weight_map": dict(sorted(places.items()))}, indent=2) + "\n").encode())
