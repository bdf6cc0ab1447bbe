"""Advice as lines to read."""

from launch.plan.advice.changes import Change
from launch.plan.hardware import GIB


def advice_lines(changes: list[Change]) -> list[str]:
    """Two or three lines a change: memory and time, what it is; its flags; what else is trained then."""
    if not changes:
        return ["no change of the list makes it fit, up to three at a time: more or larger cards, or a smaller model"]
    lines = ["what makes it fit, fastest first (memory of a card, time a token):"]
    for number, change in enumerate(changes, start=1):
        lines.append(f"{number:3d}. {change.peak_bytes / GIB:5.1f} GiB  x {change.slowdown:4.2f}  {change.title}")
        if change.result:
            lines.append(f"       {change.result}")
        lines.append(f'       ARGS="{change.arguments}"')
    return lines
