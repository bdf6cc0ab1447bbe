"""The text of rehearsals, on which the golden curves rest: the same with every Python."""

import hashlib

from launch.rehearsal.text import documents

SHA256 = "fa55373910fa00072252a34755f5c593ecd6c8d3f3812f97e1446d7accee988e"


def test_text_is_what_it_was():
    """Another text is another set of curves: python -m tests.golden for every recipe, with the reason."""
    assert hashlib.sha256("".join(documents()).encode()).hexdigest() == SHA256
