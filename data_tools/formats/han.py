"""Chinese characters."""

import re
from collections.abc import Iterable

HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002ebef"  # a range in regular expressions


def is_chinese(text: str) -> bool:
    """Return whether most letters of a text are Han characters: an English text may quote some."""
    return 2 * len(re.findall(f"[{HAN}]", text)) > sum(map(str.isalpha, text))


def are_chinese(texts: Iterable[str]) -> bool:
    """Return whether most of the texts that have letters are Chinese: numbers are of no language."""
    found = [is_chinese(text) for text in texts if any(map(str.isalpha, text))]
    return 2 * sum(found) > len(found)
