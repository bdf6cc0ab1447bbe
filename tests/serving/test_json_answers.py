"""Answers in JSON of a schema, by a real server with llguidance, from a model that knows no JSON."""

import json
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest

from tests.serving.servers import start_serve

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"enum": ["x y", "字"]},
        "sizes": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}, "maxItems": 3},
        "fine": {"type": "boolean"},
    },
    "required": ["name", "sizes", "fine"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "thing", "schema": SCHEMA}}


@pytest.mark.long
def test_answers_meet_their_schema_beside_others_that_have_none(served):
    pytest.importorskip("llguidance")
    flags = ("--model_name_or_path", served / "model", "--adapter", f"poems={served / 'lora'}")
    server = start_serve(*flags, "--grammar_backend", "llguidance")
    client = server.client()
    messages = [{"role": "user", "content": "a"}]

    def chat(model: str, **more):
        return client.chat.completions.create(model=model, messages=messages, **more).choices

    alone = chat("model", temperature=0, max_tokens=12)[0].message.content
    ask = {"response_format": FORMAT, "temperature": 1.5, "max_tokens": 90}
    with ThreadPoolExecutor(12) as pool:
        asked = [pool.submit(chat, model, **ask, seed=seed, n=2) for seed in range(4) for model in ("model", "poems")]
        plain = pool.submit(chat, "model", temperature=0, max_tokens=12)
        answers = [choice for one in asked for choice in one.result()]
    assert plain.result()[0].message.content == alone
    found = [json.loads(choice.message.content) for choice in answers]
    assert {choice.finish_reason for choice in answers} == {"stop"}
    for one, choice in zip(found, answers, strict=True):
        assert list(one) == ["name", "sizes", "fine"] and one["name"] in ("x y", "字") and one["fine"] in (True, False)
        assert len(one["sizes"]) <= 3 and all(0 <= size <= 99 for size in one["sizes"])
        assert choice.message.content == json.dumps(one, ensure_ascii=False)
    assert len({choice.message.content for choice in answers}) > 4
    # The likelihoods are the model's own: the end, the only token that may come, was not the likely one.
    [choice] = chat("model", **ask | {"temperature": 0}, logprobs=True)
    assert json.loads(choice.message.content) and choice.logprobs.content[-1].logprob < -0.1
    stream = client.completions.create(
        model="model", prompt="a", stream=True, max_tokens=90, seed=1, extra_body={"response_format": FORMAT}
    )
    assert json.loads("".join(event.choices[0].text for event in stream)).keys() == SCHEMA["properties"].keys()
    with pytest.raises(openai.BadRequestError, match="response_format: .*nonsense"):
        wrong = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "nonsense"}}}
        chat("model", response_format=wrong)
    [choice] = chat("model", response_format={"type": "json_object"}, max_tokens=6, seed=1)
    assert choice.message.content.startswith("{")
    assert server.stop() == 0
