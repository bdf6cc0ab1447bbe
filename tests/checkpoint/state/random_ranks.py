"""Random numbers drawn on a rank, and drawn again after their state has been through JSON."""

import json
import random

import numpy as np


def drawn_again(seed: int) -> dict[str, list]:
    """Of each generator: what it gave after its state was taken, next, and once the state was given back."""
    import paddle
    from paddle.distributed import fleet

    from launch.checkpoint.state import random_state

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
