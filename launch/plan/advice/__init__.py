"""What to change where a run does not fit, or where a layout is still to be found.

for change in cheapest_changes("launch/run_pretrain.py", flags, processes=8, card=card, legal=legal):
    print(change.title, change.peak_bytes, change.slowdown, change.arguments)
"""

from launch.plan.advice.changes import Change, advice_lines, changed_arguments, cheapest_changes
from launch.plan.advice.search import Candidate, fastest_layouts, smallest_layout

__all__ = [
    "Candidate",
    "Change",
    "advice_lines",
    "changed_arguments",
    "cheapest_changes",
    "fastest_layouts",
    "smallest_layout",
]
