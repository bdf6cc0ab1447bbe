"""Rank functions of test_loss_scale.py."""

import contextlib
import hashlib
import io
import os
from types import SimpleNamespace

import paddle
from paddle.base import framework
from paddlenlp.trainer import Trainer, TrainerCallback
from paddlenlp.trainer.trainer_utils import OptimizerNames

from launch.checkpoint.local_tensors import local_tensors
from launch.train import train_method
from launch.training import run
from launch.training.optimizer import ScaleRule, SkippedSteps


def scales(rule: list, start: float, overflows: list[bool]) -> list[float]:
    """The scale after each step of a run whose steps overflow or not."""
    state, seen = (start, 0, 0), []
    for overflow in overflows:
        state = ScaleRule(*rule).next(*state, overflow)
        seen.append(state[0])
    return seen


def reads(steps: int) -> list[int]:
    """How often the scale has been read when each step's optimizer begins its work."""
    scaler, watch, seen, found = SimpleNamespace(_cache_found_inf=False), SkippedSteps(), [], []
    scaler._scale = type("Scale", (), {"__float__": lambda self: seen.append(self) or 8.0})()
    for _ in range(steps):
        watch.on_optimizer_begin(None, None, None, scaler=scaler)
        found.append(len(seen))
        watch.on_optimizer_end(None, None, None, scaler=scaler)
    return found


def train(argv: list[str], overflow_at: list[int], faulty_rank: int) -> dict:
    """Train with a gradient of one rank infinite in some steps. moved: the steps in which what this rank keeps of
    weights and moments changed. scaler: (scale, steps, overflows) at the end. told: lines about skipped steps."""
    watch = Watch(overflow_at if int(os.environ["PADDLE_TRAINER_ID"]) == faulty_rank else [])
    upstream = run.build_trainer

    def build_trainer(*args):
        watch.trainer = upstream(*args)
        watch.trainer.add_callback(watch)
        next(iter(watch.trainer.model.parameters())).register_hook(watch.break_gradient)
        return watch.trainer

    run.build_trainer = build_trainer
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        train_method("run_pretrain", argv)
    scaler = watch.trainer.scaler
    return {
        "moved": watch.moved,
        "scaler": [float(scaler._scale), scaler._incr_count, scaler._decr_count],
        "told": [line for line in printed.getvalue().splitlines() if "skipped" in line],
    }


def master_weights(level: str) -> dict[str, list[str]]:
    """What the Trainer's optimizer keeps of a float16 weight, by --fp16_opt_level: dtypes, and whether equal."""
    layer = paddle.nn.Linear(4, 4).to(dtype="float16")
    args = SimpleNamespace(fp16_opt_level=level, optim=OptimizerNames.ADAMW, weight_decay=0.0, max_grad_norm=1.0)
    args.adam_beta1, args.adam_beta2, args.adam_epsilon = 0.9, 0.999, 1e-8
    trainer = SimpleNamespace(optimizer=None, optimizer_grouped_parameters=None, model=layer, args=args)
    trainer.lr_scheduler = 1e-3
    optimizer = Trainer.create_optimizer(trainer)
    optimizer._create_accumulators(framework.default_main_program().current_block(), [layer.weight])
    copies = optimizer._master_weights.values()
    return {
        "moments": sorted({str(one.dtype) for one in optimizer._accumulators["moment1"].values()}),
        "copies": [str(one.dtype) for one in copies],
        "equal": [bool((one == layer.weight.astype("float32")).all()) for one in copies],
    }


class Watch(TrainerCallback):
    def __init__(self, overflow_at: list[int]):
        self.overflow_at = overflow_at
        self.moved = []
        self._before = None

    def break_gradient(self, gradient):
        step = self.trainer.state.global_step + 1
        return gradient * float("inf") if step in self.overflow_at else gradient

    def on_step_end(self, args, state, control, **kwargs):
        digest = hashlib.sha256()
        for held in local_tensors(self.trainer.model, self.trainer.optimizer, args):
            digest.update(held.values().tobytes())
        if digest.digest() != self._before:
            self.moved.append(state.global_step)
        self._before = digest.digest()
