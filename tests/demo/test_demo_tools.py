"""`make demo-tools`: its data, its score, and the whole of it."""

import json
import re
import sys
from contextlib import contextmanager

import openai
import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState

from launch.commands import demo_tools
from launch.commands.demo_tools import (
    DATA,
    LONGEST,
    SECONDS,
    TEMPLATE,
    ask,
    called,
    is_right,
    is_valid,
    main,
    requests,
    schema,
    served,
    write_dialogues,
)
from launch.errors import UserError
from launch.generation.answer_parts import HERMES, find_form
from tests.demo.demos import results_with_the_real_model


def said(name: str, arguments: object) -> dict:
    return {"tool_calls": [{"function": {"name": name, "arguments": json.dumps(arguments)}}], "content": None}


MADE = json.loads(DATA.read_text(encoding="utf-8"))
FOUND = {
    "name": "timer",
    "arguments": {"minutes": 7},
    "tools": [schema(name, MADE["tools"][name]) for name in ("timer", "convert")],
}


SERVER = """
import json, os
from http.server import BaseHTTPRequestHandler, HTTPServer

class Answering(BaseHTTPRequestHandler):
    def do_POST(self):
        self.send_response(200)
        self.end_headers()
        message = {"content": f"key: {os.environ['SERVE_API_KEY']!r}"}
        self.wfile.write(json.dumps({"choices": [{"message": message}]}).encode())

server = HTTPServer(("127.0.0.1", 0), Answering)
print(f"http://127.0.0.1:{server.server_port}/v1 ready", flush=True)
server.serve_forever()
"""


def test_requests_are_held_out_and_the_server_reads_the_templates_calls(tmp_path):
    write_dialogues(tmp_path, MADE)
    rows = [json.loads(line) for line in (tmp_path / "train.json").read_text().splitlines()]
    assert len(rows) == 300 and sum(len(row["messages"]) == 4 for row in rows) == 30
    calls = [row["messages"][1]["tool_calls"][0]["function"] for row in rows]
    offered = [[tool["function"]["name"] for tool in row["tools"]] for row in rows]
    assert all(call["name"] in names for call, names in zip(calls, offered, strict=True))
    asked = requests(MADE)
    assert len(asked) == 40 and {one["name"] for one in asked} == set(MADE["tools"])
    assert not [one for one in asked if one["arguments"] in [call["arguments"] for call in calls]]
    assert not {one["text"] for one in asked} & {row["messages"][0]["content"] for row in rows}
    assert find_form(TEMPLATE.read_text(encoding="utf-8")) == HERMES


@pytest.mark.parametrize(
    "message, right, valid",
    [
        (said("timer", {"minutes": 7}), True, True),
        (said("timer", {"minutes": 8}), False, True),
        (said("timer", {"minutes": "7"}), False, False),
        (said("timer", {"minutes": True}), False, False),
        (said("timer", {"minutes": 7, "x": 1}), False, False),
        (said("timer", [7]), False, False),
        (said("translate", {"text": "a", "language": "b"}), False, False),
        (said("convert", {"amount": 1.5, "source": "a", "target": "b"}), False, True),
        ({"content": "7"}, False, False),
        ({"tool_calls": [{"function": {"name": "timer", "arguments": "{"}}]}, False, False),
    ],
)
def test_a_call_is_right_by_its_tool_and_all_values(message, right, valid):
    assert (is_right(FOUND, message), is_valid(FOUND, message)) == (right, valid)


@pytest.mark.parametrize("wrong", [0, 10])
def test_too_few_right_calls_are_an_error(tmp_path, monkeypatch, capsys, wrong):
    @contextmanager
    def served(*_):
        yield "http"

    def ask(address, model, asked, choice):
        known = [said(one["name"], one["arguments"]) for one in asked]
        return [{"content": "[/x]"}] * (len(known) if model == "base" else wrong) + known[wrong:] * (model != "base")

    commands: list = []
    monkeypatch.setattr(demo_tools, "begun", lambda *_: (tmp_path, tmp_path / "model", ["--max_steps", "3"]))
    monkeypatch.setattr(demo_tools, "served", served)
    monkeypatch.setattr(demo_tools, "ask", ask)
    monkeypatch.setattr(demo_tools, "run", commands.append)
    if wrong:
        with pytest.raises(UserError, match=re.escape("found 0% right before, 75% after and 75% valid")):
            main([])
    else:
        main([])
    assert "before: 0% call the right tool with the right values" in capsys.readouterr().out
    assert commands[0][-2:] == ["--max_steps", "3"]
    assert json.loads((tmp_path / "results.json").read_text())["right"]["after"] == 1 - wrong / 40


def test_a_key_and_a_proxy_of_the_user_are_for_other_servers(tmp_path, monkeypatch):
    server = tmp_path / "server"
    server.write_text(f"#!{sys.executable}\n{SERVER}")
    server.chmod(0o755)
    monkeypatch.setattr(demo_tools.sys, "executable", str(server))
    for name, value in {"http_proxy": "http://127.0.0.1:9", "no_proxy": "", "SERVE_API_KEY": "mine"}.items():
        monkeypatch.setenv(name, value)
    with served([], tmp_path / "log") as address:
        assert ask(address, "tools", requests(MADE)[:2], "auto") == [{"content": "key: ''"}] * 2


@pytest.mark.nightly
@pytest.mark.timeout(3060)  # the demo itself
def test_the_whole_demo_teaches_the_real_model_tools(tmp_path):
    """It checks 90 %, 30 % and 100 % itself. OpenAI's own client gets the same calls, whole and in a stream."""
    results = results_with_the_real_model("tools", tmp_path)
    assert len(results["requests"]) == 40
    words = ["--model_name_or_path", tmp_path / "model", "--adapter", f"tools={tmp_path / 'out' / 'lora'}"]
    with served([*words, "--chat_template", TEMPLATE, "--model_name", "base"], tmp_path / "log") as address:
        for request, answer in [*zip(results["requests"], results["answers"]["after"], strict=True)][:8]:
            assert [called(message) for message in by_openai(address, request)] == [called(answer)] * 2


def by_openai(address: str, request: dict) -> list[dict]:
    """The message that answers a request, whole and put together from a stream."""
    client = openai.OpenAI(base_url=address, api_key="none", timeout=SECONDS)
    values = {"messages": [{"role": "user", "content": request["text"]}], "tools": request["tools"]}
    values |= {"model": "tools", "temperature": 0, "max_tokens": LONGEST}
    whole = client.chat.completions.create(**values)
    state = ChatCompletionStreamState()
    for event in client.chat.completions.create(**values, stream=True):
        state.handle_chunk(event)
    return [found.choices[0].message.model_dump() for found in (whole, state.get_final_completion())]
