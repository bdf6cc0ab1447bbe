"""What an adapter of PEFT has beside A and B, and the model that base and adapter make together.

Layers here have A and B alone while a model runs, so an adapter with more is merged when it is imported, by PEFT's own
arithmetic: DoRA's magnitudes (arXiv 2402.09353), modules_to_save and trainable_token_indices.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from launch.checkpoint.stored_tensor import StoredTensor, convert
from launch.errors import UserError
from launch.families.parameters import HEAD, WORD, Parameter
from launch.families.registry import their_name
from launch.weights.conversion import origin

PREFIX = "base_model.model."
MAGNITUDE, ROWS = ".lora_magnitude_vector", ".token_adapter.trainable_tokens_delta"


@dataclass(frozen=True)
class BeyondLora:
    """What is changed beside A B, by the names of our tensors.

    Attributes:
        magnitudes: Lengths of a weight's columns after the merge, DoRA's.
        whole: Tensors that replace the base's.
        rows: Ids of tokens, and the rows of the embeddings or columns of the head that replace theirs.
        transposed: Names of those whose tensors lie the other way here.
    """

    magnitudes: dict[str, StoredTensor] = field(default_factory=dict)
    whole: dict[str, StoredTensor] = field(default_factory=dict)
    rows: dict[str, tuple[list[int], StoredTensor]] = field(default_factory=dict)
    transposed: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.magnitudes or self.whole or self.rows)

    def factors(self, name: str, pieces: Iterator[np.ndarray]) -> np.ndarray | None:
        """Return what a weight's columns are multiplied by. pieces: rows of it with A B, in float32."""
        if name not in self.magnitudes:
            return None
        lengths = np.sqrt(sum(np.square(piece, dtype=np.float64).sum(axis=0) for piece in pieces))
        magnitude = self.magnitudes[name]
        return (convert(magnitude.open(), magnitude.dtype, "float32") / lengths).astype(np.float32)

    def replaced(self, name: str, start: int, rows: np.ndarray, dtype: str) -> np.ndarray:
        """Return rows of a tensor from `start` on, with what was trained in their place."""
        if name in self.whole:
            tensor = self.whole[name].open()
            found = (tensor.T if name in self.transposed else tensor)[start : start + len(rows)]
            return convert(np.ascontiguousarray(found), self.whole[name].dtype, dtype)
        if name in self.rows:
            ids, trained = self.rows[name]
            values, rows = convert(trained.open(), trained.dtype, dtype), rows.copy()
            for number, token in enumerate(ids):
                if name in self.transposed:
                    rows[:, token] = values[number, start : start + len(rows)]
                elif start <= token < start + len(rows):
                    rows[token - start] = values[number]
        return rows


def take_beyond(stored: dict[str, StoredTensor], theirs: dict, config: dict, expected: list[Parameter]) -> BeyondLora:
    """Take the tensors that are no A and B out of an adapter's.

    Args:
        stored: The adapter's tensors; what is left are pairs, and what nothing here knows.
        theirs: adapter_config.json.
        config: Of the base.
        expected: The base's parameters.

    Raises:
        UserError: If a tensor does not fit the base, or the configuration.
    """
    beyond, model_type = BeyondLora(), config["model_type"]
    for parameter in expected:
        name = their_name(parameter.name, model_type)
        module = name.removesuffix(".weight")
        magnitude = stored.pop(f"{PREFIX}{module}{MAGNITUDE}", None) if theirs.get("use_dora") else None
        whole = stored.pop(f"{PREFIX}{name}", None) if _is_saved(theirs, name) else None
        rows = stored.pop(f"{PREFIX}{module}{ROWS}", None) if parameter.kind in (WORD, HEAD) else None
        place = origin(parameter, model_type, [name])
        if place.transposed:
            beyond.transposed.add(parameter.name)
        if magnitude:
            _require(name, magnitude, place.shape[:1])
            beyond.magnitudes[parameter.name] = magnitude
        if whole:
            _require(name, whole, place.shape)
            beyond.whole[parameter.name] = whole
        if rows:
            ids = _token_ids(theirs["trainable_token_indices"], module, place.shape[0])
            _require(name, rows, (len(ids), place.shape[1]))
            beyond.rows[parameter.name] = (ids, rows)
    tied = not any(parameter.kind == HEAD for parameter in expected)
    words = {parameter.name for parameter in expected if parameter.kind == WORD}
    if tied and words & beyond.whole.keys() and not theirs.get("ensure_weight_tying"):
        raise UserError(
            "modules_to_save: found the embeddings of a base whose head is tied to them, without ensure_weight_tying: "
            "PEFT trains the embeddings and leaves the head. Merge it with PEFT, then import the model."
        )
    return beyond


def _is_saved(theirs: dict, name: str) -> bool:
    """Return whether modules_to_save names a module around a tensor: by the end of the module's name, as in PEFT."""
    parts = name.split(".")[:-1]
    modules = [".".join(parts[:count]) for count in range(1, len(parts) + 1)]
    return any(module.endswith(saved) for saved in theirs.get("modules_to_save") or [] for module in modules)


def _token_ids(indices: object, module: str, vocabulary: int) -> list[int]:
    if isinstance(indices, dict):
        indices = next((ids for name, ids in indices.items() if module.endswith(name)), None)
    if not isinstance(indices, list) or not all(type(one) is int and 0 <= one < vocabulary for one in indices):
        raise UserError(
            f"trainable_token_indices: found {indices!r} for {module}, allowed: a list of ids below {vocabulary:,}."
        )
    return indices


def _require(name: str, tensor: StoredTensor, shape: tuple[int, ...]) -> None:
    if tensor.shape != shape:
        raise UserError(
            f"{tensor.path}: a tensor for {name}: found {list(tensor.shape)}, expected {list(shape)} by the base. An "
            "adapter of a model with more tokens than its base is merged with PEFT, then imported."
        )
