"""A checkpoint is what its manifest says, the manifest is what was written, and no other weights are read."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from launch.checkpoint.checkpoint_writer import remove_checkpoint
from launch.checkpoint.manifest import MANIFEST, checkpoints, first_fault, read_manifest, stray_weights
from launch.checkpoint.parts import sharded_weights
from launch.checkpoint.weight_files import find_weights
from launch.errors import UserError
from tests.checkpoint.test_checkpoint_writer import VALUES, write

BEFORE_DIGESTS = Path(__file__).with_name("checkpoint-5")  # as commit 12991d2 wrote it


@pytest.fixture
def checkpoint(tmp_path):
    return write(tmp_path, 5)


def edit(checkpoint: Path, **changes) -> None:
    path = checkpoint / MANIFEST
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize("stride", [11, pytest.param(1, marks=pytest.mark.long)])
def test_every_flipped_bit_of_a_manifest_is_a_fault_or_changes_nothing(checkpoint, stride):
    """A bit in the space between values changes nothing."""
    path = checkpoint / MANIFEST
    text, written, unchanged = path.read_bytes(), read_manifest(checkpoint), 0
    for number in range(0, 8 * len(text), stride):
        place, bit = divmod(number, 8)
        path.write_bytes(text[:place] + bytes([text[place] ^ 1 << bit]) + text[place + 1 :])
        try:
            assert read_manifest(checkpoint) == written, (place, bit)
            unchanged += 1
        except UserError as error:
            assert str(path) in str(error)
    assert unchanged < 8 * len(text) / stride / 20


@pytest.mark.parametrize(
    "changes",
    [{"global_step": 6}, {"consumed_samples": 9}, {"topology": {"processes": 2}}, {"files": {}}, {"data": {"x": 1}},
     {"format": 1}, {"sha256": "0" * 64}, {"sha256": None}, {"more": 1}],
    ids=str,
)  # fmt: skip
def test_an_edited_manifest_is_refused(checkpoint, changes):
    edit(checkpoint, **changes)
    assert str(checkpoint / MANIFEST) in first_fault(checkpoint, hashes=False)


def test_a_checkpoint_of_before_is_read(tmp_path):
    old = shutil.copytree(BEFORE_DIGESTS, tmp_path / "checkpoint-5")
    assert first_fault(old) is None
    manifest = read_manifest(old)
    assert (manifest.format, manifest.global_step, manifest.consumed_tokens, manifest.model) == (1, 5, 1280, {})
    assert np.array_equal(sharded_weights(old)["a"].open(), VALUES)
    facts = json.loads((old / MANIFEST).read_text())["files"]
    for name in ("../run.json", "/etc/passwd", "..", "a/b", ""):  # files elsewhere are none of a checkpoint
        edit(old, files=facts | {name: {"bytes": 0, "sha256": "0" * 64}})
        assert first_fault(old) == f"{old / MANIFEST}: not a manifest: files is missing, unknown or makes no sense"
    edit(old, files=facts, global_step=6)  # its manifest has no SHA-256 of its own: the state of the run tells it
    assert first_fault(old.rename(tmp_path / "checkpoint-6")).endswith("run.json is of step 5, the manifest says 6")


def test_a_renamed_checkpoint_is_not_of_the_step_in_its_name(checkpoint):
    renamed = checkpoint.rename(checkpoint.with_name("checkpoint-50"))
    assert first_fault(renamed).startswith(f"{renamed} is the checkpoint of step 5 by its manifest")
    assert first_fault(renamed.rename(renamed.with_name("kept"))) is None


@pytest.mark.parametrize("name", ["model-00002-of-00002.safetensors", "model.safetensors", "model_state.pdparams",
                                  "model.safetensors.index.json", "pytorch_model.bin"])  # fmt: skip
def test_weights_that_the_run_did_not_write_are_refused_by_name(checkpoint, name):
    save_file({"a": VALUES + 1}, checkpoint / name)
    fault = f"{checkpoint / name} is not among the files of the checkpoint's manifest"
    assert stray_weights(checkpoint, read_manifest(checkpoint)) == fault and first_fault(checkpoint) is None
    with pytest.raises(UserError) as refused:
        find_weights(checkpoint)
    assert str(refused.value) == f"{fault}: move it elsewhere."
    assert np.array_equal(sharded_weights(checkpoint)["a"].open(), VALUES)


def test_notes_beside_a_checkpoint_do_no_harm(checkpoint):
    (checkpoint / "notes.txt").write_text("the good one")
    (checkpoint / "tokenizer_config.json").write_text("{}")
    (checkpoint / "._model-00001-of-00001.safetensors").write_bytes(b"\0\5\x16\7")  # what macOS adds on some disks
    assert first_fault(checkpoint) is None and stray_weights(checkpoint, read_manifest(checkpoint)) is None
    assert np.array_equal(find_weights(checkpoint)["a"].open(), VALUES)


def test_a_file_behind_a_link_counts_by_its_contents(checkpoint, tmp_path):
    weights = checkpoint / "model-00001-of-00001.safetensors"
    weights.rename(tmp_path / "elsewhere")
    weights.symlink_to(tmp_path / "elsewhere")
    assert first_fault(checkpoint) is None
    linked = tmp_path / "checkpoint-6"
    linked.symlink_to(checkpoint, target_is_directory=True)
    remove_checkpoint(linked)
    assert not linked.is_symlink() and first_fault(checkpoint) is None, "a link is removed, not what it names"
    weights.unlink()
    os.mkfifo(weights)
    assert first_fault(checkpoint) == f"{weights} is missing"


def test_checkpoints_come_newest_first_and_other_names_are_none(tmp_path):
    for step in (7, 10, 9):
        write(tmp_path, step)
    for name in ("checkpoint-007", "checkpoint-abc", "checkpoint-٧", "checkpoint-", "checkpoint-7x", "checkpoint--7"):
        (tmp_path / name).mkdir()
    (tmp_path / "checkpoint-11").write_text("a file")
    assert [path.name for path in checkpoints(tmp_path)] == ["checkpoint-10", "checkpoint-9", "checkpoint-7"]
