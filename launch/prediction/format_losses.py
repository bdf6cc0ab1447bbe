"""What rounding a model's linear layers costs: the loss on dialogues, as it is and with codes of 8 or 4 bits.

Neither is ever whole in memory: the model as it is is read layer by layer in each forward pass, in float32, the others
weight by weight into their codes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import paddle
import paddlenlp.transformers as transformers

from launch.adapters.quantization import Format
from launch.adapters.quantized_layers import quantize_filled, use_quantized
from launch.checkpoint.model_loader import load_model, open_layerwise
from launch.families.named_configs import load_config
from launch.families.registry import Family, family_of_config
from launch.prediction.predictor import load_tokenizer
from launch.training.batches import collator
from launch.training.data import open_dialogues
from launch.training.losses import IGNORED, TokenLoss
from launch.training.model import family_config


@dataclass(frozen=True)
class FormatLoss:
    """The loss of one format.

    Attributes:
        name: Of the format.
        loss: In nats a token of the answers.
        line: Of the loading, "" for the model as it is.
    """

    name: str
    loss: float
    line: str = ""


def losses(
    model: Path, data: str, formats: list[Format], samples: int, lengths: tuple[int, int]
) -> Iterator[FormatLoss]:
    """Yield the row of the model as it is, then one row a format.

    Args:
        model: Its directory.
        data: As --dataset_name_or_path; its first `samples` to evaluate on.
        formats: To compare.
        samples: Number of samples.
        lengths: Tokens of a question and of a sample, at most.

    Raises:
        UserError, DataError: As training would.
    """
    config = family_config(load_config(str(model)))
    family = family_of_config(config.to_dict())
    batches = _batches(model, data, config, samples, lengths)
    yield FormatLoss("as it is", _loss(_open(family, model, None), batches))
    for format in formats:
        quantized = _open(family, model, format)
        line = use_quantized(quantized, format)
        yield FormatLoss(format.algo, _loss(quantized, batches), line)


def _open(family: Family, directory: Path, format: Format | None):
    config = family_config(load_config(str(directory)))
    model_class = getattr(transformers, family.model_class)
    if format is None:
        return open_layerwise(model_class, config, directory)
    model = load_model(model_class, config, "float32", directory, quantize_filled(family, format))
    model.eval()
    return model


def _batches(directory: Path, data: str, config, samples: int, lengths: tuple[int, int]) -> list[dict]:
    """Return batches of one sample each.

    Most samples have their own length, and the logits of one are the largest tensor.
    """
    src_length, max_length = lengths
    flags = SimpleNamespace(
        dataset_name_or_path=[data],
        prompt_column=None,
        response_column=None,
        chat_template=None,
        src_length=src_length,
        max_length=max_length,
        max_broken_rows=0,
        zero_padding=False,
        pad_to_multiple_of=1,
    )
    tokenizer = load_tokenizer(None, directory, str(directory))
    dataset = open_dialogues(flags, SimpleNamespace(do_train=False, do_eval=True), tokenizer, config).dev
    assert dataset is not None, "do_eval"
    collate = collator(config, tokenizer, flags, sequence_parallel=False)
    return [collate([dataset[number]]) for number in range(min(samples, len(dataset)))]


@paddle.no_grad()
def _loss(model, batches: list[dict]) -> float:
    """Return the mean loss over all tokens of the answers."""
    token_loss = TokenLoss(model.config.vocab_size)
    total = counted = 0
    for batch in batches:
        inputs = {key: paddle.to_tensor(array) for key, array in batch.items() if key != "labels"}
        outputs = model(**inputs)
        logits = outputs[0] if isinstance(outputs, tuple) else outputs
        total += float(token_loss(logits, paddle.to_tensor(batch["labels"])))
        counted += int(np.sum(batch["labels"] != IGNORED))
    return total / counted
