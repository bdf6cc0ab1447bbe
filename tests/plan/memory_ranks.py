"""What the ranks of the planner's tests do: a real training, and what Paddle's allocator has held in it."""

from paddle.base import core


def allocated() -> int:
    return core.host_memory_stat_current_value("Allocated", 0)


def peak() -> int:
    return core.host_memory_stat_peak_value("Allocated", 0)


def forget_peak() -> None:
    core.host_memory_stat_reset_peak_value("Allocated", 0)


def train(module: str, argv: list[str]) -> dict:
    """Train by a method; bytes on this rank.

    Returns {"parameters", "gradients", "moments": kept between two steps, "between": all that is kept then,
    "forward and backward", "optimizer": the peaks of these parts of a step, after the first step, "host": what offload
    keeps in host memory}.
    """
    from paddlenlp.trainer import Trainer, TrainerCallback

    from launch.train import train_method

    seen = {"forward and backward": 0, "optimizer": 0, "between": 0}

    class Watch(TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            seen["between"] = allocated()
            forget_peak()

        def on_optimizer_begin(self, args, state, control, **kwargs):
            if state.global_step >= 1:
                seen["forward and backward"] = max(seen["forward and backward"], peak())
            forget_peak()

        def on_optimizer_end(self, args, state, control, **kwargs):
            if state.global_step >= 1:
                seen["optimizer"] = max(seen["optimizer"], peak())

    stock = Trainer.train

    def train(trainer, *args, **kwargs):
        trainer.add_callback(Watch())
        result = stock(trainer, *args, **kwargs)
        seen.update(bytes_of(trainer))
        return result

    Trainer.train = train
    train_method(module, argv)
    return seen


def bytes_of(trainer) -> dict:
    """Of what this rank keeps between two steps: parameters and gradients as the buffers that they lie in."""
    from launch.checkpoint.local_tensors import innermost
    from launch.offload.host_memory import host_memory

    host = host_memory() if trainer.offload or trainer.args.paged_moments else None

    def here(tensor) -> int:
        """Bytes on the device."""
        return 0 if host and host.holds(tensor) else _bytes(tensor)

    kept = {id(one): one for one in trainer.model.parameters()}.values()
    states = innermost(trainer.optimizer)._accumulators
    codes = sum(_bytes(one) for one in packed_tensors(trainer.model))
    found = {
        "parameters": sum(here(_own(one)) for one in kept) + codes,
        "gradients": sum(here(one.grad) for one in kept if one.grad is not None),
        "moments": sum(here(one) for name in states if "moment" in name for one in states[name].values()),
        "host": host.nbytes if host else 0,
    }
    storages = getattr(trainer.model_wrapped, "_grad_storages", None)
    if storages is None:
        return found
    gradients = sum(_bytes(one.buffer) for one in _flat(storages))
    buffers = _flat(getattr(trainer.optimizer, "param_storages", {}))
    if not buffers:
        return found | {"gradients": gradients}
    # The buffers hold what is trained; frozen tensors lie apart.
    frozen = sum(_bytes(_own(one)) for one in kept if one.stop_gradient)
    parameters = sum(_bytes(one.buffer) for one in buffers) + frozen + codes
    return found | {"gradients": gradients, "parameters": parameters}


def packed_tensors(model) -> list:
    """Codes and scales of all quantized layers, each once."""
    from launch.adapters.quantization import Packed

    waiting = [layer.packed for layer in model.sublayers() if hasattr(layer, "packed")]
    found = {}
    while waiting:
        one = waiting.pop()
        if isinstance(one, Packed):
            waiting += [one.codes, one.scales, one.offset]
        elif one is not None:
            found[id(one)] = one
    return list(found.values())


def _own(parameter):
    """Of a parameter that stage 3 has sliced, the slice."""
    slice_ = getattr(parameter, "fw_storage", None)
    return parameter if slice_ is None else slice_


def _flat(storages: dict) -> list:
    """Stage 2 has one of each dtype and rank, stage 3 of each dtype."""
    of_dtypes = [one.values() if isinstance(one, dict) else [one] for one in storages.values()]
    return [storage for of_dtype in of_dtypes for storage in of_dtype]


def _bytes(tensor) -> int:
    return int(tensor.size) * tensor.element_size() if tensor._is_initialized() else 0
