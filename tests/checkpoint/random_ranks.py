"""Random numbers drawn on a rank, and drawn again after their state has been through JSON."""

import json
import random
import sys

import numpy as np


def drawn(seed: int) -> dict[str, dict]:
    """Of each case: what each generator gave after its state was taken, next, and once the state was given back. On
    cards: it was card 3 of 8."""
    found = {"here": drawn_again(seed)}
    for resume in ((0, 1), (5, 8), (1, 2)):
        for earlier_format in (False, True):
            found[f"card {resume}, earlier format {earlier_format}"] = drawn_on_cards((3, 8), resume, earlier_format)
    return found


def drawn_again(seed: int) -> dict[str, list]:
    import paddle
    from paddle.distributed import fleet

    from launch.checkpoint import random_state

    tracker = fleet.meta_parallel.get_rng_state_tracker()
    tracker.add("a_rank", seed)

    def draw() -> dict:
        with tracker.rng_state("a_rank"):
            of_rank = paddle.rand([3]).tolist()
        return {
            "python": random.gauss(0, 1),  # every second one is kept from the one before
            "numpy": np.random.standard_normal(),
            "paddle": paddle.rand([3]).tolist(),
            "tensor parallel": of_rank,
        }

    draw()
    state = json.loads(json.dumps(random_state.capture()))
    first, following = draw(), draw()
    random_state.restore(state)
    again = draw()
    return {kind: [first[kind], following[kind], again[kind]] for kind in first}


def drawn_on_cards(save: tuple[int, int], resume: tuple[int, int], earlier_format: bool) -> dict[str, list]:
    """As drawn_again, on pretended cards. save, resume: (the rank's card, cards that it sees)."""
    from paddle.distributed import fleet

    from launch.checkpoint import random_state

    tracker = fleet.meta_parallel.get_rng_state_tracker()

    def begin(card: int, cards: int) -> None:
        generators = pretend(card, cards)
        tracker.reset()
        tracker.add("a_rank", 7)
        for generator in generators:
            generator.manual_seed(5)

    def draw() -> dict:
        with tracker.rng_state("a_rank"):
            of_rank = number_drawn(random_state)
        return {"paddle": number_drawn(random_state), "tensor parallel": of_rank}

    begin(*save)
    draw()
    state = json.loads(json.dumps(as_of_all_cards(random_state) if earlier_format else random_state.capture()))
    first, following = draw(), draw()
    begin(*resume)
    random_state.restore(state)
    again = draw()
    return {kind: [first[kind], following[kind], again[kind]] for kind in first}


def pretend(card: int, cards: int) -> list:
    """Generators of so many cards; Paddle takes the CPU's place for that of one of them."""
    import paddle
    from paddle.base import core

    from launch.checkpoint import random_state
    from launch.upstream.module_view import ModuleView

    generators = [core.Generator() for _ in range(cards)]
    places = {"CPUPlace": type(None), "CUDAPlace": core.CPUPlace}
    view = ModuleView(
        core, get_cuda_device_count=lambda: cards, default_cuda_generator=generators.__getitem__, **places
    )
    for function in (paddle.get_rng_state, paddle.incubate.get_rng_state):
        module = sys.modules[function.__module__]
        module.core, module.paddle = view, ModuleView(paddle, **places)
    random_state.core = view
    random_state.paddle = ModuleView(paddle, get_device=lambda: f"gpu:{card}")

    def seed(number: int) -> None:
        for generator in generators:
            generator.manual_seed(number)

    sys.modules[type(_tracker()).__module__].paddle = ModuleView(paddle, seed=seed)
    return generators


def _tracker():
    from paddle.distributed import fleet

    return fleet.meta_parallel.get_rng_state_tracker()


def number_drawn(random_state) -> int:
    """A number of this rank's card, which counts it as a kernel of a card does."""
    generator = random_state._own_generator()
    number = generator.random()
    _, seed, offset, engine = random_state._to_json(generator)
    random_state._fill(generator, [None, seed, offset + 4, engine])
    return number


def as_of_all_cards(random_state) -> dict:
    """A checkpoint's random_state as earlier versions wrote it."""
    import paddle

    def texts(states) -> list:
        found = [state.__getstate__() for state in states]
        return [[device, seed, offset, bytes(engine).decode("ascii")] for device, seed, offset, engine in found]

    return random_state.capture() | {
        "devices": texts(paddle.get_rng_state()),
        "tracker": {name: texts(states) for name, states in _tracker().get_states_tracker().items()},
    }
