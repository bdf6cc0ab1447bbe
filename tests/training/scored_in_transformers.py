"""What transformers and PEFT make of reward models: the scores of texts.

    python -m tests.training.scored_in_transformers JOB.json

The job: {"models": [[DIRECTORY, ADAPTER or null]], "ids": [[...]] of each text}. Prints a list of scores for each
model, of one batch, padded on the right, where config.json names the id of padding; else text by text.
"""

import json
import sys
from pathlib import Path

import torch
from peft import PeftModel
from transformers import AutoModelForSequenceClassification


def main(job: dict) -> None:
    print(json.dumps([scores(*model, job["ids"]) for model in job["models"]]))


def scores(directory: str, adapter: str | None, ids: list[list[int]]) -> list[float]:
    given = {"num_labels": 1} if adapter else {}  # the base of an adapter is a model of text
    model, report = AutoModelForSequenceClassification.from_pretrained(
        directory, torch_dtype=torch.float32, output_loading_info=True, **given
    )
    if adapter:
        model = PeftModel.from_pretrained(model, adapter)
    elif any(report.values()):
        raise RuntimeError(f"{directory}: {report}")
    model.eval()
    padding, longest = model.config.pad_token_id, max(map(len, ids))
    batches = [[text] for text in ids]
    if padding is not None:
        batches = [[[*text, *[padding] * (longest - len(text))] for text in ids]]
    with torch.no_grad():
        return [float(score) for batch in batches for score in model(input_ids=torch.tensor(batch)).logits[:, 0]]


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
