"""Tiny models of all families on forked ranks, for test_families.py and others. A call does many in one process."""

import json

import numpy as np
import paddle
import paddlenlp.transformers as transformers
from paddle.distributed import fleet

from launch.families.encoding import prefix_lm_mask, prefix_lm_positions
from launch.families.named_configs import load_config
from launch.families.registry import FAMILIES, Family
from launch.upstream import correct

SAMPLES, LENGTH, PROMPT, VOCABULARY = 32, 16, 6, 256
MASK_POSITION = PROMPT - 1
ANSWER_TOKEN, MASK_TOKEN = 1, 2  # the other tokens of samples are from 3 on
NEW_TOKENS = 8
WITHOUT_DROPOUT = {
    name: 0.0
    for name in (
        "embedding_dropout_prob",
        "attention_dropout_prob",
        "output_dropout_prob",
        "hidden_dropout_prob",
        "attention_probs_dropout_prob",
    )
}


def tiny(name: str, **changes):
    """A family's rehearsal configuration, smaller still and without dropout, with its corrections made."""
    family = FAMILIES[name]
    correct()
    correct(family.corrections)
    config = getattr(transformers, family.config_class)(**load_config(family.rehearsal_config))
    settings = {
        "vocab_size": VOCABULARY,
        "num_hidden_layers": 2,
        "n_layer": 2,
        "seq_length": LENGTH,
        "use_cache": False,
        "bos_token_id": ANSWER_TOKEN,
        "gmask_token_id": MASK_TOKEN,
        "fuse_attention_qkv": False,
        "use_fused_rms_norm": False,
    }
    for key, value in (settings | WITHOUT_DROPOUT | changes).items():
        setattr(config, key, value)
    return config


def build(name: str, config, pipeline: bool = False, dtype: str = "float32"):
    """The model on random weights."""
    family = FAMILIES[name]
    paddle.seed(1)
    return getattr(transformers, family.pipeline_class if pipeline else family.model_class)._from_config(
        config, dtype=dtype
    )


def batch(family: Family, samples: int = SAMPLES, length: int = LENGTH) -> dict:
    """Random samples: prompt and answer, the loss on all that the family learns from; labels are shifted."""
    ids = np.random.default_rng(0).integers(3, VOCABULARY, size=(samples, length + 1))
    inputs, labels = ids[:, :-1], ids[:, 1:].copy()
    arrays = {"input_ids": inputs, "labels": labels}
    if family.attention == "prefix":
        inputs[:, MASK_POSITION], inputs[:, PROMPT] = MASK_TOKEN, ANSWER_TOKEN
        labels[:, :PROMPT] = -100
        arrays |= prefix_inputs(family, samples, length)
    return {key: paddle.to_tensor(value) for key, value in arrays.items()}


def prefix_inputs(family: Family, samples: int, length: int) -> dict:
    mask = np.tile(prefix_lm_mask(length, PROMPT), (samples, 1, 1, 1))
    positions = np.tile(prefix_lm_positions(length, PROMPT, MASK_POSITION), (samples, 1, 1))
    return {"attention_mask": mask.astype(family.mask_dtype), "position_ids": positions}


def in_float32_under_o2(name: str) -> list[str]:
    """Return the parameters that stay in float32 when a run casts the model to bfloat16."""
    from paddle.amp.auto_cast import amp_initialize

    from launch.training.trainer import Trainer

    model = build(name, tiny(name))
    kept = Trainer._decorate_exclude_layers(None, model)  # pyright: ignore[reportArgumentType]  # reads no attribute
    amp_initialize(models=[model], dtype="bfloat16", excluded_layers=kept)
    return [key for key, parameter in model.named_parameters() if parameter.dtype == paddle.float32]


def overfit(name: str, steps: int) -> list[float]:
    """Losses of training on the same 32 samples, the first before any step."""
    model = build(name, tiny(name))
    return train(model, batch(FAMILIES[name]), model.parameters(), learning_rate=5e-3, steps=steps)


def train(model, inputs: dict, parameters: list, learning_rate: float, steps: int) -> list[float]:
    optimizer = paddle.optimizer.AdamW(learning_rate, parameters=parameters, weight_decay=0.0)
    losses = []
    for _ in range(steps):
        loss = model(**inputs)[0]
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        losses.append(float(loss))
    return losses


def save_all(names: list[str], directory: str) -> None:
    for name in names:
        with_large_weights(name).save_pretrained(f"{directory}/{name}", safe_serialization=True)


def with_large_weights(name: str, **changes):
    """A model with weights so large that each token's successor depends on all before it, and no vector at rest."""
    model = build(name, tiny(name, **changes))
    times = 16 if name == "bloom" else 4  # its embeddings have a norm, and would outweigh what layers add to them
    for parameter in model.parameters():
        if len(parameter.shape) == 1:
            parameter.set_value(parameter + 0.1 * paddle.randn(parameter.shape))
        elif parameter.shape[0] != VOCABULARY:
            parameter.set_value(times * parameter)
    return model


def start_fleet(**degrees: int) -> None:
    """Hybrid parallel as the Trainer starts it; on one process all degrees are 1."""
    from launch.rehearsal.collectives import install

    if paddle.distributed.get_world_size() > 1:
        install()
    paddle.set_device("cpu")
    strategy = fleet.DistributedStrategy()
    strategy.hybrid_configs = {"dp_degree": 1, **degrees}
    fleet.init(is_collective=True, strategy=strategy)
    if degrees.get("mp_degree", 1) > 1:
        fleet.meta_parallel.model_parallel_random_seed(1)


TWO_PROCESSES = {  # feature: what it changes in the configuration; flash attention for the slopes of a rank's own heads
    "tensor_parallel": {},
    "sequence_parallel": {"sequence_parallel": True},
    "flash_attention": {"use_flash_attention": True},
}


def single(names: list[str], directory: str) -> dict[str, dict]:
    """Return what one process finds of each family's saved model, and of a new one."""
    start_fleet(mp_degree=1)
    found = {}
    for name in names:
        lacking, fresh = FAMILIES[name].lacking, build(name, tiny(name))
        found[name] = {
            "plain": _numbers(name, f"{directory}/{name}", 1, {}),
            "parameters": {key: parameter.shape for key, parameter in fresh.named_parameters()},
            "first loss": float(fresh(**batch(FAMILIES[name]))[0]),
        }
        if "recompute" not in lacking:
            found[name]["recompute"] = _numbers(name, f"{directory}/{name}", 1, {"recompute": True})
        if "packing" not in lacking:
            found[name]["packed"] = _packed(name, f"{directory}/{name}")
    return found


def divided(names: list[str], directory: str) -> dict[str, dict]:
    """Return the same numbers of each family's saved model on two processes, by the feature that is on."""
    start_fleet(mp_degree=2)
    return {
        name: {
            feature: _numbers(name, f"{directory}/{name}", 2, changes)
            for feature, changes in TWO_PROCESSES.items()
            if feature not in FAMILIES[name].lacking
        }
        for name in names
    }


def _numbers(name: str, directory: str, tensor_parallel: int, changes: dict) -> dict:
    """Loss, norm of the gradient and greedy continuation of a saved model."""
    model = load(name, directory, tensor_parallel, **changes)
    if changes.get("recompute"):
        model.recompute_enable()
    numbers = loss_and_grad_norm(model, FAMILIES[name], tensor_parallel)
    if not model.config.sequence_parallel:
        numbers["tokens"] = _continuation(FAMILIES[name], model)
    return numbers


def load(name: str, directory: str, tensor_parallel: int, **changes):
    """This rank's part of a saved model."""
    config = tiny(
        name,
        tensor_parallel_degree=tensor_parallel,
        tensor_parallel_rank=max(paddle.distributed.get_rank(), 0),
        tensor_parallel_output=True,
        **changes,
    )
    model_class = getattr(transformers, FAMILIES[name].model_class)
    return model_class.from_pretrained(directory, config=config, dtype="float32")


def loss_and_grad_norm(model, family: Family, tensor_parallel: int) -> dict[str, float]:
    """Of four samples, over all ranks."""
    model.train()
    loss = model(**batch(family, samples=4))[0]
    loss.backward()
    return {"loss": float(loss), "grad_norm": grad_norm(model, tensor_parallel)}


def grad_norm(model, tensor_parallel: int) -> float:
    """Of the whole model: divided parameters of all ranks, whole ones once."""
    divided = whole = 0.0
    for parameter in model.parameters():
        if parameter.grad is None:
            continue
        square = float((parameter.grad.astype("float64") ** 2).sum())
        if parameter.is_distributed:
            divided += square
        elif getattr(parameter, "sequence_parallel", False):
            group = fleet.get_hybrid_communicate_group().get_model_parallel_group()
            total = parameter.grad.clone()
            paddle.distributed.all_reduce(total, group=group)
            whole += float((total.astype("float64") ** 2).sum())
        else:
            whole += square
    if tensor_parallel > 1:
        total = paddle.to_tensor([divided], dtype="float64")
        paddle.distributed.all_reduce(total)
        divided = float(total[0])
    return (divided + whole) ** 0.5


def _continuation(family: Family, model) -> list[list[int]]:
    """Greedy, of two prompts, without an end before NEW_TOKENS."""
    model.eval()
    prompts = batch(family, samples=2)["input_ids"][:, : PROMPT + 1]
    inputs = {"input_ids": prompts}
    if family.attention == "prefix":
        length = PROMPT + 1 + (NEW_TOKENS if family.name == "glm" else 0)  # GLM wants those of the answer at once
        arrays = prefix_inputs(family, 2, length)
        inputs |= {key: paddle.to_tensor(value) for key, value in arrays.items()}
    tokens, _ = model.generate(
        **inputs,
        max_new_tokens=NEW_TOKENS,
        decode_strategy="greedy_search",
        eos_token_id=VOCABULARY + 1,
        pad_token_id=0,
    )
    return tokens.tolist()


def with_lora(model, rank: int):
    """Adapters on all linear layers, nothing else trained."""
    from paddlenlp.peft import LoRAConfig, LoRAModel

    from launch.families.lora_targets import lora_targets

    targets = [rf".*\.{layer}" for layer in lora_targets(model.config.to_dict(), [])]
    config = LoRAConfig(target_modules=targets, r=rank, lora_alpha=2 * rank, dtype="float32")
    return LoRAModel(model, config)


def _packed(name: str, directory: str) -> list[float]:
    """Two samples in one row, kept apart by mask and positions: largest difference of the logits of each to its own."""
    model = load(name, directory, tensor_parallel=1)
    model.eval()
    half = LENGTH // 2
    ids = batch(FAMILIES[name], samples=1)["input_ids"]
    mask = paddle.zeros([1, 1, LENGTH, LENGTH], dtype="bool")
    mask[:, :, :half, :half] = mask[:, :, half:, half:] = paddle.tril(paddle.ones([half, half])).astype("bool")
    positions = paddle.concat([paddle.arange(half)] * 2).unsqueeze(0)
    with paddle.no_grad():
        together = model(ids, attention_mask=mask, position_ids=positions, return_dict=True).logits
        apart = [model(part, return_dict=True).logits for part in (ids[:, :half], ids[:, half:])]
    return [float((together[:, i * half : (i + 1) * half] - apart[i]).abs().max()) for i in (0, 1)]


def configurations_as_written() -> dict[str, dict]:
    """What paddlenlp writes of each configuration of ours into config.json, by its file's name."""
    from launch.families.named_configs import CONFIGS, read_config
    from launch.training.model import family_config

    values = {path.stem: read_config(path, "a model") for path in sorted(CONFIGS.glob("*.json"))}
    return {name: json.loads(family_config(one).to_json_string(use_diff=False)) for name, one in values.items()}
