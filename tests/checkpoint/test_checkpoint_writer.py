"""A checkpoint is whole or not there: written aside by all ranks, renamed last; what fails leaves the one before."""

import json
import multiprocessing
import os
import signal
import threading
from pathlib import Path

import numpy as np
import pytest

from launch.checkpoint.checkpoint_writer import (
    FAULT_POINTS,
    NewFile,
    NewPart,
    PartialCheckpoint,
    json_file,
    put_in_place,
    remove_old,
    safetensors_file,
)
from launch.checkpoint.manifest import MANIFEST, Manifest, checkpoints, first_fault, read_manifest
from launch.checkpoint.output_directory import move_aside, remove_partial
from launch.checkpoint.parts import Part
from launch.checkpoint.safetensors_file import read_header
from launch.checkpoint.weight_files import find_weights
from launch.errors import UserError

VALUES = np.arange(6, dtype="float32").reshape(2, 3)


def manifest(step: int) -> Manifest:
    return Manifest({}, global_step=step, consumed_samples=0, consumed_tokens=0, topology={"processes": 1})


def files() -> list[NewFile]:
    whole = NewPart("a", "float32", Part((2, 3)), lambda: VALUES)
    part = NewPart("b", "bfloat16", Part((4, 2), 0, ((2, 3),)), lambda: np.array([[1, 2]], dtype="uint16"))
    tensors = safetensors_file("model-00001-of-00001.safetensors", [whole, part])
    return [tensors, json_file("run.json", {"x": 1}), json_file("rank-00000.json", {})]


def write(output: Path, step: int) -> Path:
    partial = PartialCheckpoint(output, step, rank=0, ranks=1)
    partial.prepare()
    partial.write(files())
    partial.finish(manifest(step))
    return partial.final


def names(output: Path) -> list[str]:
    return sorted(path.name for path in output.iterdir())


def test_a_whole_checkpoint_holds_what_its_manifest_says_and_nothing_else(tmp_path):
    checkpoint = write(tmp_path, 5)
    assert names(tmp_path) == ["checkpoint-5"]
    listed = read_manifest(checkpoint).files
    assert sorted([*listed, MANIFEST]) == names(checkpoint)
    assert first_fault(checkpoint) is None
    tensors, metadata = read_header(checkpoint / "model-00001-of-00001.safetensors")
    assert np.array_equal(tensors["a"].open(), VALUES) and tensors["b"].open().tolist() == [[1, 2]]
    assert json.loads(metadata["parts"]) == {"b": [[4, 2], 0, [[2, 3]], None]}


def test_rank_zero_waits_for_all_and_any_rank_may_come_first(tmp_path):
    first, second = (PartialCheckpoint(tmp_path, 5, rank, ranks=2) for rank in (0, 1))
    first.prepare()
    first.write([json_file("rank-00000.json", {})])
    finish = threading.Thread(target=first.finish, args=(manifest(5),))
    finish.start()
    finish.join(0.1)
    assert finish.is_alive() and names(tmp_path) == ["partial-checkpoint-5"]
    second.write([json_file("rank-00001.json", {})])
    finish.join(10)
    assert sorted(read_manifest(first.final).files) == ["rank-00000.json", "rank-00001.json"]


def test_a_rank_that_cannot_write_leaves_the_checkpoint_before(tmp_path):
    write(tmp_path, 5)
    first, second = (PartialCheckpoint(tmp_path, 6, rank, ranks=2) for rank in (0, 1))
    first.prepare()
    first.write(files())

    def full():
        yield b"some"
        raise OSError(28, "No space left on device")

    second.write([NewFile("rank-00001.json", full)])
    with pytest.raises(UserError, match="checkpoint-6 could not be written: rank 1: .*No space left on device"):
        first.finish(manifest(6))
    assert names(tmp_path) == ["checkpoint-5"] and first_fault(tmp_path / "checkpoint-5") is None


def test_a_rank_without_room_for_its_report_is_not_waited_for(tmp_path, monkeypatch):
    def no_room(path, report):
        raise OSError(28, "No space left on device")

    first, second = (PartialCheckpoint(tmp_path, 6, rank, ranks=2) for rank in (0, 1))
    first.prepare()
    first.write(files())
    monkeypatch.setattr("launch.checkpoint.checkpoint_writer._write_report", no_room)
    with pytest.raises(UserError, match="rank 1: .*No space left on device") as failure:
        second.write([])
    first.given_up = str(failure.value)
    with pytest.raises(UserError, match="checkpoint-6 could not be written: rank 1: .*No space left on device"):
        first.finish(manifest(6))
    assert names(tmp_path) == []


@pytest.mark.parametrize("point", FAULT_POINTS)
def test_killed_at_each_stage_of_a_save(tmp_path, point):
    def save_twice() -> None:
        os.environ["LAUNCH_FAULT"] = f"{point}@6"
        for step in (5, 6):
            write(tmp_path, step)

    killed = multiprocessing.get_context("fork").Process(target=save_twice)
    killed.start()
    killed.join(60)
    assert killed.exitcode == -signal.SIGKILL
    newest = 6 if point == "after-rename" else 5
    assert checkpoints(tmp_path)[0].name == f"checkpoint-{newest}"
    assert all(first_fault(checkpoint) is None for checkpoint in checkpoints(tmp_path))
    remove_partial(tmp_path)
    assert all(name.startswith("checkpoint-") for name in names(tmp_path))


@pytest.mark.parametrize("name", ["model-00001-of-00001.safetensors", "rank-00000.json"])
def test_damage_is_found_and_named(tmp_path, name):
    path = write(tmp_path, 5) / name
    whole = path.read_bytes()
    for content, told in [
        (whole[:-1], "bytes, the manifest says"),
        (whole[:-1] + bytes([whole[-1] ^ 1]), "SHA-256 differs"),
        (None, "is missing"),
    ]:
        path.write_bytes(content) if content else path.unlink()
        fault = first_fault(path.parent)
        assert str(path) in fault and told in fault
        shares = [first_fault(path.parent, share=(rank, 2)) for rank in (0, 1)]
        assert sorted(map(bool, shares)) == [False, True]


def test_a_manifest_that_is_none(tmp_path):
    checkpoint = write(tmp_path, 5)
    for text in ("{", "[]", '{"format": 1}', '{"format": 7}'):
        (checkpoint / MANIFEST).write_text(text)
        assert str(checkpoint) in first_fault(checkpoint), text
    (checkpoint / MANIFEST).unlink()
    assert str(checkpoint) in first_fault(checkpoint)


def test_what_is_moved_aside_is_kept(tmp_path):
    moved = [move_aside(write(tmp_path, 5), "damaged-").name for _ in range(3)]
    assert moved == ["damaged-checkpoint-5", "damaged-checkpoint-5.2", "damaged-checkpoint-5.3"]
    assert names(tmp_path) == moved


def model(directory: Path, value: float, files: int) -> Path:
    """A model directory of several files, as a pipeline writes it."""
    directory.mkdir(exist_ok=True)
    names = [f"model-{number:05d}-of-{files:05d}.safetensors" for number in range(1, files + 1)]
    for number, name in enumerate(names):
        tensor = NewPart(f"t{number}", "float32", Part((2,)), lambda: np.full(2, value, np.float32))
        (directory / name).write_bytes(b"".join(safetensors_file(name, [tensor]).pieces()))
    places = {f"t{number}": name for number, name in enumerate(names)}
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    (directory / "config.json").write_text("{}")
    return directory


@pytest.mark.parametrize("done", range(5))
def test_a_kill_while_a_model_is_put_in_place_leaves_no_parts_of_two(tmp_path, monkeypatch, done):
    output, stock, renamed = model(tmp_path / "out", 1.0, 2), os.replace, []
    partial = model(output / "partial-model", 2.0, 2)

    def replace(source, target):
        if len(renamed) == done:
            raise KeyboardInterrupt
        renamed.append(target)
        stock(source, target)

    monkeypatch.setattr(os, "replace", replace)
    if done < 4:
        with pytest.raises(KeyboardInterrupt):
            put_in_place(partial, output)
        with pytest.raises(UserError, match="no weights: the run was ended while it wrote its model"):
            find_weights(output)
        remove_partial(output)
        assert not partial.exists()
    else:
        put_in_place(partial, output)
        assert {name: one.open().tolist() for name, one in find_weights(output).items()} == {"t0": [2, 2], "t1": [2, 2]}
        assert "partial-model" not in names(output)


def test_what_a_kill_left_is_removed_and_nothing_else(tmp_path):
    write(tmp_path, 5)
    kept = ["checkpoint-5", "my.partial-notes", "partial-checkpoint-x", "partial-results"]
    for name in ("partial-checkpoint-6", "partial-model", "partial-checkpoint-x", "partial-results"):
        (tmp_path / name).mkdir()
    for name in ("train_log.jsonl.partial-0123456789ab", "my.partial-notes"):
        (tmp_path / name).write_text("x")
    (tmp_path / "partial-checkpoint-7").symlink_to(tmp_path / "checkpoint-5")
    remove_partial(tmp_path)
    assert names(tmp_path) == kept and first_fault(tmp_path / "checkpoint-5") is None


@pytest.mark.parametrize("failing", range(1, 8))
def test_a_disk_that_is_full_at_any_file_leaves_the_checkpoint_before(tmp_path, monkeypatch, failing):
    """Three files, the manifest, their directory, and the output's when the checkpoint has its name."""
    write(tmp_path, 5)
    stock, synced = os.fsync, []

    def fsync(descriptor):
        synced.append(descriptor)
        if len(synced) == failing:
            raise OSError(28, "No space left on device")
        stock(descriptor)

    monkeypatch.setattr("launch.checkpoint.checkpoint_writer.os.fsync", fsync)
    if failing <= 6:
        with pytest.raises(UserError, match="checkpoint-6 could not be written: .*No space left on device"):
            write(tmp_path, 6)
    else:
        write(tmp_path, 6)
        assert len(synced) == 6
    monkeypatch.undo()
    assert names(tmp_path) == (["checkpoint-5"] if failing <= 5 else ["checkpoint-5", "checkpoint-6"])
    assert all(first_fault(checkpoint) is None for checkpoint in checkpoints(tmp_path))


def test_many_checkpoints_and_a_limit(tmp_path):
    """What is linked to, and what another program wrote, stays."""
    for step in range(1, 101):
        (tmp_path / f"checkpoint-{step}").mkdir()
        (tmp_path / f"checkpoint-{step}" / MANIFEST).write_text("{}")
    elsewhere = write(tmp_path / "elsewhere", 7)
    (tmp_path / "checkpoint-7" / MANIFEST).unlink()
    (tmp_path / "checkpoint-8" / MANIFEST).unlink()
    (tmp_path / "checkpoint-8").rmdir()
    (tmp_path / "checkpoint-8").symlink_to(elsewhere)
    newest = write(tmp_path, 2000)
    remove_old(newest, limit=3, best="checkpoint-50")
    kept = [path.name for path in checkpoints(tmp_path)]
    assert kept == [f"checkpoint-{step}" for step in (2000, 100, 99, 50, 7)]
    assert first_fault(elsewhere) is None
    remove_old(newest, limit=1, best=None)
    assert [path.name for path in checkpoints(tmp_path)] == ["checkpoint-2000", "checkpoint-7"]


def test_an_adapter_that_is_put_beside_its_base_leaves_the_base(tmp_path):
    base = model(tmp_path / "base", 1.0, 2)
    partial = base / "partial-model"
    partial.mkdir()
    for name in ("lora_config.json", "peft_model.safetensors.index.json"):
        (partial / name).write_text("{}")
    put_in_place(partial, base)
    assert find_weights(base)["t0"].open().tolist() == [1, 1]
    assert (base / "peft_model.safetensors.index.json").exists() and not partial.exists()
