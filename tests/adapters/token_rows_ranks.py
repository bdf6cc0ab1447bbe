"""The Paddle side of test_token_rows.py."""

import operator
from types import SimpleNamespace

import numpy as np
import paddle

from launch.adapters.adapter_files import load_adapter, save_adapter
from launch.adapters.add import add_lora
from launch.adapters.lora_rows import runs_alone
from launch.families.parameters import WORD
from launch.families.registry import FAMILIES, parameters
from launch.training.arguments import AdapterArguments
from launch.training.chunked_loss import Chunks, chunk_loss
from tests.families import family_ranks

IDS = [250, 7, 31]
LAYOUT = SimpleNamespace(
    tensor_parallel_rank=0, dataset_rank=0, pipeline_parallel_rank=0, pipeline_parallel_degree=1, process_index=0
)


def against_whole_weights(names: list[str], directory: str) -> dict[str, dict]:
    """Return what differs between trained rows and a base whose weights hold them, by the family."""
    return {name: _compared(name, directory) for name in names}


def _compared(name: str, directory: str) -> dict[str, float]:
    """Largest differences, relative to the largest number: of losses, of the rows' gradients, of logits of the loaded
    adapter, of the losses of the base where the adapter is off, and of the base's weight once it is loaded."""
    family = FAMILIES[name]
    inputs = family_ranks.batch(family, samples=4)
    labels = inputs.pop("labels")
    labels[0, 0] = IDS[0]
    inputs["input_ids"][0, 1], inputs["input_ids"][1, 3] = IDS[0], IDS[1]
    word = next(one for one in parameters(family_ranks.tiny(name).to_dict()) if one.kind == WORD)

    def made(rows: list[int] | None):
        model = family_ranks.build(name, family_ranks.tiny(name))
        words = operator.attrgetter(word.name.removesuffix(".weight"))(model)
        words.register_forward_post_hook(lambda layer, _, found: found + 0.1 * layer.training)  # in NEFTune's place
        model.train()
        chunk_loss(model, family, Chunks(11, 64), False)
        flags = AdapterArguments(lora=True, lora_rank=2, trainable_token_indices=rows)
        return add_lora(model, SimpleNamespace(model_name_or_path="tiny"), flags, seed=1)

    def losses(lora) -> paddle.Tensor:
        head = next(layer for layer in lora.model.sublayers() if hasattr(layer, "chunks"))
        with head.of(labels):
            outputs = lora(**inputs)
        return outputs[0] if isinstance(outputs, tuple) else outputs

    ours, reference = made(IDS), made(None)
    base = losses(reference).numpy()
    mine = {key: value for key, value in ours.model.state_dict().items() if key.endswith("token_rows")}
    assert not any(value.stop_gradient for value in mine.values())
    theirs = {key: reference.model.state_dict()[f"{key.removesuffix('token_rows')}weight"] for key in mine}
    draw = np.random.default_rng(3)
    for key, rows in mine.items():
        axis = 1 if theirs[key].shape[1] == family_ranks.VOCABULARY else 0
        rows.set_value(0.3 * draw.normal(size=rows.shape).astype("float32"))
        weight = theirs[key].numpy()
        np.moveaxis(weight, axis, 0)[IDS] = rows.numpy()
        theirs[key].set_value(weight)
        theirs[key].stop_gradient = False
    found = {"loss": _off(losses(ours), losses(reference))}
    losses(ours).mean().backward()
    losses(reference).mean().backward()
    gradients = {
        key: whole.grad.index_select(paddle.to_tensor(IDS), axis=int(whole.shape[1] == family_ranks.VOCABULARY))
        for key, whole in theirs.items()
    }
    turned = {key: one if one.shape[0] == len(IDS) else one.t() for key, one in gradients.items()}
    found["gradient"] = max(_off(mine[key].grad, turned[key]) for key in mine)
    b = {key: value for key, value in ours.model.state_dict().items() if key.endswith("lora_B")}
    found["gradient of B"] = max(_off(value.grad, reference.model.state_dict()[key].grad) for key, value in b.items())
    ours.disable_lora()
    found["off"] = _off(losses(ours), base)
    ours.enable_lora()
    ours.eval()
    save_adapter(ours, f"{directory}/{name}", LAYOUT)
    served = family_ranks.build(name, family_ranks.tiny(name))
    shared = operator.attrgetter(word.name)(served)  # perhaps with models of other adapters
    before = shared.numpy()
    loaded = load_adapter(served, f"{directory}/{name}")
    loaded.eval()
    found["shared"] = _off(shared, before)
    assert runs_alone(loaded)
    with paddle.no_grad():
        outputs = [one(**inputs) for one in (ours, loaded)]
    found["logits"] = _off(*(one[0] if isinstance(one, tuple) else one for one in outputs))
    return found


def _off(one, other) -> float:
    one, other = (np.asarray(value.numpy() if hasattr(value, "numpy") else value) for value in (one, other))
    return float(np.abs(one - other).max() / np.abs(other).max())
