"""Of the generations of an elastic run only the newest writes."""

import pytest

from launch.checkpoint import fence
from launch.checkpoint.checkpoint_writer import PartialCheckpoint, json_file, put_in_place, remove_old
from launch.checkpoint.manifest import Manifest, checkpoints
from launch.checkpoint.output_directory import active_run, begin_generation, left_by_a_kill, lock_output
from launch.errors import UserError

MASTER = "10.0.0.1:8090"


@pytest.fixture
def generation(tmp_path, monkeypatch):
    """Begins the next generation, whose process this is from then on."""

    def begin() -> int:
        number = begin_generation(tmp_path, MASTER)
        monkeypatch.setenv(fence.GENERATION, fence.label(number, MASTER))
        return number

    return begin


def manifest() -> Manifest:
    return Manifest({}, global_step=5, consumed_samples=40, consumed_tokens=40, topology={"processes": 1})


def partial(output) -> PartialCheckpoint:
    made = PartialCheckpoint(output, 5, rank=0, ranks=1)
    made.prepare()
    made.write([json_file("a.json", {})])
    return made


def test_generations_are_counted(tmp_path, generation):
    assert [generation(), generation(), fence.newest(tmp_path)] == [1, 2, 2]


def test_a_save_of_an_earlier_generation_is_not_renamed(tmp_path, generation):
    generation()
    save = partial(tmp_path)
    begin_generation(tmp_path, MASTER)
    with pytest.raises(UserError, match="generation 2 of this run has begun, and this process is of generation 1"):
        save.finish(manifest())
    assert not checkpoints(tmp_path)


def test_an_earlier_generation_begins_no_save_removes_nothing_and_puts_no_model_in_place(tmp_path, generation):
    generation()
    partial(tmp_path).finish(manifest())
    begin_generation(tmp_path, MASTER)
    [kept] = checkpoints(tmp_path)
    for work in (
        lambda: partial(tmp_path),
        lambda: remove_old(kept, 0, None),
        lambda: put_in_place(tmp_path, tmp_path),
    ):
        with pytest.raises(UserError, match="it writes nothing any more"):
            work()
    assert checkpoints(tmp_path) == [kept]


def test_each_generation_has_its_own_unfinished_checkpoint(tmp_path, generation):
    generation()
    first = partial(tmp_path)
    generation()
    second = partial(tmp_path)
    assert (first.directory.name, second.directory.name) == ("partial-checkpoint-5.1", "partial-checkpoint-5.2")
    assert sorted(left_by_a_kill(tmp_path)) == [first.directory, second.directory]


def test_a_later_generation_takes_over_the_lock_of_a_stopped_process(tmp_path, generation):
    generation()
    lock_output(tmp_path)  # held until this process ends, as by one that is stopped
    generation()
    lock_output(tmp_path)
    assert active_run(tmp_path).endswith(f", generation 2 of {MASTER}")


def test_an_earlier_generation_and_another_run_do_not_take_over(tmp_path, generation, monkeypatch):
    generation()
    generation()
    lock_output(tmp_path)
    for label in (f"1 of {MASTER}", "3 of 10.0.0.9:8090", ""):
        monkeypatch.setenv(fence.GENERATION, label)
        with pytest.raises(UserError, match="is in use by another run"):
            lock_output(tmp_path)
    with pytest.raises(UserError, match="is in use by another run"):
        begin_generation(tmp_path, "10.0.0.9:8090")


def test_an_ordinary_run_keeps_its_directory(tmp_path):
    lock_output(tmp_path)
    with pytest.raises(UserError, match="is in use by another run"):
        begin_generation(tmp_path, MASTER)
    assert fence.newest(tmp_path) == 0


def test_a_file_of_something_else_is_refused(tmp_path):
    (tmp_path / fence.FILE).write_text("mine\n")
    with pytest.raises(UserError, match="found 'mine', expected the number of a generation"):
        begin_generation(tmp_path, MASTER)


def test_an_ordinary_run_has_no_fence(tmp_path):
    fence.begin(tmp_path)
    fence.require_newest(tmp_path)
    assert fence.suffix() == fence.lock_label() == ""
