"""Step k has the rate of k - 1 completed steps, as in transformers' `get_scheduler`."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from launch.checkpoint.manifest import MANIFEST, RUN, read_manifest
from launch.reporting.records import read_train_log
from tests.distributed.cells import FULL, LORA

LINEAR = {"lr_scheduler_type": "linear"}
# Flags, and the rate of each step.
SCHEDULES = {
    "one": (LINEAR, [1e-2]),
    "linear": (LINEAR, [1e-2, 7.5e-3, 5e-3, 2.5e-3]),
    "floor": (LINEAR | {"min_learning_rate": 2e-3, "warmup_steps": 2}, [0, 5e-3, 1e-2, 6e-3]),
    "cosine": ({"lr_scheduler_type": "cosine", "warmup_ratio": 0.5}, [0, 5e-3, 1e-2, 5e-3]),
    "polynomial": ({"lr_scheduler_type": "polynomial", "lr_end": 2e-3}, [1e-2, 8e-3, 6e-3, 4e-3]),
    "constant": ({"lr_scheduler_type": "constant_with_warmup", "warmup_steps": 2}, [0, 5e-3, 1e-2, 1e-2]),
}


@pytest.fixture(scope="module")
def trained(runs, tmp_path_factory) -> tuple[dict[str, Path], dict]:
    """The output of each, and of "older": "linear" from its checkpoint of step 2 as 0.2.0 wrote it, with what that
    said."""
    root = tmp_path_factory.mktemp("schedules")
    outputs = {name: root / name for name in (*SCHEDULES, "older")}
    usual = LORA | {"learning_rate": 1e-2, "save_steps": 2, "do_eval": 0, "loss_watch": 0}
    jobs = {
        name: usual | {"max_steps": len(rates), "output_dir": outputs[name]} | flags
        for name, (flags, rates) in SCHEDULES.items()
    }
    for said in runs.said(FULL, jobs).values():
        assert said["exit_code"] == 0, said["stderr"]
    write_as_0_2(shutil.copytree(outputs["linear"] / "checkpoint-2", outputs["older"] / "checkpoint-2"))
    return outputs, runs.said(FULL, {"older": jobs["linear"] | {"output_dir": outputs["older"]}})["older"]


def write_as_0_2(checkpoint: Path) -> None:
    manifest, state = read_manifest(checkpoint), json.loads((checkpoint / RUN).read_text())
    assert state.pop("updates") == 2
    content = json.dumps(state | {"scheduler": {"last_epoch": 3, "last_lr": 2.5e-3}}).encode()
    (checkpoint / RUN).write_bytes(content)
    manifest.files[RUN] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (checkpoint / MANIFEST).write_text(manifest.to_json())


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_step_has_the_rate_of_the_steps_before_it(trained, name):
    rates = [record["learning_rate"] for record in read_train_log(trained[0][name])]
    assert rates == pytest.approx(SCHEDULES[name][1], rel=1e-12)


def test_one_step_learns(trained):
    tensors = load_file(next(trained[0]["one"].glob("peft_model-*.safetensors")))
    assert all(tensor.any() for name, tensor in tensors.items() if name.endswith("lora_B"))


def test_a_checkpoint_of_an_earlier_version_goes_on_as_a_new_run(trained):
    outputs, said = trained
    assert said["exit_code"] == 0, said["stderr"]
    older, whole = (load_file(outputs[name] / "peft_model-00001-of-00001.safetensors") for name in ("older", "linear"))
    assert all((older[name] == whole[name]).all() for name in whole)
    assert (
        "resume: checkpoint-2 is of an earlier version, whose learning rates were a step ahead: step 3 has 5.00e-03, "
        "that of 2 completed steps, as in a new run, and no longer 2.50e-03\n"
    ) in said["stdout"]
