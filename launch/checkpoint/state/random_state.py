"""The random numbers of this process as JSON, and back: Python's, NumPy's, Paddle's, those of tensor parallelism."""

import random

import numpy as np
import paddle
from paddle.base import core
from paddle.distributed import fleet


def capture() -> dict:
    """What `restore` takes; integers and texts alone."""
    name, keys, position, has_gauss, cached = np.random.get_state()
    version, state, gauss = random.getstate()
    return {
        "python": [version, list(state), gauss],
        "numpy": [name, keys.tolist(), position, has_gauss, cached],
        "cpu": _to_json(core.default_cpu_generator().get_state()),
        "devices": [_to_json(state) for state in paddle.get_rng_state()],
        "tracker": {name: _tracked_to_json(state) for name, state in _tracker().get_states_tracker().items()},
    }


def restore(state: dict) -> None:
    version, keys, gauss = state["python"]
    random.setstate((version, tuple(keys), gauss))
    name, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((name, np.array(keys, dtype=np.uint32), position, has_gauss, cached))
    core.default_cpu_generator().set_state(_from_json(state["cpu"]))
    paddle.set_rng_state([_from_json(one) for one in state["devices"]])
    _tracker().set_states_tracker({name: _tracked_from_json(one) for name, one in state["tracker"].items()})


def _tracker():
    return fleet.meta_parallel.get_rng_state_tracker()


def _to_json(state) -> list:
    """[device, seed, offset, the engine as text] of a paddle generator."""
    device, seed, offset, engine = state.__getstate__()
    return [device, seed, offset, bytes(engine).decode("ascii")]


def _from_json(value: list):
    device, seed, offset, engine = value
    state = core.GeneratorState.__new__(core.GeneratorState)
    state.__setstate__((device, seed, offset, list(engine.encode("ascii"))))
    return state


def _tracked_to_json(states) -> list:
    """The tracker keeps a list of states, one a device, or a single one."""
    return [_to_json(state) for state in states] if isinstance(states, (list, tuple)) else _to_json(states)


def _tracked_from_json(value: list):
    return [_from_json(one) for one in value] if value and isinstance(value[0], list) else _from_json(value)
