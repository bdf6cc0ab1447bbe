"""Models with an adapter beside them, merged and loaded layer by layer, for test_merged_logits.py."""

from pathlib import Path

import numpy as np

from tests.runs_ranks import train_all


def merge_with_another_config(argv: list[str], config: str) -> list[dict]:
    """Merge, where the merged directory's configuration is changed before its logits are compared."""
    import json

    import launch.prediction.merged_logits as logits

    stock = logits.fixed_logits

    def changed(directory: Path, *lora, **options):
        if directory != Path(config).parent:
            values = json.loads((directory / "config.json").read_text())
            (directory / "config.json").write_text(json.dumps(values | {"rms_norm_eps": 1.0}))
        return stock(directory, *lora, **options)

    logits.fixed_logits = changed
    return train_all("commands.merge", [argv])


def merge_and_compare(jobs: list[list[str]]) -> dict[str, list]:
    """{"said": in each merge, "beside": for each base and adapter the largest difference between our logits of both
    and those of paddlenlp's LoRA}. jobs: base and adapter are the second and the fourth argument."""
    return {"said": train_all("commands.merge", jobs), "beside": _beside([(argv[1], argv[3]) for argv in jobs])}


def _beside(pairs: list[tuple[str, str]]) -> list[float]:
    import paddle
    import paddlenlp.transformers as transformers

    from launch.adapters.adapter_files import load_adapter
    from launch.adapters.lora_files import read_lora
    from launch.checkpoint.model_loader import load_model
    from launch.families.named_configs import load_config
    from launch.families.registry import family_of_config
    from launch.prediction.merged_logits import fixed_inputs, fixed_logits
    from launch.training.model import family_config

    differences = []
    for base, adapter in pairs:
        config = family_config(load_config(base))
        family = family_of_config(config.to_dict())
        model = load_adapter(load_model(getattr(transformers, family.model_class), config, "float32", base), adapter)
        model.eval()
        inputs = {key: paddle.to_tensor(value) for key, value in fixed_inputs(family, config.vocab_size).items()}
        outputs = model(**inputs)
        logits = (outputs[0] if isinstance(outputs, tuple) else outputs).numpy()
        differences.append(float(np.abs(logits - fixed_logits(Path(base), read_lora(adapter))).max()))
    return differences


def layerwise_memory(warm_up: str, base: str, adapter: str) -> int:
    """Anonymous bytes that the logits of base + adapter take at most."""
    from launch.adapters.lora_files import read_lora
    from launch.prediction.merged_logits import fixed_logits
    from tests.checkpoint.loading_memory import ResidentMemory

    fixed_logits(Path(warm_up))
    with ResidentMemory() as memory:
        fixed_logits(Path(base), read_lora(adapter))
    return memory.anonymous_peak
