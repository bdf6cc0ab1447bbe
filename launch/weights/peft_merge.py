"""What an adapter of PEFT changes beside its layers, and the model that base and adapter make together.

An adapter here changes linear layers and rows of tokens while a model runs, so one with more is merged when it is
imported, by PEFT's own arithmetic: modules_to_save, and trainable_token_indices that differ from layer to layer.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from launch.adapters.lora_files import TOKEN_ROWS, LoraFiles
from launch.checkpoint.stored_tensor import StoredTensor, convert
from launch.errors import UserError
from launch.families.named_configs import load_config
from launch.families.parameters import HEAD, WORD, Parameter
from launch.families.registry import parameters, their_name
from launch.weights.conversion import TIED_HEAD, origin, same_bytes

PREFIX = "base_model.model."
ROWS = ".token_adapter.trainable_tokens_delta"


@dataclass(frozen=True)
class TurnedTensor(StoredTensor):
    """A matrix of a file whose rows are our columns. shape: ours."""

    def open(self) -> np.ndarray:
        """Return a view of the file, turned."""
        return StoredTensor(self.path, self.dtype, self.shape[::-1], self.offset).open().T


@dataclass(frozen=True)
class BeyondLora:
    """What is changed beside linear layers with adapters, by the names of our tensors.

    Attributes:
        whole: Tensors that replace the base's.
        rows: Ids of tokens, and the rows of the embeddings or columns of the head that replace theirs.
        transposed: Names of tensors that lie the other way here.
        vocabulary: Tokens of the merged model where they are others than the base's.
    """

    whole: dict[str, StoredTensor] = field(default_factory=dict)
    rows: dict[str, tuple[list[int], StoredTensor]] = field(default_factory=dict)
    transposed: set[str] = field(default_factory=set)
    vocabulary: int | None = None

    def __bool__(self) -> bool:
        return bool(self.whole or self.rows)

    @property
    def same_ids(self) -> bool:
        """Whether all layers have rows of the same tokens, as in an adapter of ours."""
        ids = [ids for ids, _ in self.rows.values()]
        return all(one == ids[0] for one in ids)

    def replaced(self, name: str, start: int, rows: np.ndarray, dtype: str) -> np.ndarray:
        """Return rows of a tensor from `start` on, with what was trained in their place."""
        if name in self.rows:
            ids, trained = self.rows[name]
            values, rows = convert(trained.open(), trained.dtype, dtype), rows.copy()
            for number, token in enumerate(ids):
                if name in self.transposed:
                    rows[:, token] = values[number, start : start + len(rows)]
                elif start <= token < start + len(rows):
                    rows[token - start] = values[number]
        return rows


def rows_of(base: Path, lora: LoraFiles) -> BeyondLora:
    """Return the trained rows of tokens of an adapter of ours, for its merge into a base."""
    if not lora.rows:
        return BeyondLora()
    weights = {f"{name.removesuffix(TOKEN_ROWS)}weight": rows for name, rows in lora.rows.items()}
    heads = {parameter.name for parameter in parameters(load_config(str(base))) if parameter.kind == HEAD}
    return BeyondLora(rows={name: (lora.token_ids, rows) for name, rows in weights.items()}, transposed=heads)


def take_beyond(stored: dict[str, StoredTensor], theirs: dict, config: dict, expected: list[Parameter]) -> BeyondLora:
    """Take the tensors that are no A, B and magnitude out of an adapter's.

    Args:
        stored: The adapter's tensors; what is left are those of layers, and what nothing here knows.
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
        is_vocabulary = parameter.kind in (WORD, HEAD)
        # PEFT writes embeddings and head of a model with other tokens without modules_to_save, too.
        whole = stored.pop(f"{PREFIX}{name}", None) if is_vocabulary or _is_saved(theirs, name) else None
        rows = stored.pop(f"{PREFIX}{module}{ROWS}", None) if is_vocabulary else None
        place = origin(parameter, model_type, [name])
        if place.transposed:
            beyond.transposed.add(parameter.name)
        if whole:
            copy = stored.get(f"{PREFIX}{module}.modules_to_save.weight")
            if copy and same_bytes(copy, whole):  # beside a model with other tokens PEFT writes both layers again
                del stored[f"{PREFIX}{module}.modules_to_save.weight"]
                stored.pop(f"{PREFIX}{module}.original_module.weight", None)
            tokens = whole.shape[:1] if is_vocabulary else place.shape[:1]
            _require(name, whole, (*tokens, *place.shape[1:]))
            if place.transposed:
                whole = TurnedTensor(whole.path, whole.dtype, whole.shape[::-1], whole.offset)
            beyond.whole[parameter.name] = whole
        if rows:
            ids = _token_ids(theirs.get("trainable_token_indices"), module, place.shape[0])
            _require(name, rows, (len(ids), place.shape[1]))
            beyond.rows[parameter.name] = (ids, rows)
    return replace(beyond, vocabulary=_vocabulary(beyond, stored, theirs, config, expected))


def _vocabulary(
    beyond: BeyondLora, stored: dict[str, StoredTensor], theirs: dict, config: dict, expected: list[Parameter]
) -> int | None:
    """Return the number of tokens where it changes. It takes a head that is the tied embeddings out of `stored`."""
    word = next(parameter for parameter in expected if parameter.kind == WORD)
    head = next((parameter.name for parameter in expected if parameter.kind == HEAD), None)
    trained = beyond.whole.get(word.name)
    if head is None and trained:
        if _is_saved(theirs, their_name(word.name, config["model_type"])) and not theirs.get("ensure_weight_tying"):
            raise UserError(
                "modules_to_save: found the embeddings of a base whose head is tied to them, without "
                "ensure_weight_tying: PEFT trains the embeddings and leaves the head. Merge it with PEFT, then import "
                "the model."
            )
        copy = stored.get(f"{PREFIX}{TIED_HEAD}")
        if copy and same_bytes(copy, trained):
            del stored[f"{PREFIX}{TIED_HEAD}"]
    base = word.shape[0]
    tokens = trained.shape[0] if trained else base
    if head and (beyond.whole[head].shape[-1] if head in beyond.whole else base) != tokens:
        raise UserError(
            f"modules_to_save: found embeddings of {tokens:,} tokens, and a head of another number. The adapter must "
            "have both, as the model with its new tokens."
        )
    return tokens if tokens != base else None


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
            f"{tensor.path}: a tensor for {name}: found {list(tensor.shape)}, expected {list(shape)} by the base."
        )
