"""Where the tests kill a save: LAUNCH_FAULT=POINT[@STEP[:RANK]] has a rank kill itself there. No Paddle.

LAUNCH_FAULT=before-rename@20:0      rank 0, in the save of step 20, before the checkpoint gets its name
"""

import os
import re
import signal

VARIABLE = "LAUNCH_FAULT"
POINTS = ("after-first-file", "between-files", "before-manifest", "before-rename", "after-rename")


def fault_point(point: str, global_step: int, rank: int) -> None:
    """Ends this process here with SIGKILL, where the variable says so. Default: at every step, on rank 0."""
    asked = os.environ.get(VARIABLE)
    if not asked:
        return
    match = re.fullmatch(r"([a-z-]+)(?:@(\d+)(?::(\d+))?)?", asked)
    if match is None or match[1] not in POINTS:
        raise ValueError(f"{VARIABLE}: found {asked!r}, allowed: POINT[@STEP[:RANK]], POINT of {', '.join(POINTS)}")
    if match[1] == point and int(match[2] or global_step) == global_step and int(match[3] or 0) == rank:
        os.kill(os.getpid(), signal.SIGKILL)
