"""The losses of preference tuning by TRL's own trainers, for tests/training/test_against_trl.py.

    python -m tests.training.trl_losses DIRECTORY

DIRECTORY has pairs.json, the ids of [prompt, chosen, rejected] of each pair; before, the reference; and a folder for
each loss with its policy, models as transformers reads them, and flags.json. Prints the mean loss of
each as JSON.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from trl import CPOConfig, CPOTrainer, DPOConfig, DPOTrainer, KTOConfig, KTOTrainer, ORPOConfig, ORPOTrainer

# A trainer wants both, and reads neither here.
ROW = Dataset.from_list([{"prompt": "a", "chosen": "b", "rejected": "c"}])
SINGLE_ROW = Dataset.from_list([{"prompt": "a", "completion": "b", "label": True}])
WORDS = models.WordLevel({"a": 0, "b": 1, "c": 2}, unk_token="a")
IGNORED = -100
ROOM = 96  # --max_length of the runs, to which an unrelated response is cut, too


def padded(rows: list[list[int]], value: int) -> torch.Tensor:
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[value] * (longest - len(row))] for row in rows])


def by_parts(pairs: list) -> dict:
    """A batch of DPOTrainer. Prompts are padded on the left, as it does."""
    prompts = [list(reversed(pair[0])) for pair in pairs]
    batch = {"prompt_input_ids": padded(prompts, 0).flip(1)}
    batch["prompt_attention_mask"] = padded([[1] * len(prompt) for prompt in prompts], 0).flip(1)
    for number, name in enumerate(("chosen", "rejected"), 1):
        batch[f"{name}_input_ids"] = padded([pair[number] for pair in pairs], 0)
        batch[f"{name}_attention_mask"] = padded([[1] * len(pair[number]) for pair in pairs], 0)
    return batch


def by_rows(pairs: list) -> dict:
    """A batch of CPOTrainer and ORPOTrainer."""
    chosen, rejected = ([(pair[0], pair[number]) for pair in pairs] for number in (1, 2))
    return labeled("chosen", chosen) | labeled("rejected", rejected)


def by_responses(pairs: list) -> dict:
    """A batch of KTOTrainer, of all responses: for z0, each prompt has the response half of the data away."""
    prompts = [pair[0] for pair in pairs for _ in range(2)]
    responses = [response for pair in pairs for response in pair[1:]]
    others = responses[len(pairs) :] + responses[: len(pairs)]
    batch = labeled("completion", zip(prompts, responses, strict=True))
    cut = [(prompt, other[: ROOM - len(prompt)]) for prompt, other in zip(prompts, others, strict=True)]
    batch |= labeled("KL_completion", cut)
    return batch | {"label": [True, False] * len(pairs)}


def labeled(name: str, texts: Iterable[tuple[list[int], list[int]]]) -> dict:
    """texts: (prompt, response)"""
    texts = list(texts)
    rows = [prompt + response for prompt, response in texts]
    return {
        f"{name}_input_ids": padded(rows, 0),
        f"{name}_attention_mask": padded([[1] * len(row) for row in rows], 0),
        f"{name}_labels": padded([[IGNORED] * len(prompt) + response for prompt, response in texts], IGNORED),
    }


@torch.no_grad()
def mean_loss(root: Path, loss: str, pairs: list) -> float:
    flags = json.loads((root / loss / "flags.json").read_text())
    model, before = (AutoModelForCausalLM.from_pretrained(root / name).eval() for name in (loss, "before"))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WORDS), pad_token="a", eos_token="b", bos_token="c", unk_token="a"
    )
    row = SINGLE_ROW if loss == "kto" else ROW
    parts = {"model": model, "train_dataset": row, "processing_class": tokenizer}
    usual = {
        "output_dir": str(root / "trl"),
        "report_to": "none",
        "use_cpu": True,
        "bf16": False,
        "beta": flags["beta"],
    }
    smoothed = usual | {"label_smoothing": flags.get("label_smoothing", 0.0)}
    if loss == "or":
        trainer = ORPOTrainer(args=ORPOConfig(**usual), **parts)
        chosen, rejected, *_ = trainer.concatenated_forward(model, by_rows(pairs))
        return -trainer.odds_ratio_loss(chosen, rejected)[0].mean().item()
    if loss == "simpo":
        config = CPOConfig(loss_type=loss, simpo_gamma=flags["simpo_gamma"], cpo_alpha=0.0, **smoothed)
        trainer = CPOTrainer(args=config, **parts)
        chosen, rejected, *_ = trainer.concatenated_forward(model, by_rows(pairs))
        return trainer.cpo_loss(chosen, rejected)[0].mean().item()
    if loss == "kto":
        weights = {name: flags[name] for name in ("desirable_weight", "undesirable_weight")}
        trainer = KTOTrainer(args=KTOConfig(**weights, **usual), ref_model=before, **parts)
        found, measures = trainer.get_batch_loss_metrics(model, by_responses(pairs))
        assert measures["kl"] > 0, "with z0 at its bound the comparison says nothing of it"
        return found.item()
    trainer = DPOTrainer(args=DPOConfig(loss_type=loss, **smoothed), ref_model=before, **parts)
    found, _ = trainer.get_batch_loss_metrics(model, by_parts(pairs), "eval")
    return found.item()


if __name__ == "__main__":
    directory = Path(sys.argv[1])
    ids = json.loads((directory / "pairs.json").read_text())
    losses = sorted(path.parent.name for path in directory.glob("*/flags.json"))
    print(json.dumps({loss: mean_loss(directory, loss, ids) for loss in losses}))
