"""Teach a tiny model a task by rewards alone (GRPO): the letter of four that is the last in the alphabet.

    python launch/commands/demo.py grpo [--directory build/demo-grpo] [flags of recipes/tiny/grpo.sh]

The model starts from random weights and is first taught the form: any letter. Then it answers each prompt eight times,
and an answer is worth 1 where it is the right letter, else 0; no right answer is ever shown to it. It is evaluated on
prompts that it is never trained on. Needs no other demo and no network. Other flags are passed on to the run:
--max_steps 20 makes the demo shorter.
"""

import json
import math
import shutil
import sys
from pathlib import Path
from random import Random

from rich.console import Console
from rich.table import Table

from data_tools.cli import BEGINS_ANEW, Parser
from data_tools.formats.atomic import written_aside
from data_tools.language import localized
from data_tools.tokenizer import save_tokenizer, train_tokenizer
from launch.commands.demo import ONCE, ROOT, arguments_of, heading, run
from launch.commands.demo_align import claim
from launch.config.typed import typed
from launch.entry import start_paddle
from launch.errors import UserError
from launch.families.named_configs import load_config
from launch.reporting.announce import plot_columns
from launch.reporting.records import read_summary, read_train_log

INTERRUPTED, RESULTS, CURVE, MADE = BEGINS_ANEW, "results.json", "curve.png", "made-by-demo-grpo"
LETTERS, SHOWN = "abcdefghijklmnop", 4  # letters of a prompt
FORM, TRAIN, HELD_OUT = 3200, 10_000, 300  # rows
SYMBOLS = ("Last:", "▁=", *(f"▁{letter}" for letter in LETTERS))  # each is one token
TOKENS = 260 + len(SYMBOLS)  # <unk>, <s>, </s>, the line end, and 256 bytes
MODEL = "llama-letters"  # its vocabulary is TOKENS, rounded up
RECIPE = ROOT / "recipes" / "tiny" / "grpo.sh"
MOST_BEFORE, LEAST_AFTER = 0.1, 0.9
KEYS = ("global_step", "reward", "eval_reward", "entropy", "kl")
FORM_TRAINING = ONCE | {
    "src_length": 16,
    "max_length": 20,
    "lr_scheduler_type": "linear",
    "do_train": 1,
    "per_device_train_batch_size": 64,
    "max_steps": 50,
    "learning_rate": 2e-3,
    "warmup_steps": 20,
    "logging_steps": 10,
}


def main(argv: list[str]) -> None:
    """Run the command."""
    parser = Parser("python launch/commands/demo.py grpo", __doc__)
    folder = ROOT / "build" / "demo-grpo"
    parser.add_argument("--directory", type=Path, default=folder, help="folder for all files; default build/demo-grpo")
    args, flags = parser.parse_known_args(argv)
    directory = args.directory.resolve()
    start, base, model = (directory / name for name in ("start", "base", "model"))
    claim(directory, None, MADE)
    for old in (base, model):
        shutil.rmtree(old, ignore_errors=True)
    heading(localized("1 of 4: a model of random weights learns the form: any letter"))
    write_data(directory)
    make_start(start)
    places = {"model_name_or_path": start, "dataset_name_or_path": directory / "form", "output_dir": base}
    run([sys.executable, ROOT / "launch" / "finetune_generation.py", *arguments_of(places | FORM_TRAINING)])
    heading(localized("2 of 4: before, on prompts that it is never trained on"))
    variables = {"MODEL": str(base), "DATA": str(directory / "prompts"), "ACTION": "run"}
    before = _reinforce(variables | {"OUTPUT": str(directory / "before")}, ["--do_train", "0"])
    heading(localized("3 of 4: reinforcement: the right letter alone is worth 1"))
    after = _reinforce(variables | {"OUTPUT": str(model)}, flags)
    heading(localized("4 of 4: before and after"))
    records = read_train_log(model)
    with written_aside(directory / RESULTS) as file:
        curve = [{key: record[key] for key in KEYS if key in record} for record in records]
        file.write((json.dumps({"before": before, "after": after, "curve": curve}, indent=2) + "\n").encode())
    plot_columns(records, {"reward": localized("sampled answers")}, {"eval_reward": localized("held-out prompts")})
    draw(records, directory / CURVE)
    print_table(before, after)
    print(localized(f"The curve: {directory / CURVE}; answers as they were sampled: {model / 'rollouts'}"))
    print(localized(f"Ask it: make predict MODEL={typed(model)} ARGS='--prompt \"Last: c h e b =\"'"))
    if before["reward"] > MOST_BEFORE or after["reward"] < LEAST_AFTER:
        raise UserError(
            f"the model has not learned what it should: found {before['reward']:.0%} right before and "
            f"{after['reward']:.0%} after, expected {MOST_BEFORE:.0%} or less and {LEAST_AFTER:.0%} or more."
        )


def _reinforce(variables: dict[str, str], flags: list[str]) -> dict:
    """Return the reward of the most likely answers to all held-out prompts, and how many there are."""
    run(["bash", RECIPE, *arguments_of(ONCE), *flags], variables)
    evaluation = read_summary(variables["OUTPUT"])["evaluation"]
    return {"reward": evaluation["eval_reward"], "answers": evaluation["eval_answers"]}


def write_data(folder: Path) -> None:
    """Write form/train.json, the answers of which are any letters, and prompts/train.json and dev.json."""
    random = Random(1)
    held_out: dict[str, str] = {}
    while len(held_out) < HELD_OUT:
        held_out.update([_prompt(random)])
    rows = [_prompt(random) for _ in range(FORM + TRAIN)]
    while any(prompt in held_out for prompt, _ in rows):
        rows = [_prompt(random) if prompt in held_out else (prompt, right) for prompt, right in rows]
    form = [{"src": prompt, "tgt": LETTERS[int(random.random() * len(LETTERS))]} for prompt, _ in rows[:FORM]]
    train, dev = ([{"prompt": one, "answer": two} for one, two in some] for some in (rows[FORM:], held_out.items()))
    for name, some in (("form/train", form), ("prompts/train", train), ("prompts/dev", dev)):
        path = folder / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in some), encoding="utf-8")


def _prompt(random: Random) -> tuple[str, str]:
    """Return a prompt of different letters and its right answer, each of which is as frequent as any other."""
    last = SHOWN - 1 + int(random.random() * (len(LETTERS) - SHOWN + 1))
    letters = sorted(LETTERS[:last], key=lambda _: random.random())[: SHOWN - 1]
    letters.insert(int(random.random() * SHOWN), LETTERS[last])
    return f"Last: {' '.join(letters)} =", LETTERS[last]


def train_letters() -> bytes:
    """Return a sentencepiece model with a token for each letter."""
    return train_tokenizer([f"Last: {' '.join(LETTERS)} ="], TOKENS, symbols=SYMBOLS)


def make_start(folder: Path) -> None:
    """Write a model of random weights with its tokenizer."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    save_tokenizer(folder, train_letters())
    (folder / "config.json").write_text(json.dumps(load_config(MODEL)), encoding="utf-8")
    start_paddle(on_cpu=True)
    from launch.training.model import save_random_model

    save_random_model(str(folder), folder)


def draw(records: list[dict], path: Path) -> None:
    """Draw the rewards over steps."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for key, label, mark in (("reward", "sampled answers", "-"), ("eval_reward", "held-out prompts", "o-")):
        points = [(record["global_step"], record[key]) for record in records if key in record]
        axes.plot(*zip(*points, strict=True), mark, label=label)
    axes.set(xlabel="step", ylabel="reward", ylim=(0, 1))
    axes.legend(loc=4)
    figure.savefig(path, metadata={"Software": None})


def interval(right: float, answers: int) -> tuple[float, float]:
    """Return Wilson's interval of a share, to 95 %."""
    z = 1.96
    middle = right + z * z / (2 * answers)
    half = z * math.sqrt(right * (1 - right) / answers + (z / (2 * answers)) ** 2)
    whole = 1 + z * z / answers
    return (middle - half) / whole, (middle + half) / whole


def print_table(before: dict, after: dict) -> None:
    """Print the table of both."""
    table = Table(title=localized(f"The last of four letters, on {before['answers']} held-out prompts"))
    for column in ("", localized("right"), localized("95 % interval")):
        table.add_column(column, justify="right" if column else "left")
    for name, one in (("before", before), ("after", after)):
        low, high = interval(one["reward"], one["answers"])
        table.add_row(localized(name), f"{one['reward']:.1%}", f"{low:.1%} - {high:.1%}")
    Console().print(table)
