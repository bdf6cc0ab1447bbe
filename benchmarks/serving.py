"""The server with 64 clients, beside transformers on the same model, exported: tokens a second, waiting, memory.

    .venv/bin/python benchmarks/serving.py            # 20 M parameters, 64 answers, 2,000 requests more: 6 minutes
    .venv/bin/python benchmarks/serving.py --smoke    # a tiny model, 8 answers: does it run?
    .venv/bin/python benchmarks/serving.py --output benchmarks/results/serving.json
    .venv/bin/python benchmarks/serving.py --markdown    # writes benchmarks/results/serving.md

All on the CPU in float32, greedy, in turns. Prompts have 4 to 40 ids, answers 8 to 96, of lengths that are mixed.
launch/commands/serve.py over REST, as it is and with the operators of `make custom-ops`: all prompts at once, and once
more as streams, which tell how long each waits for its first token. Of transformers, in the directory that
launch/commands/export.py makes of the model: generate() in padded batches, each as long as its longest answer, and its
own continuous batching. The answers are compared. At the end the memory of the server while it answers --requests more.
Needs torch and transformers (requirements/compare.txt).
"""

import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.metadata import version
from operator import truediv
from pathlib import Path
from statistics import median, quantiles

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)  # the repository, not benchmarks/

import psutil
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.cpu_training import machine_facts
from benchmarks.page import conditions, put, stored_parser
from launch.reporting.markdown import markdown
from launch.weights.model_directories import export_directory
from tests.custom_ops.kernels import install_into
from tests.ranks import RankServer
from tests.serving.servers import Server, start_serve

SIZES = {"vocab_size": 8000, "hidden_size": 384, "intermediate_size": 1024, "num_hidden_layers": 8}
SMOKE = {"vocab_size": 384, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
ALL = {"num_attention_heads": 8, "num_key_value_heads": 8, "initializer_range": 0.1}
ANSWERS = (8, 96)  # tokens
BATCHES = (16, 64)
HEADINGS = ("", "tokens/s", "of the best batches", "single rounds", "same texts")
COMPILED = "server with custom-ops"
RESULTS = Path(__file__).resolve().parent / "results" / "serving.json"
WORKER = "benchmarks.serving_worker"


def main(argv: list[str]) -> int:
    """Run the command."""
    parser = stored_parser(__doc__)
    parser.add_argument("--smoke", action="store_true", help="a tiny model")
    parser.add_argument("--rounds", type=int, default=3, help="turns that each way gets")
    parser.add_argument("--requests", type=int, default=2000, help="while the server's memory is watched")
    args = parser.parse_args(argv)
    if args.markdown:
        put("serving", "serve", page(json.loads(RESULTS.read_text())))
        return 0
    smoke = args.smoke
    sizes = (SMOKE if smoke else SIZES) | ALL
    asked = _asked(8 if smoke else 64, sizes["vocab_size"])
    ranks = RankServer()
    with tempfile.TemporaryDirectory() as directory:
        ranks(1, f"{WORKER}:make_material", directory, sizes)
        export_directory(Path(directory, "model"), Path(directory, "exported"), None, 10**9)
        install_into(Path(directory, "site"))
        words = (
            *("--model_name_or_path", Path(directory, "model"), "--device", "cpu"),
            *("--kv_cache_gb", 0.5),  # soon full of what is kept, so that memory can be seen to be flat
        )
        server, compiled = start_serve(*words), start_serve(*words, PYTHONPATH=str(Path(directory, "site")))
        waits: list[float] = []
        exported = Path(directory, "exported")
        ways = _served(server, asked, "server", waits) | _served(compiled, asked, COMPILED, [])
        ways |= _transformers(exported, asked)
        ways["transformers, continuous"] = _continuous(exported, asked)
        texts, seconds = _in_turns(ways, args.rounds)
        memory = _memory(server, asked, 16 if smoke else args.requests)
        server.stop()
        compiled.stop()
        for name in texts:
            if not isinstance(texts[name][0], str):
                [texts[name]] = ranks(1, f"{WORKER}:texts", directory, texts[name])
    ranks.close()
    waits = waits[len(asked) :]  # a first round is not counted
    report = _report(texts, seconds) | {"tokens": sum(length for _, length in asked), "waits": waits, "memory": memory}
    _show(report)
    if args.output:
        args.output.write_text(json.dumps(report, indent=1) + "\n")
    return 0 if len(set(map(tuple, texts.values()))) == 1 else 1


def _asked(count: int, vocabulary: int) -> list[tuple[list[int], int]]:
    """Return prompts and the lengths of their answers."""
    draw = random.Random(0)
    return [
        ([draw.randrange(3, vocabulary) for _ in range(draw.randint(4, 40))], draw.randint(*ANSWERS))
        for _ in range(count)
    ]


def _served(server: Server, asked: list, name: str, waits: list[float]) -> dict[str, Callable[[], list[str]]]:
    """Return the ways to ask the server. waits: receives the seconds that each stream waits for its first text."""
    client, pool = server.client(), ThreadPoolExecutor(len(asked))

    def ask(one: tuple[list[int], int]) -> str:
        reply = client.completions.create(model="model", prompt=one[0], max_tokens=one[1], temperature=0)
        return reply.choices[0].text

    def stream(one: tuple[list[int], int]) -> str:
        began, text = time.perf_counter(), ""
        events = client.completions.create(model="model", prompt=one[0], max_tokens=one[1], temperature=0, stream=True)
        for event in events:
            if not text:
                waits.append(time.perf_counter() - began)
            text += event.choices[0].text or "\0"
        return text.replace("\0", "")

    return {
        f"{name}, {len(asked)} clients": lambda: list(pool.map(ask, asked)),
        f"{name}, streams": lambda: list(pool.map(stream, asked)),
    }


def _memory(server: Server, asked: list, count: int) -> list[int]:
    """Return the bytes of the server before, and after each quarter of `count` requests of all clients."""
    process, client = psutil.Process(server.process.pid), server.client()
    used = [process.memory_info().rss]

    def ask(number: int) -> None:
        prompt, length = asked[number % len(asked)]
        client.completions.create(model="model", prompt=[3 + number, *prompt], max_tokens=length, temperature=0)

    with ThreadPoolExecutor(len(asked)) as pool:
        for quarter in range(4):
            list(pool.map(ask, range(quarter * count // 4, (quarter + 1) * count // 4)))
            used.append(process.memory_info().rss)
    return used


def _transformers(exported: Path, asked: list) -> dict[str, Callable[[], list[list[int]]]]:
    """Return the ways to generate with transformers, which give ids, not texts."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(exported, torch_dtype=torch.float32).eval()

    def answer(batch: list) -> list[list[int]]:
        longest = max(len(prompt) for prompt, _ in batch)
        ids = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt, _ in batch])
        mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt, _ in batch])
        most = max(length for _, length in batch)
        with torch.no_grad():
            out = model.generate(
                input_ids=ids, attention_mask=mask, max_new_tokens=most, do_sample=False, pad_token_id=0
            )
        return [row[:length] for row, (_, length) in zip(out[:, longest:].tolist(), batch, strict=True)]

    def in_batches(size: int) -> list[list[int]]:
        batches = [asked[start : start + size] for start in range(0, len(asked), size)]
        return [ids for batch in batches for ids in answer(batch)]

    return {f"transformers, batches of {size}": partial(in_batches, size) for size in BATCHES}


def _continuous(exported: Path, asked: list) -> Callable[[], list[list[int]]]:
    """Return transformers' own continuous batching, on a model of its own.

    Its thread is started and stopped each time: it would take a core while others have their turn.
    """
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import AutoModelForCausalLM, GenerationConfig

    Tokenizer(WordLevel({"?": 0}, "?")).save(str(exported / "tokenizer.json"))  # it wants one, for its log
    model = AutoModelForCausalLM.from_pretrained(exported, torch_dtype=torch.float32, attn_implementation="sdpa_paged")
    # All have room at once. Its attention on a CPU compares max_batch_tokens with all blocks in each step, used or not:
    # it was slower with 128 tokens, and with blocks of 32.
    blocks = sum(-(-(len(prompt) + length) // 16) for prompt, length in asked)
    limits = {"num_blocks": blocks, "block_size": 16, "max_batch_tokens": max(len(asked), 32)}
    config = GenerationConfig(do_sample=False, eos_token_id=model.config.eos_token_id, **limits)
    model.eval()

    def answer() -> list[list[int]]:
        manager = model.init_continuous_batching(generation_config=config)
        manager.start()
        try:
            numbers = [manager.add_request(prompt, max_new_tokens=length) for prompt, length in asked]
            found: dict[str, list[int]] = {}
            while len(found) < len(asked):
                result = manager.get_result(timeout=1)
                if result and result.status.value == "finished":
                    found[result.request_id] = result.generated_tokens
                assert manager.is_running(), "its thread has ended"
        finally:
            manager.stop(block=True, timeout=60)
        return [found[number] for number in numbers]

    return answer


def _in_turns(ways: dict[str, Callable], rounds: int) -> tuple[dict[str, list], dict[str, list[float]]]:
    """Return each way's answers and seconds in each round; a first round that is not counted warms all of them."""
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
    """Return medians over the rounds, in each of which all had their turn.

    Ratios are to the faster size of batches; of single rounds the smallest and the largest one.
    """
    best = min((report["seconds"][name] for name in report["seconds"] if "batches" in name), key=median)
    ratios = {name: list(map(truediv, best, seconds)) for name, seconds in report["seconds"].items()}
    return [
        [
            name,
            f"{report['tokens'] / median(seconds):,.0f}",
            f"{median(ratios[name]):.2f}",
            f"{min(ratios[name]):.2f} to {max(ratios[name]):.2f}",
            f"{report['same_texts'][name]} of {report['answers']}",
        ]
        for name, seconds in report["seconds"].items()
    ]


def sentences(report: dict) -> str:
    """Return how long streams wait, and the memory."""
    waits = quantiles(report["waits"], n=100, method="inclusive")
    before, *used = (one / 2**20 for one in report["memory"])
    return (
        f"First tokens of {report['answers']} streams that begin at once: p50 {waits[49]:.2f} s, p99 {waits[98]:.2f} "
        f"s. Memory of the server: {before:,.0f} MiB, after each quarter of the further requests "
        f"{', '.join(f'{one:,.0f}' for one in used)} MiB."
    )


def page(report: dict) -> str:
    """Return the page of a report."""
    table = markdown(HEADINGS, rows(report), range(1, len(HEADINGS)))
    return f"{table}\n\n{sentences(report)}\n\n{conditions(report)}"


def _show(report: dict) -> None:
    table = Table(title=f"{report['answers']} answers of {ANSWERS[0]} to {ANSWERS[1]} tokens")
    for heading in HEADINGS:
        table.add_column(heading, justify="right" if heading else "left")
    for row in rows(report):
        table.add_row(*row)
    Console().print(table)
    Console().print(sentences(report))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
