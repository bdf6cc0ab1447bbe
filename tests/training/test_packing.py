"""Packed dialogues: each token's loss is that of the dialogue alone, and none sees another dialogue."""

import itertools

import numpy as np
import pytest

from data_tools.dialogues.encoding import IGNORED
from launch.config.flag_values import parse_flags
from launch.config.run_config import RunConfig
from launch.families.registry import FAMILIES
from launch.preflight import run_on_flags
from launch.training.batches import PaddingCollator, apart, ends, padding_share, shared_padding
from tests.devices.row_ends import visible
from tests.distributed.cells import FULL
from tests.distributed.parity import numbers_apart
from tests.runs import FEW_PAIRS
from tests.training.finetune_material import write_first

PACKING = [name for name, family in FAMILIES.items() if "packing" not in family.lacking]


@pytest.fixture(scope="module")
def packed(ranks) -> dict:
    return ranks(1, "tests.training.packing_ranks:packed_all", PACKING)[0]


def test_most_families_can():
    assert {"llama", "baichuan", "chatglm_v2", "bloom", "qwen2"} <= set(PACKING)


@pytest.mark.parametrize("name", PACKING)
def test_losses_of_tokens_are_those_of_the_dialogue_alone(packed, name):
    """And a token of one dialogue changes nothing in the others."""
    assert packed[name]["apart"] <= 2e-6
    assert packed[name]["tokens"] == sum(length - 2 for length in (9, 6, 12, 5, 7, 8))
    assert packed[name]["changed"] > 1e-4
    assert packed[name]["leaked"] == 0


def test_mask_and_positions_of_a_batch():
    row = {
        "input_ids": np.array([5, 6, 7, 8, 9]),
        "labels": np.array([6, 7, IGNORED, 9, 2]),
        "position_ids": np.array([0, 1, 0, 1, 2]),
    }
    padding = {"input_ids": np.zeros(1, dtype=np.int64), "labels": np.full(1, IGNORED)}
    batch = PaddingCollator(0, 7, packed=True)([row, padding])
    assert batch["position_ids"].tolist() == [[0, 1, 0, 1, 2, 0, 1], [0, 0, 1, 2, 3, 4, 5]]
    assert batch["labels"][0].tolist() == [6, 7, IGNORED, 9, 2, IGNORED, IGNORED]
    assert batch["attention_mask"].shape == (2, 1, 7, 7)
    assert batch["attention_mask"].any(-1).all()  # a token that sees nothing gives no number
    seen = apart(np.array([[0, 1, 0, 1, 2]]))[0, 0].astype(int)
    assert seen.tolist() == [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 1, 1, 0], [0, 0, 1, 1, 1]]


@pytest.mark.parametrize("begins", [[0], [0, 1, 2, 5], [0, 4], [0, 6]], ids=str)
def test_the_ends_of_samples_mean_the_mask(begins):
    positions = np.arange(7)[None] - np.repeat(begins, np.diff([*begins, 7]))[None]
    rows = np.concatenate([positions, np.arange(7)[None]])
    found = ends(rows)
    assert found.dtype == np.int32 and found[1].tolist() == [7] * 7
    assert (visible(found) == apart(rows)).all()


def test_a_batch_for_flash_mask_has_ends_in_place_of_the_mask():
    row = {"input_ids": np.arange(5), "labels": np.arange(5), "position_ids": np.array([0, 1, 0, 1, 2])}
    batch = PaddingCollator(0, 7, packed=True, row_ends=True)([row])
    assert batch["attn_mask_startend_row_indices"].tolist() == [[2, 2, 5, 5, 5, 7, 7]]
    assert set(batch) == {"input_ids", "labels", "position_ids", "attn_mask_startend_row_indices"}


def test_the_share_of_padding_is_that_of_all_batches():
    tokens = np.array([3, 5, 9, 20])
    batches = list(itertools.product(tokens, repeat=3))  # drawn with replacement, as of a large data set
    padded = sum(3 * max(batch) for batch in batches)
    assert padding_share(tokens, 3) == pytest.approx(1 - sum(map(sum, batches)) / padded)
    assert padding_share(tokens, 1) == pytest.approx(0)


def refusals(config: str, *flags: str) -> list[str]:
    argv = ["--model_name_or_path", config, "--zero_padding", "1", *flags]
    findings = run_on_flags(RunConfig("launch/finetune_generation.py", parse_flags(argv)))
    faults = [finding for finding in findings if finding.subject == "--zero_padding" and not finding.ok]
    return [f"{fault.found} {fault.fix}" for fault in faults]


@pytest.mark.parametrize("name", sorted(set(FAMILIES) - set(PACKING)))
def test_a_family_that_cannot_is_refused_with_the_reason(name):
    [refusal] = refusals(FAMILIES[name].rehearsal_config)
    assert f"{FAMILIES[name].title} has no packing: {FAMILIES[name].lacking['packing']}" in refusal


def test_with_a_prefix_it_is_refused():
    assert not refusals("llama-rehearsal")
    [refusal] = refusals("llama-rehearsal", "--prefix_tuning", "1")
    assert "widens the mask" in refusal and "--lora 1" in refusal


def test_a_step_on_packed_rows_is_a_step_on_their_dialogues(runs):
    """All in one step, once as samples and once as rows: the same loss, and the same after it."""
    flags = {"max_steps": 1, "save_steps": 9}
    apart = runs(FULL, **flags, per_device_train_batch_size=FEW_PAIRS)
    number = int(runs(FULL, zero_padding=1).stdout.split("packed: ")[1].split(" rows")[0])
    rows = runs(FULL, **flags, per_device_train_batch_size=number, zero_padding=1)
    assert 1 < number < FEW_PAIRS
    assert "padding: " in apart.stdout and "padding: " not in rows.stdout
    assert f"steps: 1 of {FEW_PAIRS} samples (about " in apart.stdout
    assert f"steps: 1 of {number} rows of packed samples (about " in rows.stdout
    assert all(found <= allowed for found, allowed in numbers_apart(rows, apart).values())


def test_samples_of_a_batch_share_rows_where_they_fit():
    samples = [{"input_ids": np.arange(size), "labels": np.arange(1, size + 1)} for size in (2, 5, 3)]
    collate = PaddingCollator(9, None)
    assert collate(samples)["labels"].shape == (3, 5)
    collate.shares_rows = True
    batch = collate(samples)
    assert batch["input_ids"].tolist() == [[0, 1, 2, 3, 4], [0, 1, 2, 0, 1]] == batch["position_ids"].tolist()
    assert batch["labels"].tolist() == [[1, 2, 3, 4, 5], [1, 2, 3, 1, 2]]
    assert (batch["attention_mask"] == apart(batch["position_ids"])).all()
    assert set(collate(samples[:2])) == {"input_ids", "labels"}, "nothing fits: no mask"
    assert shared_padding(np.array([2, 5, 3]), 3) == 0 and shared_padding(np.array([4, 5, 3]), 3) == pytest.approx(0.2)


@pytest.mark.long
def test_a_lora_learns_the_same_in_shared_rows(runs):
    """As with micro batches of one sample, which has no padding."""
    flags = {"lora": 1, "max_steps": 2, "save_steps": 9, "do_eval": 1}
    shared = runs(FULL, **flags, per_device_train_batch_size=8)
    alone = runs(FULL, **flags, per_device_train_batch_size=1, gradient_accumulation_steps=8)
    assert "short samples share rows" in shared.stdout and "padding: " not in alone.stdout
    assert all(found <= allowed for found, allowed in numbers_apart(shared, alone).values())


@pytest.mark.long
def test_packed_files_with_weights_are_trained_on(runs, tmp_path):
    other = write_first(runs.material / "pairs", tmp_path / "other", 30)
    blend = f"0.3 {runs.material / 'few-pairs'} 0.7 {other}"
    run = runs(FULL, dataset_name_or_path=[blend], zero_padding=1, max_steps=3, do_eval=0)
    assert "training data: 50 dialogues" in run.stdout and "blend: an epoch uses" in run.stdout
    assert run.summary["last_loss"] < run.summary["first_loss"]
