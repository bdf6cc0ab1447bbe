"""Exported files run by llama.cpp itself (PyPI's xllamacpp): the same ids, probabilities and greedy texts."""

import random

import numpy as np
import pytest

from data_tools.text.encoders import load_encoder
from launch.weights.gguf_export import export_gguf
from launch.weights.gguf_file import read_gguf

pytest.importorskip("xllamacpp")
from tests.families import published
from tests.real_model import import_real_model
from tests.weights.llama_cpp import ask
from tests.weights.test_gguf_export import ours

SAID = "What is the how many of 12 345 in France, 中文 Größe write a short story about red cars? It's we'll  \n\n def"
WORDS = SAID.split(" ")
CHAT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture(scope="module")
def smollm(tmp_path_factory):
    """SmolLM2-135M-Instruct as ours, and exported in F16."""
    folder = tmp_path_factory.mktemp("smollm")
    model = import_real_model(folder, "float16")
    return model, export_gguf(model, folder / "f16", "f16")[1]


@pytest.mark.nightly
def test_ids_probabilities_and_greedy_texts_are_llama_cpps(smollm, tmp_path, ranks):
    mine, file = smollm
    draw = random.Random(0)
    texts = [" ".join(draw.choices(WORDS, k=draw.randint(1, 20))) for _ in range(500)]
    encoder = load_encoder(mine)
    prompts = [encoder.encode_chat(CHAT.format(text)) for text in texts[:50]]
    found = ask(file, {"tokenize": texts, "complete": [[ids, 12, 20] for ids in prompts]})
    assert found["tokenize"] == [encoder.encode_chat(text) for text in texts]
    off = distances(ranks, mine, prompts, found["complete"])
    # llama.cpp rounds what it multiplies by float16 weights to float16, too, so single tokens are off by more: the same
    # weights in a file in float32 are within 1e-3.
    assert np.quantile(off, 0.95) <= 1e-2 and off.max() <= 5e-2
    exact = export_gguf(mine, tmp_path / "f32", "f32")[1]
    found = ask(exact, {"complete": [[ids, 12, 20] for ids in prompts[:15]]})["complete"]
    assert distances(ranks, mine, prompts[:15], found).max() <= 1e-3


def distances(ranks, mine, prompts: list, found: list) -> np.ndarray:
    """Return how far llama.cpp's log-probabilities are from Paddle's; the likeliest tokens are the same."""
    texts = [[prompt, one["ids"]] for prompt, one in zip(prompts, found, strict=True)]
    tops = [[{int(token): log for token, log in top.items()} for top in one["tops"]] for one in found]
    asked = [[[*top] for top in one] for one in tops]
    [expected] = ranks(1, "tests.weights.llama_cpp_ranks:likeliest", str(mine), texts, asked)
    greedy = [answer for _, answer in texts]
    assert [[token for token, _ in one] for one in expected] == greedy and min(map(len, greedy)) > 0
    pairs = [pair for one, row in zip(expected, tops, strict=True) for pair in zip(one, row, strict=True)]
    return np.concatenate([np.abs(np.subtract(logs, [*top.values()])) for (_, logs), top in pairs])


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["qwen3_moe", "ernie4_5", "ernie4_5_moe"])
def test_tiny_models_of_an_architecture_have_llama_cpps_probabilities(tmp_path, ranks, name):
    source = ours(tmp_path, *getattr(published, name)())
    ids = [number % 90 + 2 for number in range(0, 400, 7)]
    [one] = ask(export_gguf(source, tmp_path / "f16", "f16")[1], {"complete": [[ids, 8, 20]]})["complete"]
    tops = [{int(token): log for token, log in top.items()} for top in one["tops"]]
    [[expected]] = ranks(
        1, "tests.weights.llama_cpp_ranks:likeliest", str(source), [[ids, one["ids"]]], [[[*top] for top in tops]]
    )
    assert len(expected) >= 4  # some end early
    for (_, logs), top in zip(expected, tops, strict=True):
        assert logs == pytest.approx([*top.values()], abs=1e-2, rel=5e-3)


@pytest.mark.nightly
def test_q4_k_m_is_as_good_as_llama_cpps(smollm, tmp_path, ranks):
    """The types of all tensors are the same; the error of each, and the rise of perplexity, at most 1 % above."""
    quantizer = pytest.importorskip("cyllama.llama.llama_cpp")
    mine, file = smollm
    packed = export_gguf(mine, tmp_path / "packed", "q4_k_m")[1]
    params, theirs = quantizer.LlamaModelQuantizeParams(), tmp_path / "theirs.gguf"
    params.ftype, params.nthread = 15, 2
    quantizer.model_quantize(str(file), str(theirs), params)
    plain, own, other = (read_gguf(path).tensors for path in (file, packed, theirs))
    assert {name: tensor.kind for name, tensor in own.items()} == {name: tensor.kind for name, tensor in other.items()}
    for name in (
        "token_embd.weight",
        *(f"blk.{layer}.{part}.weight" for layer in (0, 7) for part in ("attn_v", "ffn_down")),
    ):
        exact = plain[name].open().astype(np.float32)
        off, least = (np.square(each[name].open() - exact).sum() for each in (own, other))
        assert off <= 1.01**2 * least, name
    [[before, after, reference]] = ranks(
        1, "tests.weights.llama_cpp_ranks:perplexities", [str(file), str(packed), str(theirs)]
    )
    assert after - before <= 1.01 * (reference - before) + 0.001 * before
