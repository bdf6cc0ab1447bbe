"""A small model, a LoRA of random numbers and a prefix, as directories, for a server. For a rank."""

from pathlib import Path
from types import SimpleNamespace


def make_served(directory: str) -> None:
    """directory/model, directory/lora, directory/prefix."""
    from tests.prediction.predict_ranks import make_prefix
    from tests.training.finetune_material import make_material

    root = Path(directory)
    make_material(directory)
    make_prefix(str(root / "model"), str(root / "prefix"))
    _make_lora(root / "model", root / "lora")


def _make_lora(model: Path, directory: Path) -> None:
    import paddle
    import paddlenlp.transformers as transformers

    from launch.adapters.adapter_files import save_adapter
    from launch.adapters.add import add_lora
    from launch.families.named_configs import load_config
    from launch.training.arguments import AdapterArguments
    from launch.training.model import family_config

    config = family_config(load_config(str(model)))
    base = transformers.LlamaForCausalLM.from_pretrained(str(model), config=config, dtype="float32")
    flags = AdapterArguments(lora_rank=4)
    lora = add_lora(base, SimpleNamespace(model_name_or_path=str(model)), flags, seed=1)
    for name, parameter in lora.model.state_dict().items():
        if name.endswith("lora_B"):  # zero at first: it would change nothing
            parameter.set_value(paddle.randn(parameter.shape))
    one = dict.fromkeys(("tensor_parallel_rank", "dataset_rank", "pipeline_parallel_rank", "process_index"), 0)
    save_adapter(lora, str(directory), SimpleNamespace(pipeline_parallel_degree=1, **one))
