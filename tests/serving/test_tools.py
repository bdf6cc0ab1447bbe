"""Chats with tools and reasoning over REST, in front of a fake model: whole and in a stream, by the official client."""

import json
import random
import re
import shutil
from pathlib import Path

import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState

from tests.data_tools.dialogues.test_published_templates import drawn_row
from tests.serving.servers import start_serve

PORTS = {"type": "object", "properties": {"port": {"type": "string"}}, "required": ["port"]}
TIDE = {"type": "function", "function": {"name": "tide_at", "description": "Its height", "parameters": PORTS}}
BOOK = {"type": "function", "function": {"name": "book_berth", "strict": True}}
ARGUMENTS = '{"port": "Orrin 港"}'
# The fake model says what it is asked, in < and >.
CALL = '<tool_call>\n{"name": "tide_at", "arguments": %s}\n</tool_call>' % ARGUMENTS  # noqa: UP031
QUESTION = f"think>Is it 港?\n</think>\n\nI look.\n{CALL}\n{CALL}"
HALF = "\ud800"


def called(arguments: dict, name: str = "tide_at") -> dict:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": function}]}


HISTORY = [
    {"role": "developer", "content": "d"},
    {"role": "user", "content": [{"type": "text", "text": "How "}, {"type": "text", "text": "high?"}]},
    called(json.loads(ARGUMENTS)) | {"reasoning_content": "hm", "refusal": None},
    {"role": "tool", "tool_call_id": "1", "content": "2.7"},
]


def asked(client, content: str, **more):
    return client.chat.completions.create(
        model="base", messages=[{"role": "user", "content": content}], max_tokens=900, **more
    )


def test_calls_and_reasoning_are_apart_from_what_is_said(client):
    [choice] = asked(client, QUESTION, tools=[TIDE, BOOK]).choices
    message, calls = choice.message, choice.message.tool_calls
    assert (message.content, message.reasoning_content, choice.finish_reason) == ("I look.>", "Is it 港?", "tool_calls")
    assert [(call.type, call.function.name, call.function.arguments) for call in calls] == [
        ("function", "tide_at", ARGUMENTS)
    ] * 2
    assert len({call.id for call in calls}) == 2 and all(call.id.isalnum() and len(call.id) == 9 for call in calls)
    [choice] = asked(client, QUESTION, tools=[TIDE], parallel_tool_calls=False).choices
    assert len(choice.message.tool_calls) == 1
    for none in ({}, {"tools": []}, {"tools": None, "tool_choice": None}, {"tools": [TIDE], "tool_choice": "none"}):
        [choice] = asked(client, CALL, **none).choices
        assert (choice.message.content, choice.message.tool_calls, choice.finish_reason) == (f"<{CALL}>", None, "stop")
    [choice] = asked(client, f"think></think>{CALL[:-13]}", tools=[TIDE]).choices  # without its end
    assert choice.message.tool_calls is None and choice.message.content == CALL[:-13] + ">"


def test_a_stream_has_the_same_parts_in_the_api_s_chunks(client):
    [whole] = asked(client, QUESTION, tools=[TIDE]).choices
    events = list(asked(client, QUESTION, tools=[TIDE], stream=True))
    deltas = [event.choices[0].delta for event in events]
    assert "".join(delta.content or "" for delta in deltas) == whole.message.content
    assert "".join(getattr(delta, "reasoning_content", "") or "" for delta in deltas) == "Is it 港?"
    calls = [call for delta in deltas for call in delta.tool_calls or ()]
    assert [(call.index, call.type, call.function.name, call.function.arguments) for call in calls] == [
        (0, "function", "tide_at", ""),
        (0, None, None, ARGUMENTS),
        (1, "function", "tide_at", ""),
        (1, None, None, ARGUMENTS),
    ]
    assert [bool(call.id) for call in calls] == [True, False, True, False]
    assert [event.choices[0].finish_reason for event in events if event.choices[0].finish_reason] == ["tool_calls"]
    assert not any("<tool" in (delta.content or "") for delta in deltas)
    told = list(asked(client, QUESTION, tools=[TIDE], stream=True, logprobs=True))
    lists = [event.choices[0].logprobs for event in told if event.choices[0].logprobs]
    assert sum(len(one.content) for one in lists) == len(f"<{QUESTION}>".encode()) + 1  # each token's, with the end's


def test_a_history_with_calls_and_results_is_asked_on(server, client):
    reply = client.chat.completions.create(model="base", messages=HISTORY, tools=[TIDE])
    assert reply.choices[0].message.content == "<d|How high?||2.7>"
    status, text = server.ask("/tokenize", {"model": "base", "messages": HISTORY, "tools": [TIDE]})
    expected = list(b"d|How high?||2.7")
    assert (status, json.loads(text)) == (200, {"count": len(expected), "tokens": expected})


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"tools": [{"type": "function"}]}, "tools"),
        (
            {"tools": [TIDE], "tool_choice": {"type": "function", "function": {"name": "sail"}}},
            "found sail, .* tide_at",
        ),
        ({"tool_choice": "required"}, "tool_choice: found required, the tools are none"),
        ({"tools": [TIDE], "tool_choice": "sometimes"}, "tool_choice"),
        ({"tools": [TIDE], "parallel_tool_calls": 1}, "parallel_tool_calls"),
        ({"messages": [*HISTORY[:3], {"role": "tool", "tool_call_id": "2", "content": ""}]}, "tool_call_id '2'"),
        ({"messages": [{"role": "user", "content": "a", "cache": True}]}, "not understood by this server: cache"),
        ({"messages": [*HISTORY, {"role": "assistant", "content": "b"}]}, "the last message is no question"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, "content.0.type"),
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": "wrong"}}]}, "parameters"),
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {"a": HALF}}}]}, "'tools' has half"),
        ({"chat_template_kwargs": {"a": HALF}}, "'chat_template_kwargs' has half a surrogate pair"),
        ({"messages": [HISTORY[1], called({}, HALF), HISTORY[3]]}, "'tool_calls' has half a surrogate pair"),
        ({"messages": [HISTORY[1], called({"a": HALF}), HISTORY[3]]}, "'tool_calls' has half a surrogate pair"),
    ],
)
def test_wrong_tools_and_messages_are_refused(server, wrong, said):
    status, text = server.ask("/v1/chat/completions", {"model": "base", "messages": HISTORY[1:2]} | wrong)
    assert status == 400 and re.search(said, json.loads(text)["error"]["message"]), text


@pytest.mark.long
def test_a_server_reads_what_training_does_and_holds_calls_to_their_schemas(served, ranks, tmp_path):
    pytest.importorskip("llguidance")
    template = Path(__file__).parent / "qwen_like.jinja"
    model = tmp_path / "model"
    shutil.copytree(served / "model", model)
    config = json.loads((model / "config.json").read_text()) | {"max_position_embeddings": 2048}
    (model / "config.json").write_text(json.dumps(config))
    (model / "generation_config.json").write_text(json.dumps({"eos_token_id": [9, config["eos_token_id"], 8]}))
    answer = {"role": "assistant", "content": "2.7 metres.", "reasoning_content": "so"}
    plain = [{"role": "system", "content": "s"}, {"role": "user", "content": "a"}]
    rows = [
        {"messages": HISTORY[1:], "tools": [TIDE, BOOK]},
        {"messages": plain},
        {"messages": plain[1:], "tools": [BOOK]},
    ]
    rows.append({"messages": plain, "chat_template_kwargs": {"enable_thinking": True}})
    draw = random.Random(38)
    rows += [row | {"messages": row["messages"][:-1]} for row in (drawn_row(draw) for _ in range(500))]
    answered = [row | {"messages": [*row["messages"], answer]} for row in rows]
    [expected] = ranks(1, "tests.serving.tools_ranks:training_prompts", str(model), str(template), answered)
    [found] = ranks(1, "tests.serving.tools_ranks:predicted", str(model), str(template), f"hm</think>Yes.{CALL}")
    assert found["ends"] == [config["eos_token_id"], 9, 8]
    assert found["ways"] == [[True, False], [True, True], [False, False]]
    call = {"name": "tide_at", "arguments": json.loads(ARGUMENTS)}
    assert found["row"] == {"prediction": "Yes.", "prediction_reasoning": "hm", "prediction_tool_calls": [call]}
    server = start_serve("--model_name_or_path", model, "--chat_template", template, "--grammar_backend", "llguidance")
    for row, ids in zip(rows, expected, strict=True):
        status, text = server.ask("/tokenize", row | {"model": "model"})
        assert (status, json.loads(text)["tokens"]) == (200, ids), text
    client, number = server.client(), {"type": "integer", "minimum": 10, "maximum": 99}
    schema = {"type": "object", "properties": {"n": number}, "required": ["n"], "additionalProperties": False}
    tools = [{"type": "function", "function": {"name": name, "parameters": schema}} for name in ("one", "two")]
    named = {"type": "function", "function": {"name": "two"}}
    for choice, names in ((named, ["two"]), ("required", ["one", "two"])):
        for stream in (False, True):
            more = {"tools": tools, "tool_choice": choice, "parallel_tool_calls": False, "stream": stream}
            more["extra_body"] = {"chat_template_kwargs": {"enable_thinking": False}}
            found = client.chat.completions.create(
                model="model", messages=plain, seed=1, temperature=1.5, max_tokens=200, **more
            )
            [call] = calls_of(found) if stream else [one.function for one in found.choices[0].message.tool_calls]
            assert call.name in names and 10 <= json.loads(call.arguments)["n"] <= 99
    assert server.stop() == 0


def calls_of(events):
    """The calls of a stream, as the API's own accumulator puts them together."""
    state = ChatCompletionStreamState()
    for event in events:
        state.handle_chunk(event)
    [choice] = state.get_final_completion().choices
    assert choice.finish_reason == "tool_calls"
    return [call.function for call in choice.message.tool_calls]
