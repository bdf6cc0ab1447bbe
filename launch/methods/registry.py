"""All training methods, and which one a script's name means.

find_method("launch/run_dpo.py").data_flag  # "dataset_name_or_path"
"""

from pathlib import Path

from launch.methods.finetuning import FINETUNING
from launch.methods.method import Method
from launch.methods.preferences import PREFERENCES
from launch.methods.pretraining import PRETRAINING
from launch.methods.reinforcement import REINFORCEMENT
from launch.methods.rewards import REWARDS

# Of several methods with a key of a file of arguments, the last is meant (ArgumentFiles).
METHODS = (PRETRAINING, FINETUNING, REINFORCEMENT, REWARDS, PREFERENCES)
_NAMED = {method.name: method for method in METHODS}
_STARTED_BY = {method.script: method for method in METHODS if method.script}


def find_method(script: str) -> Method | None:
    """Return the method with this name, or whose script has this path or name; None for anything else."""
    return _NAMED.get(script) or _STARTED_BY.get(Path(script).stem)


def method_of(script: str) -> Method:
    """Return the method as find_method does. Raises KeyError where there is none."""
    method = find_method(script)
    if method is None:
        raise KeyError(script)
    return method
