"""Preference tuning, reinforcement and TRL (requirements/compare.txt) find the same losses: of the same pairs, by the
same models, and of the same answers with the same probabilities.

KTO: of the responses that the pairs make, with z0 of all of them.
"""

import json
import subprocess
import sys

import numpy as np
import pytest

from launch.methods.preference_flags import COMPARES
from launch.methods.reinforcement import ALGORITHMS
from launch.weights.model_directories import export_directory
from tests.ranks import ROOT

RANKS = "tests.training.preference_ranks"
REINFORCED = "tests.training.rollout_ranks"
# Of ORPO the odds ratio alone: TRL adds the loss of fine-tuning over the prompt's tokens, too, the paper over the
# response's.
FLAGS = {
    "sigmoid": {"beta": 0.1, "label_smoothing": 0.1},
    "hinge": {"beta": 0.3},
    "ipo": {"beta": 0.2},
    "simpo": {"beta": 2.0, "simpo_gamma": 1.0},
    "or": {"beta": 0.3, "pref_loss_ratio": 0.3, "sft_loss_ratio": 0},
    "kto": {"beta": 0.1, "desirable_weight": 1.2, "undesirable_weight": 0.8},
}


@pytest.mark.nightly
def test_losses_are_those_of_trl(ranks, runs, tmp_path):
    theirs, material = tmp_path / "theirs", runs.material
    [pairs] = ranks(1, f"{RANKS}:ids_of", str(material / "wide"), str(material / "few-preferences"))
    export_directory(material / "wide", theirs / "before", None, 10**9)
    (theirs / "pairs.json").write_text(json.dumps(pairs))
    ours = {}
    assert FLAGS.keys() == COMPARES.keys()
    for loss, flags in FLAGS.items():
        run = runs("preferences", model="wide", loss_type=loss, learning_rate=3e-3, max_steps=3, **flags)
        ours[loss] = run.evaluation["eval_loss"]
        export_directory(run.output, theirs / loss, None, 10**9)
        (theirs / loss / "flags.json").write_text(json.dumps(flags))
    command = [sys.executable, "-W", "ignore", "-m", "tests.training.trl_losses", theirs]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == pytest.approx(ours, abs=1e-5)


@pytest.mark.nightly
def test_losses_and_advantages_of_reinforcement_are_those_of_trl(ranks, tmp_path):
    """Answers that are cut off, whose tokens TRL's dapo counts in its divisor, are left to test_reinforcement.py."""
    normal = np.random.default_rng(0).normal(size=(4, 7))
    lengths, totals, longest = [4, 7, 1, 6], [1.0, 0.0, 0.25, 1.0], 9
    clip = {name: algorithm.clip for name, algorithm in ALGORITHMS.items()}
    ratios = {name: (normal * (1e-3 if name == "gspo" else 0.2)).tolist() for name in ALGORITHMS}
    logits = np.random.default_rng(1).normal(0, 1.5, (2, 9)).tolist()
    case = {"lengths": lengths, "totals": totals, "longest": longest, "clip": clip, "ratios": ratios, "logits": logits}
    [found] = ranks(1, f"{REINFORCED}:distilled", logits[0], logits[0], logits[1])
    ours = {"teacher": [found["loss"], *found["gradient"]]}
    for name in ALGORITHMS:
        [found] = ranks(1, f"{REINFORCED}:step_of", name, ratios[name], lengths, totals, longest, False)
        assert 0 < np.sum(found["clipped"]) < np.size(found["clipped"])
        ours[name] = [found["loss"], *found["advantages"]]
    command = [sys.executable, "-W", "ignore", "-m", "tests.training.trl_reinforcement", tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, input=json.dumps(case))
    assert done.returncode == 0, done.stderr[-3000:]
    theirs = json.loads(done.stdout.splitlines()[-1])
    for name, values in ours.items():
        assert values == pytest.approx(theirs[name], abs=1e-5), name
