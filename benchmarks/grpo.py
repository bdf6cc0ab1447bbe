"""Reinforcement beside TRL with generate() of transformers: speed, exactness of the sampler, and a run that is killed.

    .venv/bin/python benchmarks/grpo.py            # 4 M parameters, 32 answers a step: 2 minutes on two cores
    .venv/bin/python benchmarks/grpo.py --smoke    # a tiny model: does it run?
    .venv/bin/python benchmarks/grpo.py --output benchmarks/results/grpo.json
    .venv/bin/python benchmarks/grpo.py --markdown    # writes benchmarks/results/grpo.md

The same model, prompts, batch, loss (GRPO, one update a rollout, no KL) and optimizer in float32 on a CPU, by
launch/train.py with the operators of `make custom-ops` and by TRL in turns; the first step of each run is not counted.
An answer ends at each token with about the same probability, so that lengths differ. Sampling is with its rewards,
learning with the update; it learns from tokens of prompts and answers, without padding. Shown are medians over rounds,
and ratios. |ln ratio| is that of tokens before the first update, to what they were sampled by. Last a run gets SIGKILL
while it samples, and goes on.
Needs torch and trl (requirements/compare.txt), and g++.
"""

import argparse
import datetime
import json
import os
import shlex
import subprocess
import sys
import tempfile
from itertools import islice
from operator import truediv
from pathlib import Path
from statistics import mean, median

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)  # the repository, not benchmarks/

from rich.console import Console
from rich.table import Table
from safetensors.numpy import load_file, save_file

from benchmarks.cpu_training import default_torch_python, fast_mkl, machine_facts
from benchmarks.page import conditions, put, stored_parser
from launch.commands.demo import arguments_of
from launch.errors import UserError
from launch.processes.logs import KILLED, last_lines, log_path
from launch.rehearsal.materials import documents
from launch.reporting.markdown import markdown
from launch.reporting.records import package_versions, read_train_log
from launch.weights.model_directories import export_directory
from tests.custom_ops.kernels import install_into
from tests.kills.harness import hashes
from tests.ranks import ROOT, RankServer

SIZES = {"vocab_size": 2000, "hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 4}
SMOKE = {"vocab_size": 384, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
ALL = {"num_attention_heads": 8, "num_key_value_heads": 8, "initializer_range": 0.1}
PROMPT, GROUP, RATE, TRUNCATED = 48, 8, 1e-5, 0.8  # tokens at most; answers to each; --learning_rate; --top_p
FAR, END = 1e-5, 2
ROUNDS, STEPS, KILLED_STEP, LAST_STEP = 3, 4, 2, 3
OURS = {
    "group_size": GROUP, "src_length": PROMPT, "learning_rate": RATE, "lr_scheduler_type": "constant",
    "weight_decay": 0, "logging_steps": 1, "do_train": 1, "device": "cpu", "report_to": "none",
}  # fmt: skip
SAME = ("loss", "reward", "entropy", "largest_log_ratio", "grad_norm", "answer_tokens", "consumed_tokens")
SPEEDS = {  # tokens, seconds
    "sampling": ("answered", ["sampling"]),
    "learning": ("learned", ["learning"]),
    "both, sampled": ("answered", ["sampling", "learning"]),
}
HEADINGS = ("", "ours", "TRL", "ours is", "single rounds")
RESULTS = ROOT / "benchmarks" / "results" / "grpo.json"


def main(argv: list[str]) -> int:
    """Run the command."""
    parser = stored_parser(__doc__)
    parser.add_argument("--smoke", action="store_true", help="a tiny model")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of each; 1 where other work goes on")
    parser.add_argument("--torch-python", default=default_torch_python(), help="interpreter with torch and trl")
    args = parser.parse_args(argv)
    if args.markdown:
        put("grpo", "reinforce", page(json.loads(RESULTS.read_text())))
        return 0
    load, ranks = os.getloadavg()[0], RankServer()
    with tempfile.TemporaryDirectory() as directory:
        report = measure(Path(directory), args, ranks)
    ranks.close()
    report["date"], report["command"] = datetime.date.today().isoformat(), shlex.join(["benchmarks/grpo.py", *argv])
    report["machine"] = machine_facts(args.threads) | {"load_before": load}
    table = Table(*HEADINGS)
    for row in rows(report):
        table.add_row(*row)
    Console(width=100).print(table)
    print(sentences(report))
    if args.output:
        args.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0 if report["equal"] else 1


def measure(root: Path, args: argparse.Namespace, ranks: RankServer) -> dict:
    """Return the counted steps of "ours" and "theirs" in each round, "gaps", and whether the killed run is "equal"."""
    sizes, asked, longest = (SMOKE, 2, 12) if args.smoke else (SIZES, 4, 64)
    ranks(1, "benchmarks.serving_worker:make_material", str(root), sizes | ALL)
    _let_answers_end(root / "model" / "model.safetensors", 0.6 if args.smoke else 1.0)
    export_directory(root / "model", root / "exported", None, 10**9)
    prompts = [" ".join(text.split()[: 3 + 2 * i]) for i, text in enumerate(islice(documents(), asked))]
    (root / "data").mkdir()
    (root / "data" / "train.json").write_text("".join(json.dumps({"prompt": one}) + "\n" for one in prompts))
    answers, worth = asked * GROUP, longest // 4
    flags = OURS | {
        "model_name_or_path": root / "model", "dataset_name_or_path": root / "data", "reward": f"length:{worth}",
        "max_length": PROMPT + longest, "per_device_train_batch_size": asked, "sampled_at_once": answers,
    }  # fmt: skip
    job = {
        "model": str(root / "exported"), "output": str(root / "trl"), "prompts": ["<s>" + one for one in prompts],
        "answers": answers, "group_size": GROUP, "longest": longest, "worth": worth, "rate": RATE,
    }  # fmt: skip
    jobs = [job | {"steps": STEPS, "top_p": 1.0, "gaps": False}]
    jobs += [job | {"steps": 1, "top_p": top_p, "gaps": True} for top_p in (1.0, TRUNCATED)]
    threads = {"OMP_NUM_THREADS": str(args.threads)}
    fast = {"LD_PRELOAD": str(fast_mkl(root))} if machine_facts(1)["vendor"] == "AuthenticAMD" else {}
    compiled = {"PYTHONPATH": str(root / "site")}
    install_into(root / "site")
    ours, theirs = [], []
    for number in range(1 if args.smoke else ROUNDS):
        words = arguments_of(flags | {"output_dir": root / f"{number}", "max_steps": STEPS, "save_steps": 99})
        _output([sys.executable, "launch/train.py", "reinforcement", *words], threads | compiled)
        ours.append(_records(root / f"{number}"))
        said = _output(
            [args.torch_python, "benchmarks/grpo_worker.py", json.dumps(jobs[: 1 if number else None])], threads | fast
        )
        theirs.append(json.loads(said.splitlines()[-1]))
    equal, truncated = _killed(ranks, root, flags | {"top_p": TRUNCATED, "sampled_at_once": answers // 2}, answers)
    gaps = {}
    for name, record, noted in zip(("all", f"top_p {TRUNCATED}"), (ours[0][0], truncated), theirs[0][1:], strict=True):
        spreads = {side: [max(some), mean(gap > FAR for gap in some)] for side, some in noted["gaps"].items()}
        gaps[name] = {"ours": [record["largest_gap"], record["far_gaps"]]} | spreads
    counted = [[_step(record, before, answers) for before, record in zip(one, one[1:], strict=False)] for one in ours]
    assert theirs[0][0]["steps"][1]["prompts"] == counted[0][0]["prompts"], "both have the same prompts"
    versions = package_versions() | theirs[0][0]["versions"]
    return {"ours": counted, "theirs": [one[0]["steps"][1:] for one in theirs], "gaps": gaps, "equal": equal} | {
        "answers": answers, "longest": longest, "versions": versions
    }  # fmt: skip


def _let_answers_end(file: Path, weight: float) -> None:
    """Let each token of an answer be its end with about the same probability: by one feature that all tokens have."""
    tensors = load_file(file)
    head = tensors["lm_head.weight"]
    tensors["llama.embed_tokens.weight"][:, 0], head[0], head[:, END] = 8.0, 0.0, 0.0
    head[0, END] = weight
    save_file(tensors, file)


def _output(command: list[str], variables: dict[str, str]) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=os.environ | variables)
    if done.returncode:
        raise UserError(f"{' '.join(command[:2])} failed:\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


def _records(output: Path) -> list[dict]:
    return [record for record in read_train_log(output) if "largest_gap" in record]


def _step(record: dict, before: dict, answers: int) -> dict:
    """Return of a step of ours what the worker notes of TRL's."""
    answered = round(record["answer_tokens"] * answers)
    learned = record["consumed_tokens"] - before["consumed_tokens"]
    seconds = {"learning": record["step_seconds"] * (1 - record["data_share"])}
    seconds["sampling"] = answered / record["sampled_tokens_per_second"]
    return seconds | {"answered": answered, "learned": learned, "prompts": learned - answered + answers}


def _killed(ranks: RankServer, root: Path, flags: dict, answers: int) -> tuple[bool, dict]:
    """Return whether a run that is killed in the middle of a rollout is the uninterrupted one, and its first record."""
    whole, killed = root / "whole", root / "killed"
    moment = ["launch.generation.packed_texts:PackedTexts", "add", int((KILLED_STEP - 0.25) * answers)]
    for output, die, expected in ((whole, None, 0), (killed, moment, KILLED), (killed, None, 0)):
        words = arguments_of(flags | {"output_dir": output, "max_steps": LAST_STEP, "save_steps": 1})
        done = ranks.outcome(1, "tests.kills.ranks:train", "reinforcement", words, die, directory=root / "log")
        if done.exit_code != expected or (die and len(_records(output)) != KILLED_STEP - 1):
            raise UserError(f"{output.name}: exit code {done.exit_code}\n{last_lines(log_path(root / 'log', 0))}")
    logs = [[[record[key] for key in SAME] for record in _records(output)] for output in (whole, killed)]
    return logs[0] == logs[1] and hashes(whole, LAST_STEP) == hashes(killed, LAST_STEP), _records(whole)[0]


def rows(report: dict) -> list[list[str]]:
    """Return speeds with their ratios, and how far sampler and trainer are apart."""
    found = []
    for name, (tokens, parts) in SPEEDS.items():
        ours, theirs = (
            [sum(step[tokens] for step in one) / sum(step[part] for part in parts for step in one) for one in rounds]
            for rounds in (report["ours"], report["theirs"])
        )
        ratios = list(map(truediv, ours, theirs))
        shown = [f"{median(ratios):.2f} x", f"{min(ratios):.2f} to {max(ratios):.2f}"]
        found.append([f"{name}, tokens/s", f"{median(ours):,.0f}", f"{median(theirs):,.0f}", *shown])
    for name, gaps in report["gaps"].items():
        largest, far = zip(gaps["ours"], gaps["sampled"], strict=True)
        found.append([f"largest ln ratio, {name}", *(f"{one:.1e}" for one in largest), "", ""])
        found.append([f"above {FAR:g}, {name}", *(f"{one:.2%}" for one in far), "", ""])
    return found


def sentences(report: dict) -> str:
    """Return what TRL takes for the ratio, the lengths, and how the killed run ended."""
    own = max(gaps["own"][0] for gaps in report["gaps"].values())
    tokens = mean(step["answered"] for side in ("ours", "theirs") for one in report[side] for step in one)
    return (
        f"{report['answers']} answers a step, of {tokens / report['answers']:.0f} tokens on average, "
        f"{report['longest']} at most. TRL itself computes the ratio of two passes of its trainer: |ln ratio| is "
        f"{own:.1e} at most. A run killed while it sampled for step {KILLED_STEP}, and resumed: log and checkpoint of "
        f"step {LAST_STEP} are {'equal to the bit' if report['equal'] else 'DIFFERENT'}."
    )


def page(report: dict) -> str:
    """Return the page of a report."""
    table = markdown(HEADINGS, rows(report), range(1, len(HEADINGS)))
    threads = (
        f"Threads of each side: {report['machine']['threads']}; load before: {report['machine']['load_before']:.1f}."
    )
    return f"{table}\n\n{sentences(report)} {threads}\n\n{conditions(report)}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
