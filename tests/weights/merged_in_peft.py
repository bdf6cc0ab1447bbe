"""Adapters that PEFT makes for a model, and how far models that we merged are from its own merges.

    python -m tests.weights.merged_in_peft adapters|compare MODEL FOLDER

`adapters` writes FOLDER/NAME of each kind, with trained-looking A and B, and prints the defaults of LoraConfig's keys.
`compare` prints how far logits of FOLDER/NAME-hf, and of MODEL beside FOLDER/NAME-back, where that is, are from MODEL
merged with FOLDER/NAME, as a part of the largest.
"""

import json
import sys
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from tokenizers import Tokenizer
from tokenizers.models import BPE
from transformers import AutoModelForCausalLM

from tests.weights.peft_kinds import KINDS

TOKENS = 100


def load(directory: Path, name: str = ""):
    model = AutoModelForCausalLM.from_pretrained(directory, torch_dtype=torch.float32).eval()
    if name == "more-tokens":
        model.resize_token_embeddings(TOKENS, mean_resizing=False)
    return model


def main(what: str, model: Path, folder: Path) -> None:
    if what == "adapters":
        torch.manual_seed(0)
        for name, settings in KINDS.items():
            adapted = get_peft_model(
                load(model, name), LoraConfig(r=4, lora_alpha=6, task_type="CAUSAL_LM", **settings)
            )
            for one, parameter in adapted.named_parameters():
                if parameter.requires_grad and "magnitude" in one:
                    parameter.data *= 1 + 0.1 * torch.randn_like(parameter)
                elif parameter.requires_grad:
                    torch.nn.init.normal_(parameter, std=0.1)
            adapted.save_pretrained(folder / name)
            Tokenizer(BPE({str(token): token for token in range(TOKENS)}, [])).save(
                str(folder / name / "tokenizer.json")
            )
        print(json.dumps(LoraConfig(task_type="CAUSAL_LM").to_dict(), default=list))
        return
    ids, differences = torch.arange(24).reshape(2, 12), {}
    for name in KINDS:
        adapted, back = PeftModel.from_pretrained(load(model, name), folder / name), folder / f"{name}-back"
        with torch.no_grad():
            base, theirs = load(model, name)(ids).logits, adapted.merge_and_unload()(ids).logits
            ours = [load(folder / f"{name}-hf")(ids).logits]
            ours += [PeftModel.from_pretrained(load(model), back)(ids).logits] if back.is_dir() else []
        assert (theirs - base).abs().max() > 0.01, name
        differences[name] = max(float((one - theirs).abs().max() / theirs.abs().max()) for one in ours)
    print(json.dumps(differences))


if __name__ == "__main__":
    main(sys.argv[1], *map(Path, sys.argv[2:]))
