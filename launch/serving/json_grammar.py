"""Which tokens may come next in an answer that is to be JSON of a schema, by llguidance.

grammars = Grammars(name, ids, eos, encode)
grammar = grammars.of_schema('{"type": "object"}')
grammar.exclude(logits)
grammar.take(token)
"""

from collections.abc import Callable

import numpy as np
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper  # pyright: ignore[reportMissingImports]

from launch.serving.request import Reason, Refusal, TokenName


class Vocabulary:
    """What llguidance asks of a tokenizer."""

    bos_token_id = None

    def __init__(self, names: list[TokenName], eos: int, encode: Callable[[str], list[int]]):
        self.eos_token_id = eos
        self.tokens = [name.text.encode() if name.bytes is None else name.bytes for name in names]
        self.special_token_ids = [token for token, name in enumerate(names) if name.bytes is None]
        self.encode = encode

    def __call__(self, text: str | bytes) -> list[int]:
        return self.encode(text if isinstance(text, str) else text.decode())


class Grammars:
    """Of one tokenizer. name: of an id. ids: so many can be chosen. encode: a text's ids, without special tokens."""

    def __init__(self, name: Callable[[int], TokenName], ids: int, eos: int, encode: Callable[[str], list[int]]):
        vocabulary = Vocabulary([name(token) for token in range(ids)], eos, encode)
        self.tokenizer = LLTokenizer(TokenizerWrapper(vocabulary), n_vocab=ids)

    def of_schema(self, schema: str) -> "Grammar":
        """Raises Refusal for a schema that is wrong, or has what llguidance does not know."""
        # As json.dumps writes it. With any space allowed, a model can go on with spaces for ever.
        grammar = LLMatcher.grammar_from_json_schema(
            schema, overrides={"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
        )
        matcher = LLMatcher(self.tokenizer, grammar)
        if matcher.is_error():
            found = matcher.get_error().partition("\n")[0][:200]
            raise Refusal(Reason.INVALID, f"response_format: {found}", "response_format")
        return Grammar(matcher)


class Grammar:
    """Of one answer."""

    def __init__(self, matcher: LLMatcher):
        self.matcher = matcher

    def copy(self) -> "Grammar":
        return Grammar(self.matcher.deep_copy())

    def exclude(self, logits: np.ndarray) -> None:
        """Make those infinitely small that cannot come next; the end can where the JSON is complete. logits: [ids]"""
        mask = self.matcher.compute_bitmask()
        if self.matcher.is_error():
            raise RuntimeError(f"llguidance: {self.matcher.get_error()}")
        bits = np.unpackbits(np.frombuffer(mask, dtype=np.uint8), count=len(logits), bitorder="little")
        logits[bits == 0] = -np.inf

    def take(self, token: int) -> None:
        self.matcher.consume_token(token)
