"""lm-eval as a client of a server, for test_harness.py.

python -m tests.serving.harness_client URL TOKENIZER OUT NAME=PATH...
"""

import json
import sys
from argparse import Namespace
from pathlib import Path

from lm_eval.api.registry import get_model
from lm_eval.evaluator import evaluate

from launch.evaluation.tasks import load_tasks


def main(url: str, tokenizer: str, output: Path, named: list[str]) -> None:
    # The fast tokenizer is made from the slow one, by code that asks for a newer protobuf than Paddle's.
    tokenized = {"tokenizer": tokenizer, "use_fast_tokenizer": False, "add_bos_token": True}
    client = {"model": "model", "base_url": f"{url}/v1/completions", "max_length": 512}
    benchmarks = load_tasks(named, Namespace(split=None, num_fewshot=0, text_key="text", max_bad_lines=0))
    tasks = {name: task for each in benchmarks for name, task in each.tasks.items()}
    for task in tasks.values():
        if task.OUTPUT_TYPE == "generate_until":
            task.set_config("generation_kwargs", {"max_gen_toks": 12}, update=True)
    report = evaluate(get_model("local-completions")(batch_size=4, **client, **tokenized), {"tasks": tasks})
    assert report
    answers = {name: [sample["resps"] for sample in samples] for name, samples in report["samples"].items()}
    output.write_text(json.dumps({"results": report["results"], "answers": answers}))


if __name__ == "__main__":
    main(*sys.argv[1:3], Path(sys.argv[3]), sys.argv[4:])
