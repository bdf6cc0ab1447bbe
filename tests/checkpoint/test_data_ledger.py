"""The ledger: what was consumed, what may follow, and the proof that each sample was read once an epoch."""

import json
from dataclasses import replace

import numpy as np
import pytest

from data_tools.formats.blended import BlendedDataset
from launch.checkpoint.data_ledger import Ledger, epoch_order, epochs, faults
from launch.commands.ledger import log_faults
from launch.errors import UserError

DATA = {"corpus": "abc", "samples": 99, "order_seed": 42}
OTHER = DATA | {"corpus": "def", "samples": 50}


def trained(ledger: Ledger, steps: int) -> Ledger:
    """After so many more steps, on samples of 10 tokens."""
    last, samples = ledger.last, steps * ledger.last.global_batch
    return ledger.at(last.last_step + steps, last.stop + samples, ledger.tokens + 10 * samples)


def test_a_run_that_goes_on_extends_its_range_or_begins_one_on_other_data_ranks():
    ledger = trained(trained(Ledger.begin(DATA, 8, 2), 5).resumed(DATA, 8, 2), 5)
    [only] = ledger.ranges
    assert (only.first_step, only.last_step, only.start, only.stop, only.tokens) == (0, 10, 0, 80, 800)
    assert Ledger.from_json(ledger.to_json()) == ledger
    ledger = trained(trained(Ledger.begin(DATA, 8, 2), 5).resumed(DATA, 8, 4), 3)
    assert [(one.start, one.stop, one.data_ranks) for one in ledger.ranges] == [(0, 40, 2), (40, 64, 4)]
    assert (ledger.samples, ledger.tokens) == (64, 640)


def test_another_global_batch_is_refused_unless_asked_for():
    ledger = trained(Ledger.begin(DATA, 8, 2), 5)
    with pytest.raises(UserError, match=r"16 samples a step, the run so far took 8\. .*must be 4; .*--resume_changed"):
        ledger.resumed(DATA, 16, 2)
    with pytest.raises(UserError, match="--resume_changed batch"):
        ledger.resumed(DATA, 16, 2, ("data",))
    ledger = trained(ledger.resumed(DATA, 16, 2, ("batch",)), 4)
    assert (ledger.last.first_step, ledger.last.start, ledger.last.stop, ledger.last.last_step) == (5, 40, 104, 9)
    assert faults(ledger) == [] and all(one.ok for one in epochs(ledger))


def test_other_data_are_refused_unless_asked_for_and_begin_at_their_beginning():
    ledger = trained(Ledger.begin(DATA, 8, 2), 5)
    with pytest.raises(UserError, match="corpus def, was abc, samples 50, was 99.*--resume_changed data"):
        ledger.resumed(OTHER, 8, 2)
    with pytest.raises(UserError, match="order_seed 1, was 42"):
        ledger.resumed(DATA | {"order_seed": 1}, 8, 2)
    with pytest.raises(UserError, match="--resume_changed data"):
        ledger.resumed(OTHER, 8, 2, ("batch",))
    ledger = trained(ledger.resumed(OTHER, 8, 2, ("data",)), 4)
    assert (ledger.last.data, ledger.last.start, ledger.last.stop) == (1, 0, 32)
    assert ledger.samples == 72
    assert faults(ledger) == [] and all(one.ok for one in epochs(ledger))


def test_every_epoch_is_counted():
    ledger = trained(trained(Ledger.begin(DATA, 8, 2), 5).resumed(DATA, 8, 4), 21)  # 208 positions: 2 epochs and 10
    found = [(one.epoch, one.read, one.most) for one in epochs(ledger)]
    assert found == [(0, 99, 1), (1, 99, 1), (2, 10, 1)]


def test_what_is_read_twice_and_what_is_left_out_shows():
    ledger = trained(trained(Ledger.begin(DATA, 8, 2), 5).resumed(DATA, 8, 4), 5)
    wrong = replace(ledger, ranges=(ledger.ranges[0], replace(ledger.ranges[1], start=32)))
    assert faults(wrong) == ["data 1, positions 32 to 40: read again after step 5"]
    assert [(one.most, one.ok) for one in epochs(wrong)] == [(2, False)]
    wrong = replace(ledger, ranges=(ledger.ranges[0], replace(ledger.ranges[1], start=48, first_step=6)))
    assert faults(wrong) == ["data 1, positions 40 to 48: left out after step 6", "steps 5 to 6 are in no range"]


@pytest.mark.parametrize(
    ("consumed", "wrong"),
    [([8, 8, 12], []), ([8, 4, 12], ["4 samples, not 8"]), ([8, 13, 8], ["13 samples, not 12", "8 samples, not 12"])],
)
def test_the_log_of_rollouts_counts_no_fewer_samples_than_before_and_all_in_the_end(tmp_path, consumed, wrong):
    records = [{"global_step": step, "consumed_samples": samples} for step, samples in enumerate(consumed, start=1)]
    (tmp_path / "train_log.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    found = log_faults(Ledger.begin(DATA, 4, 1, uneven=True).at(3, 12, 0), tmp_path)
    assert [fault.split(": ")[1] for fault in found] == wrong


def test_the_order_of_a_blend_follows_from_its_identity():
    class Corpus(list):
        def identity(self) -> dict:
            return {"samples": len(self)}

    blend = BlendedDataset([Corpus(range(30)), Corpus(range(50))], [0.7, 0.3])
    data = blend.identity() | {"order_seed": 3}
    for epoch in (0, 5):
        assert np.array_equal(epoch_order(data, epoch), blend.epoch_order(3, epoch))
    ledger = trained(Ledger.begin(data, 8, 1), 3 * len(blend) // 8)
    assert all(one.ok and one.samples == len(blend) for one in epochs(ledger))
