"""Models and adapters out to GGUF: read back, read by the package gguf, and run by llama.cpp itself."""

import json
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader, dequantize
from safetensors.numpy import load_file, save_file

from launch.checkpoint.weight_files import find_weights
from launch.commands.export import main
from launch.errors import UserError
from launch.weights.conversion import our_config
from launch.weights.gguf_import import import_gguf
from launch.weights.k_quants import kind_of, pack
from launch.weights.model_directories import import_directory
from launch.weights.modelfile import write_modelfile
from tests.families import published
from tests.weights import gguf_material as material

SHARD = 10**9
NAMES = ["llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen2_moe", "qwen3_moe", "ernie4_5", "ernie4_5_moe"]


def ours(folder: Path, config: dict, tensors: dict) -> Path:
    """Return a model directory of ours, with the tokenizer of the material."""
    texts = folder / "texts.gguf"
    import_gguf(material.write(texts, *published.llama()), folder / "tokenizer", None, SHARD)
    theirs = published.save(folder / "theirs", config | {"bos_token_id": 0, "eos_token_id": 1}, tensors)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (theirs / name).write_bytes((folder / "tokenizer" / name).read_bytes())
    import_directory(theirs, folder / "ours", None, SHARD)
    return folder / "ours"


@pytest.mark.parametrize("name", NAMES)
def test_a_model_leaves_as_the_packages_writer_would_write_it(tmp_path, name):
    config, tensors = getattr(published, name)()
    source = ours(tmp_path, config, tensors)
    main([str(source), str(tmp_path / "out"), "--format", "gguf", "--quant", "bf16"])
    found = GGUFReader(tmp_path / "out" / "out.gguf")
    expected = GGUFReader(material.write(tmp_path / "expected.gguf", config, tensors, "BF16"))
    assert {one.name: [*one.shape] for one in found.tensors} == {one.name: [*one.shape] for one in expected.tensors}
    by_name = {one.name: one for one in expected.tensors}
    for one in found.tensors:
        assert one.tensor_type == by_name[one.name].tensor_type and np.array_equal(one.data, by_name[one.name].data)
    own = {"general.type", "general.name", "general.file_type", "general.quantization_version", "GGUF.kv_count"}
    own |= {
        key for key in found.fields if key.endswith(("dimension_count", "_length", "vocab_size", "add_space_prefix"))
    }
    own |= {"tokenizer.ggml.add_bos_token"}
    fields = {key: field.contents() for key, field in found.fields.items() if key not in own}
    assert fields == {key: field.contents() for key, field in expected.fields.items() if key not in own}


@pytest.mark.parametrize("kind", ["Q4_K", "Q6_K"])
def test_k_quants_are_nearer_than_the_plain_types_of_their_bits(kind):
    rows = np.random.default_rng(2).standard_normal((40, 512)).astype(np.float32)
    rows[1], rows[2, :300], rows[3] = 0, 0, -np.abs(rows[3])
    found = dequantize(pack(rows, kind), GGMLQuantizationType[kind])
    assert not found[1].any()
    off = np.sqrt(np.square(found - rows).mean() / np.square(rows).mean())
    plain = dequantize(pack(rows, "Q4_0"), GGMLQuantizationType.Q4_0)
    assert (
        off < {"Q4_K": 0.073, "Q6_K": 0.0185}[kind] < np.sqrt(np.square(plain - rows).mean() / np.square(rows).mean())
    )


TYPES = [  # name, columns, QUANT, experts, tied -> type, of 16 layers (llama.cpp's llama-quant.cpp)
    ("token_embd.weight", 512, "Q4_K_M", 0, True, "Q6_K"),
    ("token_embd.weight", 576, "Q4_K_M", 0, True, "Q8_0"),
    ("token_embd.weight", 512, "Q4_K_M", 0, False, "Q4_K"),
    ("output.weight", 512, "Q4_0", 0, False, "Q6_K"),
    ("blk.1.attn_v.weight", 512, "Q4_K_M", 0, False, "Q6_K"),
    ("blk.2.attn_v.weight", 512, "Q4_K_M", 0, False, "Q4_K"),
    ("blk.4.ffn_down.weight", 512, "Q4_K_M", 0, False, "Q6_K"),
    ("blk.14.ffn_down_exps.weight", 512, "Q4_K_M", 8, False, "Q6_K"),
    ("blk.3.attn_k.weight", 512, "Q4_K_M", 8, False, "Q8_0"),
    ("blk.3.attn_output.weight", 512, "Q4_K_M", 8, False, "Q6_K"),
    ("blk.3.attn_k.weight", 512, "Q4_K_M", 64, False, "Q4_K"),
    ("blk.3.attn_q.weight", 576, "Q4_K_M", 0, False, "Q5_0"),
    ("blk.3.attn_q.weight", 48, "Q4_K_M", 0, False, "F16"),
    ("blk.3.attn_q.weight", 512, "Q8_0", 0, False, "Q8_0"),
    ("blk.3.attn_q.weight", 48, "F32", 0, False, "F32"),
    ("blk.3.ffn_gate_inp.weight", 512, "Q8_0", 8, False, "F32"),
]


@pytest.mark.parametrize("name, columns, quant, experts, tied, kind", TYPES)
def test_each_tensor_has_llama_cpps_type(name, columns, quant, experts, tied, kind):
    assert kind_of(name, (64, columns), quant, 16, experts, tied) == kind


@pytest.mark.parametrize("quant, kinds", [("q8_0", {"F32", "Q8_0"}), ("q4_k_m", {"F32", "Q4_K", "Q6_K"})])
def test_packed_models_are_read_back_and_imported_again(tmp_path, capsys, quant, kinds):
    config, tensors = published.llama(hidden_size=256, intermediate_size=512, num_attention_heads=4)
    source = ours(tmp_path, config, tensors)
    main([str(source), str(tmp_path / "out"), "--format", "gguf", "--quant", quant])
    assert "the ids of texts are the same" in capsys.readouterr().out
    file = tmp_path / "out" / "out.gguf"
    assert {one.tensor_type.name for one in GGUFReader(file).tensors} == kinds
    import_gguf(file, tmp_path / "again", None, SHARD)
    before, after = find_weights(source), find_weights(tmp_path / "again")
    rounding = {"q8_0": 0.006, "q4_k_m": 0.08}[quant]
    for name in before:
        one, other = before[name].open(), after[name].open()
        assert np.sqrt(np.square(one - other).sum()) <= rounding * np.sqrt(np.square(one).sum()), name


def test_a_lora_leaves_alone(tmp_path):
    source = ours(tmp_path, *published.llama())
    adapter = write_lora(tmp_path / "lora", source)
    main([str(adapter), str(tmp_path / "out"), "--format", "gguf"])
    reader = GGUFReader(tmp_path / "out" / "out.gguf")
    tensors = {one.name: one.data for one in reader.tensors}
    a, b = (find_lora(adapter)[f"llama.layers.1.self_attn.k_proj.{part}"] for part in ("lora_A", "lora_B"))
    assert np.array_equal(tensors["blk.1.attn_k.weight.lora_a"], a.T)
    assert np.array_equal(tensors["blk.1.attn_k.weight.lora_b"], material.to_llama_cpp(b.T, 2))
    assert np.array_equal(
        tensors["blk.0.ffn_up.weight.lora_b"], find_lora(adapter)["llama.layers.0.mlp.up_proj.lora_B"].T
    )
    kept = {key: reader.fields[key].contents() for key in ("general.type", "adapter.type", "adapter.lora.alpha")}
    assert kept == {"general.type": "adapter", "adapter.type": "lora", "adapter.lora.alpha": 8.0}


def find_lora(adapter: Path) -> dict:
    return load_file(adapter / "peft_model-00001-of-00001.safetensors")


def write_lora(folder: Path, base: Path) -> Path:
    """Return a LoRA of rank 4, alpha 8, of two layers."""
    folder.mkdir()
    random, tensors = np.random.default_rng(3), {}
    for layer in ("llama.layers.1.self_attn.k_proj", "llama.layers.0.mlp.up_proj"):
        inputs, outputs = find_weights(base)[f"{layer}.weight"].shape
        tensors[f"{layer}.lora_A"] = random.standard_normal((inputs, 4)).astype(np.float32)
        tensors[f"{layer}.lora_B"] = random.standard_normal((4, outputs)).astype(np.float32)
    file = "peft_model-00001-of-00001.safetensors"
    save_file(tensors, folder / file, metadata={"format": "np"})
    (folder / "peft_model.safetensors.index.json").write_text(json.dumps({"weight_map": dict.fromkeys(tensors, file)}))
    config = {
        "base_model_name_or_path": str(base),
        "r": 4,
        "lora_alpha": 8,
        "target_modules": [".*k_proj", ".*up_proj"],
    }
    (folder / "lora_config.json").write_text(json.dumps(config))
    return folder


MODELFILE = '''FROM ./x.gguf
TEMPLATE """{{ if not .System }}<|im_start|>system
Be kind<|im_end|>
{{ end }}{{ range .Messages }}{{ if eq .Role "system" }}<|im_start|>system
{{ .Content }}<|im_end|>
{{ else if eq .Role "user" }}<|im_start|>user
{{ .Content }}<|im_end|>
{{ else if eq .Role "assistant" }}<|im_start|>assistant
{{ .Content }}<|im_end|>
{{ end }}{{ end }}<|im_start|>assistant
"""
PARAMETER num_ctx 64
PARAMETER stop "<|im_end|>"
'''
CHATML = """{% if messages[0].role != 'system' %}<|im_start|>system
Be kind<|im_end|>
{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def test_the_modelfile_writes_the_template_as_go_where_it_can(tmp_path):
    source = ours(tmp_path, *published.llama())
    config = json.loads((source / "config.json").read_text())
    values = json.loads((source / "tokenizer_config.json").read_text())
    (source / "tokenizer_config.json").write_text(json.dumps(values | {"chat_template": CHATML}))
    write_modelfile(source, tmp_path / "x.gguf", config)
    assert (tmp_path / "Modelfile").read_text() == MODELFILE
    trimmed = CHATML.replace(
        "{% for m", "{{ messages | length }}{% for m"
    )  # another text for another number of messages
    (source / "tokenizer_config.json").write_text(json.dumps(values | {"chat_template": trimmed}))
    write_modelfile(source, tmp_path / "x.gguf", config)
    assert (tmp_path / "Modelfile").read_text() == 'FROM ./x.gguf\nPARAMETER num_ctx 64\nPARAMETER stop "<|im_end|>"\n'


def test_what_llama_cpp_cannot_run_is_refused_and_nothing_is_written(tmp_path):
    config, tensors = published.llama()
    source = ours(tmp_path, config, tensors)
    tokenizer = json.loads((source / "tokenizer.json").read_text())
    tokenizer["pre_tokenizer"] = {"type": "Split", "pattern": {"String": "b"}, "behavior": "Isolated", "invert": False}
    (source / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(UserError, match="would read"):
        main([str(source), str(tmp_path / "out"), "--format", "gguf"])
    values = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps(values | {"architectures": ["LlamaForSequenceClassification"]}))
    with pytest.raises(UserError, match="found a reward model, allowed"):
        main([str(source), str(tmp_path / "out"), "--format", "gguf"])
    for name, found in (("qwen2_moe", True), ("qwen3_moe", False)):
        (source / "config.json").write_text(json.dumps(getattr(published, name)(norm_topk_prob=found)[0]))
        with pytest.raises(UserError, match=f"norm_topk_prob: found {found}, allowed: {not found}: llama.cpp ignores"):
            main([str(source), str(tmp_path / "out"), "--format", "gguf"])
    values = our_config(published.ernie4_5_moe(moe_norm_min=1e-4)[0], "x")
    (source / "config.json").write_text(json.dumps(values))
    with pytest.raises(UserError, match="moe_norm_min: found 0.0001, allowed: 6.1e-05 or less: llama.cpp has no such"):
        main([str(source), str(tmp_path / "out"), "--format", "gguf"])
    with pytest.raises(UserError, match="--quant: found q8_0, which is for --format gguf"):
        main([str(source), "--quant", "q8_0"])
    assert not (tmp_path / "out").exists()
