"""Paddle's log-probabilities of what llama.cpp has written, for test_llama_cpp.py."""

import numpy as np
import paddle

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
        found.append([[int(row.argmax()), row[few].tolist()] for row, few in zip(logs, asked, strict=True)])
    return found
