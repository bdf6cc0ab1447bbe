"""The Paddle side of test_export_against_transformers.py."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import paddle

from launch.adapters.adapter_files import save_adapter
from launch.adapters.add import add_lora
from launch.training.arguments import AdapterArguments
from launch.upstream import correct
from tests.weights.logits_ranks import load


def run(job: dict, folder: str) -> None:
    """Write NAME.logits.npy and NAME.greedy.npy beside each model of a folder and each adapter, which is made here, and
    NAME.training.json of some."""
    correct()
    ids = paddle.to_tensor(np.load(job["ids"]))
    for name in job["models"]:
        save(load(f"{folder}/{name}")[0], ids, f"{folder}/{name}", job["new_tokens"])
    for name in job["adapters"]:
        lora = with_lora(load(f"{folder}/{name}")[0], f"{folder}/{name}")
        save_adapter(lora, f"{folder}/{name}-lora", SimpleNamespace(**PLACE))
        save(lora.model, ids, f"{folder}/{name}-lora", job["new_tokens"])
    for name in job["trained"]:
        Path(f"{folder}/{name}.training.json").write_text(json.dumps(training(f"{folder}/{name}", ids.numpy())))


PLACE = {
    "pipeline_parallel_degree": 1,
    "pipeline_parallel_rank": 0,
    "tensor_parallel_rank": 0,
    "dataset_rank": 0,
    "process_index": 0,
}


def training(directory: str, ids: np.ndarray) -> dict:
    """The family, the loss with the auxiliary loss of experts, and the norm of each gradient."""
    model, family = load(directory, output_router_logits=True)
    labels = np.concatenate([ids[:, 1:], np.full_like(ids[:, :1], -100)], axis=1)
    model.train()
    loss = model(paddle.to_tensor(ids), labels=paddle.to_tensor(labels))[0]
    loss.backward()
    norms = {
        name: float(parameter.grad.norm()) for name, parameter in model.named_parameters() if parameter.grad is not None
    }
    return {"family": family.name, "loss": float(loss), "gradients": norms}


def with_lora(model, base: str):
    """An adapter that changes something: its second factor starts as zeros."""
    arguments = AdapterArguments(lora_rank=4, lora_alpha=6)
    lora = add_lora(model, SimpleNamespace(model_name_or_path=base), arguments, seed=1)
    draw = np.random.RandomState(3)
    for name, parameter in lora.model.state_dict().items():
        if name.endswith("lora_B"):
            parameter.set_value(paddle.to_tensor(draw.normal(0, 0.1, parameter.shape).astype("float32")))
    return lora


def save(model, ids, target: str, new_tokens: int) -> None:
    model.eval()
    ones = paddle.ones_like(ids)
    with paddle.no_grad():
        outputs = model(input_ids=ids, attention_mask=ones)
        lengths = {"max_new_tokens": new_tokens, "min_new_tokens": new_tokens}
        greedy, _ = model.generate(ids, attention_mask=ones, decode_strategy="greedy_search", **lengths)
    logits = outputs[0] if isinstance(outputs, tuple) else outputs
    np.save(f"{target}.logits.npy", logits.numpy())
    np.save(f"{target}.greedy.npy", greedy.numpy())
