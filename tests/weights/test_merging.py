"""Merging an adapter: the arithmetic, what is refused by name, that nothing half done stays, and its memory."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from data_tools.dialogues.chat_template import ChatTemplate, directory_template, trained_with
from launch.adapters.lora_files import read_lora
from launch.checkpoint.manifest import MANIFEST, Manifest, sha256
from launch.checkpoint.stored_tensor import convert
from launch.checkpoint.weight_files import find_weights
from launch.errors import UserError
from launch.weights.merging import check_weights, merge
from tests.weights.lora_material import ALPHA, RANK, llama, peak_bytes, rename_float16, save_base, save_lora, write_lora

SHARD = 10**9


@pytest.fixture
def base(tmp_path) -> Path:
    save_base(tmp_path / "base", llama())
    return tmp_path / "base"


@pytest.fixture
def adapter(tmp_path) -> Path:
    save_lora(tmp_path / "lora", llama(), ("q_proj", "down_proj"))
    return tmp_path / "lora"


@pytest.fixture
def target(tmp_path) -> Path:
    return tmp_path / "out" / "merged"


def merged(base: Path, adapter: Path, target: Path, shard_bytes: int = SHARD) -> dict[str, np.ndarray]:
    merge(base, read_lora(adapter), target, shard_bytes, check=lambda _: None)
    return {name: one.open() for name, one in find_weights(target).items()}


def left(target: Path) -> list[Path]:
    return list(target.parent.iterdir()) if target.parent.exists() else []


def parts(adapter: Path) -> dict[str, np.ndarray]:
    return {name: tensor for file in adapter.glob("*.safetensors") for name, tensor in load_file(file).items()}


def magnitudes(adapter: Path, outputs: int) -> dict[str, np.ndarray]:
    halves = [name.removesuffix("A") for name in parts(adapter) if name.endswith("lora_A")]
    return {f"{half}magnitude": np.zeros(outputs, np.float32) for half in halves}


def test_a_column_of_zeros_stays_one_in_a_dora(base, adapter, target):
    file, name = base / "model.safetensors", "llama.layers.0.self_attn.q_proj"
    before, lora = load_file(file), parts(adapter) | magnitudes(adapter, 64)
    before[f"{name}.weight"][:, 0] = lora[f"{name}.lora_B"][:, 0] = 0
    save_file(before, file, metadata={"format": "np"})
    write_lora(adapter, lora, use_dora=True)
    after = merged(base, adapter, target)[f"{name}.weight"]
    assert not after[:, 0].any() and after[:, 1:].all()


def test_a_checkpoint_can_be_the_base_and_leaves_what_only_a_run_reads(base, adapter, target):
    (base / "optimizer-00001-of-00001.safetensors").write_bytes(b"moments")
    for name, text in (("run.json", '{"global_step": 5}'), ("rank-00000.json", "{}"), ("tokenizer_config.json", "{}")):
        (base / name).write_text(text)
    files = {path.name: {"bytes": path.stat().st_size, "sha256": sha256(path)} for path in base.iterdir()}
    (base / MANIFEST).write_text(Manifest(files, 5, 10, 100, {"processes": 1}).to_json())
    merged(base, adapter, target)
    left = sorted(path.name for path in target.iterdir())
    assert left == ["config.json", "model.safetensors", "tokenizer_config.json"]


def test_the_product_is_added_to_its_layers_and_all_else_stays_to_the_bit(base, adapter, target):
    before, after, lora = load_file(base / "model.safetensors"), merged(base, adapter, target), parts(adapter)
    assert before.keys() == after.keys()
    changed = {name for name in before if not np.array_equal(before[name], after[name])}
    assert changed == {name.replace(".lora_A", ".weight") for name in lora if name.endswith(".lora_A")}
    assert len(changed) == 4  # two layers of each of two transformer layers, from two files
    for name in changed:
        layer = name.removesuffix(".weight")
        product = lora[f"{layer}.lora_A"].astype(np.float64) @ lora[f"{layer}.lora_B"].astype(np.float64)
        np.testing.assert_allclose(after[name], before[name] + ALPHA / RANK * product, rtol=0, atol=1e-6)


def test_the_chat_template_that_the_adapter_was_trained_with_is_the_merged_models(base, adapter, target):
    trained = trained_with(ChatTemplate("T {{ messages }}"), {"eos_token": "no"})
    (base / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>", "chat_template": "B"}))
    (base / "chat_template.jinja").write_text("J")
    (adapter / "tokenizer_config.json").write_text(json.dumps(trained))
    merged(base, adapter, target)
    found = directory_template(target)
    assert (found.source, found.trained, found.tokens) == ("T {{ messages }}", True, {"eos_token": "</s>"})
    (base / "tokenizer_config.json").write_text(json.dumps(trained))
    (adapter / "tokenizer_config.json").write_text(json.dumps({"chat_template": "B"}))
    merged(base, adapter, target.with_name("bare"))
    assert directory_template(target.with_name("bare")).trained is None
    (adapter / "tokenizer_config.json").write_text(json.dumps(trained_with(None, {"chat_template": "B"})))
    merged(base, adapter, target.with_name("texts"))
    assert directory_template(target.with_name("texts")).trained is False


def test_the_result_is_a_model_directory_like_the_base(base, adapter, target):
    (base / "model.safetensors").rename(base / "model-00001-of-00001.safetensors")
    names = load_file(base / "model-00001-of-00001.safetensors")
    places = dict.fromkeys(names, "model-00001-of-00001.safetensors")
    (base / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    for name in ("train_log.jsonl", "run_summary.json", "training_args.bin", "run.lock"):
        (base / name).touch()
    merged(base, adapter, target)
    assert {file.name for file in target.iterdir()} == {"config.json", "tokenizer_config.json", "model.safetensors"}
    assert target.stat().st_mode & 0o777 == 0o755
    assert left(target) == [target]


def test_files_in_parts_hold_the_same(base, adapter, target, tmp_path):
    one, many = merged(base, adapter, target), merged(base, adapter, tmp_path / "many", shard_bytes=30_000)
    assert len(list((tmp_path / "many").glob("model-*.safetensors"))) > 3
    assert all(np.array_equal(one[name], many[name]) for name in one)


def test_half_precision_is_rounded_once_from_float32(base, adapter, target):
    whole = merged(base, adapter, target.parent / "whole")
    halves = {name: one.astype(np.float16) for name, one in load_file(base / "model.safetensors").items()}
    save_file(halves, base / "model.safetensors", metadata={"format": "np"})
    after, lora = merged(base, adapter, target), parts(adapter)
    name = "llama.layers.1.mlp.down_proj.weight"
    layer = name.removesuffix(".weight")
    product = lora[f"{layer}.lora_A"] @ (np.float32(ALPHA / RANK) * lora[f"{layer}.lora_B"])
    assert after[name].dtype == np.float16
    assert np.array_equal(after[name], (halves[name].astype(np.float32) + product).astype(np.float16))
    assert 0 < np.abs(after[name] - whole[name]).max() < 0.01


def test_values_beyond_float16_are_an_error_that_leaves_nothing(base, adapter, target):
    tensors = load_file(base / "model.safetensors")
    save_file({name: one.astype(np.float16) for name, one in tensors.items()}, base / "model.safetensors")
    lora = parts(adapter)
    lora["llama.layers.0.self_attn.q_proj.lora_B"][0, 0] = 1e6
    write_lora(adapter, lora)
    with pytest.raises(UserError, match=r"layers\.0\.self_attn\.q_proj\.weight: a merged value of .* too large"):
        merged(base, adapter, target)
    assert left(target) == []


def test_layers_that_the_base_lacks_or_has_in_another_shape_are_named(base, adapter, target):
    tensors = load_file(base / "model.safetensors")
    del tensors["llama.layers.1.self_attn.q_proj.weight"]
    tensors["llama.layers.0.mlp.down_proj.weight"] = np.zeros((96, 60), np.float32)
    save_file(tensors, base / "model.safetensors", metadata={"format": "np"})
    with pytest.raises(UserError) as error:
        merged(base, adapter, target)
    assert "missing: llama.layers.1.self_attn.q_proj.weight" in str(error.value)
    expected = "llama.layers.0.mlp.down_proj.weight (found [96, 60], expected [96, 64] by the adapter)"
    assert expected in str(error.value)
    assert left(target) == []


def test_an_adapter_that_is_not_whole_is_refused_by_name(adapter):
    lora = parts(adapter)
    del lora["llama.layers.0.self_attn.q_proj.lora_B"]
    lora["llama.layers.1.mlp.down_proj.lora_A"] = np.zeros((96, RANK + 1), np.float32)
    lora["llama.norm.weight"] = np.zeros(64, np.float32)
    write_lora(adapter, lora)
    with pytest.raises(UserError) as error:
        read_lora(adapter)
    for words in (
        "missing: llama.layers.0.self_attn.q_proj.lora_B",
        "not in the model: llama.norm.weight",
        f"llama.layers.1.mlp.down_proj (found [96, {RANK + 1}] and [{RANK}, 64], expected rank {RANK})",
    ):
        assert words in str(error.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda one: (one / "lora_config.json").unlink(), "lora_config.json: no such file"),
        (lambda one: (one / "lora_config.json").write_text("{"), "not JSON"),
        (lambda one: (one / "lora_config.json").write_text("{}"), "r, lora_alpha missing"),
        (lambda one: write_lora(one, parts(one), pissa=True), "pissa: found True, allowed: false"),
        (
            lambda one: write_lora(one, parts(one), lora_alpha=80),
            "scaling: found 4.0, allowed: 26.6667, which is lora_",
        ),
        (lambda one: write_lora(one, parts(one), use_dora=True), "missing: llama.*.lora_magnitude"),
        (
            lambda one: write_lora(one, parts(one) | magnitudes(one, 3), use_dora=True),
            r"lora_magnitude \(found \[3\], exp",
        ),
        (lambda one: write_lora(one, parts(one) | magnitudes(one, 64)), "not a whole LoRA adapter: .*lora_magnitude"),
        (lambda one: write_lora(one, parts(one), rslora=True), r"allowed: 6.9282, which is lora_alpha / sqrt\(r\)"),
        (
            lambda one: write_lora(one, parts(one), target_modules=[".*q_proj"]),
            "target_modules: found .*, which they do not name",
        ),
        (lambda one: (one / "peft_model-00002-of-00002.safetensors").unlink(), "00002.safetensors missing, of 2 files"),
        (lambda one: (one / "peft_model.safetensors.index.json").unlink(), "no adapter's weights: looked for"),
    ],
    ids=[
        "no configuration",
        "broken",
        "another's",
        "pissa",
        "strength",
        "half a DoRA",
        "short lengths",
        "no DoRA",
        "rslora",
        "targets",
        "one file of two",
        "no weights",
    ],
)
def test_a_directory_that_is_no_adapter_is_refused(adapter, change, message):
    change(adapter)
    with pytest.raises(UserError, match=message):
        read_lora(adapter)


@pytest.mark.parametrize("failure", [UserError("off by 3"), KeyboardInterrupt()], ids=["mismatch", "Ctrl-C"])
def test_what_the_check_refuses_leaves_nothing(base, adapter, target, failure):
    def refuse(directory: Path) -> None:
        assert (directory / "model.safetensors").exists()
        raise failure

    with pytest.raises(type(failure)):
        merge(base, read_lora(adapter), target, SHARD, refuse)
    assert left(target) == []


def test_the_check_of_weights_names_what_is_not_merged(base, adapter, target):
    tensors = {name: one.copy() for name, one in merged(base, adapter, target).items()}
    assert check_weights(base, read_lora(adapter), target) == 0.0
    tensors["llama.embed_tokens.weight"][9, 9] += 1e-3
    tensors["llama.layers.0.self_attn.q_proj.weight"] = load_file(base / "model.safetensors")[
        "llama.layers.0.self_attn.q_proj.weight"
    ]
    del tensors["llama.norm.weight"]
    save_file(tensors, target / "model.safetensors", metadata={"format": "np"})
    with pytest.raises(UserError) as error:
        check_weights(base, read_lora(adapter), target)
    assert "missing: llama.norm.weight" in str(error.value)
    different = str(error.value).partition("different: ")[2]
    assert re.findall(r"(\S+\.weight) \(off by", different) == [
        "llama.embed_tokens.weight",
        "llama.layers.0.self_attn.q_proj.weight",
    ]


def test_weights_that_are_no_numbers_do_not_pass(base, adapter, target):
    tensors = {name: one.copy() for name, one in merged(base, adapter, target).items()}
    tensors["lm_head.weight"][:] = np.nan
    save_file(tensors, target / "model.safetensors", metadata={"format": "np"})
    with pytest.raises(UserError, match="lm_head.weight .off by nan"):
        check_weights(base, read_lora(adapter), target)


def test_bfloat16_stays_bfloat16(base, adapter, target):
    file = base / "model.safetensors"
    halves = {name: convert(one, "float32", "bfloat16").view(np.float16) for name, one in load_file(file).items()}
    save_file(halves, file, metadata={"format": "np"})
    rename_float16(file)
    after = merged(base, adapter, target)
    assert {one.dtype for one in find_weights(target).values()} == {"bfloat16"}
    before = find_weights(base)["llama.layers.0.self_attn.q_proj.weight"].open()
    lora, layer = parts(adapter), "llama.layers.0.self_attn.q_proj"
    product = lora[f"{layer}.lora_A"] @ (np.float32(ALPHA / RANK) * lora[f"{layer}.lora_B"])
    expected = convert(convert(before, "bfloat16", "float32") + product, "float32", "bfloat16")
    assert np.array_equal(after[f"{layer}.weight"], expected)
    assert check_weights(base, read_lora(adapter), target) == 0.0


@pytest.mark.long
def test_memory_is_that_of_some_pieces_and_no_paddle_is_needed(tmp_path):
    """A model of 200 MB passes through a process that stays below 50 MB more than it is when it does nothing."""
    config = llama(hidden_size=1536, intermediate_size=4096)
    tensors = save_base(tmp_path / "base", config)
    size = sum(one.nbytes for one in tensors.values())
    assert size > 200e6
    del tensors
    save_lora(tmp_path / "lora", config)
    arguments = f"'{tmp_path / 'base'}'), read_lora('{tmp_path / 'lora'}')"
    imports = (
        "import sys; sys.modules['paddle'] = sys.modules['paddlenlp'] = None\n"
        "from pathlib import Path\n"
        "from launch.adapters.lora_files import read_lora\n"
        "from launch.weights.merging import check_weights, merge\n"
    )
    idle = peak_bytes(imports)
    busy = peak_bytes(
        f"{imports}merge(Path({arguments}, Path('{tmp_path / 'merged'}'), 10**9, lambda one: None)\n"
        f"assert check_weights(Path({arguments}, Path('{tmp_path / 'merged'}')) == 0"
    )
    assert (tmp_path / "merged" / "model.safetensors").stat().st_size > size
    assert busy - idle < 50e6
