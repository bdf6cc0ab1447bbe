"""The random state of this process as JSON: Python's, NumPy's, Paddle's, that of tensor parallelism.

Paddle has a generator for each card that a process sees. Only that of this rank's card is saved: the others are never
used, and a resumed process may see other cards. (Paddle's own get_rng_state and set_rng_state take all of them.)
"""

import random

import numpy as np
import paddle
from paddle.base import core
from paddle.distributed.fleet.meta_parallel import get_rng_state_tracker


def capture() -> dict:
    """Return the state for `restore`, as integers and texts."""
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    version, state, gauss = random.getstate()
    return {
        "python": [version, list(state), gauss],
        "numpy": [name, np.asarray(keys).tolist(), position, has_gauss, cached],
        "cpu": _to_json(core.default_cpu_generator()),
        "devices": [_to_json(_own_generator())],
        "tracker": {name: _tracked(name, _to_json) for name in _tracker().states_},
    }


def restore(state: dict) -> None:
    """Restore a state.

    Raises:
        ValueError: If this run has no such state of tensor parallelism.
    """
    version, keys, gauss = state["python"]
    random.setstate((version, tuple(keys), gauss))
    name, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((name, np.array(keys, dtype=np.uint32), position, has_gauss, cached))
    _fill(core.default_cpu_generator(), state["cpu"])
    _fill(_own_generator(), _own_of(state["devices"]))
    for name, of_devices in state["tracker"].items():
        own = _own_of(of_devices)
        _tracked(name, lambda generator, own=own: _fill(generator, own))


def _own_generator():
    """Return the generator of the device that this rank computes on."""
    kind, _, number = paddle.get_device().partition(":")
    return core.default_cuda_generator(int(number)) if kind == "gpu" else core.default_cpu_generator()


def _own_of(states: list) -> list:
    """Return the state of this rank's card.

    Earlier versions saved one for each card that the rank saw; it used its own card alone, so that one has the largest
    offset.
    """
    states = states if isinstance(states[0], list) else [states]
    return max(states, key=lambda state: state[2])


def _tracker():
    return get_rng_state_tracker()


def _tracked(name: str, work):
    """Return the result of `work` on this rank's generator in the named state of the tracker."""
    with _tracker().rng_state(name):
        return work(_own_generator())


def _to_json(generator) -> list:
    """Return [device, seed, offset, the engine as text]."""
    device, seed, offset, engine = generator.get_state().__getstate__()
    return [device, seed, offset, bytes(engine).decode("ascii")]


def _fill(generator, value: list) -> None:
    """Set seed, offset and engine; the generator keeps its device."""
    _, seed, offset, engine = value
    device = generator.get_state().__getstate__()[0]
    state = core.GeneratorState.__new__(core.GeneratorState)
    state.__setstate__((device, seed, offset, list(engine.encode("ascii"))))
    generator.set_state(state)
