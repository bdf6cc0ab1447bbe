"""Packed dialogues: each token's loss is that of the dialogue alone, and none sees another dialogue."""

import itertools

import numpy as np
import pytest

from data_tools.formats.dialogues.encoding import IGNORED
from launch.config.flag_values import parse_flags
from launch.config.run_config import RunConfig
from launch.families.registry import FAMILIES
from launch.preflight import run_on_flags
from launch.reporting.records import read_summary
from launch.training.batches import Collator, apart, ends, padding_share
from tests.devices.row_ends import visible
from tests.training.finetune_material import argv, write_first

PACKING = [name for name, family in FAMILIES.items() if "packing" not in family.lacking]


@pytest.fixture(scope="module")
def packed(ranks) -> dict:
    return ranks(1, "tests.training.packing_ranks:packed_all", PACKING)[0]


def test_most_families_can():
    assert {"llama", "baichuan", "chatglm_v2", "bloom", "qwen2"} <= set(PACKING)


@pytest.mark.parametrize("name", PACKING)
def test_losses_of_tokens_are_those_of_the_dialogue_alone(packed, name):
    assert packed[name]["apart"] <= 2e-6
    assert packed[name]["tokens"] == sum(length - 2 for length in (9, 6, 12, 5, 7, 8))


@pytest.mark.parametrize("name", PACKING)
def test_a_token_of_one_dialogue_changes_nothing_in_the_others(packed, name):
    assert packed[name]["changed"] > 1e-4
    assert packed[name]["leaked"] == 0


def test_mask_and_positions_of_a_batch():
    row = {
        "input_ids": np.array([5, 6, 7, 8, 9]),
        "labels": np.array([6, 7, IGNORED, 9, 2]),
        "position_ids": np.array([0, 1, 0, 1, 2]),
    }
    padding = {"input_ids": np.zeros(1, dtype=np.int64), "labels": np.full(1, IGNORED)}
    batch = Collator(0, 7, packed=True)([row, padding])
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
    batch = Collator(0, 7, packed=True, row_ends=True)([row])
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


@pytest.fixture(scope="module")
def few(ranks, tmp_path_factory):
    directory = tmp_path_factory.mktemp("material")
    ranks(1, "tests.training.finetune_material:make_material", str(directory))
    return directory, write_first(directory / "pairs", directory / "few", 12)


def train(ranks, few, output, processes=1, **changes) -> dict:
    directory, data = few
    flags = argv(directory, output, dataset_name_or_path=data, max_steps=1, do_eval=1, **changes)
    done = ranks(processes, "tests.training.finetune_ranks:finetune", flags)[0]
    assert done["exit_code"] in (0, None), done["stderr"]
    return read_summary(output) | {"told": done["stdout"]}


def test_a_step_on_packed_rows_is_a_step_on_their_dialogues(ranks, few, tmp_path):
    """All twelve in one step, once as samples and once as rows: the same loss, the same weights after it."""
    apart = train(ranks, few, tmp_path / "apart", per_device_train_batch_size=12)
    rows = train(ranks, few, tmp_path / "rows", per_device_train_batch_size=1, zero_padding=1, num_train_epochs=1)
    assert "padding: " in apart["told"] and "padding: " not in rows["told"]
    number = int(rows["told"].split("packed: ")[1].split(" rows")[0])
    assert 1 < number < 12
    assert "steps: 1 of 12 samples (about " in apart["told"]
    assert "steps: 1 of 1 rows of packed samples (about " in rows["told"]
    rows = train(ranks, few, tmp_path / "all-rows", per_device_train_batch_size=number, zero_padding=1)
    assert rows["first_loss"] == pytest.approx(apart["first_loss"], abs=2e-6)
    assert rows["evaluation"]["eval_loss"] == pytest.approx(apart["evaluation"]["eval_loss"], abs=2e-6)
    assert rows["evaluation"]["eval_tokens"] == apart["evaluation"]["eval_tokens"]


def test_packed_files_with_weights_are_trained_on(ranks, few, tmp_path):
    directory, data = few
    other = write_first(directory / "pairs", tmp_path / "other", 30)
    blend = f"0.3 {data} 0.7 {other}"
    flags = argv(directory, tmp_path / "out", dataset_name_or_path=blend, zero_padding=1, max_steps=3)
    [done] = ranks(1, "tests.training.finetune_ranks:finetune", flags)
    assert done["exit_code"] in (0, None), done["stderr"]
    assert "training data: 42 dialogues" in done["stdout"] and "blend: an epoch uses" in done["stdout"]
    summary = read_summary(tmp_path / "out")
    assert summary["last_loss"] < summary["first_loss"]
