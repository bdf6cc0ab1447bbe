"""The trained model on disk as from_pretrained reads it, from any layout, without a whole model in any rank's memory.

Each pipeline stage writes one file, tensor by tensor: what tensor parallelism or stage 3 divides is put together one
tensor at a time.
"""

import copy
import json
from pathlib import Path

import numpy as np
import paddle
from paddle.distributed import fleet

from data_tools.formats.atomic import written_aside
from launch.checkpoint.state.parts import Part
from launch.checkpoint.state.tensors import Held, held_tensors
from launch.checkpoint.state.write import NewTensor, safetensors_file
from launch.training.ranks import barrier, gather, rank

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"


def save_whole_model(model, tokenizer, directory: Path | str, training_args) -> None:
    """Called by all ranks together. Raises DataError where a file cannot be written."""
    directory = Path(directory)
    stages = max(training_args.pipeline_parallel_degree, 1)
    held = held_tensors(model, None, training_args)
    facts = gather({"stage": _stage(training_args), "parts": {one.key: one.part for one in held}})
    owners: dict[str, int] = {}  # a tied head is on two stages: the first writes it
    for of_rank in sorted(facts, key=lambda one: one["stage"]):
        for key in of_rank["parts"]:
            owners.setdefault(key, of_rank["stage"])
    parts = [of_rank["parts"] for of_rank in facts]
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


def assemble(held: Held, parts: list[dict[str, Part]]) -> np.ndarray:
    """A whole tensor from what the ranks of this one's groups have of it; bfloat16 as uint16.

    parts: of each rank, by key. Called by all ranks of the groups together.
    """
    part = held.part
    if part.is_whole:
        return held.values()
    hcg = fleet.get_hybrid_communicate_group()
    if part.flat is None:
        values = held.values()
    else:
        slices = gathered(held.tensor, hcg.get_sharding_parallel_group())
        size = int(np.prod(part.undivided_shape, dtype=np.int64))
        values = np.concatenate(slices)[:size].reshape(part.undivided_shape)
    if part.axis is None:
        return values
    group = hcg.get_model_parallel_group()
    whole = np.empty(part.shape, values.dtype)
    along = np.moveaxis(whole, part.axis, 0)
    for number, piece in zip(group.ranks, gathered(held.tensor, group), strict=True):
        piece, start = np.moveaxis(piece, part.axis, 0), 0
        for first, last in parts[number][held.key].ranges:
            along[first:last] = piece[start : start + last - first]
            start += last - first
    return whole


def gathered(tensor: paddle.Tensor, group) -> list[np.ndarray]:
    """The tensor of each rank of a group."""
    tensors: list[paddle.Tensor] = []
    paddle.distributed.all_gather(tensors, tensor.detach(), group=group)
    return [one.numpy() for one in tensors]


def _whole(held: Held, parts: list[dict[str, Part]]) -> NewTensor:
    return NewTensor(held.key, held.dtype, Part(held.part.shape), lambda: assemble(held, parts))


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
