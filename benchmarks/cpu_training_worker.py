"""One side of benchmarks/cpu_training.py: one LLaMA in one framework, trained a few steps at each request.

Started by the benchmark with one JSON object as its argument (see `Worker` there). Answers with one JSON
object a line: first the versions and the losses of the first steps, then, for each number N read from
standard input, the seconds of N further steps. Ends when its input ends.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)  # the repository, not benchmarks/

import numpy as np

from launch.cpu.settings import keep_freed_memory, prepare

LEARNING_RATE, WEIGHT_DECAY, CLIP = 1e-3, 0.01, 1.0

# How Hugging Face's names of those weights end that Paddle keeps transposed, [in, out] instead of [out, in].
TRANSPOSED = ("_proj.weight", "lm_head.weight")


def paddle_steps(job: dict, weights: dict[str, np.ndarray]) -> tuple[Callable, dict[str, str]]:
    """Return a function that trains one step on ids [b, s + 1] and gives the loss, and the versions of its packages."""
    says = prepare(job["cpu_fast"], processes=1)
    import paddle
    import paddlenlp
    from paddlenlp.transformers import LlamaConfig, LlamaForCausalLM

    from launch.cpu import kernels
    from launch.cpu.bfloat16 import BFloat16Products
    from launch.devices.cpu_operators import compiled_operators
    from launch.upstream import llama_fused_rms_norm_flag

    llama_fused_rms_norm_flag.correct()
    config = LlamaConfig(**job["model"], seq_length=job["length"], use_fused_rms_norm=job["custom_ops"])
    model = LlamaForCausalLM(config)
    own = model.state_dict()
    for name, weight in weights.items():
        value = weight.T if name.endswith(TRANSPOSED) else weight
        own.pop(name.replace("model.", "llama.", 1)).set_value(np.ascontiguousarray(value))
    assert not own, f"weights without a value: {list(own)}"
    if job["bfloat16"]:
        compiled = compiled_operators()
        assert compiled is not None and not compiled.products_obstacle()
        products = BFloat16Products(compiled)
        products.replace_head(model)
        says += "\n" + products.replace_linears(model)
    if job["cpu_fast"] != "off":
        says += "\n" + kernels.apply(model, compiled_operators() if job["custom_ops"] else None, job["bfloat16"])
    model.train()
    optimizer = paddle.optimizer.AdamW(
        LEARNING_RATE,
        parameters=model.parameters(),
        weight_decay=WEIGHT_DECAY,
        grad_clip=paddle.nn.ClipGradByGlobalNorm(CLIP),
    )

    def step(ids: np.ndarray) -> float:
        ids = paddle.to_tensor(ids)
        loss = model(ids[:, :-1], labels=ids[:, 1:])[0]
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        return loss.item()

    return step, {"paddle": paddle.__version__, "paddlenlp": paddlenlp.__version__, "says": says}


def torch_steps(job: dict, weights: dict[str, np.ndarray]) -> tuple[Callable, dict[str, str]]:
    """Return the same as `paddle_steps`, for Hugging Face transformers."""
    if job["keep_freed_memory"]:
        keep_freed_memory()
    import torch
    import transformers
    from torch.nn.functional import cross_entropy
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.set_num_threads(job["threads"])
    model = LlamaForCausalLM(LlamaConfig(**job["model"], use_cache=False))
    model.load_state_dict({name: torch.from_numpy(weight) for name, weight in weights.items()})
    model.train()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, fused=job["fused"] or None
    )

    def loss_of(inputs, labels):
        with torch.autocast("cpu", torch.bfloat16, enabled=job["bfloat16"]):
            logits = model(input_ids=inputs).logits
            return cross_entropy(logits.flatten(0, 1), labels.flatten())

    if job["compiled"]:
        loss_of = torch.compile(loss_of)

    def step(ids: np.ndarray) -> float:
        ids = torch.from_numpy(ids)
        loss = loss_of(ids[:, :-1], ids[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step, {"torch": torch.__version__, "transformers": transformers.__version__}


def main() -> None:
    """Run the command."""
    job = json.loads(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what the frameworks print is no answer
    make = {"paddle": paddle_steps, "torch": torch_steps}[job["framework"]]
    step, versions = make(job, dict(np.load(job["weights"])))
    clock = {"wall": time.perf_counter, "cpu": time.process_time}[job["clock"]]
    random = np.random.RandomState(0)
    shape = (job["batch"], job["length"] + 1)
    data = [random.randint(0, job["model"]["vocab_size"], shape) for _ in range(8)]
    losses = [step(ids) for ids in data[: job["checked_steps"]]]
    print(json.dumps({"versions": versions, "losses": losses}), file=answers)
    for line in sys.stdin:
        seconds = []
        for number in range(int(line)):
            start = clock()
            step(data[number % len(data)])
            seconds.append(clock() - start)
        print(json.dumps(seconds), file=answers)


if __name__ == "__main__":
    main()
