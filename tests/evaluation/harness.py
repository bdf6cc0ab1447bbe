"""Log-likelihoods by lm-evaluation-harness, for test_evaluate.py and tests/serving/test_harness.py.

python -m tests.evaluation.harness MODEL DATA OUT SHOTS bare|chat TASK...

MODEL: a directory, or NAME@URL=DIRECTORY for a model of a server with the tokenizer of a directory.
"""

import json
import sys
from pathlib import Path

from lm_eval import simple_evaluate
from lm_eval.api.registry import get_model
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks.hellaswag import utils as hellaswag
from lm_eval.tasks.winogrande import preprocess_winogrande as winogrande


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


def main(model: str, data: Path, output: Path, names: list[str], shots: int, chat: bool) -> None:
    tasks = [
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
        tasks=[each for each in tasks if each["task"] in names],
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
            "greedy": [one[1] for one in answers if isinstance(one, (list, tuple))],
            "measures": {
                key.removesuffix(",none"): value
                for key, value in measures
                if isinstance(value, float) and key.endswith(",none")
            },
        }
    output.write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[6:], int(sys.argv[4]), sys.argv[5] == "chat")
