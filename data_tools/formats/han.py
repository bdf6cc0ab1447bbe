"""Chinese characters."""

import re

HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002ebef"  # a range in regular expressions


def has_han(text: str) -> bool:
    return re.search(f"[{HAN}]", text) is not None
