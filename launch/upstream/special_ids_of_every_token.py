"""A tokenizer makes the list of its special ids anew for every token that it decodes.

paddlenlp/transformers/tokenizer_utils.py, PretrainedTokenizer._decode and convert_ids_to_tokens with
skip_special_tokens: they read the property all_special_ids (tokenizer_utils_base.py) twice a token, which gathers the
special tokens and looks up each. That is more than half of the time of decoding, of which a server has much: for each
token of a stream. Corrected: a tokenizer remembers the list until its special tokens or added tokens change.
"""

from paddlenlp.transformers.tokenizer_utils_base import SpecialTokensMixin

STOCK = SpecialTokensMixin.all_special_ids
NAMES = [f"_{name}" for name in SpecialTokensMixin.SPECIAL_TOKENS_ATTRIBUTES if name != "additional_special_tokens"]


def correct() -> None:
    """Correct upstream; a second call changes nothing."""
    setattr(SpecialTokensMixin, "all_special_ids", property(_all_special_ids))  # noqa: B010  # a property has no setter


def _all_special_ids(self) -> list[int]:
    attributes = vars(self)
    special = [attributes.get(name) for name in NAMES]
    now = (special, [*(attributes.get("_additional_special_tokens") or ())], len(self.get_added_vocab()))
    if attributes.get("_special_ids_of", (None,))[0] != now:
        self._special_ids_of = now, STOCK.__get__(self)
    return [*self._special_ids_of[1]]
