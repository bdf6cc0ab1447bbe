"""What transformers and PEFT make of exported directories: logits, greedy continuations, ids of texts.

    python -m tests.weights.exported_in_transformers JOB.json

The job: {"ids": IDS.npy, "new_tokens": N, "models": [DIRECTORY], "adapters": [[BASE, ADAPTER]], "texts": [...],
"tokenizers": [...]}. Writes DIRECTORY.theirs.npy and DIRECTORY.greedy.npy beside each model or adapter,
DIRECTORY.ids.json beside each tokenizer.
"""

import json
import sys
import warnings
from pathlib import Path

import numpy as np
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer


def main(job: dict) -> None:
    ids = torch.from_numpy(np.load(job["ids"]))
    for directory in job["models"]:
        run(load(directory), ids, directory, job["new_tokens"])
    for base, adapter in job["adapters"]:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # PEFT tells of missing keys by a warning
            model = PeftModel.from_pretrained(load(base), adapter)
        run(model.eval(), ids, adapter, job["new_tokens"])
    for directory in job["tokenizers"]:
        # Not the fast one: to make it from a sentencepiece model takes a newer protobuf than VisualDL works with.
        tokenizer = AutoTokenizer.from_pretrained(directory, use_fast=False)
        found = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in job["texts"]]
        Path(f"{directory}.ids.json").write_text(json.dumps(found))


def load(directory: str):
    """Raises RuntimeError where a tensor is missing, left over or of another shape: transformers only reports it."""
    model, report = AutoModelForCausalLM.from_pretrained(directory, torch_dtype=torch.float32, output_loading_info=True)
    if any(report.values()):
        raise RuntimeError(f"{directory}: {report}")
    return model.eval()


def run(model, ids: torch.Tensor, target: str, new_tokens: int) -> None:
    with torch.no_grad():
        np.save(f"{target}.theirs.npy", model(input_ids=ids).logits.numpy())
        ones = torch.ones_like(ids)
        greedy = model.generate(
            input_ids=ids, attention_mask=ones, max_new_tokens=new_tokens, min_new_tokens=new_tokens, do_sample=False
        )
    np.save(f"{target}.greedy.npy", greedy[:, ids.shape[1] :].numpy())


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
