"""Cases that nobody thought of: readers of files are given what a machine makes up, and may refuse it."""

import json
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

# From so many on, `make test-nightly` has other cases at each commit (and the same ones when it is run again there);
# fewer are the same every time, so that a test stays green.
MANY = 1000
FEW_AND_MANY = pytest.mark.parametrize(
    "count", [12, pytest.param(100, marks=pytest.mark.long), pytest.param(MANY, marks=pytest.mark.nightly)]
)


def cases(count: int) -> Callable:
    """Decorates a function with @given: so many cases, of any duration."""
    return settings(
        max_examples=count,
        deadline=None,
        database=None,
        derandomize=count < MANY,
        suppress_health_check=list(HealthCheck),
    )


def texts() -> st.SearchStrategy[str]:
    """Of all characters: NUL, line ends, half surrogate pairs, byte order marks."""
    odd = st.sampled_from(["\0", "\ud800", "\udfff", "\ufeff", "\u2028", "{{ x }}", "{%", "</s>", "\r\n", "\U0010ffff"])
    return st.lists(odd | st.text(max_size=5), max_size=4).map("".join)


def values() -> st.SearchStrategy:
    """JSON values, some deep."""
    plain = st.none() | st.booleans() | st.integers() | st.floats() | texts()
    deep = st.integers(1, 3000).map(nested)
    inner = st.recursive(plain, lambda one: st.lists(one, max_size=4) | st.dictionaries(texts(), one, max_size=4))
    return inner | deep


def nested(depth: int) -> list:
    """[[[...]]]"""
    value: list = []
    for _ in range(depth):
        value = [value]
    return value


def dumped(value) -> bytes:
    """As JSON; what is too deep for that as a deep list."""
    try:
        return json.dumps(value).encode()
    except RecursionError:
        return b"[" * 10_000


@st.composite
def damaged(draw, content: bytes) -> bytes:
    """A good file with some bytes changed, cut out, doubled or put in, or without its end."""
    data = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(len(data) - 1, 0)))
        kind = draw(st.sampled_from(["flip", "change", "put", "cut", "end", "double"]))
        if kind == "flip" and data:
            data[place] ^= 1 << draw(st.integers(0, 7))
        elif kind == "change":
            new = draw(st.binary(min_size=1, max_size=9))
            data[place : place + len(new)] = new
        elif kind == "put":
            data[place:place] = draw(st.binary(max_size=12))
        elif kind == "cut":
            del data[place : place + draw(st.integers(1, 40))]
        elif kind == "end":
            del data[place:]
        else:
            data[place:place] = data[place : place + draw(st.integers(1, 60))]
    return bytes(data)
