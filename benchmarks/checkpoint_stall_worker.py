"""What the rank of benchmarks/checkpoint_stall.py does. Imported in ranks only: it needs Paddle."""

import json
import shutil
import time
from pathlib import Path

SAVES = 5  # the first of which makes what the others use again


def make_material(directory: str, sizes: dict) -> None:
    """Write a model's configuration and data."""
    from launch.families.named_configs import load_config
    from tests.distributed.training_ranks import make_material

    make_material(directory, 4)
    Path(directory, "config.json").write_text(json.dumps(load_config("llama-rehearsal") | sizes))


def stalls(directory: str, way: str) -> dict:
    """Return {"seconds" of each save, "parameters", "bytes" of a checkpoint}.

    way: "asynchronous", "synchronous" or "upstream".
    """
    import paddlenlp.trainer

    from launch.train import train_method
    from launch.training.trainer import Trainer

    root, found = Path(directory), {"seconds": []}
    output = root / way
    if way == "upstream":
        Trainer.save_model = paddlenlp.trainer.Trainer.save_model
    save = (paddlenlp.trainer.Trainer if way == "upstream" else Trainer)._save_checkpoint

    def timed(trainer, model, metrics=None):
        trainer.checkpointer.saver.settle()
        start = time.perf_counter()
        save(trainer, model, metrics)
        found["seconds"].append(time.perf_counter() - start)
        found["parameters"] = trainer.reporter.throughput.shape.parameters
        trainer.checkpointer.saver.settle()
        newest = output / f"checkpoint-{trainer.state.global_step}"
        found["bytes"] = sum(path.stat().st_size for path in newest.iterdir())

    Trainer._save_checkpoint = timed
    flags = {
        "input_dir": root / "corpus",
        "split": "8,2,0",
        "output_dir": output,
        "max_seq_length": 32,
        "logging_steps": 1,
        "learning_rate": 1e-3,
        "do_train": 1,
        "device": "cpu",
        "cpu_fast": "off",
        "report_to": "none",
        "model_name_or_path": root / "config.json",
        "continue_training": 0,
        "max_steps": SAVES,
        "save_steps": 1,
        "save_total_limit": 1,
        "per_device_train_batch_size": 1,
        "use_async_save": int(way == "asynchronous"),
        "unified_checkpoint": 1,
    }
    train_method("run_pretrain", [word for name, value in flags.items() for word in (f"--{name}", str(value))])
    shutil.rmtree(output)
    return found | {"seconds": found["seconds"][1:]}
