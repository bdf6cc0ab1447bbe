r"""How a token is called where it stands by itself, in lists of log-probabilities.

The text that it adds to an answer; a special token's own name; `bytes:\xe5\xad` for a part of a character, as the
OpenAI API has it, so that different tokens have different names.
"""

import re
from functools import cache

from paddlenlp.transformers.gpt.tokenizer import bytes_to_unicode

from launch.generation.text import UNFINISHED, decode
from launch.serving.request import TokenName

BYTE = re.compile(r"<0x([0-9A-F]{2})>")  # of sentencepiece


class TokenNames:
    """The names of tokens; each is stored at its first request."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.special = frozenset(tokenizer.all_special_ids)
        self.before = tokenizer.encode("a", add_special_tokens=False)["input_ids"]  # a first token may lose its space
        self.text_before = decode(tokenizer, self.before)
        self.names: dict[int, TokenName] = {}

    def __call__(self, token: int) -> TokenName:
        """Return the name of a token."""
        if token not in self.names:
            self.names[token] = self._name(token)
        return self.names[token]

    def _name(self, token: int) -> TokenName:
        piece = self.tokenizer.convert_ids_to_tokens(token)
        if token in self.special:
            return TokenName(str(piece), None)
        text = decode(self.tokenizer, [*self.before, token]).removeprefix(self.text_before)
        if text and UNFINISHED not in text:
            return TokenName(text, text.encode())
        found = _bytes(piece)
        if found is None:
            return TokenName(str(piece), None)
        return TokenName("bytes:" + "".join(f"\\x{byte:02x}" for byte in found), found)


def _bytes(piece: str | bytes) -> bytes | None:
    """Return the bytes of a piece that is no text: bytes (Qwen), <0xE5> (sentencepiece), or characters (GPT-2)."""
    if isinstance(piece, bytes):
        return piece
    if match := BYTE.fullmatch(piece):
        return bytes([int(match[1], 16)])
    alphabet = _byte_alphabet()
    return bytes(alphabet[sign] for sign in piece) if piece and all(sign in alphabet for sign in piece) else None


@cache
def _byte_alphabet() -> dict[str, int]:
    return {sign: byte for byte, sign in bytes_to_unicode().items()}
