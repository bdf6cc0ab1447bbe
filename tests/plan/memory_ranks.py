"""What the ranks of the planner's tests do: a real training, and what Paddle's allocator has held in it."""

from paddle.base import core


def allocated() -> int:
    return core.host_memory_stat_current_value("Allocated", 0)


def peak() -> int:
    return core.host_memory_stat_peak_value("Allocated", 0)


def forget_peak() -> None:
    core.host_memory_stat_reset_peak_value("Allocated", 0)


def train(module: str, argv: list[str]) -> dict:
    """Train as a shared module does; bytes on this rank.

    Returns {"states": parameters and optimizer states between two steps, "micro_batch", "optimizer": the peaks of
    the passes over micro batches and of the optimizer's steps, after the first step}.
    """
    import importlib

    from paddlenlp.trainer import Trainer, TrainerCallback

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
    importlib.import_module(f"launch.{module}").main(argv)
    return seen


def bytes_of(trainer) -> dict:
    """Of what this rank keeps between two steps."""
    from tests.distributed.observation import innermost

    optimizer = innermost(trainer.optimizer)
    kept = {id(one): one for one in trainer.model.parameters()}
    states = optimizer._accumulators
    return {
        "parameters": sum(_bytes(getattr(one, "fw_storage", one)) for one in kept.values()),
        "gradients": sum(_bytes(one.grad) for one in kept.values() if one.grad is not None),
        "moments": sum(_bytes(one) for name in ("moment1", "moment2") for one in states.get(name, {}).values()),
    }


def _bytes(tensor) -> int:
    return int(tensor.size) * tensor.element_size() if tensor._is_initialized() else 0
