"""What a rank sees of frozen parameters under stage 3, for test_trainings.py."""

import math

from paddle.base import core

from launch.rehearsal.collectives import STAGE3_SEGMENT_SIZE
from launch.train import train_method
from launch.training.trainer import Trainer


def finetune(argv: list[str]) -> list[dict]:
    """Fine-tune by LoRA under stage 3. After each backward pass: {"whole": how many frozen tensors above the segment
    size are not slices, "allocated": bytes that Paddle's allocator counts, "slices", "tensors": bytes of these tensors'
    slices, and of them whole}."""
    stock, seen = Trainer.training_step, []

    def training_step(trainer, model, inputs):
        loss = stock(trainer, model, inputs)
        parameters = {id(one): one for one in trainer.model.parameters()}.values()
        frozen = [one for one in parameters if one.stop_gradient and one.size > STAGE3_SEGMENT_SIZE]
        sliced = [one for one in frozen if one.status == "part" and not one._is_initialized()]
        seen.append(
            {
                "whole": len(frozen) - len(sliced),
                "allocated": core.host_memory_stat_current_value("Allocated", 0),
                "slices": sum(_nbytes(one.fw_storage) for one in sliced),
                "tensors": sum(_nbytes(one) for one in frozen),
            }
        )
        return loss

    Trainer.training_step = training_step
    train_method("finetune_generation", argv)
    return seen


def _nbytes(tensor) -> int:
    return math.prod(tensor.shape) * tensor.element_size()
