"""The bytes that checkpoints will take: by their formula, as saved, and against the free space."""

import pytest

from launch.config.flag_values import FlagValues
from launch.config.run_config import RunConfig
from launch.families.arithmetic import ModelShape
from launch.families.named_configs import load_config
from launch.preflight import host
from launch.preflight.host import bytes_each, check_disk
from tests.preflight.test_continuation import make_checkpoint
from tests.training.run_ranks import make_corpus

FLAGS = {
    "model_name_or_path": "facebook/llama-7b",  # 6,738,415,616 parameters
    "output_dir": "out",
    "do_train": 1,
    "fp16": 1,
    "fp16_opt_level": "O2",
    "max_steps": 10000,
    "save_steps": 5000,
}


@pytest.fixture
def told(monkeypatch):
    """told(free GB, **changes of FLAGS): the findings."""

    def check(free_gb: float, **changes) -> list[tuple[bool, str, str]]:
        monkeypatch.setattr(host, "free_bytes", lambda directory: int(free_gb * 1e9))
        stated = {name: [str(value)] for name, value in (FLAGS | changes).items()}
        findings = check_disk(RunConfig("launch/run_pretrain.py", stated))
        return [(one.ok, one.found, one.fix) for one in findings]

    return check


NEEDED = "202.2 GB needed (2 x 94.3 GB of checkpoints + 13.5 GB model)"


def test_enough_room(told):
    assert told(203) == [(True, f"{NEEDED}, 203 GB free at out", "")]


def test_too_little_room_is_told_with_its_arithmetic(told):
    [(ok, found, fix)] = told(200)
    assert not ok
    assert found == (
        f"{NEEDED}, 200 GB free at out; a checkpoint is 6.74 billion parameters x 14 bytes "
        "(2 weight + 4 float32 copy + 8 AdamW)"
    )
    assert fix == "OUTPUT=FOLDER on a larger disk; --ignore_save_lr_and_optim 1 saves what cannot be resumed"


@pytest.mark.parametrize(
    ("changes", "needed"),
    [
        ({"fp16": 0}, "188.7 GB needed (2 x 80.9 GB of checkpoints + 27.0 GB model)"),
        ({"fp16": 0, "bf16": 1}, NEEDED),
        ({"fp16_opt_level": "O1"}, "188.7 GB needed (2 x 80.9 GB of checkpoints + 27.0 GB model)"),
        ({"ignore_save_lr_and_optim": 1}, "40.4 GB needed (2 x 13.5 GB of checkpoints + 13.5 GB model)"),
        ({"save_steps": 1000}, "956.9 GB needed (10 x 94.3 GB of checkpoints + 13.5 GB model)"),
        ({"save_steps": 1000, "save_total_limit": 1}, NEEDED),
        ({"save_steps": 1000, "save_total_limit": -1}, "956.9 GB needed (10 x 94.3 GB of checkpoints + 13.5 GB model)"),
        ({"save_steps": 1000, "save_total_limit": 3}, "390.8 GB needed (4 x 94.3 GB of checkpoints + 13.5 GB model)"),
        ({"save_steps": 20000}, "13.5 GB needed (0 x 94.3 GB of checkpoints + 13.5 GB model)"),
        ({"save_strategy": "no"}, "13.5 GB needed (0 x 94.3 GB of checkpoints + 13.5 GB model)"),
    ],
)
def test_what_is_kept_at_once(told, changes, needed):
    [(ok, found, _)] = told(1000, **changes)
    assert ok and found == f"{needed}, 1,000 GB free at out"


def test_more_than_two_checkpoints_can_be_fewer(told):
    [(_, _, fix)] = told(1, save_steps=1000)
    assert "--save_total_limit 1 keeps one beside the one being written" in fix


@pytest.fixture
def output(tmp_path):
    """Of a run that was killed in the save of step 4000, with checkpoints after each 1000 steps before."""
    for step in (1000, 2000, 3000):
        make_checkpoint(tmp_path, step)
    (tmp_path / "partial-checkpoint-4000").mkdir()
    with open(tmp_path / "partial-checkpoint-4000" / "model-00001-of-00001.safetensors", "wb") as file:
        file.truncate(10**9)
    return tmp_path


@pytest.mark.parametrize(
    ("changes", "needed"),
    [
        ({}, "107.8 GB needed (1 x 94.3 GB of checkpoints + 13.5 GB model; 3 more are there)"),
        ({"max_steps": 3999}, "13.5 GB needed (0 x 94.3 GB of checkpoints + 13.5 GB model; 3 more are there)"),
        ({"max_steps": 9000}, "579.5 GB needed (6 x 94.3 GB of checkpoints + 13.5 GB model; 3 more are there)"),
        ({"max_steps": 9000, "save_total_limit": 1},
         "107.8 GB needed (1 x 94.3 GB of checkpoints + 13.5 GB model; 3 more are there)"),
        ({"max_steps": 9000, "save_total_limit": 4},
         "202.2 GB needed (2 x 94.3 GB of checkpoints + 13.5 GB model; 3 more are there)"),
        ({"overwrite_output_dir": 1}, "390.8 GB needed (4 x 94.3 GB of checkpoints + 13.5 GB model)"),
        ({"ignore_load_lr_and_optim": 1}, "390.8 GB needed (4 x 94.3 GB of checkpoints + 13.5 GB model)"),
    ],
)  # fmt: skip
def test_a_run_that_goes_on_needs_room_for_what_is_to_come(told, output, changes, needed):
    """What the kill left, 1 GB, is free space: the next start removes it."""
    [(ok, found, _)] = told(999, **{"output_dir": output, "save_steps": 1000, "max_steps": 4000} | changes)
    assert ok and found == f"{needed}, 1,000 GB free at {output}"


def test_a_run_that_goes_on_is_not_told_to_start_anew(told, output):
    [(ok, _, fix)] = told(100, output_dir=output, save_steps=1000, max_steps=5000)
    assert not ok and fix == (
        f"free space on the disk of {output}, or move {output} to a larger one and name it there by OUTPUT=; "
        "--save_total_limit 1 removes older ones as new ones are whole"
    )
    path = output / "checkpoint-2000"
    [(_, found, _)] = told(999, output_dir=output, resume_from_checkpoint=path, save_steps=1000, max_steps=4000)
    assert found.startswith("202.2 GB needed (2 x 94.3 GB of checkpoints + 13.5 GB model; 2 more are there)")


def test_the_best_checkpoint_is_kept_beyond_the_limit(told):
    [(_, found, _)] = told(1000, save_steps=1000, save_total_limit=1, metric_for_best_model="loss")
    assert found.startswith("296.5 GB needed (3 x 94.3 GB of checkpoints")


@pytest.mark.parametrize("changes", [{"do_train": 0}, {"model_name_or_path": "nowhere"}])
def test_nothing_is_said_where_nothing_is_saved_or_known(told, changes):
    assert told(0, **changes) == []


def test_free_space_of_a_folder_to_come_is_that_of_its_disk(tmp_path):
    assert host.free_bytes(str(tmp_path / "a" / "b")) == pytest.approx(host.free_bytes(str(tmp_path)), rel=0.01)


def test_a_saved_checkpoint_has_the_bytes_of_the_formula(ranks, tmp_path):
    make_corpus(str(tmp_path / "corpus"), vocab_size=1024, largest_id=1023)
    flags = {
        "model_name_or_path": "llama-rehearsal",
        "continue_training": 0,
        "input_dir": tmp_path / "corpus",
        "output_dir": tmp_path / "out",
        "max_seq_length": 32,
        "max_steps": 1,
        "save_steps": 1,
        "unified_checkpoint": 1,
        "do_train": 1,
        "device": "cpu",
    }
    argv = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
    [said] = ranks(1, "tests.training.run_ranks:pretrain", argv)
    assert said["exit_code"] == 0, said["stderr"]
    saved = sum(path.stat().st_size for path in (tmp_path / "out" / "checkpoint-1").iterdir())
    parameters = ModelShape.from_config(load_config("llama-rehearsal")).parameters
    each = bytes_each(FlagValues("run_pretrain", {}), half=False)
    assert saved == pytest.approx(each * parameters, rel=0.02)
