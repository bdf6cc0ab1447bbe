"""A model without Paddle, to serve in tests: ids are bytes, the answer to "a" is "<a>".

A prompt with "slow" takes 20 ms a token, one with "stuck" 3 s for the first one, one with "fail" fails its batch, one
with "endless" never ends by itself.
"""

import time

from data_tools.formats.errors import DataError
from launch.serving.errors import Reason, Refusal

EOS, POSITIONS = 256, 4096


class Prompts:
    def of_text(self, text: str) -> list[int]:
        return list(text.encode())

    def of_chat(self, messages: list[dict]) -> list[int]:
        if messages[-1]["role"] != "user":
            raise Refusal(Reason.INVALID, f"messages: {DataError('the last one is not the user')}", "messages")
        return list("|".join(one["content"] for one in messages).encode())

    def of_ids(self, ids: list[int]) -> list[int]:
        return ids


class FakeModel:
    """Has what launch/serving/models.py: Served has."""

    prompts = Prompts()

    def __init__(self, name: str):
        self.name = name
        self.batches: list[int] = []

    def group(self, prompt: list[int]) -> tuple:
        return (self.name,)

    def room(self, prompt: list[int]) -> int:
        return POSITIONS - len(prompt)

    def decode(self, ids: list[int]) -> str:
        return bytes(ids).decode("utf-8", errors="replace")

    def answer(self, rows: list) -> None:
        self.batches.append(len(rows))
        answers = {id(row): _answer(bytes(row.prompt)) for row in rows}
        if any(b"fail" in bytes(row.prompt) for row in rows):
            raise RuntimeError("this model fails where it is told to")
        if any(b"stuck" in bytes(row.prompt) for row in rows):
            time.sleep(3)
        while not all(row.done for row in rows):
            if any(b"slow" in bytes(row.prompt) for row in rows):
                time.sleep(0.02)
            for row in rows:
                if not row.done:
                    row.put(next(answers[id(row)]), EOS)


def _answer(prompt: bytes):
    yield from b"<" + prompt + b">"
    while b"endless" in prompt:
        yield ord(".")
    yield EOS
