"""What transformers and PEFT make of exported models: logits, greedy continuations, ids of texts, and what they save.

    python -m tests.weights.exported_in_transformers FOLDER

FOLDER/job.json is written by test_export_against_transformers.py, FOLDER/out has models and adapters. Writes
NAME.logits.npy and NAME.greedy.npy beside each, NAME-saved as transformers saves it, NAME.training.json of some,
NAME.ids.json of tokenizers.
"""

import json
import sys
import warnings
from pathlib import Path

import numpy as np
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.models.mixtral import modeling_mixtral
from transformers.models.qwen2_moe import modeling_qwen2_moe


def main(root: Path) -> None:
    job, out = json.loads((root / "job.json").read_text()), root / "out"
    ids = torch.from_numpy(np.load(job["ids"]))
    for name in job["models"]:
        model = load(out / name)
        run(model, ids, out / name, job["new_tokens"])
        model.save_pretrained(out / f"{name}-saved", safe_serialization=name not in job["bin"], max_shard_size="30KB")
        if name in job["trained"]:
            (out / f"{name}.training.json").write_text(json.dumps(training(model, ids)))
    for name in job["adapters"]:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # PEFT tells of missing keys by a warning
            model = PeftModel.from_pretrained(load(out / name), out / f"{name}-lora")
        run(model.eval(), ids, out / f"{name}-lora", job["new_tokens"])
    for name in job["tokenizers"]:
        # Not the fast one: to make it from a sentencepiece model takes a newer protobuf than VisualDL works with.
        tokenizer = AutoTokenizer.from_pretrained(out / name, use_fast=False)
        found = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in job["texts"]]
        (out / f"{name}.ids.json").write_text(json.dumps(found))
        tokenizer.save_pretrained(out / f"{name}-saved")


def load(directory: Path):
    """Raises RuntimeError where a tensor is missing, left over or of another shape: transformers only reports it."""
    model, report = AutoModelForCausalLM.from_pretrained(directory, torch_dtype=torch.float32, output_loading_info=True)
    if any(report.values()):
        raise RuntimeError(f"{directory}: {report}")
    return model.eval()


def run(model, ids: torch.Tensor, target: Path, new_tokens: int) -> None:
    with torch.no_grad():
        np.save(f"{target}.logits.npy", model(input_ids=ids).logits.numpy())
        ones = torch.ones_like(ids)
        greedy = model.generate(
            input_ids=ids, attention_mask=ones, max_new_tokens=new_tokens, min_new_tokens=new_tokens, do_sample=False
        )
    np.save(f"{target}.greedy.npy", greedy[:, ids.shape[1] :].numpy())


def training(model, ids: torch.Tensor) -> dict:
    # On a CPU that of transformers 4.55's Qwen2-MoE fails for want of a device's number; Mixtral's is the same.
    modeling_qwen2_moe.load_balancing_loss_func = modeling_mixtral.load_balancing_loss_func
    outputs = model.train()(ids, labels=ids, output_router_logits=True)
    outputs.loss.backward()
    gradients = {
        name: float(parameter.grad.norm()) for name, parameter in model.named_parameters() if parameter.grad is not None
    }
    auxiliary = float(getattr(outputs, "aux_loss", 0.0))
    return {"loss": float(outputs.loss), "auxiliary": auxiliary, "gradients": gradients}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
