"""Rows of the word embedding, and of an untied output layer, that are trained beside a LoRA: those of some tokens.

PEFT has them as trainable_token_indices. In training the frozen weights stay as they are: the embedding of such a token
is its trained row, and the output layer computes its logits and gradients beside those of the frozen weight
(ChunkedHead of launch/training/chunked_loss.py), without a copy or a gradient of the weight's size. A model that
answers gets the rows into a copy of the weights.
"""

import copy
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
from paddlenlp.peft import LoRAConfig, LoRAModel

from launch.adapters.lora_files import TOKEN_ROWS, LoraFiles
from launch.checkpoint.stored_tensor import convert
from launch.errors import UserError
from launch.families.parameters import HEAD, SCORE, WORD, gives_scores
from launch.families.registry import family_of_config, parameters


@dataclass
class RowsConfig(LoRAConfig):
    """The configuration of a LoRA with the ids of tokens whose rows are trained. Its file has them by PEFT's key."""

    trainable_token_indices: list[int] | None = None


@dataclass
class TrainedRows:
    """The trained rows of an output layer.

    Attributes:
        values: [ids, hidden].
        lora: A layer with an adapter: where it is switched off, as in a reference, the rows are, too.
    """

    values: paddle.Tensor
    ids: paddle.Tensor
    lora: Any

    @property
    def off(self) -> bool:
        """Whether the base computes alone."""
        return self.lora.disable_lora

    def replaced(self, logits: paddle.Tensor, inputs: paddle.Tensor) -> paddle.Tensor:
        """Return logits [..., vocabulary] of inputs [..., hidden] with those of the trained rows."""
        if not self.off:
            logits[..., self.ids] = paddle.matmul(inputs, self.values.astype(inputs.dtype), transpose_y=True)
        return logits


class RowProducts:
    """WeightProducts of launch/training/chunked_loss.py with trained rows in place of some of the weight's."""

    def __init__(self, frozen, rows: paddle.Tensor, ids: paddle.Tensor):
        self.frozen, self.rows, self.ids, self.weight = frozen, rows, ids, frozen.weight
        own = self.weight.index_select(ids, axis=0 if frozen.transposed else 1)
        self.added = rows - (own if frozen.transposed else own.t())

    def logits(self, inputs: paddle.Tensor) -> paddle.Tensor:
        """Return the logits of inputs [tokens, hidden]."""
        logits = self.frozen.logits(inputs)
        logits[:, self.ids] = paddle.matmul(inputs, self.rows, transpose_y=True)
        return logits

    def hidden(self, gradient: paddle.Tensor) -> paddle.Tensor:
        """Return the gradient of the inputs. gradient: of the logits."""
        return self.frozen.hidden(gradient) + paddle.matmul(gradient.index_select(self.ids, axis=1), self.added)


class RowsGradient:
    """The gradient of trained rows, summed over chunks in float32."""

    def __init__(self, products: RowProducts):
        self.products, self.sum = products, paddle.zeros(products.rows.shape, "float32")

    def add(self, inputs: paddle.Tensor, gradient: paddle.Tensor) -> None:
        """Add the gradient of a chunk. inputs: [tokens, hidden]; gradient: of the logits, [tokens, vocabulary]."""
        columns = gradient.index_select(self.products.ids, axis=1)
        self.sum.add_(paddle.matmul(columns, inputs, transpose_x=True).astype("float32"))

    def finish(self, factor: paddle.Tensor) -> paddle.Tensor:
        """Return the sum times a float32 scalar, in the dtype of the rows."""
        return self.sum.multiply_(factor).astype(self.products.rows.dtype)


@paddle.no_grad()
def add_rows(model, ids: Sequence[int]) -> None:
    """Give the layers of a model's vocabulary rows of tokens as parameters, which begin as the weight's own."""
    for _, layer, is_head in _layers(model):
        own = layer.weight.index_select(paddle.to_tensor(ids), axis=1 if is_head else 0)
        shape = [len(ids), model.config.hidden_size]
        rows = layer.create_parameter(shape, dtype=layer.weight.dtype)
        rows.set_value(own.t() if is_head else own)
        layer.add_parameter(TOKEN_ROWS, rows)


def use_rows(lora: LoRAModel, ids: Sequence[int]) -> None:
    """Let a model compute with the rows that add_rows gave it."""
    model = lora.model
    adapted = next(layer for layer in model.sublayers() if hasattr(layer, "lora_A"))
    layers = [layer for _, layer, _ in _layers(model)]
    places = np.full(model.config.vocab_size, -1)
    places[list(ids)] = range(len(ids))
    embedding = layers[0]
    hook = embedding.register_forward_post_hook(_looks_up(embedding.token_rows, paddle.to_tensor(places), adapted))
    embedding._forward_post_hooks.move_to_end(hook._hook_id, last=False)  # NEFTune's noise is added to the rows, too
    config = model.config.to_dict()
    if not gives_scores(config):
        head = operator.attrgetter(family_of_config(config).head.path)(model)
        head.trained_rows = TrainedRows(layers[-1].token_rows, paddle.to_tensor(ids), adapted)


def _looks_up(rows: paddle.Tensor, places: paddle.Tensor, adapted) -> Callable:
    """Return the hook that puts trained rows into embeddings. places: of each id in the rows, -1 where it has none."""

    def put(_, inputs, embeddings: paddle.Tensor) -> paddle.Tensor:
        if adapted.disable_lora:
            return embeddings
        place = places[inputs[0]]
        own = paddle.nn.functional.embedding(place.clip(min=0), rows).astype(embeddings.dtype)
        return paddle.where((place >= 0).unsqueeze(-1), own, embeddings)

    return put


def _layers(model) -> list[tuple[str, Any, bool]]:
    """Return path, layer and whether it is the output layer, of the word embedding and of an untied output layer."""
    tensors = (one for one in parameters(model.config.to_dict()) if one.kind in (WORD, HEAD) and one.name != SCORE)
    paths = [(one.name.removesuffix(".weight"), one.kind == HEAD) for one in tensors]
    return [(path, operator.attrgetter(path)(model), is_head) for path, is_head in paths]


@paddle.no_grad()
def write_rows(model, lora: LoraFiles) -> None:
    """Put the rows of an adapter's files into copies of the weights, for a model that is trained no more.

    The weights themselves may be shared with other models. Each rank of tensor parallelism has a part of the tokens.
    """
    for path, layer, is_head in _layers(model) if lora.rows else ():
        stored, axis = lora.rows.get(f"{path}.{TOKEN_ROWS}"), int(is_head)
        if stored is None:  # PEFT can train those of the embeddings alone
            continue
        if hasattr(layer, "packed") or hasattr(layer.weight, "packed"):
            raise UserError(
                "--quantize_head: found with an adapter that has rows of tokens. Leave it out, or make merge."
            )
        old = layer.weight
        weight = copy.deepcopy(old)
        here = weight.shape[axis]
        first = model.config.tensor_parallel_rank * here if here < model.config.vocab_size else 0
        mine = [number for number, token in enumerate(lora.token_ids) if first <= token < first + here]
        if mine:
            values = paddle.to_tensor(convert(stored.open(), stored.dtype, "float32")[mine]).astype(weight.dtype)
            ids = paddle.to_tensor([lora.token_ids[number] - first for number in mine])
            if is_head:
                weight[:, ids] = values.t()
            else:
                weight[ids] = values
        for other in model.sublayers():  # a tied output layer has the same weight
            for name, parameter in other._parameters.items():
                if parameter is old:
                    other._parameters[name] = weight
