"""LoRA adapters to PEFT's format and back; what PEFT calls them is written down here by hand."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import BPE

from launch.adapters.lora_files import read_lora
from launch.commands.export import main
from launch.commands.import_weights import main as import_main
from launch.commands.merge import main as merge_main
from launch.errors import UserError
from launch.families.tokenizer_files import read_tokenizer
from launch.prediction.model_flags import check_adapter
from launch.weights.merging import merge, merged_tensors
from launch.weights.model_directories import export_directory, import_directory
from launch.weights.peft import export_adapter, import_adapter
from launch.weights.peft_keys import CARRIED, LIMITED, WITHOUT_EFFECT, check_keys
from tests.families import published as models
from tests.store import ROOT
from tests.weights.peft_kinds import KINDS, MERGED

RANK, LAYER = 3, "llama.layers.1.self_attn.q_proj"
ORDER = ("lora_A", "lora_B", "magnitude", "lm_head", "token_adapter")


@pytest.fixture
def base(tmp_path) -> Path:
    import_directory(models.save(tmp_path / "theirs", *models.llama()), tmp_path / "base", None, 10**9)
    return tmp_path / "base"


@pytest.fixture
def adapter(tmp_path, base) -> Path:
    """On the queries of the second layer alone."""
    directory = tmp_path / "adapter"
    directory.mkdir()
    draw = np.random.RandomState(0)
    tensors = {f"{LAYER}.lora_A": draw.normal(size=(48, RANK)), f"{LAYER}.lora_B": draw.normal(size=(RANK, 48))}
    tensors = {name: tensor.astype(np.float32) for name, tensor in tensors.items()}
    save_file(tensors, directory / "peft_model-00001-of-00001.safetensors")
    index = {"weight_map": dict.fromkeys(tensors, "peft_model-00001-of-00001.safetensors")}
    (directory / "peft_model.safetensors.index.json").write_text(json.dumps(index))
    config = {"r": RANK, "lora_alpha": 12, "lora_dropout": 0.1, "base_model_name_or_path": str(base)}
    (directory / "lora_config.json").write_text(json.dumps(config))
    return directory


def test_names_shapes_and_configuration_are_those_of_peft(tmp_path, adapter):
    assert export_adapter(adapter, None, tmp_path / "out") == 2
    written = load_file(tmp_path / "out" / "adapter_model.safetensors")
    ours = load_file(adapter / "peft_model-00001-of-00001.safetensors")
    name = "base_model.model.model.layers.1.self_attn.q_proj"
    assert written.keys() == {f"{name}.lora_A.weight", f"{name}.lora_B.weight"}
    assert np.array_equal(written[f"{name}.lora_A.weight"], ours[f"{LAYER}.lora_A"].T)
    config = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["lora_dropout"]) == (3, 12, 0.1)
    assert (config["peft_type"], config["target_modules"]) == ("LORA", ["q_proj"])


def test_the_base_has_the_name_that_peft_finds(tmp_path, base, adapter, capsys):
    assert main([str(adapter), str(tmp_path / "out"), "--base_model_name", "huggyllama/llama-7b"]) is None
    config = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "huggyllama/llama-7b"
    assert "AutoPeftModelForCausalLM loads its base from huggyllama/llama-7b, which" in capsys.readouterr().out
    with pytest.raises(UserError, match="--base_model_name: found for a model"):
        main([str(base), str(tmp_path / "model"), "--base_model_name", "huggyllama/llama-7b"])


def test_an_adapter_of_another_model_is_refused_before_weights_are_read(tmp_path, base, adapter):
    check_adapter(str(base), adapter)
    weights = next(base.glob("*.safetensors"))
    weights.write_bytes(b"")  # nobody looks at them
    config = json.loads((base / "config.json").read_text())
    (base / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 1}))
    with pytest.raises(UserError) as refused:
        check_adapter(str(base), adapter)
    assert str(refused.value) == (
        f"{adapter} is no adapter of {base}: missing: {LAYER}.weight.\nGive the model that it was trained on: {base}."
    )
    (base / "config.json").write_text(json.dumps(config | {"hidden_size": 96}))
    with pytest.raises(UserError, match=r"q_proj.weight \(found \[96, 96\], expected \[48, 48\] by the adapter\)"):
        check_adapter(str(base), adapter)


@pytest.mark.parametrize(("rslora", "scaling"), [(False, 4), (True, 12 / 3**0.5)])
def test_there_and_back(tmp_path, base, adapter, rslora, scaling):
    """The second one as a DoRA, whose lengths PEFT has whole."""
    file, weights = adapter / "lora_config.json", adapter / "peft_model-00001-of-00001.safetensors"
    added = np.linspace(-0.1, 0.1, 48, dtype=np.float32)
    if rslora:
        save_file(load_file(weights) | {f"{LAYER}.lora_magnitude": added}, weights)
        names = {name: weights.name for name in load_file(weights)}
        (adapter / "peft_model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    file.write_text(json.dumps(json.loads(file.read_text()) | {"rslora": rslora, "use_dora": rslora}))
    export_adapter(adapter, None, tmp_path / "out")
    assert import_adapter(tmp_path / "out", base, tmp_path / "back") == (2 + rslora, False)
    before, after = read_lora(adapter), read_lora(tmp_path / "back")
    assert after.scaling == before.scaling == scaling
    config = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
    assert (config["lora_alpha"], config["use_rslora"], config["use_dora"]) == (12, rslora, rslora)
    if rslora:
        lengths = np.linalg.norm(load_file(base / "model.safetensors")[f"{LAYER}.weight"].astype("f8"), axis=0)
        theirs = load_file(tmp_path / "out" / "adapter_model.safetensors")
        vector = theirs["base_model.model.model.layers.1.self_attn.q_proj.lora_magnitude_vector"]
        np.testing.assert_allclose(vector, lengths + added, rtol=1e-6)
        short = {name: one[:3] if one.ndim == 1 else one for name, one in theirs.items()}
        save_file(short, tmp_path / "out" / "adapter_model.safetensors")
        with pytest.raises(UserError, match=rf"true, but a lora_magnitude_vector of \[3\] of {LAYER}. Copy it again"):
            import_adapter(tmp_path / "out", base, tmp_path / "short")
        save_file({f"{LAYER}.weight": np.ones((48, 16), np.float32)}, base / "model.safetensors")
        with pytest.raises(UserError, match=rf"{LAYER}.weight of the base: found \[48, 16\], expected outputs: 48"):
            export_adapter(adapter, None, tmp_path / "of-another")
        with pytest.raises(UserError, match="found a DoRA, and llama.cpp has A and B alone"):
            main([str(adapter), str(tmp_path / "gguf"), "--format", "gguf"])
        np.testing.assert_allclose(after.layers[LAYER].magnitude.open(), added, rtol=0, atol=1e-6)
    assert after.layers.keys() == before.layers.keys()
    for part in ("a", "b"):
        stored = [getattr(lora.layers[LAYER], part).open() for lora in (before, after)]
        assert np.array_equal(*stored)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"use_dora": True}, f"use_dora: found true, but no lora_magnitude_vector of {LAYER}"),
        ({"rank_pattern": {"q_proj": "4"}}, "rank_pattern: found .*, which PEFT would not read"),
        ({"target_modules": "(q_proj"}, "target_modules: found '.q_proj', which PEFT would not read"),
        ({"bias": "all"}, "bias: found 'all', allowed: 'none'"),
        (
            {"init_lora_weights": "pissa_niter_4"},
            "found 'pissa_niter_4', allowed: True, False, None, 'gaussian'",
        ),
        ({"use_hyper_lora": 1}, "use_hyper_lora: found 1, which PEFT 0.21 does not have"),
        ({"rank_pattern": {"q_proj": 4}}, r"q_proj \(found \[3, 48\] and \[48, 3\], expected A and B of rank 4\)"),
        (
            {"target_modules": ["v_proj"]},
            r"found {'target_modules': \['v_proj'\]}, which leave out model.layers.1.self_attn.q",
        ),
        (
            {"target_modules": None, "exclude_modules": ".*q_proj"},
            "found {'exclude_modules': '.*q_proj'}, which leave out",
        ),
        ({"layers_to_transform": [0]}, r"'layers_to_transform': \[0\]}, which leave out"),
        ({"fan_in_fan_out": True}, "fan_in_fan_out: found True, allowed: False"),
        ({"r": 1}, "rank 1"),
        ({"r": 0}, "r: found 0, allowed: a whole number from 1"),
    ],
    ids=str,
)
def test_what_is_not_plain_lora_is_refused_and_leaves_nothing(tmp_path, base, adapter, change, message):
    export_adapter(adapter, None, tmp_path / "theirs2")
    file = tmp_path / "theirs2" / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(UserError, match=message):
        import_adapter(tmp_path / "theirs2", base, tmp_path / "out" / "x")
    assert not list((tmp_path / "out").glob("*"))


PATTERNS = {"rank_pattern": {"layers.1.self_attn.q_proj": 5}, "alpha_pattern": {r"layers\.0\..*v_proj": 3}}
NORMAL = {("q", 0): 4, ("q", 1): 4, ("v", 0): 4, ("v", 1): 4}
# Settings of a LoRA of rank 3 with alpha 12 -> the factor of B A of each layer.
SCALINGS = [
    ({}, NORMAL),
    ({"init_lora_weights": "gaussian", "target_modules": "all-linear"}, NORMAL),
    ({"use_rslora": True}, {key: 12 / 3**0.5 for key in NORMAL}),
    (PATTERNS, NORMAL | {("q", 1): 12 / 5, ("v", 0): 1}),
    (PATTERNS | {"use_rslora": True}, {key: 12 / 3**0.5 for key in NORMAL} | {("q", 1): 12 / 5**0.5, ("v", 0): 3**0.5}),
    ({"target_modules": r"model\.layers\.1\..*(q|v)_proj"}, {("q", 1): 4, ("v", 1): 4}),
    ({"exclude_modules": ["v_proj"], "layers_to_transform": 0, "layers_pattern": "layers"}, {("q", 0): 4}),
]


@pytest.mark.parametrize(("change", "scalings"), SCALINGS, ids=range(len(SCALINGS)))
def test_a_merged_import_is_what_the_settings_mean(tmp_path, base, change, scalings):
    draw, expected, tensors = np.random.default_rng(0), {}, {}
    for (part, number), scaling in scalings.items():
        layer = f"layers.{number}.self_attn.{part}_proj"
        rank = 5 if "rank_pattern" in change and (part, number) == ("q", 1) else RANK
        outputs = {"q": 48, "v": 16}[part]
        a, b = draw.normal(size=(rank, 48)).astype("f4"), draw.normal(size=(outputs, rank)).astype("f4")
        tensors |= {f"base_model.model.model.{layer}.lora_{half}.weight": one for half, one in (("A", a), ("B", b))}
        expected[f"llama.{layer}.weight"] = scaling * (b.astype("f8") @ a).T
    theirs = tmp_path / "peft"
    theirs.mkdir()
    save_file(tensors, theirs / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": 12, "target_modules": ["q_proj", "v_proj"]} | change
    (theirs / "adapter_config.json").write_text(json.dumps(config))
    import_adapter(theirs, base, tmp_path / "lora")
    lora = read_lora(tmp_path / "lora")
    before = load_file(base / "model.safetensors")
    found = {one.name: np.concatenate(list(one.pieces())) - before[one.name] for one in merged_tensors(base, lora)}
    for name, change in found.items():
        np.testing.assert_allclose(change, expected.get(name, 0 * change), rtol=0, atol=1e-5, err_msg=name)


def with_more(directory: Path, base: Path, **change) -> tuple[dict, dict]:
    """A DoRA with a head of its own and two trained rows; return its tensors, and the base's by our names."""
    draw, before = np.random.default_rng(0), load_file(base / "model.safetensors")
    layer = "base_model.model.model.layers.1.self_attn.v_proj"
    shapes = {f"{layer}.lora_A.weight": (RANK, 48), f"{layer}.lora_B.weight": (16, RANK)}
    shapes |= {f"{layer}.lora_magnitude_vector": (16,), "base_model.model.lm_head.weight": (96, 48)}
    shapes |= {"base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta": (2, 48)}
    tensors = {name: draw.normal(size=shape).astype("f4") for name, shape in shapes.items()}
    directory.mkdir()
    save_file(tensors, directory / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": 12, "target_modules": ["v_proj"], "use_dora": True}
    config |= {"modules_to_save": ["lm_head"], "trainable_token_indices": [7, 3]} | change
    (directory / "adapter_config.json").write_text(json.dumps(config))
    return tensors, before


def test_more_than_linear_layers_is_merged_by_the_import(tmp_path, base, capsys):
    tensors, before = with_more(tmp_path / "peft", base)
    import_main([str(tmp_path / "peft"), str(tmp_path / "model"), "--base", str(base)])
    told = "merged with 5 tensors of the adapter, not of linear layers alone\nuse it: --model"
    assert told in capsys.readouterr().out
    after = load_file(tmp_path / "model" / "model.safetensors")
    a, b, magnitude, head, rows = (
        next(one for name, one in tensors.items() if part in name).astype("f8") for part in ORDER
    )
    expected = {name: tensor.astype("f8") for name, tensor in before.items()}
    summed = expected["llama.layers.1.self_attn.v_proj.weight"].T + 4 * b @ a
    expected["llama.layers.1.self_attn.v_proj.weight"] = (
        magnitude[:, None] * summed / np.linalg.norm(summed, axis=1, keepdims=True)
    ).T
    expected["lm_head.weight"], expected["llama.embed_tokens.weight"][[7, 3]] = head.T, rows
    assert after.keys() == expected.keys()
    for name, tensor in after.items():
        np.testing.assert_allclose(tensor, expected[name], rtol=0, atol=2e-6, err_msg=name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trainable_token_indices": [7]}, r"embed_tokens.weight: found \[2, 48\], expected \[1, 48\] by the base"),
        (
            {"trainable_token_indices": [7, 96]},
            r"found \[7, 96\] for model.embed_tokens, allowed: a list of ids below 96",
        ),
        ({"use_dora": False}, "no LoRA adapter of .*lora_magnitude_vector"),
    ],
    ids=str,
)
def test_more_than_linear_layers_that_the_configuration_denies(tmp_path, base, change, message):
    with_more(tmp_path / "peft", base, **change)
    with pytest.raises(UserError, match=message):
        import_adapter(tmp_path / "peft", base, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_embeddings_of_a_tied_base_are_whole_for_the_head_or_refused(tmp_path):
    import_directory(models.save(tmp_path / "hf", *models.ernie4_5()), tmp_path / "tied", None, 10**9)
    stored = {"base_model.model.model.embed_tokens.weight": np.ones((96, 48), np.float32)}
    layer = "base_model.model.model.layers.0.mlp.up_proj"
    stored |= {f"{layer}.lora_A.weight": np.ones((1, 48), "f4"), f"{layer}.lora_B.weight": np.ones((80, 1), "f4")}
    config = {"r": 1, "lora_alpha": 1, "target_modules": ["up_proj"], "modules_to_save": ["embed_tokens"]}
    (tmp_path / "peft").mkdir()
    save_file(stored, tmp_path / "peft" / "adapter_model.safetensors")
    (tmp_path / "peft" / "adapter_config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match="modules_to_save: found the embeddings of a base whose head is tied to them"):
        import_adapter(tmp_path / "peft", tmp_path / "tied", tmp_path / "out")
    (tmp_path / "peft" / "adapter_config.json").write_text(json.dumps(config | {"ensure_weight_tying": True}))
    import_adapter(tmp_path / "peft", tmp_path / "tied", tmp_path / "out")
    merged = load_file(tmp_path / "out" / "model.safetensors")
    assert next(tensor for name, tensor in merged.items() if "embed_tokens" in name).min() == 1


def test_new_tokens_beside_lora_make_a_model_with_them_and_their_tokenizer(tmp_path, base):
    tensors, _ = with_more(tmp_path / "peft", base, modules_to_save=["embed_tokens", "lm_head"])
    path = tmp_path / "peft" / "adapter_model.safetensors"
    words, head = (np.full((99, 48), value, np.float32) for value in (1, 2))
    names = ("base_model.model.model.embed_tokens.weight", "base_model.model.lm_head.weight")
    tensors = {name: tensor for name, tensor in tensors.items() if "token_adapter" not in name}
    save_file(tensors | dict(zip(names, (words, head), strict=True)), path)
    with pytest.raises(UserError, match="no tokenizer, but embeddings of 99 tokens, which is not the base's number"):
        import_adapter(tmp_path / "peft", base, tmp_path / "out")
    save_file(tensors | {names[0]: words}, path)
    with pytest.raises(UserError, match="found embeddings of 99 tokens, and a head of another number"):
        import_adapter(tmp_path / "peft", base, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    save_file(tensors | dict(zip(names, (words, head), strict=True)), path)
    Tokenizer(BPE({str(token): token for token in range(99)}, [])).save(str(tmp_path / "peft" / "tokenizer.json"))
    (base / "sentencepiece.bpe.model").write_bytes(b"the base's")
    import_adapter(tmp_path / "peft", base, tmp_path / "out")
    merged = load_file(tmp_path / "out" / "model.safetensors")
    assert np.array_equal(merged["llama.embed_tokens.weight"], words)
    assert np.array_equal(merged["lm_head.weight"], head.T)
    assert json.loads((tmp_path / "out" / "config.json").read_text())["vocab_size"] == 99
    assert read_tokenizer(tmp_path / "out").size == 99 and not (tmp_path / "out" / "sentencepiece.bpe.model").exists()


def test_an_adapter_without_a_base_is_told_how_to_give_it(tmp_path, capsys):
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(SystemExit, match="2"):
        import_main([str(tmp_path)])
    how = '--base DIR, of make ARGS="--base DIR" ('
    assert capsys.readouterr().err.startswith(f"error: a PEFT adapter needs the directory of its imported model: {how}")


def test_a_directory_of_peft_is_answered_by_the_import(tmp_path, base, adapter):
    """In merge; predict, evaluate and serve call check_adapter."""
    theirs = tmp_path / "theirs2"
    export_adapter(adapter, None, theirs)
    how = f'Import it, and give the result: make import MODEL={theirs} OUTPUT=models/theirs2 ARGS="--base {base}"'
    with pytest.raises(UserError, match=re.escape(f"{theirs}: an adapter in PEFT's format. {how}")):
        check_adapter(str(base), theirs)
    words = ["--adapter_path", str(theirs), "--model_name_or_path", str(base), "--output_dir", str(tmp_path / "m")]
    with pytest.raises(UserError, match=re.escape(how)):
        merge_main(words)


@pytest.mark.nightly
def test_merged_logits_are_those_of_peft(tmp_path, base):
    """Adapters of all kinds that are carried, as PEFT makes, saves and merges them; our table has all its keys."""

    def in_peft(*args):
        command = [sys.executable, "-W", "ignore", "-m", "tests.weights.merged_in_peft", *map(str, args)]
        return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout

    theirs = models.save(tmp_path / "hf", *models.llama())
    keys = json.loads(in_peft("adapters", theirs, tmp_path))
    check_keys(keys, Path("defaults"))
    assert keys.keys() == {*CARRIED, *WITHOUT_EFFECT, *LIMITED} - {"runtime_config"}
    for name in KINDS:
        _, is_merged = import_adapter(tmp_path / name, base, tmp_path / f"{name}-lora")
        assert is_merged == (name in MERGED), name
        if is_merged:
            (tmp_path / f"{name}-lora").rename(tmp_path / f"{name}-merged")
        else:
            merge(base, read_lora(tmp_path / f"{name}-lora"), tmp_path / f"{name}-merged", 10**9, lambda _: None)
            export_adapter(tmp_path / f"{name}-lora", base, tmp_path / f"{name}-back")
        export_directory(tmp_path / f"{name}-merged", tmp_path / f"{name}-hf", None, 10**9)
    differences = json.loads(in_peft("compare", theirs, tmp_path))
    assert differences.keys() == KINDS.keys()
    assert max(differences.values()) <= 1e-6, differences


def test_an_adapter_of_another_model(tmp_path, base, adapter):
    export_adapter(adapter, None, tmp_path / "theirs2")
    file = tmp_path / "theirs2" / "adapter_model.safetensors"
    save_file({name.replace("layers.1", "layers.7"): one for name, one in load_file(file).items()}, file)
    with pytest.raises(UserError, match="layers.7.self_attn.q_proj.lora_A.weight"):
        import_adapter(tmp_path / "theirs2", base, tmp_path / "out")


def test_baichuan_13b_is_told_to_merge(tmp_path, adapter):
    import_directory(models.save(tmp_path / "b", *models.baichuan(alibi=True)), tmp_path / "bc", None, 10**9)
    with pytest.raises(UserError, match="make merge, then export the merged model"):
        export_adapter(adapter, tmp_path / "bc", tmp_path / "out")
