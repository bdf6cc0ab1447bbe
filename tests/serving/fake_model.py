"""A model without Paddle, to serve in tests: ids are bytes, the answer to "a" is "<a>".

A prompt with "slow" takes 20 ms a token, one with "stuck" 3 s for the first one, one with "fail" fails its batch, one
with "endless" never ends by itself, one with "quit" ends the thread.
"heavy FOLDER" is encoded as long as there is no FOLDER/go; FOLDER/begun says that it has begun.
The log-probability of each byte is -byte / 100, the most likely ones are "!" and "?"; that of the end is -0.5. "poems"
gives none for prompts.
"""

import time
from itertools import islice
from pathlib import Path

from launch.generation.answer_parts import Reading, find_form
from launch.serving.chats import Chat
from launch.serving.request import Finish, Likelihood, Options, Reason, Refusal, TokenName
from tests.processes.waiting import wait_for

EOS, POSITIONS = 256, 4096


class Prompts:
    def of_text(self, text: str) -> list[int]:
        if text.startswith("heavy "):
            folder = Path(text.removeprefix("heavy "))
            (folder / "begun").touch()
            wait_for((folder / "go").exists)
        return list(text.encode())

    def of_chat(self, chat: Chat) -> tuple[list[int], Reading]:
        """The answer to "think>a</think>" is reasoning. If there are tools, "<tool_call>" begins a call."""
        text = "|".join(message.text for message in chat.dialogue.messages)
        form = find_form("<tool_call>") if chat.schemas else None
        return list(text.encode()), Reading(form, chat.schemas, several=chat.several, reasons="</think>" in text)

    def require_known(self, ids, parameter: str) -> None:
        if wrong := [token for token in ids if token > EOS]:
            raise Refusal(Reason.INVALID, f"{parameter}: found id {wrong[0]}", parameter)

    def of_ids(self, ids: list[int]) -> list[int]:
        return ids


class FakeModel:
    """Has what launch/serving/models.py: Served has."""

    prompts = Prompts()
    positions = longest_scored = POSITIONS

    def __init__(self, name: str):
        self.name = name
        self.batches: list[int] = []

    @property
    def chats(self) -> bool:
        return self.name == "poems"

    @property
    def system(self) -> str:
        return "Be brief." if self.name == "poems" else ""

    sampling: dict = {}

    def group(self, prompt: list[int]) -> tuple:
        return (self.name,)

    @property
    def causal(self) -> bool:
        return self.name != "poems"

    def token_name(self, token: int) -> TokenName:
        text = "</s>" if token == EOS else bytes([token]).decode("ascii", errors="backslashreplace")
        return TokenName(text, None if token == EOS else bytes([token]))

    def grammars(self, options: Options, reading: Reading, answers: int) -> list:
        if options.json_schema:
            raise Refusal(Reason.INVALID, f"response_format: found {options.json_schema}", "response_format")
        return []

    def decode(self, ids: list[int]) -> str:
        return bytes(ids).decode("utf-8", errors="replace")

    def decoder(self, reading: Reading):
        return self.decode

    def answer(self, rows: list) -> None:
        self.batches.append(len(rows))
        answers = {id(row): islice(_answer(bytes(row.prompt)), len(row.tokens), None) for row in rows}
        if any(b"fail" in bytes(row.prompt) for row in rows):
            raise RuntimeError("this model fails where it is told to")
        if any(b"quit" in bytes(row.prompt) for row in rows):
            raise SystemExit
        if any(b"stuck" in bytes(row.prompt) for row in rows):
            time.sleep(3)
        for row in rows:
            if row.options.scores_prompt is not None and not row.tokens:
                first, *others = row.prompt
                row.emit([Likelihood(first, None), *map(likelihood, others)])
            if not row.max_tokens:
                row.finish(Finish.LENGTH)
        while not all(row.done for row in rows):
            if any(b"slow" in bytes(row.prompt) for row in rows):
                time.sleep(0.02)
            for row in rows:
                if not row.done:
                    token = next(answers[id(row)])
                    if row.options.logprobs is not None:
                        row.emit(likelihood(token))
                    row.put(token, (EOS,))


def likelihood(token: int) -> Likelihood:
    value, rank = -0.5 if token == EOS else -token / 100, 1 if token == ord("!") else 9
    return Likelihood(token, value, rank, ((ord("!"), -0.33), (ord("?"), -0.63)))


def _answer(prompt: bytes):
    if b"silent" in prompt:
        yield EOS
    yield from b"<" + prompt + b">"
    while b"endless" in prompt:
        yield ord(".")
    yield EOS
