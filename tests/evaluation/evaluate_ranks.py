"""Evaluations on ranks, for test_evaluate.py."""

import contextlib
import io
import os
import random
from itertools import islice
from pathlib import Path

WORDS = [
    "the",
    "model",
    "reads",
    "text",
    "and",
    "learns",
    "from",
    "many",
    "files",
    "where",
    "each",
    "function",
    "returns",
]


def write_tasks(directory: str) -> None:
    """mmlu/, ceval/ and cmmlu/ with examples, X_val.jsonl of the others, law_dev.jsonl and law_test.jsonl of mmlu, and
    text.jsonl, of random words."""
    import json

    root, chance = Path(directory), random.Random(5)

    def words(least: int, most: int | None = None) -> str:
        return " ".join(chance.choice(WORDS) for _ in range(chance.randint(least, most or least)))

    for split, count in (("dev", 3), ("test", 8)):
        (root / "mmlu").mkdir(parents=True, exist_ok=True)
        for subject in ("logic", "law"):
            lines = (",".join([words(8), *(words(1, 3) for _ in "ABCD"), chance.choice("ABCD")]) for _ in range(count))
            (root / "mmlu" / f"{subject}_{split}.csv").write_text("".join(f"{line}\n" for line in lines))

    def rows(name: str, count: int, make) -> None:
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("".join(json.dumps(make()) + "\n" for _ in range(count)))

    rows(
        "hellaswag_val.jsonl",
        12,
        lambda: {
            "ctx_a": words(8),
            "ctx_b": words(3),
            "activity_label": words(1),
            "endings": [words(2, 8) for _ in range(4)],
            "label": str(chance.randint(0, 3)),
        },
    )
    rows(
        "winogrande_val.jsonl",
        6,
        lambda: {
            "sentence": f"{words(4)} _ {words(5)}.",
            "option1": words(1),
            "option2": words(1),
            "answer": str(chance.randint(1, 2)),
        },
    )
    for split, count in (("dev", 3), ("test", 8)):
        rows(
            f"law_{split}.jsonl",
            count,
            lambda: {
                "question": words(8),
                "subject": "international_law",
                "choices": [words(1, 3) for _ in "ABCD"],
                "answer": chance.randint(0, 3),
            },
        )
        for folder, subject, question, answer in (
            ("ceval", "law", "question", "answer"),
            ("cmmlu", "agronomy", "Question", "Answer"),
        ):
            rows(
                f"{folder}/{subject}_{'val' if (folder, split) == ('ceval', 'test') else split}.jsonl",
                count,
                lambda: {
                    "id": chance.randint(0, 99),
                    question: words(8).replace("model", "模型 "),
                    **{letter: words(1, 3).replace("text", "文本") for letter in "ABCD"},
                    answer: chance.choice("ABCD"),
                },
            )
    rows(
        "arc_val.jsonl",
        8,
        lambda: {
            "question": words(6),
            "choices": {"text": [words(1, 5) for _ in "ABCD"], "label": list("1234")},
            "answerKey": chance.choice("1234"),
        },
    )
    rows(
        "boolq_val.jsonl",
        8,
        lambda: {"passage": words(20), "question": words(6), "label": chance.randint(0, 1)},
    )
    rows(
        "piqa_val.jsonl",
        8,
        lambda: {"goal": words(6), "sol1": words(2, 9), "sol2": words(2, 9), "label": chance.randint(0, 1)},
    )
    rows("text.jsonl", 4, lambda: {"text": words(5, 200)})


def write_written(directory: str, written: dict[str, list[str]]) -> None:
    """gsm8k/, squad/, cmrc/ and qa/, each with train.jsonl and test.jsonl, of random words. written: what a model
    answers to the tests; some right answers are taken from it, so that it is right at times."""
    import json
    import re

    chance = random.Random(7)

    def words(count: int) -> str:
        return " ".join(chance.choice(WORDS) for _ in range(count))

    def answer(said: str, number: int) -> str:
        """Random words, all of what was said, or half of it. The same are drawn whatever was said."""
        own, parts = words(3), said.split() if number % 3 else []
        return " ".join(parts[: len(parts) // (number % 3)] if parts else []) or own

    def row(name: str, number: int, said: str) -> dict:
        question, right = words(6), answer(said, number)
        if name == "gsm8k":
            numbers = re.findall("[0-9]+", said)
            return {"question": question, "answer": f"{right}\n#### {numbers[-1] if numbers else 7}"}
        if name == "qa":
            return {"question": question, "answers": [right, words(2)]}
        context = "模型读了很多书。" if name == "cmrc" else words(12)
        texts = [] if name == "squad" and number % 5 == 4 else [right, "书" if name == "cmrc" else words(2)]
        answers = {"text": texts, "answer_start": [0] * len(texts)}
        title = {"title": words(1)} if name == "squad" else {}
        return {"id": str(number), **title, "context": context, "question": question, "answers": answers}

    for name in ("gsm8k", "squad", "cmrc", "qa"):
        for split, count in (("train", 2), ("test", 6)):
            file = Path(directory) / name / f"{split}.jsonl"
            file.parent.mkdir(parents=True, exist_ok=True)
            said = written.get(name, [""] * count) if split == "test" else [""] * count
            rows = [row(name, number, said[number]) for number in range(count)]
            file.write_text("".join(json.dumps(each) + "\n" for each in rows))


def make_opt(directory: str) -> None:
    """directory/model, of a family whose requests do not share their beginnings."""
    import json

    from data_tools.tokenizer import save_tokenizer, train_tokenizer
    from launch.families.named_configs import load_config
    from launch.rehearsal.materials import documents
    from launch.training.model import save_random_model

    root = Path(directory)
    root.mkdir(parents=True)
    config = load_config("opt-rehearsal") | {"vocab_size": 384, "init_std": 0.2}
    (root / "config.json").write_text(json.dumps(config))
    save_random_model(str(root / "config.json"), root / "model")
    save_tokenizer(root / "model", train_tokenizer(islice(documents(), 50), 384))


def make_rehearsal(directory: str, configuration: str) -> None:
    from launch.rehearsal.materials import make_materials

    make_materials(Path(directory), configuration)


def evaluate(argv: list[str], kill_after: int = 0, kill_after_scores: int = 0) -> dict:
    """Exit code of launch/commands/evaluate.py's main, and what was said. kill_after: dies when so many items are
    collected; kill_after_scores: when so many log-likelihoods are computed; 0: does not."""
    from data_tools import progress
    from launch.commands.evaluate import main
    from launch.evaluation.benchmark_results import Collected
    from launch.evaluation.likelihood import Scorer
    from launch.guard import guarded

    progress.SECONDS_BETWEEN_LINES = 0
    if kill_after:
        stock = Collected.add

        def add(self, *item):
            stock(self, *item)
            if len(self.values) == kill_after:
                os._exit(0)

        Collected.add = add
    if kill_after_scores:
        stock_scores = Scorer.scores

        def scores(self, *given):
            yield from islice(stock_scores(self, *given), kill_after_scores)
            os._exit(0)

        Scorer.scores = scores
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        exit_code = guarded(main, argv)
    return {"exit_code": exit_code, "stdout": out.getvalue(), "stderr": err.getvalue()}


def in_rounds(counts: list[int]) -> dict:
    """The rounds of items with so many requests each, and what a scorer that gives 0, 1, 2, ... makes of them."""
    from launch.evaluation.benchmark_run import log_likelihoods, rounds
    from launch.evaluation.shared_prefixes import Request

    class Counting:
        def scores(self, requests, alike):
            yield from ((number, float(number)) for number in reversed(range(len(requests))))

    requests, items = [[Request((1, 2), 1)] * count for count in counts], list(range(len(counts)))
    found = log_likelihoods(Counting(), requests, items, alike=True)
    return {"rounds": list(rounds(requests, items)), "found": list(found)}


def alone(model: str, adapter: str | None, texts: list[list[str]], algorithm: str | None = None) -> list[float]:
    """The log-likelihood of each [text before, continuation], by paddlenlp's model with one of them at a time.
    algorithm: its weights are what codes of that format stand for."""
    import numpy as np
    import paddle

    from launch.adapters.quantization import Format, dequantize, quantize
    from launch.prediction.predictor import load_predictor

    predictor = load_predictor(model, Path(adapter) if adapter else None, "float32")
    linears = [layer for layer in predictor.model.sublayers() if type(layer) is paddle.nn.Linear]
    for layer in linears if algorithm else []:
        layer.weight.set_value(dequantize(quantize(layer.weight, Format(algorithm))))
    found = []
    for before, continuation in texts:
        given = predictor.tokenizer(before)["input_ids"]
        whole = predictor.tokenizer(before + continuation)["input_ids"]
        with paddle.no_grad():
            outputs = predictor.model(input_ids=paddle.to_tensor([whole]))
        logits = (outputs[0] if isinstance(outputs, tuple) else outputs)[0].numpy().astype(np.float64)
        log_probabilities = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        places = range(len(given), len(whole))
        found.append(float(sum(log_probabilities[place - 1, whole[place]] for place in places)))
    return found


def written_alone(model: str, adapter: str | None, texts: list[str], ends: list[list[str]], longest: int) -> list[str]:
    """The answer to each text by paddlenlp's model, one id after another, up to the first of its ends."""
    import paddle

    from launch.generation.text import decode
    from launch.prediction.predictor import load_predictor

    predictor = load_predictor(model, Path(adapter) if adapter else None, "float32")
    found = []
    for text, of_text in zip(texts, ends, strict=True):
        ids = predictor.tokenizer(text)["input_ids"]
        start = len(ids)
        while len(ids) < start + longest and ids[-1:] != [predictor.eos]:
            with paddle.no_grad():
                outputs = predictor.model(input_ids=paddle.to_tensor([ids]))
            logits = outputs[0] if isinstance(outputs, tuple) else outputs
            ids = [*ids, int(logits[0, -1, : predictor.known_ids].argmax())]
        answer = decode(predictor.tokenizer, [token for token in ids[start:] if token != predictor.eos])
        found.append(min((answer.split(end)[0] for end in of_text), key=len))
    return found


def ended(model: str) -> dict:
    """Two answers, whole and with an end that stands in the first alone and one that stands before it, and how many
    steps the model makes."""
    from launch.generation.generate import Decoding
    from launch.prediction.predictor import load_predictor

    predictor = load_predictor(model, None, "float32")
    steps: list[int] = []
    predictor.model.register_forward_pre_hook(lambda layer, inputs: steps.append(1))
    prompts = [predictor.tokenizer(text)["input_ids"] for text in ("the model reads", "each function")]

    def answers(prompts: list[list[int]], until: tuple[str, ...] = ()) -> list[str]:
        steps.clear()
        found = dict(next(predictor.answer(prompts, Decoding(24), len(prompts), until)))
        return [found[number] for number in range(len(prompts))]

    whole = answers(prompts)
    middle = len(whole[0]) // 2
    end = next(
        whole[0][place : place + 3] for place in range(middle, 0, -1) if whole[0][place : place + 3] not in whole[1]
    )
    found = {"end": end, "whole": whole, "ended": answers(prompts, (end, "reads")), "steps": len(steps)}
    answers(prompts[:1], (end,))
    return found | {"steps alone": len(steps)}
