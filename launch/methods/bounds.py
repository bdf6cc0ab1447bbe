"""Bounds that many numeric flags share: "least" and "most" inclusive, "above" and "below" exclusive.

Every number is finite, also where a side has no bound.
"""

INT32_MAX = 2**31 - 1
DEGREE = {"least": -1, "most": 65_536}  # of a parallel dimension; -1: not stated
BATCH = {"least": 1, "most": 1_000_000}
STEPS = {"least": 0, "most": INT32_MAX}
AT_LEAST_ONE = {"least": 1, "most": INT32_MAX}
UNSTATED_OR_STEPS = {"least": -1, "most": INT32_MAX}
NOT_NEGATIVE = {"least": 0}
POSITIVE = {"above": 0}
SHARE = {"least": 0, "most": 1}
SHARE_BELOW_ONE = {"least": 0, "below": 1}
SAMPLE = {"least": 2, "most": INT32_MAX}  # tokens: one of the question and one of the answer
