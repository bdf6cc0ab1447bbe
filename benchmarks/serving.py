"""Tokens a second of the server: one client, many at once, and transformers' generate() on the same model, exported.

    .venv/bin/python benchmarks/serving.py            # 20 M parameters, 64 answers of 32 tokens, about 4 minutes
    .venv/bin/python benchmarks/serving.py --smoke    # a tiny model, 8 answers: does it run?
    .venv/bin/python benchmarks/serving.py --output benchmarks/results/serving.json
    .venv/bin/python benchmarks/serving.py --markdown docs/serve.md    # the table of the stored results, in that file

All on the CPU in float32, greedy, in turns: launch/commands/serve.py over REST with one client that asks in turn,
then with as many clients as there are prompts; then the directory that launch/commands/export.py makes of the same
model in transformers, one prompt after the other, and in padded batches of the server's size. Prompts have 4 to 40 ids.
The answers are compared. Needs torch and transformers (requirements/compare.txt).
"""

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from operator import truediv
from pathlib import Path
from statistics import median

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)  # the repository, not benchmarks/

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.cpu_training import machine_facts
from benchmarks.page import conditions, put
from launch.reporting.markdown import markdown
from launch.weights.model_directories import export_directory
from tests.ranks import RankServer
from tests.serving.servers import Server, start_serve

SIZES = {"vocab_size": 8000, "hidden_size": 384, "intermediate_size": 1024, "num_hidden_layers": 8}
SMOKE = {"vocab_size": 384, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
ALL = {"num_attention_heads": 8, "num_key_value_heads": 8, "initializer_range": 0.1}
TOKENS, BATCH = 32, 16
HEADINGS = ("", "tokens/s", "of one client", "of transformers in batches", "same texts")
RESULTS = Path(__file__).resolve().parent / "results" / "serving.json"
WORKER = "benchmarks.serving_worker"


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--smoke", action="store_true", help="a tiny model")
    parser.add_argument("--rounds", type=int, default=3, help="turns that each way gets")
    parser.add_argument("--output", type=Path, help="also write everything measured to this JSON file")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="only put the stored results into this file")
    args = parser.parse_args(argv)
    if args.markdown:
        put(args.markdown, "serving.py", page(json.loads(RESULTS.read_text())))
        return 0
    smoke = args.smoke
    sizes = (SMOKE if smoke else SIZES) | ALL
    prompts = _prompts(8 if smoke else 64, sizes["vocab_size"])
    ranks = RankServer()
    with tempfile.TemporaryDirectory() as directory:
        ranks(1, f"{WORKER}:make_material", directory, sizes)
        export_directory(Path(directory, "model"), Path(directory, "exported"), None, 10**9)
        server = start_serve("--model_name_or_path", Path(directory, "model"), "--batch_size", BATCH, "--device", "cpu")
        ways = _served(server, prompts) | _transformers(Path(directory, "exported"), prompts)
        texts, seconds = _in_turns(ways, args.rounds)
        server.stop()
        for name in texts:
            if not isinstance(texts[name][0], str):
                [texts[name]] = ranks(1, f"{WORKER}:texts", directory, texts[name])
    ranks.close()
    report = _report(texts, seconds)
    _show(report)
    if args.output:
        args.output.write_text(json.dumps(report, indent=1) + "\n")
    return 0 if len(set(map(tuple, texts.values()))) == 1 else 1


def _prompts(count: int, vocabulary: int) -> list[list[int]]:
    draw = random.Random(0)
    return [[draw.randrange(3, vocabulary) for _ in range(draw.randint(4, 40))] for _ in range(count)]


def _served(server: Server, prompts: list[list[int]]) -> dict[str, Callable[[], list[str]]]:
    client, pool = server.client(), ThreadPoolExecutor(len(prompts))

    def ask(prompt: list[int]) -> str:
        reply = client.completions.create(model="model", prompt=prompt, max_tokens=TOKENS, temperature=0)
        return reply.choices[0].text

    return {
        "server, one client": lambda: [ask(prompt) for prompt in prompts],
        f"server, {len(prompts)} clients": lambda: list(pool.map(ask, prompts)),
    }


def _transformers(exported: Path, prompts: list[list[int]]) -> dict[str, Callable[[], list[list[int]]]]:
    """They give ids, not texts."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(exported, torch_dtype=torch.float32).eval()

    def answer(batch: list[list[int]]) -> list[list[int]]:
        longest = max(map(len, batch))
        ids = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in batch])
        mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in batch])
        with torch.no_grad():
            out = model.generate(
                input_ids=ids, attention_mask=mask, max_new_tokens=TOKENS, do_sample=False, pad_token_id=0
            )
        return out[:, longest:].tolist()

    def in_batches(size: int) -> list[list[int]]:
        batches = [prompts[start : start + size] for start in range(0, len(prompts), size)]
        return [ids for batch in batches for ids in answer(batch)]

    return {
        "transformers, one by one": lambda: in_batches(1),
        f"transformers, batches of {BATCH}": lambda: in_batches(BATCH),
    }


def _in_turns(ways: dict[str, Callable], rounds: int) -> tuple[dict[str, list], dict[str, list[float]]]:
    """What each way answers, and its seconds in each round; a first round that is not counted warms all of them."""
    answers, seconds = {}, {name: [] for name in ways}
    for _ in track(range(1 + rounds), "rounds", console=Console(stderr=True)):
        for name, work in ways.items():
            began = time.perf_counter()
            answers[name] = work()
            seconds[name].append(time.perf_counter() - began)
    return answers, {name: times[1:] for name, times in seconds.items()}


def _report(texts: dict[str, list[str]], seconds: dict[str, list[float]]) -> dict:
    first = next(iter(texts.values()))
    return {
        "machine": machine_facts(os.cpu_count()),
        "versions": {name: version(name) for name in ("paddlepaddle", "paddlenlp", "torch", "transformers")},
        "answers": len(first),
        "seconds": seconds,
        "same_texts": {
            name: sum(one == other for one, other in zip(said, first, strict=True)) for name, said in texts.items()
        },
    }


def rows(report: dict) -> list[list[str]]:
    """Medians over the rounds, in each of which all had their turn."""
    alone, *_, peer = report["seconds"].values()
    answers = report["answers"]
    return [
        [
            name,
            f"{answers * TOKENS / median(seconds):,.0f}",
            f"{median(map(truediv, alone, seconds)):.2f}",
            f"{median(map(truediv, peer, seconds)):.2f}",
            f"{report['same_texts'][name]} of {answers}",
        ]
        for name, seconds in report["seconds"].items()
    ]


def page(report: dict) -> str:
    """What docs/serve.md shows of a report."""
    return f"\n{markdown(HEADINGS, rows(report), range(1, len(HEADINGS)))}\n\n{conditions(report)}\n\n"


def _show(report: dict) -> None:
    table = Table(title=f"{report['answers']} answers of {TOKENS} tokens")
    for heading in HEADINGS:
        table.add_column(heading, justify="right" if heading else "left")
    for row in rows(report):
        table.add_row(*row)
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
