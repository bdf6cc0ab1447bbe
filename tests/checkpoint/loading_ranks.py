"""What the ranks of the tests of loading do."""

import json
from pathlib import Path

from launch.families.named_configs import load_config
from launch.families.registry import FAMILIES, family_of_config

# Every family, and what a configuration may change in how its tensors are divided.
CONFIGURATIONS = {
    "llama": ("llama-rehearsal", {}),
    "gqa": ("llama-rehearsal", {"num_key_value_heads": 2}),
    "one-key": ("llama-rehearsal", {"num_key_value_heads": 1}),  # cannot be divided by two: each rank has the whole
    "tied": ("llama-rehearsal", {"tie_word_embeddings": True}),
    "odd-vocabulary": ("llama-rehearsal", {"vocab_size": 1023}),
    "fused": ("llama-rehearsal", {"fuse_attention_qkv": True, "fuse_attention_ffn": True}),
} | {name: (family.rehearsal_config, {}) for name, family in FAMILIES.items() if name != "llama"}


def save_models(root: str, names: list[str]) -> None:
    """root/NAME/{single,sharded,pdparams} for each: random weights, the same in each of the three."""
    import paddle

    for name in names:
        configuration, changes = CONFIGURATIONS[name]
        paddle.seed(7)
        config = _config(load_config(configuration) | changes)  # first: it makes paddlenlp know the family
        model = _model_class(load_config(configuration), 1)._from_config(config)
        model.save_pretrained(f"{root}/{name}/single", safe_serialization=True)
        model.save_pretrained(f"{root}/{name}/sharded", max_shard_size="300KB", safe_serialization=True)
        assert len(list(Path(root, name, "sharded").glob("*.safetensors"))) > 2
        model.save_pretrained(f"{root}/{name}/pdparams", safe_serialization=False)


def compare(root: str, names: list[str], kinds: list[str], flags: dict, dtype: str = "float32") -> dict[str, list[str]]:
    """Load each model by load_model and by from_pretrained: this rank's parameters, all of them equal to the bit.

    kinds: of files, one after the other. load_model draws no random number on the way: parameters do not have values
    before they have their own.
    """
    import numpy as np
    import paddle

    from launch.checkpoint.model_loader import load_model

    arguments = start(flags)
    parameters = {}
    for name, files in ((name, files) for name in names for files in kinds):
        directory = f"{root}/{name}/{files}"
        model_class, config = prepare(directory, arguments)
        upstream = model_class.from_pretrained(directory, config=config, dtype=dtype)
        expected = {key: tensor.numpy().copy() for key, tensor in upstream.state_dict().items()}
        paddle.seed(11)
        first_draw = paddle.rand([4]).numpy()
        paddle.seed(11)
        model = load_model(*prepare(directory, arguments), dtype, directory)
        assert np.array_equal(paddle.rand([4]).numpy(), first_draw), name
        found = model.state_dict()
        assert list(found) == list(expected), name
        for key, tensor in found.items():
            assert np.array_equal(tensor.numpy(), expected[key]), (name, key)
        assert {str(tensor.dtype) for tensor in model.parameters()} == {f"paddle.{dtype}"}
        frozen = [key for key, tensor in model.named_parameters() if tensor.stop_gradient]
        assert all(key.endswith("e_score_correction_bias") for key in frozen), frozen  # ERNIE's, never trained
        if model.can_generate():  # a pipeline cannot
            assert model.generation_config.to_dict() == upstream.generation_config.to_dict()
        parameters[name] = list(found)
    return parameters


def refusals(cases: dict[str, list[str]], flags: dict) -> dict[str, str]:
    """What load_model says on this rank of each [directory, dtype]. {rank} in a directory is this rank."""
    import paddle

    from data_tools.formats.errors import DataError
    from launch.checkpoint.model_loader import load_model
    from launch.errors import UserError

    arguments, said = start(flags), {}
    for name, (directory, dtype) in cases.items():
        own = directory.replace("{rank}", str(paddle.distributed.get_rank()))
        model_class, config = prepare(own, arguments)
        try:
            load_model(model_class, config, dtype, own)
        except (UserError, DataError) as error:
            said[name] = str(error)
    return said


def start(flags: dict):
    """The training arguments of a layout, its process groups started."""
    import paddle
    from paddlenlp.trainer import PdArgumentParser, TrainingArguments

    from launch.rehearsal import collectives

    if paddle.distributed.get_world_size() > 1:
        collectives.install()
    [arguments] = PdArgumentParser((TrainingArguments,)).parse_dict({"output_dir": "none", "device": "cpu"} | flags)
    paddle.set_device("cpu")
    return arguments


def prepare(directory: str, arguments):
    """(model class, configuration) of a rank."""
    values = json.loads(Path(directory, "config.json").read_text())
    config = _config(values)
    config.tensor_parallel_degree = arguments.tensor_parallel_degree
    config.tensor_parallel_rank = arguments.tensor_parallel_rank
    return _model_class(values, arguments.pipeline_parallel_degree), config


def _config(values: dict):
    import paddlenlp.transformers as transformers

    from launch.upstream import correct

    family = family_of_config(values)
    correct(family.corrections)
    config = getattr(transformers, family.config_class)(**values)
    config.seq_length = 32
    return config


def _model_class(values: dict, pipeline_parallel_degree: int):
    import paddlenlp.transformers as transformers

    family = family_of_config(values)
    return getattr(transformers, family.pipeline_class if pipeline_parallel_degree > 1 else family.model_class)
