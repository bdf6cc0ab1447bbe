"""Evaluations on ranks, for test_evaluate.py."""

import contextlib
import io
import json
import os
import random
from itertools import islice
from pathlib import Path

SUBJECTS = {"mmlu": "international_law", "ceval": "law", "cmmlu": "agronomy"}


def write_tasks(directory: str) -> None:
    """DIRECTORY/NAME/SUBJECT_SPLIT.jsonl of each benchmark, of random words, in the columns of lm-eval's data sets."""
    words = ["the", "model", "reads", "text", "and", "learns", "from", "many", "files", "where", "each", "function"]
    chance = random.Random(5)

    def some(least: int, most: int | None = None) -> str:
        return " ".join(chance.choice(words) for _ in range(chance.randint(least, most or least)))

    def letters(question: str, answer: str) -> dict:
        choices = {letter: some(1, 3) for letter in "ABCD"}
        return {"id": 1, question: f"模型 {some(8)}", **choices, answer: chance.choice("ABCD")}

    def sentence() -> dict:
        text = f"{some(4)} _ {some(5)}."
        return {"sentence": text, "option1": some(1), "option2": some(1), "answer": chance.choice("12")}

    def arc() -> dict:
        choices = {"text": [some(1, 5) for _ in "1234"], "label": [*"1234"]}
        return {"question": some(6), "choices": choices, "answerKey": chance.choice("1234")}

    def endings() -> dict:
        texts = {"ctx_a": some(8), "ctx_b": some(3), "activity_label": some(1)}
        return texts | {"endings": [some(2, 8) for _ in "abcd"], "label": str(chance.randint(0, 3))}

    makers = {
        "mmlu": lambda: {"question": some(8), "choices": [some(1, 3) for _ in "ABCD"], "answer": chance.randint(0, 3)},
        "ceval": lambda: letters("question", "answer"),
        "cmmlu": lambda: letters("Question", "Answer"),
        "arc": arc,
        "hellaswag": endings,
        "boolq": lambda: {"passage": some(20), "question": some(6), "label": chance.randint(0, 1)},
        "piqa": lambda: {"goal": some(6), "sol1": some(2, 9), "sol2": some(2, 9), "label": chance.randint(0, 1)},
        "winogrande": sentence,
        "gsm8k": lambda: {"question": some(6), "answer": f"{some(3)}\n#### {chance.randint(1, 9)}"},
        "qa": lambda: {"question": some(6), "answers": [some(3), some(2)]},
        "text": lambda: {"text": some(5, 200)},
    }
    for name, make in makers.items():
        (Path(directory) / name).mkdir()
        evaluated = "test" if name in ("mmlu", "cmmlu", "arc", "gsm8k", "qa", "text") else "val"
        for split, count in (("dev" if name in SUBJECTS else "train", 3), (evaluated, 8)):
            if name != "text" or split == "test":
                file = Path(directory) / name / f"{SUBJECTS.get(name, name)}_{split}.jsonl"
                file.write_text("".join(json.dumps(make()) + "\n" for _ in range(count)))


def make_opt(directory: str) -> None:
    """directory/model, of a family whose requests do not share their beginnings."""
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


def evaluate(argv: list[str], kill_after: int = 0) -> dict:
    """Exit code of launch/commands/evaluate.py's main, and what was said. kill_after: dies when so many batches are
    kept; 0: does not."""
    from data_tools import progress
    from launch.commands.evaluate import main
    from launch.evaluation.task_results import Collected
    from launch.guard import guarded

    progress.SECONDS_BETWEEN_LINES = 0
    stock, kept = Collected.add, []

    def add(self, *values):
        stock(self, *values)
        kept.append(values)
        if len(kept) == kill_after:
            os._exit(0)

    Collected.add = add
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        exit_code = guarded(main, argv)
    return {"exit_code": exit_code, "stdout": out.getvalue(), "stderr": err.getvalue(), "batches": len(kept)}


def alone(model: str, adapter: str | None, texts: list[list[str]], algorithm: str | None = None) -> list[float]:
    """The log-likelihood of each [text before, continuation], by paddlenlp's model with one of them at a time.
    algorithm: its weights are what codes of that format stand for."""
    return Alone(model, adapter, algorithm).log_likelihoods(texts)


class Alone:
    """paddlenlp's model, asked for one text at a time, with float64 behind its logits."""

    def __init__(self, model: str, adapter: str | None = None, algorithm: str | None = None):
        import paddle

        from launch.adapters.quantization import Format, dequantize, quantize
        from launch.prediction.predictor import load_predictor

        self.predictor = load_predictor(model, Path(adapter) if adapter else None, "float32")
        linears = [layer for layer in self.predictor.model.sublayers() if type(layer) is paddle.nn.Linear]
        for layer in linears if algorithm else []:
            layer.weight.set_value(dequantize(quantize(layer.weight, Format(algorithm))))

    def ids(self, text: str) -> list[int]:
        return self.predictor.tokenizer(text)["input_ids"]

    def logits(self, ids: list[int]):
        """float64 [tokens, vocabulary]"""
        import numpy as np
        import paddle

        with paddle.no_grad():
            outputs = self.predictor.model(input_ids=paddle.to_tensor([ids]))
        return (outputs[0] if isinstance(outputs, tuple) else outputs)[0].numpy().astype(np.float64)

    def scored(self, given: list[int], scored: list[int]) -> tuple[float, bool]:
        """(log-likelihood, whether the scored ids are the most likely ones) behind given ids."""
        import numpy as np

        logits = self.logits([*given, *scored][:-1])[len(given) - 1 :]
        chosen = logits[range(len(scored)), scored]
        value = (chosen - np.log(np.exp(logits).sum(axis=-1))).sum()
        return float(value), bool((logits.argmax(axis=-1) == scored).all())

    def log_likelihoods(self, texts: list[list[str]]) -> list[float]:
        pairs = [(self.ids(before), self.ids(before + after)) for before, after in texts]
        return [self.scored(whole[: len(given)], whole[len(given) :])[0] for given, whole in pairs]

    def answer(self, text: str, ends: list[str], longest: int) -> str:
        """The most likely answer, one id after another, up to the first of its ends."""
        from launch.generation.text import decode

        ids, start = self.ids(text), len(self.ids(text))
        while len(ids) < start + longest and ids[-1] not in self.predictor.ends:
            ids.append(int(self.logits(ids)[-1, : self.predictor.known_ids].argmax()))
        said = decode(self.predictor.tokenizer, [token for token in ids[start:] if token not in self.predictor.ends])
        return min((said.split(end)[0] for end in ends), key=len, default=said)


def reference(model: str, root: str, files: dict[str, str], shots: int, longest: int, cache: str) -> dict:
    """lm-eval's results and answers for its own definitions, with the rows of write_tasks() read by itself, and a model
    that is asked for one text at a time. files: from the name of a benchmark to lm-eval's file."""
    import datasets
    from lm_eval import simple_evaluate, utils
    from lm_eval.api.model import TemplateLM
    from lm_eval.tasks import TaskManager
    from lm_eval.tasks import __file__ as tasks_file
    from lm_eval.tasks._yaml_loader import load_yaml

    datasets.config.HF_DATASETS_CACHE = Path(cache)
    model_alone = Alone(model)

    class Reference(TemplateLM):
        eot_token_id = property(lambda self: model_alone.predictor.tokenizer.eos_token_id)
        prefix_token_id = property(lambda self: model_alone.predictor.tokenizer.bos_token_id)

        def tok_encode(self, string, add_special_tokens=None, **_):
            return model_alone.ids(string)[1 if add_special_tokens is False else 0 :]

        def _loglikelihood_tokens(self, requests, **_):
            return [model_alone.scored(given, scored) for _, given, scored in requests]

        def loglikelihood_rolling(self, requests, disable_tqdm=True):
            found = []
            for request in requests:
                windows = utils.get_rolling_token_windows(
                    self.tok_encode(request.args[0]), self.prefix_token_id, int(model_alone.predictor.positions), 1
                )
                pairs = [utils.make_disjoint_window(window) for window in windows]
                found.append(sum(model_alone.scored(*pair)[0] for pair in pairs))
            return found

        def generate_until(self, requests, disable_tqdm=True):
            return [model_alone.answer(one.args[0], one.args[1]["until"], longest) for one in requests]

    tasks = []
    for name, file in files.items():
        own = load_yaml(Path(tasks_file).parent / file)
        rows = {path.stem.rpartition("_")[2]: str(path) for path in (Path(root) / name).iterdir()}
        for key in ("training_split", "validation_split", "test_split", "fewshot_split"):
            split = "val" if own.get(key) == "validation" else own.get(key)
            own[key] = split if split in rows else None
        data = {"dataset_path": "json", "dataset_name": None, "dataset_kwargs": {"data_files": rows}}
        tasks.append({key: value for key, value in own.items() if key != "tag"} | data | {"task": name})
    found = simple_evaluate(
        model=Reference(),
        tasks=tasks,
        num_fewshot=shots,
        bootstrap_iters=1000,
        task_manager=TaskManager(include_defaults=False),
    )
    answers = {name: [sample["resps"] for sample in samples] for name, samples in found["samples"].items()}
    return {"results": json.loads(json.dumps(found["results"], default=str)), "answers": answers}


def ended(model: str) -> dict:
    """Two answers, whole and with an end that stands in the middle of the first, and the steps of the model that the
    first takes alone."""
    from launch.generation.generate import Decoding
    from launch.prediction.predictor import load_predictor

    predictor = load_predictor(model, None, "float32")
    steps: list[int] = []
    predictor.model.register_forward_pre_hook(lambda layer, inputs: steps.append(1))
    prompts = [predictor.tokenizer(text)["input_ids"] for text in ("the model reads", "each function")]

    def answers(count: int, *until: str) -> list[str]:
        steps.clear()
        return [text for _, text in sorted(next(predictor.answer(prompts[:count], Decoding(24), count, until)))]

    whole = answers(2)
    end = whole[0][len(whole[0]) // 2 :][:4]
    found = {"end": end, "whole": whole, "ended": answers(2, end, "reads")}
    return found | {"alone": answers(1, end), "steps": len(steps)}


def over_a_vocabulary(size: int) -> list[float]:
    """The largest errors of log-probabilities over so many ids: of an evaluation, and of a server."""
    from types import SimpleNamespace

    import numpy as np
    import paddle

    from launch.evaluation.likelihood import Scorer
    from launch.serving.likelihoods import likelihoods

    logits = np.random.default_rng(0).normal(0, 3, (8, size)).astype(np.float32)
    exact = logits.astype(np.float64)
    exact = (exact - np.log(np.exp(exact).sum(axis=-1, keepdims=True)))[:, 7]
    scorer = Scorer.__new__(Scorer)
    scorer.logits = SimpleNamespace(
        read=lambda inputs: paddle.to_tensor(logits), parts=lambda states: iter([(0, states)])
    )
    found, greedy = scorer._log_probabilities({}, np.arange(8), np.full(8, 7))
    told = [one.value for one in likelihoods(paddle.to_tensor(logits), [7] * 8, 1, None)]
    assert greedy.tolist() == (logits.argmax(axis=-1) == 7).tolist()
    return [float(np.abs(values - exact).max()) for values in (found, np.array(told))]
