"""The models of a server: one base, and adapters by name that share its weights.

models = load_models("llama-7b", "models/llama-7b", {"poems": Path("checkpoints/poems")})
models["poems"].answer(rows)
"""

import copy
from dataclasses import dataclass
from pathlib import Path

from launch.adapters.files import load_adapter
from launch.adapters.quantized.base import use_quantized
from launch.adapters.quantized.quantization import Format
from launch.checkpoint.read import without_values
from launch.generation.stream import decode
from launch.prediction.predictor import Predictor, load_predictor, load_tokenizer
from launch.serving.batching.batch import answer_rows
from launch.serving.batching.request import Row
from launch.serving.prompts import Prompts


@dataclass(frozen=True)
class Served:
    """A model under its name. description: for people."""

    name: str
    predictor: Predictor
    prompts: Prompts
    description: str

    def group(self, prompt: list[int]) -> tuple:
        """What rows must share to be in one batch: behind a prefix no padding can stand, so there the length, too."""
        behind_prefix = hasattr(self.predictor.model, "prefix_config")
        return (self.name, len(prompt)) if behind_prefix else (self.name,)

    @property
    def positions(self) -> float:
        """For a prompt and its answer together."""
        return self.predictor.positions

    def answer(self, rows: list[Row]) -> None:
        answer_rows(self.predictor, rows)

    def decode(self, ids: list[int]) -> str:
        return decode(self.predictor.tokenizer, ids)


def load_models(
    name: str,
    directory: str,
    adapters: dict[str, Path],
    dtype: str | None = None,
    chat_template: str | None = None,
    format: Format | None = None,
) -> dict[str, Served]:
    """The base under `name` and each adapter under its own. format: of the base's linear layers; None: as they are.

    Raises UserError where an adapter does not fit, or there is no tokenizer.
    """
    base = load_predictor(directory, None, dtype, format)
    predictors = {name: base} | {adapter: _adapted(base, path, directory) for adapter, path in adapters.items()}
    for predictor in predictors.values() if format else ():
        use_quantized(predictor.model, format)
    places = {name: directory} | adapters
    served = {}
    for one, predictor in predictors.items():
        prompts = Prompts(predictor, chat_template)
        prompts.prepare()
        served[one] = Served(one, predictor, prompts, f"{places[one]}: {_kind(predictor)}; {prompts.template_line}")
    return served


def _adapted(base: Predictor, adapter: Path, directory: str) -> Predictor:
    model = load_adapter(_twin(base.model), adapter)
    model.eval()
    return Predictor(model, base.family, load_tokenizer(adapter, directory, directory), base.config)


def _twin(model):
    """Another model with the same parameters, for an adapter of its own."""
    twin = without_values(type(model), copy.deepcopy(model.config), str(model.config.dtype))
    layers = zip(twin.sublayers(include_self=True), model.sublayers(include_self=True), strict=True)
    for mine, theirs in layers:
        mine._parameters.update(theirs._parameters)
        mine._buffers.update(theirs._buffers)
    return twin


def _kind(predictor: Predictor) -> str:
    if prefix := getattr(predictor.model, "prefix_config", None):
        return f"a prefix of {prefix.num_prefix_tokens}"
    if lora := getattr(predictor.model, "lora_config", None):
        return f"LoRA r {lora.r}"
    return f"{predictor.family.title}, {predictor.config.dtype}"
