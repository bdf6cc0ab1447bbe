"""The tensors of a Hugging Face file as ours: what comes from where, checked as a whole, then made piece by piece."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from launch.checkpoint.stored_tensor import FLOATS, StoredTensor, convert
from launch.checkpoint.weight_files import Misfits, Weight, difference, is_computed
from launch.errors import UserError
from launch.families.parameters import HEAD, WORD, Parameter
from launch.families.registry import parameters
from launch.weights.names import TIED_HEAD, Origin, origin
from launch.weights.safetensors_writer import NewTensor

PIECE_BYTES = 8 << 20


@dataclass(frozen=True)
class Conversion:
    """One parameter of ours and the tensor it is made of. unit_rows: each row of the tensor divided by its length."""

    parameter: Parameter
    origin: Origin
    stored: StoredTensor
    unit_rows: bool


def plan(config: dict, stored: dict[str, StoredTensor], unit_head: bool) -> list[Conversion]:
    """What each parameter of a model with our `config` is made of.

    stored: all tensors of the files. unit_head: see launch.weights.configuration.has_unit_head.
    Raises UserError with the names of all tensors that are missing, not known, or of another shape or no floats.
    """
    expected = [(one, origin(one, config["model_type"], stored)) for one in parameters(config)]
    misfits = _misfits(stored, expected)
    if misfits:
        raise UserError(f"the weights are not those of their config.json: {misfits}")
    return [Conversion(one, place, stored[place.name], unit_head and one.kind == HEAD) for one, place in expected]


def _misfits(stored: dict[str, StoredTensor], expected: list[tuple[Parameter, Origin]]) -> Misfits:
    misfits = Misfits()
    for _, place in expected:
        if place.name not in stored:
            misfits.missing.add(place.name)
            continue
        found = stored[place.name]
        if found.shape != place.shape:
            misfits.different.add(difference(place.name, str(list(found.shape)), str(list(place.shape))))
        elif found.dtype not in FLOATS:
            misfits.different.add(difference(place.name, found.dtype, "floating-point numbers"))
    used = {place.name for _, place in expected}
    misfits.extra |= {name for name in stored if name not in used and not is_computed(name)}
    word = next(place.name for one, place in expected if one.kind == WORD)
    has_head = any(one.kind == HEAD for one, _ in expected)
    if not has_head and TIED_HEAD in misfits.extra and word in stored and same_bytes(stored[TIED_HEAD], stored[word]):
        misfits.extra.remove(TIED_HEAD)
    return misfits


def same_bytes(one: Weight, other: Weight) -> bool:
    """Whether two tensors are the same bytes; compared piece by piece."""
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    first, second = one.open(), other.open()
    step = rows_at_once(first)
    return all(np.array_equal(first[i : i + step], second[i : i + step]) for i in range(0, len(first), step))


def new_tensor(conversion: Conversion, dtype: str | None) -> NewTensor:
    """The tensor to be written, in `dtype`; None: as it is stored."""
    dtype = dtype or conversion.stored.dtype
    return NewTensor(conversion.parameter.name, dtype, conversion.parameter.shape, partial(_pieces, conversion, dtype))


def _pieces(conversion: Conversion, dtype: str) -> Iterator[np.ndarray]:
    """Rows of our tensor. Raises UserError where a value is too large for float16."""
    place, found = conversion.origin, conversion.stored.dtype
    whole = conversion.stored.open()
    rows = len(whole) // place.parts
    source = whole[place.part * rows : (place.part + 1) * rows]
    scale = _row_lengths(source, found) if conversion.unit_rows else None
    ours = source.T if place.transposed else source
    step = rows_at_once(ours)
    for start in range(0, len(ours), step):
        piece, now = np.ascontiguousarray(ours[start : start + step]), found
        if scale is not None:
            piece, now = convert(piece, found, "float32") / scale, "float32"
        yield converted(place.name, piece, now, dtype)


def converted(name: str, piece: np.ndarray, found: str, wanted: str) -> np.ndarray:
    """Rows of the tensor `name` in another dtype. Raises UserError where a value is too large for float16."""
    try:
        return convert(piece, found, wanted)
    except OverflowError as error:
        raise UserError(
            f"{name}: a value of {error.args[0]:.3g} is too large for {wanted}; --dtype bfloat16 or float32."
        ) from None


def _row_lengths(source: np.ndarray, dtype: str) -> np.ndarray:
    """float32 [rows]: the Euclidean length of each row of a head, by which our columns are divided."""
    step = rows_at_once(source)
    pieces = [convert(source[i : i + step], dtype, "float32") for i in range(0, len(source), step)]
    return np.concatenate([np.linalg.norm(piece, axis=1) for piece in pieces]).clip(min=1e-12)


def rows_at_once(array: np.ndarray) -> int:
    """How many rows are some PIECE_BYTES."""
    return max(1, PIECE_BYTES // max(1, array[:1].nbytes))
