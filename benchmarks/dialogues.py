"""How many chats a second become ids and target tokens, beside apply_chat_template of transformers, which makes ids.

    python benchmarks/dialogues.py [--chats 3000] [--rounds 5] [--earlier CHECKOUT ...] [--output FILE]

Chats of one to three turns under ChatML, with a byte-level tokenizer made here. "here": encode_dialogues, with the
process that renders templates: prompts as served, the border of each answer, labels. --earlier: the same in checkouts
of earlier commits (`git worktree add ../COMMIT COMMIT`), named as their folders. Rows a second of processor time, the
best of the rounds, in which all take turns. transformers: requirements/compare.txt.
"""

import argparse
import datetime
import json
import os
import random
import shlex
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path[0] = str(ROOT)  # the repository, not benchmarks/

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from benchmarks.cpu_training import machine_facts
from data_tools.dialogues.messages import plain_dialogue
from launch.rehearsal.materials import documents
from launch.reporting.records import package_versions

END = "<|im_end|>"
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
WORKER = Path(__file__).with_name("dialogues_worker.py")


def make_tokenizer(path: Path) -> None:
    """Write a tokenizer.json of 4,096 tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<|im_start|>", END]
    trainer = trainers.BpeTrainer(
        vocab_size=4096, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(islice(documents(), 200), trainer)
    tokenizer.save(str(path))


def chats(count: int) -> list[tuple[list[tuple[str, str]], str]]:
    """Return chats of one to three turns with their system texts, which half of them have."""
    draw, words = random.Random(0), " ".join(islice(documents(), 50)).split()
    say = lambda most: " ".join(draw.choices(words, k=draw.randint(4, most)))  # noqa: E731
    turns = [[(say(30), say(120)) for _ in range(draw.randint(1, 3))] for _ in range(count)]
    return [(one, say(8) if number % 2 else "") for number, one in enumerate(turns)]


def encoded(checkout: Path, folder: Path) -> dict:
    """Return what the worker says of a checkout."""
    command = [sys.executable, str(WORKER), str(checkout), str(folder)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True, cwd=checkout).stdout)


def main(argv: list[str]) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--chats", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--earlier", type=Path, nargs="+", default=[], metavar="CHECKOUT", help="of earlier commits")
    parser.add_argument("--output", type=Path, metavar="FILE", help="also write everything measured to this JSON file")
    args = parser.parse_args(argv)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from transformers import PreTrainedTokenizerFast

    rows, earlier = chats(args.chats), {path.name: path.resolve() for path in args.earlier}
    checkouts = {"here": ROOT} | earlier
    rates: dict[str, list[float]] = {name: [] for name in (*checkouts, "apply_chat_template")}
    samples: dict[str, list] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "tokenizer.json")
        make_tokenizer(path)
        Path(folder, "chats.json").write_text(json.dumps({"template": CHATML, "end": END, "chats": rows}))
        theirs = PreTrainedTokenizerFast(tokenizer_file=str(path), eos_token=END, chat_template=CHATML)
        messages = [plain_dialogue(turns, system).as_json()["messages"] for turns, system in rows]
        for _ in range(args.rounds):
            for name, checkout in checkouts.items():
                found = encoded(checkout, Path(folder))
                rates[name].append(found["rate"])
                samples[name] = found["samples"]
            start = time.process_time()
            theirs_ids = [theirs.apply_chat_template(one, tokenize=True) for one in messages]
            rates["apply_chat_template"].append(args.chats / (time.process_time() - start))
    pairs = zip(samples["here"], theirs_ids, strict=True)
    same = sum(ids == other[: len(ids)] for (ids, _), other in pairs)
    best = {name: max(measured) for name, measured in rates.items()}
    for name, rate in best.items():
        beside = "" if name == "here" else f"; here / {name}: {best['here'] / rate:.2f}"
        print(f"{name:<20} {rate:8,.0f} rows/s of processor time{beside}")
    print(f"the same ids: {same:,} of {args.chats:,} chats")
    for name in earlier:
        print(f"the same ids and labels as {name}: {samples['here'] == samples[name]}")
    if args.output:
        report = {"command": shlex.join(["python", "benchmarks/dialogues.py", *argv])}
        report |= {"date": datetime.date.today().isoformat(), "machine": machine_facts(1)}
        report |= {"versions": package_versions(), "rows_per_second": rates, "same_ids": same}
        args.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
