"""Runs of run_reward, and the scores of its models, for test_run_reward.py."""

import json
from pathlib import Path

import numpy as np
import paddle

from tests.runs_ranks import train


def losses_of(scores: list) -> list[float]:
    """reward_losses of scores [chosen and rejected, pairs]."""
    from launch.training.reward_tuning import reward_losses

    return reward_losses(paddle.to_tensor(np.ravel(scores), dtype="float32")).tolist()


@paddle.no_grad()
def by_hand(base: str, data: str, output: str) -> list:
    """[pairs, (chosen, rejected)]: the scores of data by what a run has left, from the hidden states that the
    text model of paddlenlp has at the last token of each response, one sequence at a time."""
    from paddlenlp.transformers import AutoTokenizer, LlamaModel

    from launch.adapters.lora_files import read_lora
    from launch.checkpoint.weight_files import find_weights

    rows = [json.loads(line) for line in Path(data, "train.json").read_text().splitlines()]
    tokenizer = AutoTokenizer.from_pretrained(base)
    whole = not list(Path(output).glob("peft_model*"))
    model = LlamaModel.from_pretrained(output if whole else base, dtype="float32")
    model.eval()
    if whole:
        score = find_weights(output)["score.weight"].open()
    else:
        lora = read_lora(output)
        assert lora.score is not None
        score = lora.score.open()
        weights = {f"llama.{name}": value for name, value in model.state_dict().items()}
        for layer, change in lora.layers.items():
            weight = weights[f"{layer}.weight"]
            weight.set_value(weight.numpy() + lora.scaling * change.a.open() @ change.b.open())
    found = []
    for row in rows:
        before = tokenizer(row["prompt"])["input_ids"]
        of_row = []
        for name in ("chosen", "rejected"):
            after = [*tokenizer(row[name], add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
            outputs = model(paddle.to_tensor([[*before, *after]]))
            hidden = outputs[0] if isinstance(outputs, tuple) else outputs
            of_row.append(float(hidden[0, -1].numpy().astype(np.float64) @ np.asarray(score, dtype=np.float64)[:, 0]))
        found.append(of_row)
    return found


def of_families(directory: str, texts: list[list[int]]) -> dict[str, list[float]]:
    """Of each family that has reward models, one with random weights in directory/<family>; its scores of texts."""
    from launch.families.registry import FAMILIES, as_reward_model
    from launch.training.model import class_of, family_config
    from tests.families.family_ranks import tiny

    found = {}
    for name, family in FAMILIES.items():
        if not family.reward_models:
            continue
        config = family_config(as_reward_model(tiny(name).to_dict()))
        paddle.seed(1)
        model = class_of(config)._from_config(config, dtype="float32")
        model.score.weight.set_value(paddle.randn(model.score.weight.shape))
        model.eval()
        model.save_pretrained(f"{directory}/{name}", safe_serialization=True)
        scores = [model(paddle.to_tensor([ids]), ends=paddle.to_tensor([len(ids) - 1])) for ids in texts]
        found[name] = [float(score) for score in scores]
    return found


def ids_of(base: str, data: str) -> list[list[int]]:
    """Of the texts of data: each prompt with its chosen response, as training reads them."""
    from paddlenlp.transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(base)
    rows = [json.loads(line) for line in Path(data, "train.json").read_text().splitlines()]
    parts = [(tokenizer(row["prompt"]), tokenizer(row["chosen"], add_special_tokens=False)) for row in rows]
    return [[*before["input_ids"], *after["input_ids"], tokenizer.eos_token_id] for before, after in parts]


def merged(base: str, adapter: str, target: str) -> dict:
    """What make merge says, and its exit code."""
    argv = ["--model_name_or_path", base, "--adapter_path", adapter, "--output_dir", target]
    return train("commands.merge", argv, [])
