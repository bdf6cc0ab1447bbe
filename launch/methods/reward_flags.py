"""The rewards of reinforcement (--reward): which there are, and what each word of the flag means. No Paddle."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from launch.errors import UserError

BUILT_IN = ("number", "choice", "exact", "tool", "json", "regex", "length")  # launch/training/graders.py
NEED_ANSWER = frozenset({"number", "choice", "exact", "tool"})
WITH_VALUE = frozenset({"regex", "length"})
COMMAND = "command"
ALLOWED = f"{', '.join(BUILT_IN)}, FILE.py:FUNCTION or command:COMMAND, each with a weight before it where several are"


@dataclass(frozen=True)
class Reward:
    """One reward.

    Attributes:
        kind: Of BUILT_IN, COMMAND, or the path of a Python file.
        value: Behind the colon: a pattern, a file, tokens, a function, a command line; "" without.
        name: In the log.
    """

    kind: str
    value: str
    weight: float
    name: str

    @property
    def needs_answer(self) -> bool:
        """Whether rows need a right answer."""
        return self.kind in NEED_ANSWER


def read_rewards(words: Sequence[str]) -> tuple[Reward, ...]:
    """Return the rewards of --reward: one, or weights and rewards in turn.

    Raises:
        UserError: For a reward that there is not, or a file that is not there.
    """
    if len(words) == 1:
        pairs = [("1", words[0])]
    elif not words or len(words) % 2:
        raise UserError(f"--reward: found {' '.join(words) or 'nothing'}; expected {ALLOWED}, as 0.9 number 0.1 json.")
    else:
        pairs = list(zip(words[0::2], words[1::2], strict=True))
    names: dict[str, int] = {}
    return tuple(_read(weight, text, names) for weight, text in pairs)


def _read(weight: str, text: str, names: dict[str, int]) -> Reward:
    kind, _, value = text.partition(":")
    python = kind.endswith(".py")
    try:
        if not (kind in BUILT_IN or kind == COMMAND or python):
            raise ValueError(f"expected {ALLOWED}")
        if (kind in WITH_VALUE or kind == COMMAND or python) and not value:
            raise ValueError("nothing stands behind the colon")
        if kind == "length" and int(value) <= 0:
            raise ValueError("expected a number of tokens above 0")
        if kind == "regex":
            re.compile(value)
        for file in [kind] * python + [value] * (kind == "json" and bool(value)):
            if not Path(file).is_file():
                raise ValueError(f"no such file {file}")
        number = float(weight)
    except (ValueError, re.error) as error:
        raise UserError(f"--reward: found {weight} {text}; {error}.") from None
    name = value if python else kind
    names[name] = names.get(name, 0) + 1
    return Reward(kind, value, number, name if names[name] == 1 else f"{name}_{names[name]}")
