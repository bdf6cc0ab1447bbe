"""Training runs that go wrong on purpose."""

import numpy as np


def pretrain(argv: list[str], fault: str, step: int, rank: int) -> dict:
    """run_pretrain with a fault from a step on, on one rank or on all (-1): its exit code and what it said."""
    import paddle

    from launch.training.trainer import Trainer
    from tests.runs_ranks import train

    upstream = Trainer.compute_loss

    def compute_loss(trainer, *args, **kwargs):
        loss = upstream(trainer, *args, **kwargs)
        affected = rank in (-1, paddle.distributed.get_rank())
        return FAULTS[fault](loss) if affected and trainer.state.global_step + 1 >= step else loss

    Trainer.compute_loss = compute_loss
    return train("run_pretrain", argv, [])


FAULTS = {
    "nan": lambda loss: loss * np.nan,
    "collapse": lambda loss: loss * 1e-3,
    "spike": lambda loss: loss + 3.0,
    "stuck": lambda loss: loss.detach() + 0.0 * loss,
}


def stall(argv: list[str], step: int, rank: int, how: str) -> None:
    """run_pretrain, in which one rank "sleeps" for ever or is "killed" in a forward pass, "saves" without an end,
    "saves slowly", or "tries" kernels without an end."""
    import os
    import signal
    import time

    import paddle

    from launch.checkpoint import checkpoint_writer
    from launch.train import train_method
    from launch.training import run
    from launch.training.trainer import Trainer

    if how == "tries" and os.environ["PADDLE_TRAINER_ID"] == str(rank):
        run.decide = lambda *_: time.sleep(600)
    upstream, upstream_write = Trainer.compute_loss, checkpoint_writer.write_hashed

    def write_hashed(path, pieces):
        if paddle.distributed.get_rank() == rank and path.parent.name.endswith(f"-{step}"):
            time.sleep(600 if how == "saves" else 0)
            pieces = slowly(pieces) if how == "saves slowly" else pieces
        return upstream_write(path, pieces)

    def slowly(pieces):
        for piece in pieces:
            time.sleep(0.15)
            yield piece

    checkpoint_writer.write_hashed = write_hashed

    def compute_loss(trainer, *args, **kwargs):
        here = paddle.distributed.get_rank() == rank and trainer.state.global_step + 1 == step
        if here and how in ("sleeps", "killed"):
            if how == "sleeps":
                time.sleep(600)
            os.kill(os.getpid(), signal.SIGKILL)
        return upstream(trainer, *args, **kwargs)

    Trainer.compute_loss = compute_loss
    train_method("run_pretrain", argv)


def run_out_of_memory(argv: list[str], phase: str) -> dict:
    """run_pretrain, in which Paddle's allocator is asked for 16 TB in one phase of step 2: exit code and words."""
    import paddle

    from launch.training import pretrain, run, saver, trainer
    from tests.runs_ranks import train

    def exhausted(*args, **kwargs):
        paddle.zeros([1 << 20, 1 << 22])

    class Greedy(paddle.autograd.PyLayer):
        @staticmethod
        def forward(ctx, x):
            return x * 1.0

        @staticmethod
        def backward(ctx, gradient):
            exhausted()

    upstream, upstream_start, begun = pretrain.PretrainingLoss.__call__, pretrain.PretrainingLoss.start_step, []

    def start_step(loss, global_step):
        begun.append(global_step)
        upstream_start(loss, global_step)

    def of_batch(self, *args, **kwargs):
        if phase == "forward" and begun[-1] == 1:
            exhausted()
        loss = upstream(self, *args, **kwargs)
        return Greedy.apply(loss) if phase == "backward" and begun[-1] == 1 else loss

    pretrain.PretrainingLoss.start_step, pretrain.PretrainingLoss.__call__ = start_step, of_batch
    if phase == "optimizer":
        paddle.optimizer.AdamW.step = exhausted
    if phase == "evaluation":
        trainer.Trainer.prediction_step = exhausted
    if phase == "saving":
        saver.Saver.save = exhausted
    if phase == "pipeline":
        paddle.distributed.fleet.meta_parallel.PipelineParallel.forward_backward_pipeline = exhausted
    if phase == "building":
        run.build_model = exhausted
    return train("run_pretrain", argv, [])
