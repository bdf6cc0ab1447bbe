"""llama.cpp on this machine's CPU (PyPI's xllamacpp), in a process of its own.

    python -m tests.weights.llama_cpp MODEL < requests.json > answers.json

Requests: {"tokenize": [texts], "complete": [[ids, tokens to write, likeliest to tell], ...], "lora": file or null}.
Answers: {"tokenize": [[id, ...], ...], "complete": [[{"id", "top": {id: logprob}}, ...], ...]}.
"""

import json
import subprocess
import sys
from pathlib import Path

import httpx

from tests.store import ROOT


def ask(model: Path, requests: dict) -> dict:
    """Return llama.cpp's answers."""
    command = [sys.executable, "-m", "tests.weights.llama_cpp", str(model)]
    done = subprocess.run(command, input=json.dumps(requests), capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def _serve(model: str, lora: str | None):
    from xllamacpp import CommonAdapterLoraInfo, CommonParams, Server, ggml_type, llama_flash_attn_type

    params = CommonParams()
    params.model.path = model
    params.n_ctx, params.n_parallel, params.n_gpu_layers, params.verbosity = 1024, 1, 0, 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1  # more wait for each other by spinning
    params.warmup = False
    params.cache_type_k = params.cache_type_v = ggml_type.GGML_TYPE_F32  # keys and values as exact as the product's
    params.flash_attn_type = llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    if lora:
        adapter = CommonAdapterLoraInfo()
        adapter.path, adapter.scale = lora, 1.0
        params.lora_adapters = [adapter]
    return Server(params)


def _main(model: str) -> None:
    requests = json.load(sys.stdin)
    server = _serve(model, requests.get("lora"))
    answers: dict = {"tokenize": [], "complete": []}
    with httpx.Client(base_url=server.listening_address, timeout=600) as client:
        for text in requests.get("tokenize", []):
            found = client.post("/tokenize", json={"content": text, "add_special": False, "parse_special": True})
            answers["tokenize"].append(found.json()["tokens"])
        for ids, count, likeliest in requests.get("complete", []):
            asked = {"prompt": ids, "n_predict": count, "temperature": 0, "n_probs": likeliest, "cache_prompt": False}
            asked |= {"return_tokens": True, "samplers": ["temperature"]}
            found = client.post("/completion", json=asked).raise_for_status().json()
            told, tops = found.get("completion_probabilities", []), []
            for token in found["tokens"]:  # one that ends within a character has none
                has = told and told[0]["id"] == token
                tops.append({one["id"]: one["logprob"] for one in told.pop(0)["top_logprobs"]} if has else {})
            assert not told
            answers["complete"].append({"ids": found["tokens"], "tops": tops})
    print(json.dumps(answers), flush=True)


if __name__ == "__main__":
    _main(sys.argv[1])
