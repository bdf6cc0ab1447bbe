"""Log-likelihoods and written answers by lm-evaluation-harness, for test_evaluate.py, test_written.py and
tests/serving/test_harness.py.

python -m tests.evaluation.harness MODEL DATA OUT SHOTS bare|chat TASK...

MODEL: a directory, or NAME@URL=DIRECTORY for a model of a server with the tokenizer of a directory.
"""

import json
import sys
from pathlib import Path

from lm_eval import simple_evaluate, tasks
from lm_eval.api.registry import get_model
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks._yaml_loader import load_yaml
from lm_eval.tasks.mlqa.utils import process_results_zh
from lm_eval.tasks.squadv2.task import SQuAD2
from transformers.data.metrics import squad_metrics

LONGEST = 16
TASKS = Path(tasks.__file__).parent
# Of a task, its own file and the rows of each split.
PUBLISHED = {
    "mmlu": ("mmlu/default/mmlu_international_law.yaml", {"test": "law_test.jsonl", "dev": "law_dev.jsonl"}),
    "ceval": ("ceval/ceval-valid_law.yaml", {"test": "ceval/law_val.jsonl", "dev": "ceval/law_dev.jsonl"}),
    "cmmlu": ("cmmlu/cmmlu_agronomy.yaml", {"test": "cmmlu/agronomy_test.jsonl", "dev": "cmmlu/agronomy_dev.jsonl"}),
    "arc": ("arc/arc_easy.yaml", {"test": "arc_val.jsonl"}),
    "hellaswag": ("hellaswag/hellaswag.yaml", {"test": "hellaswag_val.jsonl"}),
    "boolq": ("super_glue/boolq/default.yaml", {"test": "boolq_val.jsonl"}),
    "piqa": ("piqa/piqa.yaml", {"test": "piqa_val.jsonl"}),
    "winogrande": ("winogrande/default.yaml", {"test": "winogrande_val.jsonl"}),
}
MEASURES = {"strict-match": "strict_match", "flexible-extract": "flexible_extract"}  # of its filters


def published(name: str, data: Path) -> dict:
    """As its own file of the task says, with the rows of local files."""
    file, splits = PUBLISHED[name]
    own = load_yaml(TASKS / file)
    rows = {split: str(data / path) for split, path in splits.items()}
    return own | {
        "task": name,
        "dataset_path": "json",
        "dataset_name": None,
        "dataset_kwargs": {"data_files": rows},
        "training_split": None,
        "validation_split": None,
        "test_split": "test",
    }


def task(name: str, file: Path, measures: list[str], **more) -> dict:
    return {
        "task": name,
        "test_split": "test",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(file)}},
        "metric_list": [{"metric": measure} for measure in measures],
    } | more


def written(name: str, data: Path, measures: list[str], until: list[str], **more) -> dict:
    files = {split: str(data / name / f"{split}.jsonl") for split in ("train", "test")}
    return (
        task(name, files["test"], [])
        | {
            "output_type": "generate_until",
            "metric_list": [
                {"metric": measure, "aggregation": "bleu" if measure == "bleu" else "mean", "higher_is_better": True}
                for measure in measures
            ],
            "dataset_kwargs": {"data_files": files},
            "fewshot_split": "train",
            "fewshot_config": {"sampler": "first_n"},
            "generation_kwargs": {"until": until, "max_gen_toks": LONGEST, "do_sample": False},
        }
        | more
    )


def squad_scores(right: list[str], answer: str) -> dict:
    return {
        "exact_match": max(squad_metrics.compute_exact(one, answer) for one in right),
        "f1": max(squad_metrics.compute_f1(one, answer) for one in right),
    }


def written_tasks(data: Path) -> list[dict]:
    gsm8k = load_yaml(TASKS / "gsm8k" / "gsm8k.yaml")
    kept = ("doc_to_text", "doc_to_target", "metric_list", "filter_list")
    return [
        written("gsm8k", data, [], gsm8k["generation_kwargs"]["until"], **{key: gsm8k[key] for key in kept}),
        written(
            "squad",
            data,
            ["exact_match", "f1"],
            ["\n"],
            doc_to_text=lambda doc: SQuAD2.doc_to_text(None, doc),
            doc_to_target=lambda doc: SQuAD2.doc_to_target(None, doc).strip(),
            process_results=lambda doc, found: squad_scores(doc["answers"]["text"] or ["unanswerable", ""], found[0]),
        ),
        written(
            "cmrc",
            data,
            ["exact_match", "f1"],
            ["\n"],
            doc_to_text="语境: {{context}}\n\n问题: {{question}}\n\n回答:",
            doc_to_target="{{answers['text'][0]}}",
            process_results=lambda doc, found: process_results_zh({"answers": doc["answers"]["text"]}, found),
        ),
        written(
            "qa",
            data,
            ["exact_match", "f1", "bleu"],
            ["\n\n"],
            doc_to_text="Question: {{question}}\nAnswer:",
            doc_to_target="{{answers[0]}}",
            process_results=lambda doc, found: {
                **squad_scores(doc["answers"], found[0]),
                "bleu": (doc["answers"], found[0]),
            },
        ),
    ]


def main(model: str, data: Path, output: Path, names: list[str], shots: int, chat: bool) -> None:
    known = [
        *written_tasks(data),
        *(published(name, data) for name in PUBLISHED),
        task(
            "text",
            data / "text.jsonl",
            ["word_perplexity", "byte_perplexity", "bits_per_byte"],
            output_type="loglikelihood_rolling",
            doc_to_text="",
            doc_to_target="{{text}}",
        ),
        task(
            "answers",
            data / "text.jsonl",
            ["bypass"],
            output_type="generate_until",
            doc_to_text="{{text[:40]}}",
            doc_to_target="",
            generation_kwargs={"until": ["e"], "max_gen_toks": 12, "do_sample": False},
        ),
    ]
    server, _, directory = model.rpartition("=")
    # The fast tokenizer is made from the slow one, by code that asks for a newer protobuf than Paddle's.
    tokenized = {"use_fast_tokenizer": False, "add_bos_token": True}
    if server:
        name, _, url = server.partition("@")
        client = {"model": name, "base_url": url, "tokenizer": directory, "max_length": 512}
        harness = get_model("local-completions")(batch_size=4, **client, **tokenized)
    else:
        harness = HFLM(pretrained=directory, device="cpu", batch_size=4, dtype="float32", **tokenized)
    report = simple_evaluate(
        model=harness,
        tasks=[each for each in known if each["task"] in names],
        num_fewshot=shots,
        apply_chat_template=chat,
        log_samples=True,
        bootstrap_iters=100,  # of BLEU; at 0 there are no standard errors at all
    )
    assert report
    found = {}
    for name, samples in report["samples"].items():
        answers = [answer[0] for sample in samples for answer in sample["resps"]]
        measures = report["results"][name].items()
        found[name] = {
            "log_likelihoods": [one[0] if isinstance(one, (list, tuple)) else one for one in answers],
            "others": [one if isinstance(one, str) else one[1] for one in answers if not isinstance(one, float)],
            # An item has one sample for each filter of its answer.
            "written": list({sample["doc_id"]: sample["resps"][0][0] for sample in samples}.values()),
            "measures": {
                measure_of(key): value
                for key, value in measures
                if isinstance(value, float) and not key.startswith("bleu_stderr")
            },
        }
    output.write_text(json.dumps(found))


def measure_of(key: str) -> str:
    """acc_stderr of "acc_stderr,none", strict_match of "exact_match,strict-match"."""
    name, _, of_filter = key.partition(",")
    return name.replace("exact_match", MEASURES.get(of_filter, "exact_match"))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[6:], int(sys.argv[4]), sys.argv[5] == "chat")
