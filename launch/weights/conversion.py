"""Conversion of Hugging Face tensors and configurations to those of PaddleNLP: names, layouts, values.

The names of all tensors are checked first; then tensors are converted piece by piece.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from launch.checkpoint.safetensors_file import NewTensor
from launch.checkpoint.stored_tensor import FLOATS, StoredTensor, convert
from launch.checkpoint.weight_files import Misfits, Weight, difference, is_computed
from launch.errors import UserError
from launch.families.family import HuggingFace, Values
from launch.families.named_configs import TOKENS, check_config, check_values
from launch.families.parameters import HEAD, LINEAR, ROUTER, WORD, Parameter, gives_scores
from launch.families.registry import (
    FAMILIES,
    as_reward_model,
    family_of,
    family_of_config,
    parameters,
    their_name,
)

ENDS = "eos_token_id"  # of which a model may have several

PIECE_BYTES = 8 << 20
TIED_HEAD = "lm_head.weight"


@dataclass(frozen=True)
class Origin:
    """A tensor of the file, or one of `parts` equal slices of its rows.

    Attributes:
        shape: What the whole tensor must have.
    """

    name: str
    shape: tuple[int, ...]
    transposed: bool
    part: int = 0
    parts: int = 1


def origin(parameter: Parameter, model_type: str, names: Collection[str]) -> Origin:
    """Return the tensors that make a parameter of ours. names: all names in the files."""
    name = their_name(parameter.name, model_type)
    prefix = family_of(model_type).published.optional_prefix
    if prefix and not any(stored.startswith(prefix) for stored in names):
        name = name.removeprefix(prefix)
    transposed = parameter.kind in (LINEAR, ROUTER, HEAD)
    shape = parameter.shape[::-1] if transposed else parameter.shape
    fused, part, parts = fused_name(name, model_type)
    if fused and fused in names:
        rows, columns = shape
        return Origin(fused, (parts * rows, columns), transposed, part, parts)
    return Origin(name, shape, transposed)


def fused_name(name: str, model_type: str) -> tuple[str | None, int, int]:
    """Return the matrix that may hold a tensor of theirs together with others, the number of its part, and of how many.

    Return (None, 0, 1) for a tensor that is always stored alone.
    """
    layer, _, last = name.removesuffix(".weight").rpartition(".")
    for family in FAMILIES.values():
        fused = family.published.fused.items() if family.model_type == model_type else ()
        for matrix, members in fused:
            if last in members:
                return f"{layer}.{matrix}.weight", members.index(last), len(members)
    return None, 0, 1


# ---- weights


@dataclass(frozen=True)
class Conversion:
    """One parameter of ours and the tensor it is made of.

    Attributes:
        unit_rows: Each row of the tensor divided by its length.
    """

    parameter: Parameter
    origin: Origin
    stored: StoredTensor
    unit_rows: bool


def plan(config: dict, stored: Mapping[str, StoredTensor], unit_head: bool) -> list[Conversion]:
    """Return what each parameter of a model with our `config` is made of.

    Args:
        stored: All tensors of the files.
        config: Ours.
        unit_head: See launch.weights.conversion.has_unit_head.

    Raises:
        UserError: With the names of all tensors that are missing, unknown, or of another shape or no floats.
    """
    expected = [(parameter, origin(parameter, config["model_type"], stored)) for parameter in parameters(config)]
    misfits = _misfits(stored, expected, left_out(stored, config["model_type"]))
    if misfits.extra == {TIED_HEAD} and config.get("tie_word_embeddings") and not misfits.missing | misfits.different:
        raise _untied(stored, next(place.name for item, place in expected if item.kind == WORD))
    if misfits:
        raise UserError(f"the weights are not those of their config.json: {misfits}")
    return [
        Conversion(parameter, place, stored[place.name], unit_head and parameter.kind == HEAD)
        for parameter, place in expected
    ]


def _untied(stored: Mapping[str, StoredTensor], word: str) -> UserError:
    """Return the error of a tied configuration whose files have a head of their own."""
    pair = stored[TIED_HEAD], stored[word]
    if pair[0].shape != pair[1].shape:
        difference = f"has shape {list(pair[0].shape)}, not {list(pair[1].shape)}"
    else:
        head, words = (tensor.open() for tensor in pair)
        step = rows_at_once(head)
        starts = range(0, len(head), step)
        count = sum(np.count_nonzero(head[at : at + step] != words[at : at + step]) for at in starts)
        difference = f"differs from it in {count:,} of {head.size:,} values"
    return UserError(
        f"config.json: tie_word_embeddings: found true, which makes {word} the head, but {TIED_HEAD} {difference}. Set "
        "it to false to keep the head, or remove the tensor to use the embeddings."
    )


def left_out(names: Collection[str], model_type: str) -> list[str]:
    """Return the names of the tensors of a published model that its family has no use for, in their order."""
    pattern = family_of(model_type).published.left_out
    return sorted(name for name in names if pattern and re.match(pattern, name))


def _misfits(
    stored: Mapping[str, StoredTensor], expected: list[tuple[Parameter, Origin]], left_out: Collection[str]
) -> Misfits:
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
    used = {place.name for _, place in expected} | set(left_out)
    misfits.extra |= {name for name in stored if name not in used and not is_computed(name)}
    word = next(place.name for parameter, place in expected if parameter.kind == WORD)
    has_head = any(parameter.kind == HEAD for parameter, _ in expected)
    if not has_head and TIED_HEAD in misfits.extra and word in stored and same_bytes(stored[TIED_HEAD], stored[word]):
        misfits.extra.remove(TIED_HEAD)
    return misfits


def same_bytes(a: Weight, b: Weight) -> bool:
    """Return whether two tensors have the same bytes, compared piece by piece."""
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return False
    first, second = a.open(), b.open()
    step = rows_at_once(first)
    return all(np.array_equal(first[i : i + step], second[i : i + step]) for i in range(0, len(first), step))


def new_tensor(conversion: Conversion, dtype: str | None) -> NewTensor:
    """Return the tensor to be written, in `dtype`; None: in the stored dtype."""
    dtype = dtype or conversion.stored.dtype
    return NewTensor(conversion.parameter.name, dtype, conversion.parameter.shape, partial(_pieces, conversion, dtype))


def _pieces(conversion: Conversion, dtype: str) -> Iterator[np.ndarray]:
    """Yield rows of our tensor. Raises UserError where a value is too large for float16."""
    place, found = conversion.origin, conversion.stored.dtype
    whole = conversion.stored.open()
    rows = len(whole) // place.parts
    source = whole[place.part * rows : (place.part + 1) * rows]
    scale = None  # the Euclidean length of each row of a head, by which our columns are divided
    if conversion.unit_rows:
        step = rows_at_once(source)
        pieces = [convert(source[i : i + step], found, "float32") for i in range(0, len(source), step)]
        scale = np.concatenate([np.linalg.norm(piece, axis=1) for piece in pieces]).clip(min=1e-12)
    ours = source.T if place.transposed else source
    step = rows_at_once(ours)
    for start in range(0, len(ours), step):
        piece, now = np.ascontiguousarray(ours[start : start + step]), found
        if scale is not None:
            piece, now = convert(piece, found, "float32") / scale, "float32"
        yield converted(place.name, piece, now, dtype)


def converted(name: str, piece: np.ndarray, found: str, requested: str) -> np.ndarray:
    """Return rows of the tensor `name` in another dtype.

    Raises:
        UserError: If a value is too large for float16.
    """
    try:
        return convert(piece, found, requested)
    except OverflowError as error:
        raise UserError(
            f"{name}: a value of {error.args[0]:.3g} is too large for {requested}; --dtype bfloat16 or float32."
        ) from None


def rows_at_once(array: np.ndarray) -> int:
    """Return the number of rows in about PIECE_BYTES."""
    return max(1, PIECE_BYTES // max(1, array[:1].nbytes))


# ---- config.json


def our_config(theirs: dict, path: str) -> dict:
    """Return our configuration from the values of a Hugging Face config.json.

    Args:
        path: Of the file, for messages.
        theirs: The values.

    Raises:
        UserError: For a model of an unknown family, or with a setting that the family does not support here.
    """
    check_values(theirs, path)
    published = _published(theirs)
    if published is None:
        allowed = ", ".join(sorted({family.published.model_type for family in FAMILIES.values()}))
        raise UserError(f"{path}: model_type: found {theirs.get('model_type')!r}, allowed: {allowed}.")
    config = published.read_config(Values(theirs, path))
    if gives_scores(theirs):
        config = _reward_config(config, theirs, path)
    tokens = {key: theirs[key] for key in TOKENS if theirs.get(key) is not None}
    config |= {key: value[0] if isinstance(value, list) and key != ENDS else value for key, value in tokens.items()}
    check_config(config, path)
    return config


def _reward_config(config: dict, theirs: dict, path: str) -> dict:
    """Return the configuration of a reward model.

    Raises UserError for more than one score, or a family without them.
    """
    labels = len(theirs.get("id2label") or {}) or theirs.get("num_labels", 2)  # transformers' own default
    if labels != 1:
        raise UserError(f"{path}: id2label: found {labels} labels, allowed: 1: a reward model gives one score.")
    if not family_of_config(config).reward_models:
        raise UserError(
            f"{path}: architectures: found {theirs['architectures'][0]!r}; reward models can be of "
            f"{', '.join(family.title for family in FAMILIES.values() if family.reward_models)}."
        )
    return as_reward_model(config)


def has_unit_head(theirs: dict) -> bool:
    """Return whether the head's rows are divided by their lengths when the model runs."""
    published = _published(theirs)
    return published is not None and published.unit_head(theirs)


def their_config(ours: dict, dtype: str) -> dict:
    """Return the values of a Hugging Face config.json. dtype: of the weights."""
    tokens = {key: ours[key] for key in TOKENS if ours.get(key) is not None}
    theirs = family_of_config(ours).published.write_config(ours) | tokens | {"torch_dtype": dtype}
    return as_reward_model(theirs) if gives_scores(ours) else theirs


def _published(theirs: dict) -> HuggingFace | None:
    """Return the family's published models for a config.json; None where no family of ours reads it."""
    candidates = (family.published for family in FAMILIES.values())
    return next(
        (each for each in candidates if each.model_type == theirs.get("model_type") and each.recognizes(theirs)), None
    )
