"""Is it the model that the run trained so far? By configuration, adapter and the base below it."""

import numpy as np
from safetensors.numpy import save_file

from launch.checkpoint.model_identity import base_fingerprint, differences, model_identity
from launch.families.named_configs import load_config

CONFIG = load_config("llama-rehearsal") | {"rope_theta": 10000.0}
LORA = {"r": 4, "scaling": 2.0, "target_modules": [".*\\.q_proj", ".*\\.v_proj"]}


def test_what_decides_the_results_is_compared():
    """How it runs is not, nor are old checkpoints, which do not say."""
    before = model_identity(CONFIG)
    for key, value in [
        *(("num_hidden_layers", 3), ("tie_word_embeddings", True), ("num_attention_heads", 2), ("rope_theta", 20000.0)),
        *(("rms_norm_eps", 1e-5), ("rope_scaling", {"factor": 2.0}), ("hidden_act", "gelu")),
    ]:
        was = CONFIG.get(key, "missing")
        assert differences(before, model_identity(CONFIG | {key: value})) == [f"{key} {value}, was {was}"]
    now = CONFIG | {"use_flash_attention": True, "recompute": True, "seq_length": 9, "max_position_embeddings": 9}
    assert differences(before, model_identity(now)) == differences({}, before) == []


def test_an_adapter_is_what_it_adds():
    before = model_identity(CONFIG, LORA, "base")
    now = model_identity(CONFIG, LORA | {"scaling": 4.0, "target_modules": [".*\\.q_proj"]}, "base")
    assert differences(before, now) == [
        "scaling 4.0, was 2.0", "target_modules ['.*\\\\.q_proj'], was ['.*\\\\.q_proj', '.*\\\\.v_proj']",
    ]  # fmt: skip


def test_another_base_of_the_same_shapes_is_another(tmp_path):
    values = {"a": np.arange(3000, dtype=np.float32), "b": np.ones((2, 2), np.float16)}
    for name, tensors in {"one": values, "same": values, "other": values | {"b": values["b"] * 2}}.items():
        (tmp_path / name).mkdir()
        save_file(tensors, tmp_path / name / "model.safetensors", metadata={"format": "np"})
    one, same, other = (base_fingerprint(tmp_path / name) for name in ("one", "same", "other"))
    assert one == same != other
    found = differences(model_identity(CONFIG, LORA, one), model_identity(CONFIG, LORA, other))
    assert found == ["the base below the adapter has other weights"]
