"""What the ranks of the tests of loading do."""

import json
from pathlib import Path

CONFIG = {
    "model_type": "llama",
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 64,
    "initializer_range": 0.02,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
}


def save_models(root: str, configurations: dict) -> None:
    """root/NAME/{single,sharded,pdparams} for each: random weights, the same in each of the three."""
    import paddle

    from launch.training.model import save_random_model

    for name, changes in configurations.items():
        config = Path(root, f"{name}.json")
        config.write_text(json.dumps(CONFIG | changes))
        save_random_model(str(config), Path(root, name, "single"))
        model = _classes(changes)[0].from_pretrained(f"{root}/{name}/single", dtype="float32")
        model.save_pretrained(f"{root}/{name}/sharded", max_shard_size="100KB", safe_serialization=True)
        assert len(list(Path(root, name, "sharded").glob("*.safetensors"))) > 2
        model.save_pretrained(f"{root}/{name}/pdparams", safe_serialization=False)
        paddle.seed(7)


def compare(directory: str, flags: dict, dtype: str = "float32") -> list[str]:
    """Load by load_model and by from_pretrained: the names of this rank's parameters, all of them equal to the bit."""
    import numpy as np

    from launch.checkpoint.read import load_model

    model_class, config = prepare(directory, flags)
    expected = {
        name: tensor.numpy().copy()
        for name, tensor in model_class.from_pretrained(directory, config=config, dtype=dtype).state_dict().items()
    }
    found = load_model(model_class, config, dtype, directory).state_dict()
    assert list(found) == list(expected)
    for name, tensor in found.items():
        assert str(tensor.dtype) == f"paddle.{dtype}" and tensor.stop_gradient is False, name
        assert np.array_equal(tensor.numpy(), expected[name]), name
    return list(found)


def refusal(directory: str, flags: dict, dtype: str = "float32") -> str:
    """What load_model says on this rank."""
    from launch.checkpoint.read import load_model
    from launch.errors import UserError

    model_class, config = prepare(directory, flags)
    try:
        load_model(model_class, config, dtype, directory)
    except UserError as error:
        return str(error)
    return ""


def prepare(directory: str, flags: dict):
    """(model class, configuration) of a rank of a layout, its process groups started."""
    import paddle
    import paddlenlp.transformers as transformers
    from paddlenlp.trainer import PdArgumentParser, TrainingArguments

    from launch.rehearsal import collectives

    if paddle.distributed.get_world_size() > 1:
        collectives.install()
    [args] = PdArgumentParser((TrainingArguments,)).parse_dict({"output_dir": directory, "device": "cpu"} | flags)
    paddle.set_device("cpu")
    values = json.loads(Path(directory, "config.json").read_text())
    single, pipeline = _classes(values)
    model_class = pipeline if args.pipeline_parallel_degree > 1 else single
    config = getattr(transformers, single.__name__.replace("ForCausalLM", "Config"))(**values)
    config.tensor_parallel_degree = args.tensor_parallel_degree
    config.tensor_parallel_rank = args.tensor_parallel_rank
    return model_class, config


def _classes(values: dict):
    import paddlenlp.transformers as transformers

    name = {"llama": "Llama", "qwen2": "Qwen2", "bloom": "Bloom", "opt": "OPT"}[values.get("model_type", "llama")]
    return getattr(transformers, f"{name}ForCausalLM"), getattr(transformers, f"{name}ForCausalLMPipe", None)
