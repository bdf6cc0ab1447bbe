"""Adapters on tiny models of all families on forked ranks, for test_family_adapters.py."""

from types import SimpleNamespace

import numpy as np
import paddle

from launch.adapters.adapter_files import load_adapter, save_adapter
from launch.adapters.add import add_lora, add_prefix
from launch.families.registry import FAMILIES
from launch.training.arguments import AdapterArguments
from tests.families import family_ranks

WIDE = 10
RATES = {"lora": 1e-2, "prefix": 0.6}


def with_adapter(model, kind: str, size: int):
    """size: rank of a LoRA or DoRA on all linear layers, tokens of a prefix."""
    flags = AdapterArguments(lora_rank=size, num_prefix_tokens=size, dora=kind == "dora")
    if kind != "prefix":
        return add_lora(model, SimpleNamespace(model_name_or_path="tiny"), flags, seed=1)
    return add_prefix(model, flags, seed=1)


def wide(name: str):
    """A family's model whose words lie ten times as far from each other as usual, so that its frozen head leaves room
    for a loss near 0."""
    model = family_ranks.build(name, family_ranks.tiny(name))
    for parameter in model.parameters():
        if family_ranks.VOCABULARY in parameter.shape and len(parameter.shape) == 2:
            parameter.set_value(WIDE * parameter)
    return model


def overfit_all(names: list[str], kind: str, size: int, steps: int) -> dict[str, dict]:
    """Training on 32 fixed samples, of one family after the other."""
    return {name: _overfit(name, kind, size, steps) for name in names}


def _overfit(name: str, kind: str, size: int, steps: int) -> dict:
    model, inputs = wide(name), family_ranks.batch(FAMILIES[name])
    model.train()
    base_loss = float(model(**inputs)[0])
    before = {key: tensor.numpy().copy() for key, tensor in model.state_dict().items()}
    adapter = with_adapter(model, kind, size)
    trained = [parameter for parameter in adapter.parameters() if not parameter.stop_gradient]
    losses = family_ranks.train(adapter, inputs, trained, RATES[kind], steps)
    after = adapter.model.state_dict()
    return {
        "base_loss": base_loss,
        "losses": losses,
        "trained": sum(int(np.prod(parameter.shape)) for parameter in trained),
        "changed": [key for key in before if not np.array_equal(before[key], after[key].numpy())],
    }


def numbers_all(
    names: list[str], kind: str, size: int, directory: str, tensor_parallel: int, to: str = ""
) -> dict[str, dict]:
    """Loss and norm of the adapter's gradient of each family's saved model, the adapter away from its beginning.

    to: where adapters are saved, as NAME-KIND-of-PROCESSES; beside the models where it is not given."""
    family_ranks.start_fleet(mp_degree=tensor_parallel)
    places = {name: (f"{directory}/{name}", f"{to or directory}/{name}-{kind}-of") for name in names}
    return {name: _numbers(name, kind, size, *places[name], tensor_parallel) for name in names}


def _numbers(name: str, kind: str, size: int, directory: str, saved: str, tensor_parallel: int) -> dict:
    """One process makes an adapter of its own and saves it; two load that, and save what they hold."""
    model = family_ranks.load(name, directory, tensor_parallel)
    if tensor_parallel == 1:
        paddle.seed(1)
        adapter = with_adapter(model, kind, size)
        for key, parameter in adapter.named_parameters():
            if key.endswith(("lora_B", "lora_magnitude")):
                parameter.set_value(0.05 * paddle.randn(parameter.shape))
            elif kind == "prefix" and not parameter.stop_gradient:
                parameter.set_value(30 * parameter)
    else:
        adapter = load_adapter(model, f"{saved}-1")
    save_adapter(adapter, f"{saved}-{tensor_parallel}", _arguments(tensor_parallel))
    return family_ranks.loss_and_grad_norm(adapter, FAMILIES[name], tensor_parallel)


def _arguments(tensor_parallel: int) -> SimpleNamespace:
    """What save_adapter asks of the layout."""
    rank = max(paddle.distributed.get_rank(), 0) if tensor_parallel > 1 else 0
    return SimpleNamespace(
        tensor_parallel_rank=rank, dataset_rank=0, pipeline_parallel_rank=0, pipeline_parallel_degree=1,
        process_index=rank,
    )  # fmt: skip
