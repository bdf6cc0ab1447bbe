"""Fine-tuning whose saved adapter is damaged, or that updates nothing, for test_read_back.py."""

import json
from pathlib import Path

from tests.training.finetune_ranks import finetune


def finetune_with(fault: str, argv: list[str]) -> dict:
    """fault: "bytes": a byte of the saved numbers is changed; "scaling": the saved configuration is; "updates": the
    optimizer makes none; "logits": what is read is not what comes to be computed with; "none"."""
    from launch.checkpoint.local_tensors import LocalTensor
    from launch.training import result

    stock_save, stock_fill = result.save_adapter, LocalTensor.fill

    def save_and_damage(adapter, directory, training_args) -> None:
        stock_save(adapter, directory, training_args)
        if training_args.process_index == 0:
            damage(Path(directory))
        if fault == "logits":
            LocalTensor.fill = lambda self, values: stock_fill(self, 2 * values)

    def damage(directory: Path) -> None:
        if fault == "bytes":
            file = sorted(directory.glob("*.safetensors"))[-1]
            content = bytearray(file.read_bytes())
            content[-3] ^= 1
            file.write_bytes(content)
        elif fault == "scaling":
            file = directory / "lora_config.json"
            file.write_text(json.dumps(json.loads(file.read_text()) | {"lora_alpha": 3}))

    if fault == "updates":
        _undo_updates()
    result.save_adapter = save_and_damage
    return finetune(argv)


def _undo_updates() -> None:
    import paddle

    stock_step = paddle.optimizer.AdamW.step

    def step(optimizer) -> None:
        before = [(one, one.clone()) for one in optimizer._parameter_list if not one.stop_gradient]
        stock_step(optimizer)
        for parameter, values in before:
            parameter.set_value(values)

    paddle.optimizer.AdamW.step = step
