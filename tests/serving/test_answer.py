"""An answer whose client has left is given up, also where a token comes at the same moment."""

import asyncio
import time

import pytest

from launch.serving.answer import Answer
from launch.serving.request import Options
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
