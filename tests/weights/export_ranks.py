"""The Paddle side of test_export_against_transformers.py."""

from types import SimpleNamespace

import numpy as np
import paddle
import paddlenlp.transformers as transformers

from launch.adapters.adapter_files import save_adapter
from launch.adapters.add import add_lora
from launch.checkpoint.model_loader import load_model
from launch.families.named_configs import load_config
from launch.families.registry import family_of_config
from launch.training.arguments import AdapterArguments
from launch.training.model import family_config
from launch.upstream import correct


def run(directories: list[str], adapters: list[list[str]], ids_file: str, new_tokens: int) -> None:
    """Write DIRECTORY.ours.npy, logits, and DIRECTORY.ours_greedy.npy beside each model; so for each [base, adapter],
    an adapter that is made here."""
    correct()
    ids = paddle.to_tensor(np.load(ids_file))
    for directory in directories:
        save(load(directory), ids, directory, new_tokens)
    for base, adapter in adapters:
        lora = with_lora(load(base), base)
        save_adapter(lora, adapter, SimpleNamespace(**PLACE))
        save(lora.model, ids, adapter, new_tokens)


PLACE = {
    "pipeline_parallel_degree": 1,
    "pipeline_parallel_rank": 0,
    "tensor_parallel_rank": 0,
    "dataset_rank": 0,
    "process_index": 0,
}


def load(directory: str):
    config = family_config(load_config(directory))
    family = family_of_config(config.to_dict())
    model = load_model(getattr(transformers, family.model_class), config, "float32", directory)
    model.eval()
    return model


def with_lora(model, base: str):
    """An adapter that changes something: its second factor starts as zeros."""
    arguments = AdapterArguments(lora_rank=4, lora_alpha=6)
    lora = add_lora(model, SimpleNamespace(model_name_or_path=base), arguments, seed=1)
    draw = np.random.RandomState(3)
    for name, parameter in lora.model.state_dict().items():
        if name.endswith("lora_B"):
            parameter.set_value(paddle.to_tensor(draw.normal(0, 0.1, parameter.shape).astype("float32")))
    lora.eval()
    return lora


def save(model, ids, target: str, new_tokens: int) -> None:
    ones = paddle.ones_like(ids)
    with paddle.no_grad():
        outputs = model(input_ids=ids, attention_mask=ones)
        lengths = {"max_new_tokens": new_tokens, "min_new_tokens": new_tokens}
        greedy, _ = model.generate(ids, attention_mask=ones, decode_strategy="greedy_search", **lengths)
    logits = outputs[0] if isinstance(outputs, tuple) else outputs
    np.save(f"{target}.ours.npy", logits.numpy())
    np.save(f"{target}.ours_greedy.npy", greedy.numpy())
