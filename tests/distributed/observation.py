"""What a rank of a run really does, seen from inside. Imported in ranks only: it needs Paddle.

observation = Observation()      # before the model is built
main(argv)
observation.facts                # JSON
"""

import re
from collections import Counter
from pathlib import Path

from paddlenlp.transformers.llama import modeling

from launch.checkpoint.local_tensors import innermost
from launch.checkpoint.manifest import MANIFEST
from launch.training.trainer import Trainer


class Observation:
    """Counts the calls of LLaMA's blocks in training, and looks at the model when it is first saved.

    facts:
        calls              of decoder layers, attention blocks and their cores
        block_inputs       shapes of the activations that enter a decoder layer, each once
        layers             numbers of the decoder layers that this rank holds
        query_shape        of the first layer's query projection
        overlapping        linear layers whose gradients are summed over tensor parallel ranks beside a product
        elements           of parameters that this rank keeps between two steps
        state_elements     of first moments that this rank keeps
        manifests          how often each manifest was read: {"checkpoint-2": 2}
    """

    def __init__(self):
        self._training, self._calls, self._block_inputs, self._model = True, Counter(), set(), {}
        for owner, name in (
            (modeling.LlamaDecoderLayer, "forward"),
            (modeling.LlamaAttention, "forward"),
            (modeling, "scaled_dot_product_attention"),
        ):
            self._count(owner, name)
        upstream, read_text, self._manifests = Trainer.save_model, Path.read_text, Counter()

        def counted(path, *args, **kwargs):
            if path.name == MANIFEST:
                self._manifests[path.parent.name] += 1
            return read_text(path, *args, **kwargs)

        Path.read_text = counted

        def save_model(trainer, *args, **kwargs):
            self._model = self._model or describe(trainer)
            upstream(trainer, *args, **kwargs)

        Trainer.save_model = save_model

    @property
    def facts(self) -> dict:
        return {"calls": dict(self._calls), "block_inputs": sorted(self._block_inputs), **self._model} | {
            "manifests": dict(self._manifests)
        }

    def _count(self, owner, name: str) -> None:
        upstream = getattr(owner, name)
        kind = owner.__name__.rpartition(".")[2] if name == "forward" else name

        def counted(*args, **kwargs):
            if kind == "LlamaDecoderLayer":
                self._training = args[0].training  # what follows, up to the next decoder layer, is part of the same
                if self._training:
                    self._block_inputs.add(tuple(args[1].shape))
            self._calls[kind] += self._training
            return upstream(*args, **kwargs)

        setattr(owner, name, counted)


def _overlaps(layer) -> bool:
    words = ("mp_async_allreduce", "sp_async_reduce_scatter")
    return type(layer).__name__.startswith("Column") and any(getattr(layer, word, False) for word in words)


def describe(trainer) -> dict:
    tensors = trainer.model.state_dict()
    query = next(name for name in tensors if name.endswith("q_proj.weight"))
    kept = [getattr(parameter, "fw_storage", parameter) for parameter in trainer.model.parameters()]
    moments = innermost(trainer.optimizer)._accumulators.get("moment1", {}).values()
    return {
        "layers": sorted({int(found[1]) for name in tensors if (found := re.search(r"\.layers\.(\d+)\.", name))}),
        "query_shape": tensors[query].shape,
        "overlapping": sum(map(_overlaps, trainer.model.sublayers())),
        "elements": sum(int(tensor.size) for tensor in kept),
        "state_elements": sum(int(moment.size) for moment in moments),
    }


def observe():
    """Return what gives the facts of a run that begins now."""
    observation = Observation()
    return lambda: observation.facts
