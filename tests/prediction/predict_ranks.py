"""Predictions and their material on ranks, for test_predict.py and others."""

import io
import json
import shutil
import sys

from tests.runs_ranks import train


def predict(argv: list[str], stdin: str = "") -> dict:
    """Exit code of launch/commands/predict.py's main, and what was said."""
    sys.stdin = io.StringIO(stdin)
    return train("commands.predict", argv, [])


def predict_all(jobs: list[list]) -> list[dict]:
    """predict() of each [arguments, standard input], one after the other."""
    return [predict(*job) for job in jobs]


def make_prefix(model: str, directory: str) -> None:
    """A prefix of random numbers, large enough that all answers depend on it, as fine-tuning saves it."""
    from types import SimpleNamespace

    import paddle
    import paddlenlp.transformers as transformers

    from launch.adapters.adapter_files import save_adapter
    from launch.adapters.add import add_prefix
    from launch.families.named_configs import load_config
    from launch.training.model import family_config

    config = family_config(load_config(model))
    base = transformers.LlamaForCausalLM.from_pretrained(model, config=config, dtype="float32")
    prefix = add_prefix(base, SimpleNamespace(num_prefix_tokens=4), seed=1)
    prefix.table.set_value(20 * paddle.to_tensor(prefix.table.numpy()))
    one = dict.fromkeys(("tensor_parallel_rank", "dataset_rank", "pipeline_parallel_rank", "process_index"), 0)
    save_adapter(prefix, directory, SimpleNamespace(pipeline_parallel_degree=1, **one))


def predict_wide(directory: str) -> dict:
    """What a random model of 1,024 ids with a tokenizer of 300 says, and the ids that are known of its tokenizer: with
    one of its own tokens among the added ones, as files of transformers list them, and with one more token. And what
    one of 40 ids says."""
    from pathlib import Path

    from paddlenlp.transformers import AutoTokenizer

    from data_tools.tokenizer import save_tokenizer, train_tokenizer
    from launch.families.named_configs import load_config
    from launch.generation.generate import known_ids_of
    from launch.training.model import save_random_model

    save_random_model("llama-rehearsal", Path(directory))
    save_tokenizer(Path(directory), train_tokenizer(["some words, and some more words than those"] * 9, 300))
    words = ["--model_name_or_path", directory, "--prompt", "some", "--temperature", "1", "--max_new_tokens", "40"]
    said = predict([*words, "--device", "cpu"])
    narrow, config = Path(directory, "narrow"), load_config("llama-rehearsal") | {"vocab_size": 40}
    shutil.copytree(directory, narrow)
    (narrow / "config.json").write_text(json.dumps(config))
    save_random_model(str(narrow), narrow)
    lacking = predict([words[0], str(narrow), *words[2:], "--device", "cpu"])
    tokenizer = AutoTokenizer.from_pretrained(directory)
    tokenizer.added_tokens_encoder["<s>"] = 1
    known = [known_ids_of(tokenizer)]
    tokenizer.added_tokens_encoder["<more>"] = 300
    return {"said": said, "lacking": lacking, "known": [*known, known_ids_of(tokenizer)]}


def answering_dtype(model: str) -> str:
    """Of a model of bfloat16 weights on a card without bfloat16."""
    from types import SimpleNamespace
    from unittest.mock import patch

    from launch.prediction import predictor

    weights = {"weight": SimpleNamespace(dtype="bfloat16")}
    with patch.multiple(predictor, compute_capability=lambda: (7, 5), find_weights=lambda _: weights):
        return str(predictor.load_predictor(model, None, None).model.lm_head.weight.dtype)
