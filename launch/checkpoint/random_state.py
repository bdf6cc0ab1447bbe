"""The random numbers of this process as JSON, and back: Python's, NumPy's, Paddle's, those of tensor parallelism.

Of Paddle's generators of cards this rank's alone: the others' states are never used, and how many there are depends on
the cards that a process sees, which may be others when it goes on. (Paddle's own get_rng_state and set_rng_state take
those of all cards.)
"""

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
        "cpu": _to_json(core.default_cpu_generator()),
        "devices": [_to_json(_own_generator())],
        "tracker": {name: _tracked(name, _to_json) for name in _tracker().states_},
    }


def restore(state: dict) -> None:
    """Raises ValueError where a state of tensor parallelism is not of this run."""
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
    """The generator of the device that this rank computes on."""
    kind, _, number = paddle.get_device().partition(":")
    return core.default_cuda_generator(int(number)) if kind == "gpu" else core.default_cpu_generator()


def _own_of(states: list) -> list:
    """This rank's among the states that a checkpoint has: one, or in those of earlier versions one a card that the rank
    saw. Numbers were drawn on its own card alone, whose state counts them by its offset.
    """
    states = states if isinstance(states[0], list) else [states]
    return max(states, key=lambda state: state[2])


def _tracker():
    return fleet.meta_parallel.get_rng_state_tracker()


def _tracked(name: str, work):
    """What `work` makes of this rank's generator while it has a state that the tracker keeps under a name."""
    with _tracker().rng_state(name):
        return work(_own_generator())


def _to_json(generator) -> list:
    """[device, seed, offset, the engine as text]"""
    device, seed, offset, engine = generator.get_state().__getstate__()
    return [device, seed, offset, bytes(engine).decode("ascii")]


def _fill(generator, value: list) -> None:
    """The device stays the generator's own."""
    _, seed, offset, engine = value
    device = generator.get_state().__getstate__()[0]
    state = core.GeneratorState.__new__(core.GeneratorState)
    state.__setstate__((device, seed, offset, list(engine.encode("ascii"))))
    generator.set_state(state)
