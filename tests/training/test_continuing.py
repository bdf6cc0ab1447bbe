"""What a run goes on with: the same model, the best weights at its end, one line a step in its log; what has changed
never goes unsaid."""

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

from launch.adapters.lora_files import read_lora
from launch.config import resume_flags
from launch.config.flag_values import all_flags
from launch.reporting.records import read_train_log
from tests.distributed.cells import ANSWERED, DP2_TWICE, FULL, PACKED, PAIRS, PRETRAINING, REINFORCEMENT
from tests.distributed.layouts import SINGLE
from tests.runs import load_weights
from tests.training.finetune_material import write_first

EACH_STEP = {"save_steps": 1, "evaluation_strategy": "steps", "eval_steps": 1, "max_steps": 3}
# The highest loss of an evaluation, so that the best is the first.
WORST = {"metric_for_best_model": "loss", "greater_is_better": 1, "load_best_model_at_end": 1}


def copies(run: Path, root: Path, names) -> None:
    """root/NAME, each of which may go on where the run has ended."""
    for name in names:
        shutil.copytree(run, root / name, ignore=shutil.ignore_patterns("run.lock"))


def with_other_weights(model: Path, target: Path) -> Path:
    shutil.copytree(model, target)
    weights = load_file(target / "model.safetensors")
    weights["llama.norm.weight"] *= 2
    save_file(weights, target / "model.safetensors", metadata={"format": "np"})
    return target


# ---- the ends of epochs

EACH_EPOCH = {f"{what}_strategy": "epoch" for what in ("logging", "evaluation", "save")} | {"logging_first_step": 0}
PASSES = ANSWERED | {"rollout_passes": 2}


@pytest.mark.parametrize(
    ("method", "layout", "flags", "ends"),
    [
        (FULL, SINGLE, {}, [3, 5, 6]),  # 20 rows, 8 a step: two epochs end within steps, and the last step is an end
        pytest.param(FULL, DP2_TWICE, {"max_steps": -1, "num_train_epochs": 3}, [3, 5, 8], marks=pytest.mark.long),
        pytest.param(FULL, SINGLE, PACKED, [2, 4, 5, 6], marks=pytest.mark.long),
        pytest.param(PAIRS, SINGLE, {}, [3, 6], marks=pytest.mark.long),  # 22 pairs
        pytest.param(PRETRAINING, SINGLE, {}, [3, 6], marks=pytest.mark.long),  # 23 samples
        pytest.param(REINFORCEMENT, SINGLE, PASSES, [5, 6], marks=pytest.mark.long),
    ],
)
def test_an_epoch_ends_with_the_step_that_reads_its_last_sample_also_after_a_resume(runs, method, layout, flags, ends):
    def acted(run) -> list[list[int]]:
        log = read_train_log(run.output)
        kinds = ([one["global_step"] for one in log if key in one] for key in ("learning_rate", "eval_loss"))
        return [*kinds, sorted(int(path.name.rpartition("-")[2]) for path in run.output.glob("checkpoint-*"))]

    flags = EACH_EPOCH | flags
    assert acted(runs(method, layout=layout, **flags)) == [ends] * 3
    assert acted(runs.continued(method, layout=layout, **flags)) == [ends[1:], ends[1:], ends]


# ---- the best at the end


@pytest.fixture(scope="module")
def best(runs, tmp_path_factory) -> dict:
    """(what was said, output) of a run that ends with its best weights, and of its restarts: finished; killed before
    the model was written; with its best checkpoint deleted; with it damaged."""
    root, first = tmp_path_factory.mktemp("best"), runs(FULL, **EACH_STEP, **WORST)
    names = ("finished", "killed", "deleted", "damaged")
    copies(first.output, root, names)
    for path in ("model.safetensors", "run_summary.json"):
        (root / "killed" / path).unlink()
    shutil.rmtree(root / "deleted" / "checkpoint-1")
    with open(root / "damaged" / "checkpoint-1" / "model-00001-of-00001.safetensors", "r+b") as file:
        file.seek(-1, 2)
        file.write(b"?")
    batch = {"per_device_train_batch_size": 8}
    again = runs.said(FULL, {name: EACH_STEP | WORST | batch | {"output_dir": root / name} for name in names})
    found = {"out": (first.ranks[0], first.output)} | {name: (again[name], root / name) for name in names}
    for said, _ in found.values():
        assert said["exit_code"] == 0, said["stderr"]
    return found


def same_weights(best, name: str, checkpoint: str) -> bool:
    found, wanted = load_file(best[name][1] / "model.safetensors"), load_weights(best["out"][1] / checkpoint)
    return all((found[name] == wanted[name]).all() for name in wanted)


@pytest.mark.long
@pytest.mark.parametrize("name", ["out", "finished", "killed"])
def test_the_model_is_the_best_also_of_a_run_that_was_started_again(best, name):
    assert "the model is that of step 1, the best by loss\n" in best[name][0]["stdout"]
    assert same_weights(best, name, "checkpoint-1") and not same_weights(best, name, "checkpoint-3")


@pytest.mark.long
@pytest.mark.parametrize(("name", "fault"), [("deleted", "is not whole: it has no manifest"), ("damaged", "SHA-256")])
def test_without_its_best_checkpoint_a_run_ends_with_its_last_weights_and_says_so(best, name, fault):
    line = next(one for one in best[name][0]["stdout"].splitlines() if "--load_best_model_at_end" in one)
    assert line.startswith("warning: ") and fault in line and line.endswith("The model is that of step 3.")
    assert same_weights(best, name, "checkpoint-3")


@pytest.mark.long
def test_the_log_has_one_line_a_step_and_kind(best):
    expected = {(step, training): 1 for step in (1, 2, 3) for training in (True, False)}
    for name, (_, output) in best.items():
        assert Counter((one["global_step"], "loss" in one) for one in read_train_log(output)) == expected, name


# ---- another model


@pytest.fixture(scope="module")
def changed(runs, tmp_path_factory) -> dict:
    """What is said to a LoRA of two steps that goes on with a change, by its name."""
    root = tmp_path_factory.mktemp("changed")
    other = with_other_weights(runs.material / "model", root / "other")
    usual = {"lora": 1, "save_steps": 2, "per_device_train_batch_size": 8}
    first = runs(FULL, **usual, max_steps=2)
    changes = {
        "alpha": {"lora_alpha": 5},
        "targets": {"lora_target_modules": "q_proj"},
        "fewer": {"lora_target_modules": "q_proj", "resume_changed": "model"},
        "base": {"model_name_or_path": other},
        "accepted": {"lora_alpha": 5, "resume_changed": "model"},
        "weights": {"lora_alpha": 5, "ignore_load_lr_and_optim": 1},
        "schedule": {"learning_rate": 5e-4, "adam_beta2": 0.95, "max_steps": 4, "warmup_steps": 1},
        "noise": {"lora_dropout": 0.1, "neftune": 1},
    }
    copies(first.output, root, changes)
    usual["max_steps"] = 3
    return runs.said(FULL, {name: usual | {"output_dir": root / name} | change for name, change in changes.items()})


def test_a_checkpoint_of_a_lora_is_read_like_its_result(runs):
    output = runs(FULL, lora=1, save_steps=2, per_device_train_batch_size=8, max_steps=2).output
    result, checkpoint = read_lora(output), read_lora(output / "checkpoint-2")
    assert checkpoint.config == result.config and checkpoint.tensors.keys() == result.tensors.keys()
    for name, tensor in result.tensors.items():
        assert (checkpoint.tensors[name].open() == tensor.open()).all(), name


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("alpha", "the model is not that of the run so far: scaling 0.625, was 2.0. Give the former model and flags;"),
        ("targets", "the model is not that of the run so far: target_modules ['.*\\\\.q_proj'], was ["),
        ("fewer", "checkpoint-2 is not of this model: not in the model: llama.layers.0.mlp.down_proj.lora_A float32,"),
        ("base", "the model is not that of the run so far: the base below the adapter has other weights. Give the"),
    ],
)
def test_another_adapter_or_base_is_refused(changed, name, line):
    assert changed[name]["exit_code"] == 2 and line in changed[name]["stderr"]


@pytest.mark.parametrize("name", ["accepted", "weights"])
def test_a_change_that_is_accepted_is_told(changed, name):
    assert changed[name]["exit_code"] == 0, changed[name]["stderr"]
    assert "resume: the model has scaling 0.625, was 2.0\n" in changed[name]["stdout"]


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        (
            "schedule",
            [
                "resume: --adam_beta2 is 0.95, was 0.999",
                "resume: --learning_rate is 0.0005, was 0.001",
                "resume: --max_steps is 4, was 2",
                "resume: --warmup_steps is 1, was 0",
            ],
        ),
        (
            "noise",
            [
                "resume: --lora_dropout is 0.1, was 0.0",
                "resume: --max_steps is 3, was 2",
                "resume: --neftune is True, was False",
            ],
        ),
    ],
)
def test_other_flags_are_told_in_one_line_each(changed, name, lines):
    assert changed[name]["exit_code"] == 0, changed[name]["stderr"]
    assert [line for line in changed[name]["stdout"].splitlines() if line.startswith("resume: --")] == lines


# ---- pairs


ANEW = "resume: other evaluation data or another loss: the best model is found anew"


def test_each_flag_is_refused_reported_or_free_where_it_differs():
    flags = all_flags().keys()
    sets = (resume_flags.REFUSED, resume_flags.REPORTED, resume_flags.FREE)
    assert frozenset().union(*sets) == flags and sum(map(len, sets)) == len(flags)


@pytest.fixture(scope="module")
def changed_pairs(runs, tmp_path_factory) -> dict:
    """{change: (what was said, output)} of DPO of two steps that goes on with it."""
    root = tmp_path_factory.mktemp("changed")
    other = with_other_weights(runs.material / "wide", root / "other")
    fewer = shutil.copytree(runs.material / "few-preferences", root / "fewer")
    lines = (fewer / "dev.json").read_text().splitlines(keepends=True)
    (fewer / "dev.json").write_text("".join(lines[:8]))
    flags = {"model": "wide", "learning_rate": 1e-2, "save_steps": 2, "evaluation_strategy": "steps", "eval_steps": 1}
    first = runs(PAIRS, **flags, max_steps=2).output
    changes = {
        "nothing": {},
        "reference": {"model_name_or_path": other},
        "accepted": {"model_name_or_path": other, "resume_changed": "model"},
        "loss": {"loss_type": "ipo", "beta": 0.5, "label_smoothing": 0.0},
        "dev": {"dataset_name_or_path": fewer},
    }
    copies(first, root, changes)
    jobs = {name: flags | {"max_steps": 3, "output_dir": root / name} | change for name, change in changes.items()}
    return {name: (said, root / name) for name, said in runs.said(PAIRS, jobs).items()}


def resumed_lines(said: dict) -> list[str]:
    assert said["exit_code"] == 0, said["stderr"]
    return [line for line in said["stdout"].splitlines() if line.startswith("resume: ")]


@pytest.mark.long
def test_another_reference_is_refused_and_named(changed_pairs):
    said, _ = changed_pairs["reference"]
    assert said["exit_code"] == 2
    assert "the reference, which is the model before training, has other weights. Give the former" in said["stderr"]
    accepted = resumed_lines(changed_pairs["accepted"][0])
    assert "resume: the model has the reference, which is the model before training, has other weights" in accepted


@pytest.mark.long
def test_another_loss_is_reported_and_no_best_of_the_former_loss_is_kept(changed_pairs):
    assert resumed_lines(changed_pairs["nothing"][0]) == ["resume: --max_steps is 3, was 2"]
    said, output = changed_pairs["loss"]
    assert sorted(resumed_lines(said)) == [
        "resume: --beta is 0.5, was 0.1",
        "resume: --loss_type is ipo, was sigmoid",
        "resume: --max_steps is 3, was 2",
        ANEW,
    ]
    assert best_of(output)["global_step"] == 3


@pytest.mark.long
def test_other_evaluation_data_are_reported_and_the_best_is_found_anew(changed_pairs):
    said, output = changed_pairs["dev"]
    assert resumed_lines(said) == ["resume: --max_steps is 3, was 2", ANEW]
    last = [record for record in read_train_log(output) if "eval_loss" in record][-1]
    assert (best_of(output)["global_step"], best_of(output)["eval_loss"]) == (3, last["eval_loss"])


def best_of(output) -> dict:
    return json.loads((output / "best" / "best.json").read_text())


# ---- chats


@pytest.mark.long
def test_a_run_of_the_familys_template_goes_on_with_it(runs, tmp_path):
    """As runs were that began before chats took the tokenizer's own template."""
    model = shutil.copytree(runs.material / "wide", tmp_path / "model")
    config = json.loads((model / "tokenizer_config.json").read_text())
    turn = "{% if m.role == 'user' %}U:{{ m.content }}={% else %}{{ m.content }}</s>{% endif %}"
    own = "{% for m in messages %}" + turn + "{% endfor %}"
    (model / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": own}))
    flags = {
        "model_name_or_path": model,
        "dataset_name_or_path": write_first(runs.material / "chats", tmp_path / "few", 16, shortest=True),
        "output_dir": tmp_path / "out",
        "save_steps": 1,
        "do_eval": 0,
    }
    jobs = [{"chat_template": "llama", "max_steps": 1}, {"max_steps": 2}, {"max_steps": 3}, {"src_length": 40}]
    said = [runs.said(FULL, {"": flags | job})[""] for job in jobs]  # a process would find its own lock
    assert [one["exit_code"] for one in said] == [0, 0, 0, 2], [one["stderr"] for one in said]
    assert all("chat template: llama (of the model's family)\n" in one["stdout"] for one in said[1:3])
    assert (
        "Give the former data and --seed, --chat_template, --src_length and --max_length; to go on with these: "
        "--resume_changed data." in said[3]["stderr"]
    )
