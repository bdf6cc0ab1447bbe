"""Weights come into a model as from_pretrained brings them, to the bit, in every layout; what does not fit is told."""

import os
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from launch.families.registry import FAMILIES
from tests.checkpoint.loading_ranks import CONFIGURATIONS
from tests.store import kept

COMPARE, REFUSALS = "tests.checkpoint.loading_ranks:compare", "tests.checkpoint.loading_ranks:refusals"
TP2, PP2 = {"tensor_parallel_degree": 2}, {"pipeline_parallel_degree": 2}
LAYOUTS = {"single": (1, {}), "tp2": (2, TP2), "pp2": (2, PP2)}
WITH_PIPELINE = [name for name in CONFIGURATIONS if name not in FAMILIES or FAMILIES[name].pipeline_class]
# In `make test` those whose tensors are divided each in a way of its own.
FEW = ["llama", "gqa", "one-key", "odd-vocabulary", "fused", "chatglm_v2"]


@pytest.fixture(scope="module")
def models(ranks):
    def save(root) -> None:
        ranks(1, "tests.checkpoint.loading_ranks:save_models", str(root), list(CONFIGURATIONS))

    return kept("models/loading", save)[0]


@pytest.mark.parametrize(
    ("layout", "names", "kinds"),
    [
        ("single", FEW, ["single"]),
        ("tp2", FEW, ["sharded"]),
        ("pp2", FEW[:5], ["pdparams"]),
        *(
            pytest.param(layout, list(CONFIGURATIONS), ["single", "sharded", "pdparams"], marks=pytest.mark.long)
            for layout in LAYOUTS
        ),
    ],
)
def test_parameters_are_those_of_from_pretrained(ranks, models, layout, names, kinds):
    names = [name for name in names if layout != "pp2" or name in WITH_PIPELINE]
    processes, flags = LAYOUTS[layout]
    first, *others = ranks(processes, COMPARE, str(models), names, kinds, flags)
    assert "llama.layers.1.mlp.down_proj.weight" in first["llama"]
    if layout == "pp2":
        [last] = others
        for name in names:
            assert not set(first[name]) & set(last[name])
        assert "llama.layers.2.mlp.down_proj.weight" in last["llama"]


@pytest.mark.parametrize(("dtype", "model"), [("float16", "llama"), ("bfloat16", "gqa")])
def test_half_precision_is_rounded_as_paddle_does(ranks, models, dtype, model):
    ranks(1, COMPARE, str(models), [model], ["single"], {}, dtype)


def test_half_precision_becomes_float32_as_it_is(ranks, models, tmp_path):
    half = {name: one.astype("float16") for name, one in weights(models).items()}
    (tmp_path / "half").mkdir()
    save(tmp_path / "half" / "single", half, models)
    ranks(1, COMPARE, str(tmp_path), ["half"], ["single"], {})


def weights(models) -> dict:
    return load_file(models / "llama" / "single" / "model.safetensors")


def save(directory, tensors: dict, models) -> str:
    """A directory with the configuration of the llama and these tensors, but for those that are None."""
    directory.mkdir()
    shutil.copy(models / "llama" / "single" / "config.json", directory)
    kept = {name: one for name, one in tensors.items() if one is not None}
    save_file(kept, directory / "model.safetensors", metadata={"format": "np"})
    return str(directory)


@pytest.mark.parametrize("layout", ["tp2", pytest.param("single", marks=pytest.mark.long), "pp2"])
def test_what_does_not_fit_is_told_alike_on_every_rank(ranks, models, tmp_path, layout):
    large = np.zeros((64, 176), np.float32)
    large[0, 0] = -70_000
    changes = {
        "not fitting": {
            "llama.layers.0.mlp.up_proj.weight": None,  # of the first pipeline stage
            "llama.layers.3.mlp.up_proj.weight": None,  # of the last
            "llama.layers.4.mlp.up_proj.weight": np.ones((64, 176), np.float32),
            "llama.layers.2.mlp.down_proj.weight": np.ones((176, 32), np.float32),
            "llama.norm.weight": np.ones(64, np.int64),
            "llama.layers.1.self_attn.rotary_emb.inv_freq": np.ones(8, np.float32),  # known, and left aside
        },
        "many": {f"extra.{number:02d}": np.ones(2, np.float32) for number in range(25)},
        "undivided": {"llama.layers.0.mlp.up_proj.weight": np.ones((64, 175), np.float32)},
        "large": {"llama.layers.0.mlp.up_proj.weight": large},
    }
    places = {name: save(tmp_path / name, weights(models) | one, models) for name, one in changes.items()}
    cases = {name: [place, "float16" if name == "large" else "float32"] for name, place in places.items()}
    for rank in range(2):  # as on several nodes, each with a disk of its own
        shutil.copytree(models / "llama" / "sharded", tmp_path / f"rank{rank}")
    damaged = sorted((tmp_path / "rank1").glob("*.safetensors"))[0]
    os.truncate(damaged, damaged.stat().st_size - 1)
    if layout != "pp2":  # whose models write no answers
        cases["generation"] = [save(tmp_path / "generation", weights(models), models), "float32"]
        (tmp_path / "generation" / "generation_config.json").write_text("[]")
    processes, flags = LAYOUTS[layout]
    if processes == 2:
        cases["damaged for one"] = [f"{tmp_path}/rank{{rank}}", "float32"]
    said, *others = ranks(processes, REFUSALS, cases, flags)
    assert said.keys() == cases.keys() and all(other == said for other in others)
    part = "a rank's part [88, 32], expected [88, 64]" if flags == TP2 else "expected [176, 64]"
    assert said["not fitting"] == (
        f"{places['not fitting']}: the weights do not fit its config.json; "
        "missing: llama.layers.0.mlp.up_proj.weight, llama.layers.3.mlp.up_proj.weight; "
        "not in the model: llama.layers.4.mlp.up_proj.weight; "
        f"different: llama.layers.2.mlp.down_proj.weight (found [176, 32], {part}), "
        "llama.norm.weight (found int64, expected float32). Take both from one model."
    )
    assert "not in the model: extra.00, extra.01, " in said["many"] and "extra.10" not in said["many"]
    assert "extra.09, ... (25 in all)." in said["many"]
    if layout != "pp2":
        assert said["generation"].endswith(
            "generation_config.json: found a JSON list, expected an object. Copy the file again."
        )
    if layout == "tp2":
        wrong = "different: llama.layers.0.mlp.up_proj.weight (found [64, 175], expected [64, 88])"
        assert wrong in said["undivided"]
    assert said["large"] == (
        f"{places['large']}: values beyond float16's 65,504 in llama.layers.0.mlp.up_proj.weight (up to 7e+04). "
        "Train in bfloat16 (--bf16 1 --fp16 0)."
    )
    if processes == 2:
        assert said["damaged for one"].startswith(f"{damaged}: ") and "its header says" in said["damaged for one"]
