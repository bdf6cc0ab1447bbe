"""An answer whose client has left is given up, also where a token comes at the same moment."""

import asyncio
import time

import pytest

from launch.serving.answer import Answer
from launch.serving.request import Options, Refusal
from launch.serving.service import RequestLimits, Service
from launch.serving.whole_batches import WholeBatches
from tests.serving.fake_model import FakeModel


@pytest.mark.parametrize("steps", range(6))
def test_a_cancelled_answer_ends_whatever_comes_at_that_moment(steps):
    """steps: of the event loop between a token's arrival and the cancellation."""

    async def cancel() -> tuple[bool, bool, list[str]]:
        answer = Answer(FakeModel("base"), [[97]], [9], Options(), time.monotonic() + 60)
        outcomes = []
        answer.on_end = lambda answer, outcome: outcomes.append(outcome)

        async def use_up() -> None:
            async for _ in answer.pieces():
                pass

        using = asyncio.ensure_future(use_up())
        for _ in range(5):
            await asyncio.sleep(0)
        answer.events.put_nowait((0, 97))
        for _ in range(steps):
            await asyncio.sleep(0)
        using.cancel()
        await asyncio.wait({using}, timeout=1)
        return using.cancelled(), answer.rows[0].done, outcomes

    assert asyncio.run(cancel()) == (True, True, ["cancelled"])


@pytest.mark.parametrize(
    ("options", "events"), [({}, 1), ({"stream": True}, 6), ({"stop": ("x",)}, 6), ({"logprobs": 0}, 12)]
)
def test_only_an_answer_whose_tokens_are_read_wakes_the_event_loop_for_each(options, events):
    """Five tokens and the end; their likelihoods, and that of the end."""

    async def answer() -> tuple[int, str, int]:
        model = FakeModel("base")
        answer = Answer(model, [[97, 98, 99]], [9], Options(**options), time.monotonic() + 60)
        await asyncio.to_thread(model.answer, answer.rows)
        await asyncio.sleep(0)
        found = answer.events.qsize()
        text = "".join([piece.text async for piece in answer.pieces()])
        return found, text, answer.completion_tokens

    assert asyncio.run(answer()) == (events, "<abc>", 5)


def test_a_prompt_is_decoded_once_for_all_its_answers_and_not_beyond_the_deadline(tmp_path):
    model, decoded = FakeModel("base"), []
    model.decode = lambda ids: decoded.append(ids) or bytes(ids).decode()
    batch = WholeBatches({"base": model}, 1)

    async def ask(seconds: float, prompt: str, **options) -> Answer:
        return await Service({"base": model}, batch, RequestLimits(9, 9, seconds)).complete(
            "base", [prompt], Options(**options)
        )

    echo = {"echo": True, "max_tokens": 0}
    asyncio.run(ask(60, "some text", **echo))
    once = len(decoded)
    assert asyncio.run(ask(60, "some text", **echo, n=4)).echoes[3].text == "some text" and len(decoded) == 2 * once
    with pytest.raises(Refusal, match="not answered within --request_timeout"):
        try:
            asyncio.run(ask(0.05, f"heavy {tmp_path}"))
        finally:
            (tmp_path / "go").touch()


def test_a_prompt_whose_log_probabilities_have_no_memory_is_refused():
    model = FakeModel("base")
    model.longest_scored = 3
    service = Service({"base": model}, WholeBatches({"base": model}, 1), RequestLimits(9, 9, 60))
    scored = Options(prompt_logprobs=0, max_tokens=1)
    asyncio.run(service.complete("base", ["abc"], scored))
    asyncio.run(service.complete("base", ["abcd"], Options(max_tokens=1)))
    with pytest.raises(Refusal, match=r"prompt: 4 tokens, .* have memory for 3 \(--kv_cache_gb\)"):
        asyncio.run(service.complete("base", ["abcd"], scored))
