"""Paddle's log-probabilities of what llama.cpp has written, for test_llama_cpp.py."""

import ast
import sysconfig
from itertools import islice
from pathlib import Path

import numpy as np
import paddle

from data_tools.stdlib_corpus import modules
from launch.prediction.predictor import load_predictor
from launch.weights.gguf_import import import_gguf
from tests.weights.logits_ranks import load


def likeliest(directory: str, texts: list[list[list[int]]], tokens: list[list[list[int]]]) -> list[list]:
    """Return, for each (prompt, answer) and each token of the answer, [the likeliest id, the logs of these tokens]."""
    model, _ = load(directory)
    model.eval()
    found = []
    for (prompt, answer), asked in zip(texts, tokens, strict=True):
        with paddle.no_grad():
            outputs = model(input_ids=paddle.to_tensor([prompt + answer[:-1]]))
        logits = (
            (outputs[0] if isinstance(outputs, tuple) else outputs)[0].numpy().astype(np.float64)[len(prompt) - 1 :]
        )
        logs = (
            logits
            - np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1, keepdims=True))
            - logits.max(1, keepdims=True)
        )
        found.append([[int(row.argmax()), row[few].tolist()] for row, few in zip(logs, asked, strict=False)])
    return found


def perplexities(files: list[str]) -> list[float]:
    """Return the perplexity of each GGUF file, imported."""
    for file in files:
        import_gguf(Path(file), Path(f"{file}.ours"), None, 10**10)
    return [_perplexity(f"{file}.ours") for file in files]


def _perplexity(directory: str) -> float:
    """Return the perplexity of the beginnings of some of the library's documentation."""
    predictor, losses = load_predictor(directory, None, "float32"), []
    found = (ast.get_docstring(ast.parse(source)) or "" for _, source in modules(sysconfig.get_path("stdlib"), False))
    for text in islice((text for text in found if len(text) >= 400), 12):
        ids = predictor.tokenizer(text)["input_ids"][:128]
        with paddle.no_grad():
            outputs = predictor.model(input_ids=paddle.to_tensor([ids]))
        logits = (outputs[0] if isinstance(outputs, tuple) else outputs)[0, :-1].numpy().astype(np.float64)
        logits -= logits.max(axis=1, keepdims=True)
        losses += (np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(logits)), ids[1:]]).tolist()
    return float(np.exp(np.mean(losses)))
