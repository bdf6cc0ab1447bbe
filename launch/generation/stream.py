"""An answer shown while it is made."""

import sys

UNFINISHED = "\ufffd"  # what a decoder gives for the first bytes of a character


class TextStream:
    """Takes the ids of one answer from paddlenlp's generate() as its `streamer`, and prints the text they make."""

    def __init__(self, tokenizer, eos: int):
        self.tokenizer = tokenizer
        self.eos = eos
        self.ids: list[int] = []
        self.shown = 0  # characters

    def put(self, ids) -> None:
        """ids: int64 [1, 1] or [1]"""
        token = int(ids.reshape([-1])[0])
        if token == self.eos:
            return
        self.ids.append(token)
        text = decode(self.tokenizer, self.ids)
        if not text.endswith(UNFINISHED):
            self._show(text)

    def end(self) -> None:
        self._show(decode(self.tokenizer, self.ids))
        if self.ids:
            print(flush=True)

    def _show(self, text: str) -> None:
        sys.stdout.write(text[self.shown :])
        sys.stdout.flush()
        self.shown = max(self.shown, len(text))


def decode(tokenizer, ids: list[int]) -> str:
    """The text of an answer, as it was learnt: "a . b" is not made "a. b"."""
    return tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
