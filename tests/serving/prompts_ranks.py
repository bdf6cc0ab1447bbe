"""Prompts of a server that are too long, for test_prompts.py."""

from types import SimpleNamespace

from launch.serving.models import Prompts
from launch.serving.request import Refusal


class Tokenizer:
    """Counts the texts that it is given."""

    def __init__(self):
        self.encoded = 0

    def get_vocab(self) -> dict[str, int]:
        return {"a": 0, "quick": 1}

    def __call__(self, *args, **kwargs):
        self.encoded += 1
        raise AssertionError("encoded")


def refused() -> dict:
    """What texts and chats of 51 characters are told that meet 10 positions for tokens of 5 characters."""
    tokenizer = Tokenizer()
    prompts = Prompts(SimpleNamespace(tokenizer=tokenizer, positions=10), None)
    said = []
    answer = {"role": "assistant", "content": "y"}
    chats = [[{"role": "user", "content": "x" * 25}, answer, {"role": "user", "content": "z" * 25}]]
    chats.append([{"role": "user", "content": "x"}, answer])
    for ask in (lambda: prompts.of_text("x" * 51), *(lambda chat=chat: prompts.of_chat(chat) for chat in chats)):
        try:
            ask()
        except Refusal as refusal:
            said.append((refusal.reason.http, refusal.message, refusal.parameter))
    return {"said": said, "encoded": tokenizer.encoded}
