"""Peak resident memory of a recipe's training on a CPU at its true shape, beside what the plan says.

    python benchmarks/cpu_memory.py    # make finetune-ernie4.5-0.3b-cpu: some minutes, 8 GB of memory

Weights are random, of the published sizes; tokenizer and dialogues are made up, with as many ids as the model's. Two
steps of a row are trained, the model is written, and a row is evaluated. docs/low-memory.md states what it prints.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path[0] = str(ROOT)  # the repository, not benchmarks/

from launch.errors import UserError
from launch.families.named_configs import load_config
from launch.guard import guarded

RECIPE, MODEL, STEPS = "recipes/ernie4.5-0.3b/finetune-cpu.sh", "ernie-4.5-0.3b", 2
SPECIAL = ("<unk>", "<s>", "</s>", "<|begin_of_sentence|>", "<|end_of_sentence|>")


def main(argv: list[str]) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder)
        write_tokenizer(made / "tokenizer", load_config(MODEL)["vocab_size"])
        write_dialogues(made / "data")
        flags = f"--tokenizer_name_or_path {made}/tokenizer --dataset_name_or_path {made}/data --output_dir {made}/out"
        flags += f" --continue_training 0 --save_strategy no --max_steps {STEPS} --gradient_accumulation_steps 1"
        planned, resident = peaks(made, ["bash", RECIPE, *flags.split()])
    print(f"{RECIPE}: planned {planned} GiB, resident at most {resident / 2**30:.2f} GiB")


def write_tokenizer(directory: Path, size: int) -> None:
    """Write a tokenizer of bytes with as many ids; those that no text has stand for the words of the real one."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = [*SPECIAL, *pre_tokenizers.ByteLevel.alphabet()]
    words = [*letters, *(f"<word-{number}>" for number in range(size - len(letters)))]
    tokenizer = Tokenizer(models.BPE({word: number for number, word in enumerate(words)}, []))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer.add_special_tokens([*SPECIAL])
    directory.mkdir()
    tokenizer.save(str(directory / "tokenizer.json"))
    roles = {"unk_token": SPECIAL[0], "bos_token": SPECIAL[1], "eos_token": SPECIAL[2], "pad_token": SPECIAL[0]}
    config = {"tokenizer_class": "PretrainedTokenizerFast"} | roles
    (directory / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")


def write_dialogues(directory: Path) -> None:
    """Write dialogues that fill rows of 512 tokens."""
    directory.mkdir()
    rows = [
        {"src": f"What is the square of {number}?", "tgt": f"{number**2}, which is odd. " * 8} for number in range(300)
    ]
    for name, some in (("train.json", rows), ("dev.json", rows[:8])):
        (directory / name).write_text("".join(json.dumps(row) + "\n" for row in some), encoding="utf-8")


def peaks(folder: Path, command: list[str]) -> tuple[str, int]:
    """Run a recipe and return (the GiB that its plan printed, the bytes of the largest process resident at most)."""
    with open(folder / "log", "w+") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        log.seek(0)
        said = log.read()
    if status:
        raise UserError(f"{' '.join(command)} failed:\n{said}")
    print(said)
    planned = re.search(r"memory: ([\d.]+) GiB planned", said)
    return planned[1] if planned else "", usage.ru_maxrss * 1024


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))
