"""An import is whole or leaves nothing; what is wrong with its source is named."""

import json
import shlex
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from launch.checkpoint.weight_files import find_weights
from launch.commands.import_weights import main
from launch.errors import UserError
from launch.weights.conversion import our_config
from launch.weights.model_directories import export_directory, import_directory
from tests.families import published as models
from tests.store import ROOT
from tests.weights.lora_material import peak_bytes, rename_float16
from tests.weights.torch_files import save_arrays

SHARD = 10**9


@pytest.fixture
def source(tmp_path) -> Path:
    return models.save(tmp_path / "theirs", *models.llama())


@pytest.fixture
def target(tmp_path) -> Path:
    return tmp_path / "out" / "ours"


def left(target: Path) -> list[Path]:
    return list(target.parent.iterdir()) if target.parent.exists() else []


def test_files_in_parts_give_the_same_as_one(tmp_path, source, target):
    import_directory(source, target, None, SHARD)
    parts = models.save(tmp_path / "parts", *models.llama(), shards=3)
    import_directory(parts, tmp_path / "out" / "small", None, shard_bytes=20_000)
    one, many = find_weights(target), find_weights(tmp_path / "out" / "small")
    files = list((tmp_path / "out" / "small").glob("model-*.safetensors"))
    held = [[tensor.nbytes for tensor in load_file(file).values()] for file in files]
    assert len(files) > 3 and max(map(len, held)) > 1
    assert all(sum(sizes) <= 20_000 or len(sizes) == 1 for sizes in held)
    index = json.loads((tmp_path / "out" / "small" / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == sum(tensor.nbytes for tensor in one.values())
    assert one.keys() == many.keys()
    assert all(np.array_equal(one[name].open(), many[name].open()) for name in one)


def test_a_bin_file_gives_the_same_as_safetensors(tmp_path, source, target, monkeypatch):
    config, tensors = models.llama()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "config.json").write_text(json.dumps(config))
    save_arrays(tmp_path / "bin" / "pytorch_model.bin", tensors, monkeypatch)
    import_directory(source, target, None, SHARD)
    import_directory(tmp_path / "bin", tmp_path / "out" / "bin", None, SHARD)
    files = [directory / "model.safetensors" for directory in (target, tmp_path / "out" / "bin")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_bfloat16_keeps_its_bits_and_another_dtype_is_made_when_asked(tmp_path, target):
    config, tensors = models.llama()
    bits = {name: (tensor.view(np.uint32) >> 16).astype(np.uint16) for name, tensor in tensors.items()}
    source = models.save(tmp_path / "theirs", config, {name: tensor.view(np.float16) for name, tensor in bits.items()})
    rename_float16(source / "model.safetensors")
    assert import_directory(source, target, None, SHARD).dtypes == ["bfloat16"]
    assert json.loads((target / "config.json").read_text())["dtype"] == "bfloat16"
    head = find_weights(target)["lm_head.weight"]
    assert head.dtype == "bfloat16" and np.array_equal(head.open(), bits["lm_head.weight"].T)
    import_directory(source, tmp_path / "float32", "float32", SHARD)
    head = load_file(tmp_path / "float32" / "model.safetensors")["lm_head.weight"]
    assert np.array_equal(head.view(np.uint32), bits["lm_head.weight"].T.astype(np.uint32) << 16)


def test_values_too_large_for_float16_are_an_error_and_leave_nothing(tmp_path, target):
    config, tensors = models.llama()
    tensors["lm_head.weight"][3, 3] = 1e6
    with pytest.raises(UserError, match=r"lm_head.weight: a value of 1e\+06 is too large for float16"):
        import_directory(models.save(tmp_path / "theirs", config, tensors), target, "float16", SHARD)
    assert left(target) == []


@pytest.mark.parametrize("dtype", [None, "float16"])
def test_values_that_are_no_numbers_are_counted_and_leave_nothing(tmp_path, target, dtype):
    config, tensors = models.llama()
    tensors["lm_head.weight"][3, [3, 5, 7]] = [np.nan, np.inf, -np.inf]
    found = rf"lm_head.weight: 3 of {tensors['lm_head.weight'].size:,} values are NaN or infinite. The training"
    with pytest.raises(UserError, match=found):
        import_directory(models.save(tmp_path / "theirs", config, tensors), target, dtype, SHARD)
    assert left(target) == []


def test_missing_extra_and_misshaped_tensors_are_all_named_and_nothing_is_written(tmp_path, target):
    config, tensors = models.llama()
    del tensors["model.layers.1.mlp.up_proj.weight"]
    tensors["model.layers.9.mlp.up_proj.weight"] = np.zeros(2, np.float32)
    tensors["model.norm.weight"] = np.zeros(47, np.float32)
    tensors["lm_head.weight"] = np.zeros((models.VOCABULARY, 48), np.int64)
    with pytest.raises(UserError) as error:
        import_directory(models.save(tmp_path / "theirs", config, tensors), target, None, SHARD)
    for words in (
        "missing: model.layers.1.mlp.up_proj.weight",
        "not in the model: model.layers.9.mlp.up_proj.weight",
        "model.norm.weight (found [47], expected [48])",
        "lm_head.weight (found int64, expected floating-point numbers)",
    ):
        assert words in str(error.value)
    assert left(target) == []


def test_a_head_that_should_be_the_embedding_and_is_not(tmp_path, target):
    config, tensors = models.chatglm()
    tensors["lm_head.weight"][5, 5] += 1
    with pytest.raises(UserError, match="not in the model: lm_head.weight"):
        import_directory(models.save(tmp_path / "theirs", config, tensors), target, None, SHARD)


def test_a_tied_configuration_with_another_head(tmp_path, target):
    """Both ways out work; a head that equals the embeddings is none."""
    config, tensors = models.qwen2(tie_word_embeddings=True)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].copy()
    import_directory(models.save(tmp_path / "same", config, tensors), target, None, SHARD)
    tensors["lm_head.weight"][:3, 5] += 1
    with pytest.raises(UserError) as refused:
        import_directory(models.save(tmp_path / "other", config, tensors), tmp_path / "no", None, SHARD)
    assert str(refused.value) == (
        "config.json: tie_word_embeddings: found true, which makes model.embed_tokens.weight the head, but "
        "lm_head.weight differs from it in 3 of 4,608 values. Set it to false to keep the head, or remove the tensor "
        "to use the embeddings."
    )
    untied = models.save(tmp_path / "untied", config | {"tie_word_embeddings": False}, tensors)
    import_directory(untied, tmp_path / "kept", None, SHARD)
    assert np.array_equal(find_weights(tmp_path / "kept")["lm_head.weight"].open().T, tensors["lm_head.weight"])


QUANTIZED = {  # quantization_config -> the method that is named
    "gptq": {"quant_method": "gptq", "bits": 4},
    "awq": {"quant_method": "awq"},
    "bitsandbytes": {"load_in_4bit": True},
    "mxfp4": {"quant_method": "mxfp4"},
    "fp8": {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "static"},
    "compressed-tensors": {"quant_method": "compressed-tensors", "format": "float-quantized"},
    "unknown": "int4",
}


@pytest.mark.parametrize("method", QUANTIZED)
def test_quantized_weights_are_refused_by_their_method_before_a_file_is_read(tmp_path, target, method):
    (tmp_path / "config.json").write_text(json.dumps(models.qwen3()[0] | {"quantization_config": QUANTIZED[method]}))
    with pytest.raises(
        UserError, match=f"config.json: quantization_config: found quant_method '{method}', allowed: 'fp8'"
    ):
        import_directory(tmp_path, target, None, SHARD)


def test_fp8_in_blocks_is_read_exactly(tmp_path, target):
    """As published: codes by the format's definition, blocks that end with the matrix."""
    config, tensors = models.qwen3()
    before = {name: tensor.copy() for name, tensor in tensors.items()}
    draw, header, data = np.random.default_rng(0), {"__metadata__": {"format": "pt"}}, b""
    for name, weight in tensors.items():
        parts = {name: ("F32", weight)}
        if name.endswith("_proj.weight"):
            codes = draw.integers(0, 256, weight.shape).astype(np.uint8) & 0xF7  # no NaN
            scales = draw.normal(size=(-(-weight.shape[0] // 32), -(-weight.shape[1] // 16))).astype(np.float32)
            exponent, rest = codes >> 3 & 15, codes & 7
            size = np.where(exponent > 0, (1 + rest / 8) * 2.0 ** (exponent - 7.0), rest / 8 * 2.0**-6)
            by_value = np.kron(scales, np.ones((32, 16), np.float32))[: weight.shape[0], : weight.shape[1]]
            before[name] = np.where(codes & 128, -size, size).astype(np.float32) * by_value
            parts = {name: ("F8_E4M3", codes), f"{name}_scale_inv": ("F32", scales)}
        for one, (dtype, array) in parts.items():
            place = [len(data), len(data) + array.nbytes]
            header[one] = {"dtype": dtype, "shape": array.shape, "data_offsets": place}
            data += array.tobytes()
    text = json.dumps(header).encode()
    source = tmp_path / "theirs"
    source.mkdir()
    (source / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    quantization = {"quant_method": "fp8", "weight_block_size": [32, 16], "activation_scheme": "dynamic"}
    (source / "config.json").write_text(json.dumps(config | {"quantization_config": quantization}))
    imported = import_directory(source, target, None, SHARD)
    assert imported.dtypes == ["float32"]
    export_directory(target, tmp_path / "back", None, SHARD)
    back = load_file(tmp_path / "back" / "model.safetensors")
    assert back.keys() == before.keys() and all(np.array_equal(back[name], before[name]) for name in before)
    (source / "config.json").write_text(
        json.dumps(config | {"quantization_config": quantization | {"weight_block_size": [64, 16]}})
    )
    with pytest.raises(UserError, match=r"q_proj.weight_scale_inv: found \[3, 3\], allowed: \[2, 3\], one a block"):
        import_directory(source, tmp_path / "no", None, SHARD)


def test_names_without_the_first_part_are_understood(tmp_path, target):
    config, tensors = models.opt()
    short = {name.removeprefix("model."): tensor for name, tensor in tensors.items()}
    import_directory(models.save(tmp_path / "theirs", config, short), target, None, SHARD)
    assert len(load_file(target / "model.safetensors")) == len(tensors)


def test_layers_of_multi_token_prediction_are_left_out_and_named(tmp_path, target):
    imported = import_directory(models.save(tmp_path / "theirs", *models.ernie4_5_moe()), target, None, SHARD)
    names = "model.mtp_block.0.input_layernorm.weight, model.mtp_linear_proj.0.weight"
    assert imported.tokenizer.endswith(
        f"left out, because the model here does not predict several tokens at once: {names}"
    )
    assert not any("mtp" in name for name in load_file(target / "model.safetensors"))


REFUSED = [  # the model, what is changed, what is said of config.json
    (models.llama, {"model_type": "mamba"}, "model_type: found 'mamba', allowed: .*llama"),
    (models.llama, {"hidden_act": "gelu"}, "hidden_act: found 'gelu', allowed: 'silu'"),
    (models.llama, {"attention_bias": True}, "attention_bias: found True, allowed: False"),
    (models.llama, {"head_dim": 16}, "head_dim: found 16, allowed: 8"),
    (models.llama, {"intermediate_size": None}, "intermediate_size missing"),
    (models.llama, {"architectures": ["LlamaForSequenceClassification"]}, "id2label: found 2 labels, allowed: 1"),
    (models.llama, {"rope_scaling": {"type": "longrope"}}, "rope_scaling: rope_type: found 'longrope', allowed: dyn"),
    (models.llama, {"rope_scaling": {"type": "linear"}}, "rope_scaling: factor missing, which 'linear' needs"),
    (models.llama, {"rope_parameters": ["linear"]}, r"rope_parameters: found \['linear'\], allowed: an object"),
    (models.llama, {"num_attention_heads": 0}, "num_attention_heads: found 0, allowed: a whole number"),
    (models.llama, {"num_attention_heads": 5}, "num_attention_heads: found 5, allowed: a divisor of"),
    (models.llama, {"vocab_size": "96"}, "vocab_size: found '96'"),
    (models.llama, {"torch_dtype": "half"}, "torch_dtype: found 'half'"),
    (models.llama, {"eos_token_id": 96}, "eos_token_id: found 96, allowed: a token id below vocab_size, which is 96"),
    (models.llama, {"model_type": "glm"}, "intermediate_size: found 80, allowed: None"),
    (models.llama, {"model_type": "chatglm", "ffn_hidden_size": 48, "rope_ratio": 50}, "rope_ratio: found 50, allo"),
    (models.qwen2, {"use_sliding_window": True}, "use_sliding_window: found True"),
    (models.opt, {"do_layer_norm_before": False}, "do_layer_norm_before: found False"),
    (models.mistral, {"tie_word_embeddings": True}, "tie_word_embeddings: found True"),
    (models.mistral, {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "rope_scaling: found"),
    (models.mistral, {"head_dim": 16}, "head_dim: found 16"),
    (models.mixtral, {"tie_word_embeddings": True}, "tie_word_embeddings: found True"),
    (models.mixtral, {"sliding_window": 16}, "sliding_window: found 16"),
    (models.mixtral, {"router_jitter_noise": 0.1}, "router_jitter_noise: found 0.1"),
    (models.mixtral, {"num_experts_per_tok": 5}, "num_experts_per_tok: found 5, allowed: at most the number of"),
    (models.mixtral, {"rope_scaling": {"type": "yarn", "factor": 4.0}}, "rope_scaling: found 'yarn', and"),
    (models.qwen2_moe, {"decoder_sparse_step": 2}, "decoder_sparse_step: found 2"),
    (models.qwen2_moe, {"mlp_only_layers": [0]}, r"mlp_only_layers: found \[0\]"),
    (models.qwen2_moe, {"use_sliding_window": True}, "use_sliding_window: found True"),
    (models.qwen3_moe, {"mlp_only_layers": [0]}, r"mlp_only_layers: found \[0\]"),
    (models.ernie4_5, {"use_bias": True}, "use_bias: found True, allowed: False"),
    (models.ernie4_5, {"rope_scaling": {"type": "yarn", "factor": 4.0}}, "rope_scaling: found 'yarn', and"),
    (models.ernie4_5_moe, {"moe_layer_end_index": 0}, "moe_layer_end_index: found 0, allowed: 1"),
    (models.ernie4_5_moe, {"moe_layer_interval": 2}, "moe_layer_interval: found 2"),
    (models.ernie4_5_moe, {"moe_num_experts": [64, 64]}, r"moe_num_experts: found \[64, 64\]"),
]


@pytest.mark.parametrize(
    ("make", "change", "message"), REFUSED, ids=lambda one: getattr(one, "__name__", str(one)[:30])
)
def test_what_the_family_cannot_do_here_is_refused_by_key(make, change, message):
    with pytest.raises(UserError, match=rf"config\.json: {message}"):
        our_config(make()[0] | change, "config.json")


def test_settings_that_change_the_positions_are_taken_over():
    llama3 = models.LLAMA3
    for change, expected in [
        ({"rope_theta": 123.0}, {"rope_theta": 123.0}),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 456.0}}, {"rope_theta": 456.0}),
        ({"rope_scaling": llama3}, {"rope_scaling": llama3, "rope_theta": 50000.0, "max_position_embeddings": 64}),
        ({"rope_parameters": llama3 | {"rope_theta": 7.0}}, {"rope_scaling": llama3, "rope_theta": 7.0}),
    ]:
        found = our_config(models.llama()[0] | change, "config.json")
        assert expected == {key: found[key] for key in expected}


def test_a_target_that_is_there_is_left_alone(source, target):
    target.mkdir(parents=True)
    (target / "precious").touch()
    with pytest.raises(UserError, match="is there already"):
        import_directory(source, target, None, SHARD)
    assert [path.name for path in target.iterdir()] == ["precious"]


@pytest.mark.parametrize(
    ("remove", "message"),
    [("config.json", "no such file"), ("model.safetensors", "no weights: looked for model.safetensors")],
)
def test_a_directory_that_lacks_something(source, target, remove, message):
    (source / remove).unlink()
    with pytest.raises(UserError, match=message):
        import_directory(source, target, None, SHARD)


def test_ids_beyond_the_vocabulary_are_named(source, target):
    from tokenizers import Tokenizer, models

    size = json.loads((source / "config.json").read_text())["vocab_size"]
    vocabulary = {chr(0x4E00 + number): number for number in range(size + 1)}
    Tokenizer(models.WordLevel(vocabulary, chr(0x4E00))).save(str(source / "tokenizer.json"))
    said = import_directory(source, target, None, SHARD).tokenizer
    assert f"\nwarning: the tokenizer has {size + 1:,} ids, the model's vocabulary {size:,}: texts" in said


def test_weights_of_paddlenlp_need_no_import(source, target):
    save_file(load_file(source / "model.safetensors"), source / "model.safetensors", metadata={"format": "np"})
    with pytest.raises(UserError, match="Weights of PaddleNLP need no import"):
        import_directory(source, target, None, SHARD)


def test_the_command_says_what_it_made(source, tmp_path, capsys):
    """Its last line can be pasted."""
    target = tmp_path / "my model; $HOME"
    main([str(source), str(target)])
    said = capsys.readouterr().out
    assert f"{target}: LLaMA 1, 2, 3; Baichuan-7B, 44,784 parameters in float32" in said
    assert "tokenizer: no files of one" in said
    assert shlex.split(said.splitlines()[-1])[-1] == f"MODEL={target}".replace("$", "$$")  # as make reads it


def test_a_name_of_a_hub_is_told_with_the_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as refused:
        main(["Qwen/Qwen2-7B"])
    assert str(refused.value).startswith("Qwen/Qwen2-7B: no such directory. It may be a model at Hugging Face or")
    assert "\n    make download MODEL=Qwen/Qwen2-7B\n" in str(refused.value)
    (tmp_path / "Qwen" / "Qwen2-7B").mkdir(parents=True)
    with pytest.raises(UserError, match="^Qwen/Qwen2-7B/config.json: no such file. Name the directory of a"):
        main(["Qwen/Qwen2-7B"])


INTERRUPTED = """
import signal, sys
from launch.commands.import_weights import BEGINS_ANEW, guarded, main
from launch.weights import model_directories
model_directories.import_tokenizer = lambda *_: signal.raise_signal(signal.SIGINT)
sys.exit(guarded(main, sys.argv[1:], BEGINS_ANEW))
"""


def test_after_ctrl_c_nothing_is_left_and_that_is_said(tmp_path):
    source = models.save(tmp_path / "theirs", *models.llama())
    command = [sys.executable, "-c", INTERRUPTED, source, tmp_path / "out" / "ours"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stderr == "interrupted: nothing unfinished was left behind; the same command begins anew\n"
    assert done.returncode == 130 and list((tmp_path / "out").iterdir()) == []


@pytest.mark.long
def test_memory_is_that_of_some_pieces(tmp_path):
    """A model of 400 MB passes through a process that stays below 60 MB more than it is when it does nothing; on its
    way back to Hugging Face below 80, for reading by columns keeps the pages of one tensor (25 MB)."""
    sizes = {"vocab_size": 8, "hidden_size": 1536, "intermediate_size": 4096, "num_key_value_heads": 6}
    config, layer = models.llama(**sizes, num_hidden_layers=1)
    tensors = {name.replace("layers.0.", f"layers.{i}."): tensor for i in range(4) for name, tensor in layer.items()}
    source = models.save(tmp_path / "theirs", config | {"num_hidden_layers": 4}, tensors)
    size = sum(tensor.nbytes for tensor in tensors.values())
    assert size > 400e6
    imports = "from launch.commands import export\nfrom launch.commands.import_weights import main\n"
    idle = peak_bytes(imports)
    busy = peak_bytes(f"{imports}main(['{source}', '{tmp_path / 'ours'}'])")
    assert (tmp_path / "ours" / "model.safetensors").stat().st_size > size
    assert busy - idle < 60e6
    busy = peak_bytes(f"{imports}export.main(['{tmp_path / 'ours'}', '{tmp_path / 'back'}'])")
    assert (tmp_path / "back" / "model.safetensors").stat().st_size > size
    assert busy - idle < 80e6
