"""Log-probabilities in the replies of REST, in front of a fake model, which gives each byte the value -byte / 100."""

import json

import openai
import pytest


def values(text: str) -> list[float]:
    return [-byte / 100 for byte in text.encode()]


def tops(text: str, most: int) -> list[dict]:
    likely = dict([("!", -0.33), ("?", -0.63)][:most])
    return [likely | {sign: value} for sign, value in zip(text, values(text), strict=True)]


def test_logprobs_of_a_completion_with_its_end_and_of_an_echo_before_it(client):
    [choice] = client.completions.create(model="base", prompt="ab", logprobs=2).choices
    found = choice.logprobs.model_dump()
    assert (choice.text, found["tokens"]) == ("<ab>", [*"<ab>", "</s>"])
    assert found["token_logprobs"] == [*values("<ab>"), -0.5]
    assert found["top_logprobs"] == [*tops("<ab>", 2), {"!": -0.33, "?": -0.63, "</s>": -0.5}]
    assert found["text_offset"] == [0, 1, 2, 3, 4]
    [choice] = client.completions.create(model="base", prompt="ab", logprobs=0, max_tokens=2).choices
    assert choice.logprobs.top_logprobs == tops("<a", 0) and choice.finish_reason == "length"
    assert client.completions.create(model="base", prompt="ab").choices[0].logprobs is None
    reply = client.completions.create(model="base", prompt=["ab", "c"], echo=True, logprobs=1, max_tokens=2, n=2)
    assert [choice.text for choice in reply.choices] == ["ab<a", "ab<a", "c<c", "c<c"]
    for choice in reply.choices[:2]:
        found = choice.logprobs
        assert found.tokens == [*"ab<a"] and found.text_offset == [0, 1, 2, 3]
        assert found.token_logprobs == [None, *values("b<a")] and found.top_logprobs == [None, *tops("b<a", 1)]
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (6, 8)


@pytest.mark.parametrize("prompt", ["ab", [97, 98]])
def test_a_prompt_alone(client, prompt):
    ask = {"model": "base", "prompt": prompt, "max_tokens": 0, "echo": True}
    [choice] = client.completions.create(**ask, logprobs=1).choices
    assert (choice.text, choice.finish_reason) == ("ab", "length")
    assert choice.logprobs.token_logprobs == [None, -0.98]
    reply = client.completions.create(**ask)
    assert (reply.choices[0].text, reply.choices[0].logprobs, reply.usage.total_tokens) == ("ab", None, 2)


def test_offsets_count_characters_and_parts_of_one_begin_where_it_does(client):
    [choice] = client.completions.create(model="base", prompt="é字", echo=True, logprobs=0, max_tokens=100).choices
    assert choice.text == "é字<é字>"
    assert choice.logprobs.text_offset == [0, 0, 1, 1, 1, 2, 3, 3, 4, 4, 4, 5, 6]
    assert len(set(choice.logprobs.tokens[2:5])) == 3  # parts of a character have names of their own
    # A prompt of ids may end within a character, which the answer's first token does not complete.
    [choice] = client.completions.create(model="base", prompt=[98, 0xC3], echo=True, logprobs=0, max_tokens=1).choices
    assert choice.logprobs.text_offset == [0, 1, 1]


def test_prompt_logprobs_by_ids_as_vllm_has_them(client):
    ask = {"model": "base", "prompt": "a!c", "max_tokens": 1}
    [choice] = client.completions.create(**ask, extra_body={"prompt_logprobs": 1}).choices
    likely = {"33": {"logprob": -0.33, "rank": 1, "decoded_token": "!"}}
    expected = [None, likely, likely | {"99": {"logprob": -0.99, "rank": 9}}]
    expected[2]["99"]["decoded_token"] = "c"
    assert choice.prompt_logprobs == expected
    assert (choice.text, choice.logprobs) == ("<", None)  # without echo, without those of the answer
    both = client.completions.create(**ask, echo=True, logprobs=0, extra_body={"prompt_logprobs": 1}).choices[0]
    assert both.prompt_logprobs == expected and both.logprobs.top_logprobs[1] == {"!": -0.33}


def test_a_streams_logprobs_are_those_of_the_whole(client):
    ask = {"model": "base", "prompt": "字b", "echo": True, "logprobs": 1, "max_tokens": 50, "stop": "b"}
    ask["extra_body"] = {"prompt_logprobs": 0}
    [whole] = client.completions.create(**ask).choices
    parts = [event.choices[0] for event in client.completions.create(**ask, stream=True)]
    assert "".join(part.text for part in parts) == whole.text == "字b<字"
    assert parts[0].text == "字b" and parts[0].prompt_logprobs == whole.prompt_logprobs
    for key in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        assert [one for part in parts for one in getattr(part.logprobs, key)] == getattr(whole.logprobs, key)
    assert whole.logprobs.tokens[-1] == "b"  # of the stop word, which is no part of the text
    assert parts[-1].finish_reason == whole.finish_reason == "stop"


def test_a_chats_logprobs(client):
    ask = {"model": "poems", "messages": [{"role": "user", "content": "é"}], "logprobs": True}
    [choice] = client.chat.completions.create(**ask, top_logprobs=1).choices
    found = choice.logprobs.model_dump()["content"]
    likely = {"token": "!", "logprob": -0.33, "bytes": [33]}
    assert found[0] == {"token": "<", "logprob": -0.6, "bytes": [60], "top_logprobs": [likely]}
    assert [entry["bytes"] for entry in found] == [[60], [0xC3], [0xA9], [62], None]
    assert found[-1]["token"] == "</s>" and found[-1]["logprob"] == -0.5
    [choice] = client.chat.completions.create(**ask).choices
    assert [entry.top_logprobs for entry in choice.logprobs.content] == [[]] * 5
    events = list(client.chat.completions.create(**ask, top_logprobs=1, stream=True))
    parts = [event.choices[0].logprobs for event in events]
    assert parts[0] is None  # of the role
    assert [entry.model_dump() for part in parts[1:] for entry in part.content] == found


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"logprobs": 21}, "logprobs: found 21, expected 0 to 20"),
        ({"logprobs": True}, "logprobs"),
        ({"prompt_logprobs": -1}, "prompt_logprobs: found -1, expected 0 to 20"),
        ({"max_tokens": 0, "logprobs": 1}, "max_tokens: found 0, expected above 0, or 0 with echo or prompt_logprobs"),
        ({"prompt": "a" * 4000, "n": 7, "max_tokens": 0, "prompt_logprobs": 20}, "logprobs: found 588,000 log-prob"),
        ({"prompt": "a" * 4000, "n": 64, "logprobs": 2, "echo": True}, "found 771,072 log-probabilities in all"),
        ({"n": 64, "logprobs": 20, "max_tokens": 400}, "found 537,600 log-probabilities in all answers together"),
        ({"model": "poems", "logprobs": 1, "echo": True}, "poems reads a prompt in both directions"),
        ({"prompt": "a" * 4097, "max_tokens": 0, "echo": True}, "4097 tokens leave no position"),
    ],
    ids=str,
)
def test_what_cannot_be_told(server, more, said):
    status, text = server.ask("/v1/completions", {"model": "base", "prompt": "a"} | more)
    assert status == 400 and said in json.loads(text)["error"]["message"], text


def test_what_a_chat_cannot_be_told_and_a_prompt_of_all_positions(client):
    ask = {"model": "base", "messages": [{"role": "user", "content": "a"}]}
    with pytest.raises(openai.BadRequestError, match="top_logprobs: found 2 without logprobs: true"):
        client.chat.completions.create(**ask, top_logprobs=2)
    with pytest.raises(openai.BadRequestError, match="top_logprobs: found 21, expected at most 20"):
        client.chat.completions.create(**ask, logprobs=True, top_logprobs=21)
    # But no room for an answer.
    [choice] = client.completions.create(model="base", prompt="a" * 4096, max_tokens=0, echo=True, logprobs=0).choices
    assert len(choice.logprobs.token_logprobs) == 4096
