"""Log-likelihoods and written answers by lm-evaluation-harness, for test_evaluate.py, test_written.py and
tests/serving/test_harness.py.

python -m tests.evaluation.harness MODEL DATA OUT SHOTS bare|chat TASK...

MODEL: a directory, or NAME@URL=DIRECTORY for a model of a server with the tokenizer of a directory.
"""

import json
import sys
from pathlib import Path

import yaml
from lm_eval import simple_evaluate, tasks
from lm_eval.api.registry import get_model
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks.hellaswag import utils as hellaswag
from lm_eval.tasks.mlqa.utils import process_results_zh
from lm_eval.tasks.squadv2.task import SQuAD2
from lm_eval.tasks.winogrande import preprocess_winogrande as winogrande
from transformers.data.metrics import squad_metrics

LONGEST = 16
FILTERED = {"exact_match,strict-match": "strict_match", "exact_match,flexible-extract": "flexible_extract"}


def task(name: str, file: Path, measures: list[str], **more) -> dict:
    """As its own file of the task says, with the rows of a local file."""
    return {
        "task": name,
        "output_type": "multiple_choice",
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
    file = Path(tasks.__file__).parent / "gsm8k" / "gsm8k.yaml"
    gsm8k = yaml.safe_load(file.read_text())
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
        task(
            "hellaswag",
            data / "hellaswag_val.jsonl",
            ["acc", "acc_norm"],
            process_docs=hellaswag.process_docs,
            doc_to_text="{{query}}",
            doc_to_target="{{label}}",
            doc_to_choice="choices",
        ),
        task(
            "winogrande",
            data / "winogrande_val.jsonl",
            ["acc"],
            doc_to_text=winogrande.doc_to_text,
            doc_to_target=winogrande.doc_to_target,
            doc_to_choice=winogrande.doc_to_choice,
        ),
        task(
            "mmlu",
            data / "law_test.jsonl",
            ["acc"],
            dataset_kwargs={"data_files": {split: str(data / f"law_{split}.jsonl") for split in ("test", "dev")}},
            fewshot_split="dev",
            fewshot_config={"sampler": "first_n"},
            description="The following are multiple choice questions (with answers) about law.\n\n",
            doc_to_text="{{question.strip()}}\n"
            "A. {{choices[0]}}\nB. {{choices[1]}}\nC. {{choices[2]}}\nD. {{choices[3]}}\nAnswer:",
            doc_to_choice=["A", "B", "C", "D"],
            doc_to_target="answer",
        ),
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
        bootstrap_iters=0,
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
                FILTERED.get(key, key.removesuffix(",none")): value
                for key, value in measures
                if isinstance(value, float) and "_stderr" not in key
            },
        }
    output.write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[6:], int(sys.argv[4]), sys.argv[5] == "chat")
