"""A LoRA adapter merged into its base: W + scaling * A @ B, computed in float32, without Paddle and without a GPU.

Of a DoRA the columns of the sum get their trained lengths (launch/adapters/dora.py).

The weights pass through memory in pieces of a few rows, so that a machine with less memory than the model can do it.
check_weights compares a directory with what merging gives, tensor by tensor, piece by piece.
"""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from math import prod
from pathlib import Path

import numpy as np

from data_tools.dialogues.chat_template import (
    JINJA_FILE,
    JSON_FILE,
    TOKENIZER_CONFIG,
    TRAINED,
    directory_template,
    trained_with,
    without_mark,
)
from data_tools.formats.json_files import read_object
from data_tools.progress import progress
from launch.adapters.lora_files import SMALLEST, LoraFiles, LoraLayer, require_fit
from launch.checkpoint.manifest import MANIFEST, RUN
from launch.checkpoint.safetensors_file import NewTensor, write_safetensors
from launch.checkpoint.stored_tensor import FLOATS, convert
from launch.checkpoint.weight_files import Misfits, Weight, difference, find_weights
from launch.errors import UserError
from launch.families.named_configs import read_config
from launch.families.parameters import SCORE
from launch.families.registry import as_reward_model
from launch.reporting.records import RUN_SUMMARY, TRAIN_LOG
from launch.weights.conversion import TIED_HEAD, converted
from launch.weights.peft_merge import BeyondLora, rows_of
from launch.weights.whole import written_whole

PIECE_BYTES = 4 << 20
NOTHING = BeyondLora()
# What a model directory has beside configuration and tokenizer: weights in any form, records of the run that made it.
WEIGHTS = (".safetensors", ".pdparams", ".index.json", ".bin")
OF_A_RUN = re.compile(rf"best\.json|run\.lock|rank-\d+\.json|{MANIFEST}|{RUN}|{TRAIN_LOG}|{RUN_SUMMARY}")


def merge(
    base: Path,
    lora: LoraFiles,
    target: Path,
    shard_bytes: int,
    check: Callable[[Path], None],
    beyond: BeyondLora = NOTHING,
) -> None:
    """Write `target`, a model directory: the base's with the adapter in its weights, in the base's dtype.

    check: called with the finished directory before it takes its name; what it raises leaves nothing behind.
    beyond: What an imported adapter changes beside A B.

    Raises:
        UserError: If the two do not fit each other, or target is there already.
    """
    tensors = merged_tensors(base, lora, beyond)
    with written_whole(target) as directory:
        with progress("merging", sum(tensor.nbytes for tensor in tensors)) as advance:
            write_safetensors(directory, tensors, shard_bytes, advance)
        for file in base.iterdir():
            if file.is_file() and not file.name.endswith(WEIGHTS) and not OF_A_RUN.fullmatch(file.name):
                shutil.copyfile(file, directory / file.name)
        if lora.score:
            _make_reward_model(directory)
        _carry_template(lora.directory, directory)
        check(directory)


def _make_reward_model(directory: Path) -> None:
    path = directory / "config.json"
    config = as_reward_model(read_config(path, "a model"))
    path.write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    (directory / "generation_config.json").unlink(missing_ok=True)


def _carry_template(adapter: Path, directory: Path) -> None:
    """Carry the adapter's chat template, or its lack of one, over to the merged model."""
    config = directory / TOKENIZER_CONFIG
    if not (adapter / TOKENIZER_CONFIG).is_file() or not config.is_file():
        return
    own, values = directory_template(adapter), without_mark(read_object(config))
    trained = own if own and own.trained else None
    for name in (JINJA_FILE, JSON_FILE) if trained else ():  # would be read first
        (directory / name).unlink(missing_ok=True)
    if TRAINED in read_object(adapter / TOKENIZER_CONFIG):
        values = trained_with(trained, values)
    text = json.dumps(values, indent=2, ensure_ascii=False) + "\n"
    config.write_text(text, encoding="utf-8")


def merged_tensors(base: Path, lora: LoraFiles, beyond: BeyondLora = NOTHING) -> list[NewTensor]:
    """Return all tensors of the merged model.

    Raises:
        UserError: With the names of layers that the base lacks or has in another shape.
    """
    weights, beyond = find_weights(base, (0, 1)), beyond if beyond else rows_of(base, lora)
    changes = {f"{layer}.weight": change for layer, change in lora.layers.items()}
    require_fit(lora, base, {name: stored.shape for name, stored in weights.items()})
    for name in changes:
        if weights[name].dtype not in FLOATS:
            raise UserError(
                f"{base}: {name}: found {weights[name].dtype}, allowed: {', '.join(FLOATS)}. Give the model before it "
                "was quantized."
            )
    dtypes = {name: stored.dtype for name, stored in weights.items()}
    weights = {**weights, **beyond.whole}
    kept = {name: stored for name, stored in weights.items() if not (lora.score and name in (SCORE, TIED_HEAD))}
    tensors = [
        NewTensor(
            name,
            dtypes[name],
            stored.shape,
            partial(_pieces, name, stored, dtypes[name], changes.get(name), lora.scaling, beyond),
        )
        for name, stored in kept.items()
    ]
    if score := lora.score:  # of a reward model, in the dtype of its layers, in place of the base's
        dtype = weights[next(iter(changes))].dtype
        tensors.append(NewTensor(SCORE, dtype, score.shape, lambda: iter([convert(score.open(), score.dtype, dtype)])))
    return tensors


def pieces_of(stored: Weight) -> Iterator[tuple[int, int]]:
    """Yield (first row, one behind the last) of pieces of about PIECE_BYTES in float32."""
    rows = stored.shape[0]
    step = max(1, PIECE_BYTES // (4 * max(1, prod(stored.shape[1:]))))
    for start in range(0, rows, step):
        yield start, min(start + step, rows)


def _pieces(
    name: str, stored: Weight, dtype: str, change: LoraLayer | None, scaling: float, beyond: BeyondLora
) -> Iterator[np.ndarray]:
    """Yield rows of a merged tensor. Raises UserError where a value is too large for float16."""
    if not change:
        for start, stop in pieces_of(stored):  # opened anew: the pages of the last piece are given up
            rows = converted(name, np.ascontiguousarray(stored.open()[start:stop]), stored.dtype, dtype)
            yield beyond.replaced(name, start, rows, dtype)
    else:
        factors = _factors(stored, change, scaling)
        for summed in _sums(stored, change, scaling):
            summed = summed if factors is None else summed * factors
            try:
                rows = convert(summed, "float32", stored.dtype)
            except OverflowError as error:
                raise UserError(
                    f"{name}: a merged value of {error.args[0]:.3g} is too large for {stored.dtype}. "
                    "Merge into a base in bfloat16 or float32."
                ) from None
            yield rows


def _factors(stored: Weight, change: LoraLayer, scaling: float) -> np.ndarray | None:
    """Return what the columns of the sum are multiplied by, for a DoRA."""
    if not change.magnitude:
        return None
    trained = column_lengths(stored) + convert(change.magnitude.open(), change.magnitude.dtype, "float32")
    return (trained / _lengths(_sums(stored, change, scaling))).astype(np.float32)


def column_lengths(stored: Weight) -> np.ndarray:
    """Return the lengths of a weight's columns, float64."""
    return _lengths(convert(stored.open()[start:stop], stored.dtype, "float32") for start, stop in pieces_of(stored))


def _lengths(pieces: Iterator[np.ndarray]) -> np.ndarray:
    return np.sqrt(np.maximum(sum(np.square(piece, dtype=np.float64).sum(axis=0) for piece in pieces), SMALLEST))


def _sums(stored: Weight, change: LoraLayer, scaling: float) -> Iterator[np.ndarray]:
    """Yield rows of W + scaling * A @ B in float32."""
    a, b = (convert(matrix.open(), matrix.dtype, "float32") for matrix in (change.a, change.b))
    b = np.float32(scaling) * b
    for start, stop in pieces_of(stored):
        yield convert(stored.open()[start:stop], stored.dtype, "float32") + a[start:stop] @ b


# How far a value may be off, as a part of the largest one nearby: some roundings of the dtype. Others: not at all.
ROUNDING = {"float64": 1e-5, "float32": 1e-5, "bfloat16": 2.0**-7, "float16": 2.0**-10}


def check_weights(base: Path, lora: LoraFiles, merged: Path, beyond: BeyondLora = NOTHING) -> float:
    """Return the largest difference between the weights of `merged` and base + adapter, relative to values nearby.

    Raises:
        UserError: With the names of all tensors that are missing, or that are not the merged ones.
    """
    expected, found = merged_tensors(base, lora, beyond), find_weights(merged)
    names = {tensor.name for tensor in expected}
    misfits = Misfits(missing=names - found.keys(), extra=found.keys() - names)
    largest = 0.0
    with progress("comparing the weights", sum(tensor.nbytes for tensor in expected)) as advance:
        for tensor in expected:
            if tensor.name in misfits.missing:
                continue
            if found[tensor.name].shape != tensor.shape:
                shapes = (str(list(found[tensor.name].shape)), str(list(tensor.shape)))
                misfits.different.add(difference(tensor.name, *shapes))
                continue
            off = _difference(tensor, found[tensor.name], advance)
            if not off <= ROUNDING.get(tensor.dtype, 0.0):  # NaN is not
                misfits.different.add(f"{tensor.name} (off by {off:.2g} of its largest value)")
            largest = max(largest, off)
    if misfits:
        raise UserError(f"{merged} is not {base} with {lora.directory} merged: {misfits}")
    return largest


def _difference(expected: NewTensor, found: Weight, advance: Callable[[int], None]) -> float:
    largest = 0.0
    for piece, (start, stop) in zip(expected.pieces(), pieces_of(found), strict=True):
        ours, theirs = _float(piece, expected.dtype), _float(found.open()[start:stop], found.dtype)
        off = float(np.abs(ours - theirs).max(initial=0)) / max(float(np.abs(ours).max(initial=0)), 1e-30)
        largest = off if np.isnan(off) else max(largest, off)
        advance(piece.nbytes)
    return largest


def _float(array: np.ndarray, dtype: str) -> np.ndarray:
    return convert(array, dtype, "float32") if dtype in FLOATS else array.astype(np.float64)
