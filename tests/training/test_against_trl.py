"""run_dpo.py and TRL (requirements/compare.txt) find the same losses: of the same pairs, by the same models.

KTO: of the responses that the pairs make, with z0 of all of them.
"""

import json
import subprocess
import sys

import pytest

from launch.config.preference_flags import COMPARES
from launch.reporting.records import read_summary
from launch.weights.model_directories import export_directory
from tests.ranks import ROOT
from tests.training.finetune_material import argv, write_first

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


@pytest.mark.long
def test_losses_are_those_of_trl(ranks, tmp_path):
    ranks(1, "tests.training.finetune_material:make_material", str(tmp_path))
    write_first(tmp_path / "preferences", tmp_path / "few", 22)
    [pairs] = ranks(1, "tests.training.preference_ranks:ids_of", str(tmp_path))
    theirs = tmp_path / "theirs"
    export_directory(tmp_path / "model", theirs / "before", None, 10**9)
    (theirs / "pairs.json").write_text(json.dumps(pairs))
    ours = {}
    assert FLAGS.keys() == COMPARES.keys()
    for loss, flags in FLAGS.items():
        output, rows = tmp_path / loss, {"dataset_name_or_path": tmp_path / "few", "max_steps": 3, "do_eval": 1}
        words = argv(tmp_path, output, loss_type=loss, learning_rate=3e-3, **rows, **flags)
        [said] = ranks(1, "tests.training.preference_ranks:run", words)
        assert said["exit_code"] == 0, said["stderr"]
        ours[loss] = read_summary(output)["evaluation"]["eval_loss"]
        export_directory(output, theirs / loss, None, 10**9)
        (theirs / loss / "flags.json").write_text(json.dumps(flags))
    command = [sys.executable, "-W", "ignore", "-m", "tests.training.trl_losses", theirs]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == pytest.approx(ours, abs=1e-5)
