"""Compares the ids of dialogues with those of transformers' apply_chat_template, which is an optional package."""

from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path
from typing import Any

from data_tools.dialogues.encoding import Encoding, encode_dialogues
from data_tools.dialogues.messages import Dialogue
from data_tools.formats.errors import DataError
from data_tools.formats.plural import plural

COMPARED = 200  # dialogues, at most


def difference_line(
    dialogues: list[Dialogue], directory: Path, tokens: dict[str, str], encoding: Encoding,
    decode: Callable[[list[int]], str],
) -> str:  # fmt: skip
    """Return a line that says that all ids are equal, or where the first differing one stands.

    Compared is the last sample of each of the first dialogues, up to the end of its answer. tokens: special tokens of
    the tokenizer.

    Raises:
        DataError: Without a chat template, or without transformers.
    """
    if encoding.template is None:
        raise DataError("--against apply_chat_template: the rows are bare texts. --chat_template FILE, or chats.")
    tokenizer, source = _tokenizer(directory, tokens), encoding.template.source
    compared = 0
    for dialogue, found in zip(dialogues, encode_dialogues(dialogues[:COMPARED], encoding), strict=False):
        if isinstance(found, DataError):
            continue
        values, ours = dialogue.as_json(), found[-1].ids
        options = values.get("chat_template_kwargs", {})
        theirs = tokenizer.apply_chat_template(
            values["messages"], tools=values.get("tools"), chat_template=source, tokenize=True, **options
        )
        compared += 1
        for place, (our, their) in enumerate(zip_longest(ours, theirs[: len(ours)])):
            if our != their:
                around = decode(ours[max(place - 8, 0) : place])
                texts = [decode([one]) if one is not None else "nothing" for one in (our, their)]
                return (
                    f"against apply_chat_template: dialogue {compared}, token {place}, behind {around!r}: "
                    f"{texts[0]!r} ({our}) here, {texts[1]!r} ({their}) there"
                )
    return f"against apply_chat_template: all ids of {plural(compared, 'dialogue')} are equal"


def _tokenizer(directory: Path, tokens: dict[str, str]) -> Any:
    try:
        from transformers import AutoTokenizer, PreTrainedTokenizerFast  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise DataError(
            "--against apply_chat_template needs transformers: `.venv/bin/python -m pip install transformers==4.55.4`."
        ) from None
    if (directory / "tokenizer.json").is_file():
        return PreTrainedTokenizerFast(tokenizer_file=str(directory / "tokenizer.json"), **tokens)
    return AutoTokenizer.from_pretrained(str(directory), use_fast=False)
