"""Variants of LoRA, each against its paper's formula: rsLoRA, LoRA+, DoRA, PiSSA; and NEFTune's noise."""

import json
import subprocess
import sys

import numpy as np
import pytest

from launch.adapters.lora_files import PISSA_START, read_lora
from launch.checkpoint.weight_files import find_weights
from launch.reporting.records import read_summary, read_train_log
from tests.distributed import cells
from tests.distributed.cells import FULL, STAGE1, Cell
from tests.distributed.layouts import PP2, SINGLE, STAGE2, STAGE3, TP2
from tests.distributed.parity import beyond_tolerance
from tests.store import ROOT
from tests.training.finetune_material import argv

FINETUNE = "tests.training.finetune_ranks:finetune"
LORA = ("--lora", "1", "--lora_rank", "4")
PLUS = {"lora_plus_scale": 16}
PISSA = (*LORA, "--pissa", "1")
LONG, NIGHTLY = pytest.mark.long, pytest.mark.nightly


@pytest.fixture(scope="module")
def root(ranks, tmp_path_factory):
    root = tmp_path_factory.mktemp("variants")
    ranks(1, "tests.training.finetune_material:make_material", str(root), 4, 0.02)
    return root


@pytest.fixture
def trained(ranks, root, tmp_path):
    """trained("name", flags): the output directory of four steps."""

    def train(name: str, *flags: str):
        [said] = ranks(1, FINETUNE, [*argv(root, tmp_path / name), *flags])
        assert said["exit_code"] == 0, said["stderr"]
        return tmp_path / name

    return train


def losses(output) -> list[float]:
    return [record["loss"] for record in read_train_log(output) if "loss" in record]


def test_rslora_counts_by_the_root_of_the_rank(trained):
    """alpha / sqrt(r) = 4 / 2, as of a plain LoRA with alpha / r = 8 / 4."""
    ours, plain = trained("rslora", *LORA, "--rslora", "1"), trained("plain", *LORA, "--lora_alpha", "8")
    assert losses(ours) == losses(plain)
    assert losses(ours) != losses(trained("half", *LORA, "--lora_alpha", "4"))
    config = read_lora(ours).config
    assert (config["rslora"], config["lora_alpha"], config["scaling"]) == (True, 4, 2.0)


@pytest.mark.long
def test_an_output_layer_in_four_bits_trains_adapters_almost_as_a_whole_one(trained):
    nf4 = (*LORA, "--weight_quantize_algo", "nf4", "--weight_double_quant", "1")
    whole, four_bits = losses(trained("whole", *nf4)), losses(trained("head", *nf4, "--quantize_head", "1"))
    assert whole != four_bits == pytest.approx(whole, rel=0.02)


@pytest.mark.long
def test_a_word_embedding_in_host_memory_changes_no_number(trained):
    """To the bit: losses and the adapter's file, beside a base in 4 bits and one that is not quantized."""
    for name, base in {"nf4": ("--weight_quantize_algo", "nf4"), "whole": ()}.items():
        card, host = (
            trained(f"{name}-card", *LORA, *base),
            trained(f"{name}-host", *LORA, *base, "--offload_embedding", "1"),
        )
        assert losses(host) == losses(card)
        files = [sorted(output.glob("peft_model-*.safetensors")) for output in (card, host)]
        assert [one.read_bytes() for one in files[0]] == [one.read_bytes() for one in files[1]] != []


def test_lora_plus_has_a_learning_rate_of_its_own_for_lora_b(runs):
    """The first step of plain SGD changes lora_B and a DoRA's lengths, which were 0, 16 times as much, not lora_A."""
    changed, expected = (runs(FULL, sgd=1, **cells.LORA, **cells.DORA, **more).weights for more in (PLUS, {}))
    for name, values in changed.items():
        factor = 1 if name.endswith("lora_A") else 16
        np.testing.assert_allclose(values, factor * expected[name], rtol=1e-6, atol=0)
        assert np.abs(values).max() > 0


@pytest.mark.parametrize(
    "layout",
    [pytest.param(STAGE2, marks=LONG), *(pytest.param(one, marks=NIGHTLY) for one in (STAGE1, STAGE3, TP2, PP2))],
    ids=lambda layout: layout.name,
)
def test_lora_plus_in_layouts(runs, layout):
    assert beyond_tolerance(runs, Cell(FULL, layout, cells.LORA | PLUS)) == {}


# ---- DoRA


def by_numpy(found) -> dict[str, np.ndarray]:
    """DoRA's output and gradients in float64, by the paper: the length of the sum is a constant (section 4.3)."""
    x, weight, bias, a, b, added, gradient = (
        found[name].astype("f8") for name in ("x", "weight", "bias", "lora_A", "lora_B", "lora_magnitude", "gradient")
    )
    scaling = 6 / 4
    summed = weight + scaling * a @ b
    factors = (np.linalg.norm(weight, axis=0) + added) / np.linalg.norm(summed, axis=0)
    product, inner = x @ summed, gradient * factors
    rows, inner_rows = x.reshape(-1, x.shape[-1]), inner.reshape(-1, inner.shape[-1])
    return {
        "output": product * factors + bias,
        "d_x": inner @ summed.T,
        "d_lora_A": scaling * rows.T @ inner_rows @ b.T,
        "d_lora_B": scaling * a.T @ rows.T @ inner_rows,
        "d_lora_magnitude": (gradient * product).sum(axis=(0, 1)) / np.linalg.norm(summed, axis=0),
    }


@pytest.mark.parametrize("algo", [None, "nf4", pytest.param("llm.int8", marks=LONG)])
def test_dora_trains_lengths_apart_from_directions(ranks, tmp_path, algo):
    ranks(1, "tests.adapters.variants_ranks:dora", str(tmp_path / "layer.npz"), algo)
    found = np.load(tmp_path / "layer.npz")
    atol = 0.05 if algo == "llm.int8" else 2e-6  # what it reads is rounded to 8 bits
    assert algo == "llm.int8" or not found["first"].any(), "the base's output, to the bit"
    for name, expected in by_numpy(found).items():
        np.testing.assert_allclose(found[name], expected, rtol=0, atol=atol * np.abs(expected).max(), err_msg=name)


@pytest.mark.nightly
def test_a_layer_with_dora_computes_as_pefts(ranks, tmp_path):
    path = str(tmp_path / "layer.npz")
    ranks(1, "tests.adapters.variants_ranks:dora", path, None)
    command = [sys.executable, "-W", "ignore", "-m", "tests.adapters.dora_in_peft", path]
    off = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    assert len(off) == 5 and max(off.values()) <= 1e-6, off


# ---- PiSSA


def test_pissa_begins_with_the_largest_singular_values(ranks, root, tmp_path):
    path = tmp_path / "start.npz"
    ranks(
        1,
        "tests.adapters.variants_ranks:weights_at_start",
        str(path),
        [*argv(root, tmp_path / "out"), *PISSA, "--lora_alpha", "8"],
    )
    found = np.load(path)
    layers = [name.removesuffix(".weight") for name in found if name.endswith(".weight")]
    base = {name: stored.open() for name, stored in find_weights(root / "model").items()}
    assert len(layers) == 14
    for name in layers:
        rest, a, b = (found[f"{name}.{kind}"] for kind in ("weight", "lora_A", "lora_B"))
        weight = base[f"{name}.weight"].astype(np.float64)
        u, s, vh = np.linalg.svd(weight, full_matrices=False)
        np.testing.assert_allclose(2 * a @ b, (u[:, :4] * s[:4]) @ vh[:4], rtol=0, atol=2e-6)
        np.testing.assert_allclose(rest, weight - 2 * a.astype(np.float64) @ b, rtol=0, atol=1e-7)
        # sqrt(S / scaling) on both sides
        np.testing.assert_allclose(np.linalg.norm(a, axis=0), np.linalg.norm(b, axis=1), rtol=1e-4)
        np.testing.assert_allclose(np.linalg.norm(a, axis=0) ** 2, s[:4] / 2, rtol=1e-4)


@pytest.mark.parametrize(
    ("more", "scaling"),
    [pytest.param((), 1.0, marks=pytest.mark.long), (("--rslora", "1", "--lora_alpha", "6"), 3.0)],
    ids=str,
)
def test_pissa_is_written_as_a_plain_lora_of_the_whole_base(ranks, root, trained, tmp_path, more, scaling):
    flags = ("--do_eval", "1", "--eval_steps", "99")
    output = trained("pissa", *PISSA, *more, *flags)
    plain = trained("plain", *LORA, *flags)
    assert losses(output)[0] == pytest.approx(losses(plain)[0], abs=2e-6)  # of the base
    lora = read_lora(output)
    assert (lora.config["r"], lora.config["rslora"], lora.scaling) == (8, False, scaling)
    # The change of the whole base: A B - A0 B0, of this run alone.
    first = read_lora(output / PISSA_START)
    for name, layer in lora.layers.items():
        a, b = layer.a.open(), layer.b.open()
        np.testing.assert_array_equal(a[:, 4:], first.layers[name].a.open())
        np.testing.assert_array_equal(b[4:], -first.layers[name].b.open())
        assert not np.array_equal(a[:, :4], a[:, 4:]) and not np.array_equal(b[:4], -b[4:])
    merge = ["--adapter_path", str(output), "--output_dir", str(tmp_path / "merged")]
    assert ranks(1, "tests.runs_ranks:train", "commands.merge", merge, [])[0]["exit_code"] == 0
    words = [*argv(root, tmp_path / "again", model_name_or_path=tmp_path / "merged", do_train=0), *flags]
    ranks(1, FINETUNE, words)
    found, expected = (read_summary(path)["evaluation"]["eval_loss"] for path in (tmp_path / "again", output))
    assert found == pytest.approx(expected, abs=1e-5)


def test_pissa_needs_its_first_adapter_to_go_on(ranks, root, trained, tmp_path):
    output = trained("run", *PISSA, "--save_steps", "2")
    assert not (output / "checkpoint-4" / "lora_config.json").exists(), "it is no adapter of the whole base"
    (output / PISSA_START / "lora_config.json").unlink()
    words = [*argv(root, output, max_steps=6), *PISSA]
    [said] = ranks(1, FINETUNE, words)
    assert said["exit_code"] == 2
    assert (
        f"{output / PISSA_START}: missing. The run of {output / 'checkpoint-4'} began with --pissa 1" in said["stderr"]
    )


# ---- NEFTune


def test_noise_is_uniform_and_of_training_alone(ranks, tmp_path):
    """Within alpha / sqrt(length x width); the variance of a uniform distribution is bound^2 / 3."""
    ranks(1, "tests.adapters.variants_ranks:noise", str(tmp_path / "noise.npz"), 5.0, 200)
    found = np.load(tmp_path / "noise.npz")
    added = found["train"]
    bound = 5.0 / np.sqrt(8 * added.shape[-1])
    assert np.abs(added).max() <= bound * 1.001
    assert added.var() == pytest.approx(bound**2 / 3, rel=0.02)
    assert abs(added.mean()) < bound / 50
    assert not found["eval"].any()


@pytest.mark.long
def test_ranks_of_tensor_parallelism_draw_the_same_noise(runs):
    single, split = (runs(FULL, layout=layout, neftune=1, **cells.LORA) for layout in (SINGLE, TP2))
    assert np.abs(single.column("loss") - split.column("loss")).max() <= 2e-6
    assert np.abs(single.column("loss") - runs(FULL, **cells.LORA).column("loss")).max() > 1e-4
