"""Training in half precision, for test_half_precision.py. Imported in ranks only: it needs Paddle."""

import hashlib

from launch import preflight
from launch.checkpoint.local_tensors import local_tensors, parts_of_ranks, whole_values
from launch.training import arguments
from launch.training.resuming import Restorer, scaler_state
from launch.training.saver import Saver
from tests.checkpoint import half_arithmetic


def observe():
    """Train as if the CPU had half precision; return what gives {"restored": digests of what this rank held when it had
    read a checkpoint, "saved STEP": and when it had written one}."""
    seen = {}
    restore, save = Restorer.restore, Saver.save

    def restored(restorer):
        restore(restorer)
        seen["restored"] = digests(restorer.trainer)

    def saved(saver):
        save(saver)
        seen[f"saved {saver.trainer.state.global_step}"] = digests(saver.trainer)

    Restorer.restore, Saver.save = restored, saved
    install()
    return lambda: seen


def install() -> None:
    """Have a CPU with half precision, as far as run_pretrain sees."""
    preflight.run = lambda run, **shown: []  # which refuse half precision on a CPU, as the parser does
    arguments.compute_capability = lambda device: (8, 0)
    half_arithmetic.install()


def digests(trainer) -> dict[str, str]:
    """Of each tensor that this rank has some of, whole; its dtype is in its name. And the loss scaler's state."""
    held = local_tensors(trainer.model, trainer.optimizer, trainer.args)
    parts = parts_of_ranks(held)
    tensors = {f"{one.key} {one.dtype}": whole_values(one, parts).tobytes() for one in held}
    found = {name: hashlib.sha256(values).hexdigest() for name, values in tensors.items()}
    return found | ({"scaler": str(scaler_state(trainer.scaler))} if trainer.do_grad_scaling else {})
