"""Teach a real small model to call tools: SmolLM2-135M-Instruct, by LoRA, asked through `make serve`.

    python launch/commands/demo.py tools [--directory build/demo-tools] [flags of finetune_generation.py]

The model, that of demo.py chat, has never seen a tool. It is fine-tuned on 300 generated dialogues about four tools,
with a chat template that writes them, and served with the LoRA beside it. Both answer requests by other phrases, for
values that no dialogue has together, and the LoRA again with each answer held to the tools' schemas by a grammar. Other
flags are passed on to the run: --max_steps 30.
"""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count, islice
from pathlib import Path

from rich.console import Console
from rich.table import Table

from data_tools.children import end_process
from data_tools.formats.atomic import written_aside
from data_tools.language import localized
from launch.commands.demo import ROOT, arguments_of, heading, run
from launch.commands.demo_chat import RESULTS, TRAINING, begun
from launch.config.typed import typed
from launch.errors import UserError
from launch.processes.orphans import signal_at_parents_end

INTERRUPTED, MADE = "the same command begins the training anew", "made-by-demo-tools"
DIALOGUES, REQUESTS, SHOWN = 300, 40, 8
WITH_RESULT = 10  # each tenth dialogue goes on with the tool's result, and an answer from it
LEAST_RIGHT, MOST_BEFORE = 0.9, 0.3
LONGEST, CLIENTS, SECONDS = 64, 8, 300  # tokens of an answer; requests at once; for each
TYPES = {"string": {str}, "integer": {int}, "number": {int, float}}
DATA, TEMPLATE = ROOT / "data_tools" / "tools.json", ROOT / "data_tools" / "tools.jinja"


def main(argv: list[str]) -> None:
    """Run the command."""
    directory, model, flags = begun("tools", __doc__, argv, MADE, "1 of 3: the model, from the package index")
    heading(localized("2 of 3: a LoRA on generated dialogues with tools"))
    data, adapter = directory / "data", directory / "lora"
    made = json.loads(DATA.read_text(encoding="utf-8"))
    write_dialogues(data, made)
    places = {
        "model_name_or_path": model,
        "dataset_name_or_path": data,
        "output_dir": adapter,
        "chat_template": TEMPLATE,
    }
    tuned = TRAINING | {"num_train_epochs": 1, "loss_collapse": 0}  # calls become nearly certain
    run([sys.executable, ROOT / "launch" / "finetune_generation.py", *arguments_of(places | tuned), *flags])
    heading(localized("3 of 3: requests with other values, by the server"))
    asked = requests(made)
    words = ["--model_name_or_path", model, "--adapter", f"tools={adapter}", "--chat_template", TEMPLATE]
    with served([*words, "--model_name", "base"], directory / "server.log") as address:
        answers = {
            "before": ask(address, "base", asked, "auto"),
            "after": ask(address, "tools", asked, "auto"),
            "grammar": ask(address, "tools", asked, "required"),
        }
    right = {name: sum(map(is_right, asked, said)) / len(asked) for name, said in answers.items()}
    valid = {name: sum(map(is_valid, asked, said)) / len(asked) for name, said in answers.items()}
    with written_aside(directory / RESULTS) as target:
        results = {"requests": asked, "answers": answers, "right": right, "valid": valid}
        target.write((json.dumps(results, indent=2) + "\n").encode())
    print_table(asked, answers)
    for name in answers:
        print(
            localized(
                f"{name}: {right[name]:.0%} call the right tool with the right values, {valid[name]:.0%} are valid"
            )
        )
    print(localized(f"Chat with it here: make serve MODEL={typed(model)} ADAPTER={typed(f'tools={adapter}')}"))
    if right["after"] < LEAST_RIGHT or right["before"] > MOST_BEFORE or valid["grammar"] < 1:
        raise UserError(
            f"the model has not learned what it should: found {right['before']:.0%} right before, {right['after']:.0%} "
            f"after and {valid['grammar']:.0%} valid by the grammar, expected at most {MOST_BEFORE:.0%}, at least "
            f"{LEAST_RIGHT:.0%}, and 100%."
        )


# ---- data


def drawn(number: int, source: random.Random, made: dict, held_out: bool) -> dict:
    """Return a request: the text of the user, the tools that are offered, the one to call and its arguments.

    made: data_tools/tools.json. held_out: by a phrase, and for numbers of minutes, that no dialogue has.
    """
    name = list(made["tools"])[number % len(made["tools"])]
    values = {key: source.choice(choices) for key, choices in made["values"].items()}
    values["source"], values["target"] = source.sample(made["values"]["units"], 2)
    values["minutes"] = source.choice([minutes for minutes in range(1, 100) if (minutes % 7 == 0) == held_out])
    values["amount"] = source.choice((source.randrange(2, 500), source.randrange(101, 990) / 10))
    arguments = {key: values[key] for key in made["tools"][name]}
    phrase = made["held_out"][name] if held_out else source.choice(made["asked"][name])
    offered = [name, source.choice([other for other in made["tools"] if other != name])]
    source.shuffle(offered)
    schemas = [schema(offer, made["tools"][offer]) for offer in offered]
    return {"text": phrase.format(**arguments), "tools": schemas, "name": name, "arguments": arguments}


def requests(made: dict) -> list[dict]:
    """Return the requests that are asked: each by a phrase and for values together that no dialogue has."""
    known = {json.dumps(one["arguments"]) for one in trained(made)}
    source = random.Random(1)
    drawn_ones = (drawn(number, source, made, True) for number in count())
    return list(islice((one for one in drawn_ones if json.dumps(one["arguments"]) not in known), REQUESTS))


def trained(made: dict) -> list[dict]:
    """Return the requests of the dialogues."""
    source = random.Random(0)
    return [drawn(number, source, made, False) for number in range(DIALOGUES)]


def write_dialogues(folder: Path, made: dict) -> None:
    """Write train.json: requests and their calls as the OpenAI API has them, sometimes with what follows."""
    rows = []
    for number, request in enumerate(trained(made)):
        call = {"type": "function", "function": {key: request[key] for key in ("name", "arguments")}}
        messages = [
            {"role": "user", "content": request["text"]},
            {"role": "assistant", "content": None, "tool_calls": [call]},
        ]
        if number % WITH_RESULT == 0:
            told = zip(("tool", "assistant"), made["results"][request["name"]], strict=True)
            messages += [{"role": role, "content": text} for role, text in told]
        rows.append({"messages": messages, "tools": request["tools"]})
    folder.mkdir(exist_ok=True)
    (folder / "train.json").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def schema(name: str, parameters: dict[str, str]) -> dict:
    """Return a tool as the OpenAI API has it."""
    properties = {key: {"type": kind} for key, kind in parameters.items()}
    arguments = {"type": "object", "properties": properties, "required": [*parameters], "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "parameters": arguments}}


# ---- the server, and its answers


@contextmanager
def served(words: list, log: Path) -> Iterator[str]:
    """Yield the address of a server of these flags. Raises UserError with the end of its output if it does not run."""
    ports = ["--port", "0", "--grpc_port", "0", "--grammar_backend", "llguidance"]
    command = [sys.executable, ROOT / "launch" / "commands" / "serve.py", *words, *ports]
    with open(log, "w", encoding="utf-8") as output:
        process = subprocess.Popen(
            list(map(str, command)),
            env=os.environ | {"SERVE_API_KEY": ""},  # which the user has for another server
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            preexec_fn=lambda: signal_at_parents_end(signal.SIGTERM),
        )
    try:
        while not (found := re.search(r"(http://127\.0\.0\.1:\d+/v1).*ready", log.read_text(encoding="utf-8"), re.S)):
            if process.poll() is not None:
                said = "\n  | ".join(log.read_text(encoding="utf-8").strip().splitlines()[-6:])
                raise UserError(f"the server has not started:\n  | {said}")
            time.sleep(0.1)
        yield found[1]
    finally:
        process.terminate()
        end_process(process, "the server", 20)


def ask(address: str, model: str, asked: list[dict], choice: str) -> list[dict]:
    """Return the message that answers each request. choice: auto, or required: held to the schemas by a grammar."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy does not reach this machine

    def answer(request: dict) -> dict:
        body = {
            "model": model,
            "messages": [{"role": "user", "content": request["text"]}],
            "tools": request["tools"],
            "tool_choice": choice,
            "temperature": 0,
            "max_tokens": LONGEST,
        }
        header = {"Content-Type": "application/json"}
        sent = urllib.request.Request(f"{address}/chat/completions", json.dumps(body).encode(), header)
        with opener.open(sent, timeout=SECONDS) as reply:
            return json.load(reply)["choices"][0]["message"]

    with ThreadPoolExecutor(CLIENTS) as threads:
        return list(threads.map(answer, asked))


def called(message: dict) -> tuple[str, dict] | None:
    """Return name and arguments of the one call of a message; None where there is none, or they are no JSON object."""
    calls = message.get("tool_calls") or []
    if len(calls) != 1:
        return None
    try:
        arguments = json.loads(calls[0]["function"]["arguments"])
    except ValueError:
        return None
    return (calls[0]["function"]["name"], arguments) if isinstance(arguments, dict) else None


def is_right(request: dict, message: dict) -> bool:
    """Return True if a message is the call that the request asks for, with all its values."""
    return called(message) == (request["name"], request["arguments"])


def is_valid(request: dict, message: dict) -> bool:
    """Return True if a message is a call of one of the request's tools that meets its schema."""
    name, arguments = called(message) or ("", {})
    offered = {tool["function"]["name"]: tool["function"]["parameters"]["properties"] for tool in request["tools"]}
    if name not in offered or arguments.keys() != offered[name].keys():
        return False
    return all(type(value) in TYPES[offered[name][key]["type"]] for key, value in arguments.items())


def print_table(asked: list[dict], answers: dict[str, list[dict]]) -> None:
    """Print some requests and both answers to each."""
    table = Table(show_lines=True)
    for column in ("question", "before", "after"):
        table.add_column(localized(column), overflow="fold")
    for request, before, after in [*zip(asked, answers["before"], answers["after"], strict=True)][:SHOWN]:
        shown = []
        for message in (before, after):
            call = called(message)
            text = f"{call[0]} {json.dumps(call[1])}" if call else message["content"] or ""
            shown.append(("✓ " if is_right(request, message) else "✗ ") + text.strip())
        table.add_row(request["text"], *shown)
    Console(markup=False).print(table)
