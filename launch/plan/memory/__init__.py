"""The memory model: what each rank holds, and the peak of each phase of a step.

plan.py puts it together. division.py, sharding.py and states.py say what a rank keeps between steps, step.py replays a
step on launch/tape with the models of launch/families, outside.py adds what is no tensor, host.py the node.
"""

from launch.plan.memory.plan import least_bytes, plan_memory

__all__ = ["least_bytes", "plan_memory"]
