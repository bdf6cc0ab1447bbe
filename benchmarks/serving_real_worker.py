"""One peer of benchmarks/serving_real.py in a process of its own: llama.cpp's server, or transformers without one.

Started with one JSON object as its argument. llama.cpp answers with the address of its server, and waits; transformers
with null, and for each list of prompts, of token ids, with the number of tokens that it wrote.
"""

import json
import os
import sys


def serve_llama_cpp(job: dict):
    """Start llama.cpp's server and return it."""
    from xllamacpp import CommonParams, Server  # pyright: ignore[reportAttributeAccessIssue]  # compiled

    params = CommonParams()
    params.model.path = job["model"]
    params.n_parallel, params.n_ctx = job["clients"], job["clients"] * job["length"]
    params.n_gpu_layers = params.verbosity = 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = job["threads"]
    return Server(params)


def transformers_answers(job: dict):
    """Return a function that answers prompts at once, greedily, and returns how many tokens it has written."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(job["threads"])
    model = AutoModelForCausalLM.from_pretrained(job["model"], torch_dtype=getattr(torch, job["dtype"])).eval()

    def answer(prompts: list[list[int]], tokens: int) -> int:
        longest = max(map(len, prompts))
        ids = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in prompts])
        mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        with torch.no_grad():
            model.generate(
                input_ids=ids, attention_mask=mask, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False,
                pad_token_id=0,
            )  # fmt: skip
        return len(prompts) * tokens

    return answer


def main() -> None:
    """Run the command."""
    job = json.loads(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    if job["peer"] == "llama.cpp":
        server = serve_llama_cpp(job)
        print(json.dumps(server.listening_address), file=answers)
        sys.stdin.read()
        return
    answer = transformers_answers(job)
    print(json.dumps(None), file=answers)
    for line in sys.stdin:
        print(json.dumps(answer(*json.loads(line))), file=answers)


if __name__ == "__main__":
    main()
