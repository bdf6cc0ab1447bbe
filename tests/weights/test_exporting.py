"""An export is whole or leaves nothing, and an import of it is the model again; what is wrong is named."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from launch.checkpoint.weight_files import find_weights
from launch.commands.export import main
from launch.errors import UserError
from launch.families.registry import parameters
from launch.weights import model_directories
from launch.weights.conversion import our_config, their_config
from launch.weights.model_directories import export_directory, import_directory
from tests.families import published as models
from tests.store import ROOT

SHARD = 10**9


@pytest.fixture
def ours(tmp_path) -> Path:
    import_directory(models.save(tmp_path / "theirs", *models.llama()), tmp_path / "ours", None, SHARD)
    return tmp_path / "ours"


def left(directory: Path) -> list[Path]:
    return list(directory.iterdir()) if directory.exists() else []


@pytest.mark.parametrize("name", models.ALL)
def test_there_and_back_every_tensor_is_the_same_to_the_byte(tmp_path, name):
    """In between the model has the names and shapes of its family here, and the same configuration afterwards. Bloom
    gains the first part of its names, Baichuan-7B leaves as a LLaMA."""
    config, tensors = models.ALL[name]()
    imported = import_directory(models.save(tmp_path / "theirs", config, tensors), tmp_path / "ours", None, SHARD)
    ours = json.loads((tmp_path / "ours" / "config.json").read_text())
    shapes = {one: array.shape for one, array in load_file(tmp_path / "ours" / "model.safetensors").items()}
    assert shapes == {one.name: one.shape for one in parameters(ours)}
    assert imported.parameters == sum(one.size for one in parameters(ours))
    assert ours["architectures"] == [imported.family.model_class]

    export_directory(tmp_path / "ours", tmp_path / "back", None, SHARD)
    written = load_file(tmp_path / "back" / "model.safetensors")
    if name == "baichuan-7b":
        for i in range(models.LAYERS):
            layer = f"model.layers.{i}.self_attn"
            packed = [written.pop(f"{layer}.{one}_proj.weight") for one in "qkv"]
            written[f"{layer}.W_pack.weight"] = np.concatenate(packed)
        assert json.loads((tmp_path / "back" / "config.json").read_text())["model_type"] == "llama"
    prefix = "transformer." if name == "bloom" else ""
    kept = [one for one in tensors if not one.endswith("inv_freq") and ".mtp_" not in one]
    assert written.keys() == {f"{prefix}{one}" for one in kept}
    assert all(written[f"{prefix}{one}"].tobytes() == tensors[one].tobytes() for one in kept)
    ours = our_config(config, "config.json")
    assert our_config(their_config(ours, "float32"), "config.json") == ours


@pytest.mark.parametrize(
    ("scaling", "positions"),
    [(models.LINEAR, 64), (models.DYNAMIC, 64), (models.LLAMA3, 64), (models.YARN, 131072)],
    ids=["linear", "dynamic", "llama3", "yarn"],
)
def test_scaled_positions_there_and_back(scaling, positions):
    """Of YaRN transformers 4 takes the quotient of both lengths for the factor, so that both are written."""
    ours = our_config(models.llama(rope_scaling=scaling)[0], "config.json")
    theirs = their_config(ours, "float32")
    assert theirs["max_position_embeddings"] == positions
    assert theirs["rope_scaling"]["type"] == theirs["rope_scaling"]["rope_type"]
    assert theirs["rope_scaling"].items() >= scaling.items()
    assert our_config(theirs, "config.json") == ours != our_config(models.llama()[0], "")


def test_a_window_that_the_model_class_ignores_ends_the_positions_and_comes_back():
    ours = our_config(models.mistral(max_position_embeddings=64, sliding_window=16)[0], "config.json")
    assert (ours["max_position_embeddings"], ours["sliding_window"]) == (16, 16)
    again = their_config(ours, "float32")
    assert (again["max_position_embeddings"], again["sliding_window"]) == (64, 16)
    assert our_config(again, "config.json") == ours
    assert our_config(models.mistral(max_position_embeddings=64)[0], "config.json")["max_position_embeddings"] == 64


def test_the_command_says_what_it_wrote(tmp_path, ours):
    command = [sys.executable, ROOT / "launch/commands/export.py", ours, tmp_path / "out", "--shard_gb", "0.00003"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert f"{tmp_path / 'out'}: LLaMA 1, 2, 3; Baichuan-7B, " in result.stdout
    assert "read back: every tensor equal to the bit" in result.stdout
    assert len(list((tmp_path / "out").glob("model-*-of-*.safetensors"))) > 3
    assert (tmp_path / "out" / "model.safetensors.index.json").is_file()


def test_another_dtype(tmp_path, ours):
    exported = export_directory(ours, tmp_path / "out", "bfloat16", SHARD)
    assert exported.dtypes == ["bfloat16"]
    assert json.loads((tmp_path / "out" / "config.json").read_text())["torch_dtype"] == "bfloat16"
    import_directory(tmp_path / "out", tmp_path / "again", None, SHARD)
    bits = find_weights(tmp_path / "again")["lm_head.weight"].open().astype(np.uint32) << 16
    exact = find_weights(ours)["lm_head.weight"].open()
    assert np.abs(bits.view(np.float32) - exact).max() <= np.abs(exact).max() * 2**-8


def test_a_head_that_is_the_embedding_is_left_out(tmp_path):
    config, tensors = models.llama(tie_word_embeddings=True)
    import_directory(models.save(tmp_path / "theirs", config, tensors), tmp_path / "ours", None, SHARD)
    file = tmp_path / "ours" / "model.safetensors"
    saved = load_file(file)
    word = saved["llama.embed_tokens.weight"]
    save_file(saved | {"lm_head.weight": word.copy()}, file, metadata={"format": "np"})
    export_directory(tmp_path / "ours", tmp_path / "out", None, SHARD)
    assert "lm_head.weight" not in load_file(tmp_path / "out" / "model.safetensors")
    save_file(saved | {"lm_head.weight": word + 1}, file, metadata={"format": "np"})
    with pytest.raises(UserError, match="not in the model: lm_head.weight"):
        export_directory(tmp_path / "ours", tmp_path / "out2", None, SHARD)


def test_missing_extra_and_misshaped_tensors_are_all_named_and_nothing_is_written(tmp_path, ours):
    file = ours / "model.safetensors"
    tensors = load_file(file)
    del tensors["llama.layers.1.mlp.up_proj.weight"]
    tensors["llama.layers.9.mlp.up_proj.weight"] = np.zeros(2, np.float32)
    tensors["llama.norm.weight"] = np.zeros(47, np.float32)
    save_file(tensors, file, metadata={"format": "np"})
    with pytest.raises(UserError) as error:
        export_directory(ours, tmp_path / "out" / "x", None, SHARD)
    for words in (
        "missing: llama.layers.1.mlp.up_proj.weight",
        "not in the model: llama.layers.9.mlp.up_proj.weight",
        "llama.norm.weight (found [47], expected [48])",
    ):
        assert words in str(error.value)
    assert left(tmp_path / "out") == []


def test_what_reads_back_differently_is_an_error_and_leaves_nothing(tmp_path, ours, monkeypatch):
    write = model_directories.write_safetensors

    def write_and_damage(directory, *args):
        write(directory, *args)
        file = directory / "model.safetensors"
        data = bytearray(file.read_bytes())
        data[-3] ^= 1
        file.write_bytes(data)

    monkeypatch.setattr(model_directories, "write_safetensors", write_and_damage)
    with pytest.raises(UserError, match="when read back: is the disk sound"):
        export_directory(ours, tmp_path / "out" / "x", None, SHARD)
    assert left(tmp_path / "out") == []


def test_a_source_that_is_no_model(tmp_path, capsys):
    from launch.guard import guarded

    assert guarded(main, [str(tmp_path), str(tmp_path / "out")]) == 2
    assert "config.json: no such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("config", "generation", "kept"), [([5, 7, 9], [5, 7, 9], 2), (7, [7, 9], 2), ([7, 5], None, 1)]
)
def test_all_end_tokens_are_kept_in_their_order(tmp_path, config, generation, kept):
    values, tensors = models.llama()
    models.save(tmp_path / "theirs", values | {"eos_token_id": config}, tensors)
    if generation:
        text = json.dumps({"eos_token_id": generation, "do_sample": True})
        (tmp_path / "theirs" / "generation_config.json").write_text(text)
    import_directory(tmp_path / "theirs", tmp_path / "ours", None, SHARD)
    export_directory(tmp_path / "ours", tmp_path / "back", None, SHARD)
    for directory in ("ours", "back"):
        files = [tmp_path / directory / name for name in ("config.json", "generation_config.json")]
        found = [json.loads(file.read_text())["eos_token_id"] for file in files if file.is_file()]
        assert found == [config, generation or config][: kept if directory == "ours" else 2]
