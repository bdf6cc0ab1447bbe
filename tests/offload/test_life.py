"""The two recipes of two cards in small: train with offload, be killed, go on, and end in what can be used."""

import json

import pytest

from launch.checkpoint.checkpoint_writer import FAULT_VARIABLE
from tests.corpora import write_corpus
from tests.kills.harness import hashes, records, was_killed
from tests.training.finetune_material import argv as finetune_argv

TRAIN = "tests.kills.ranks:train"
STEPS, SAVED = 6, 2
KILL = {FAULT_VARIABLE: f"before-rename@{2 * SAVED}:0"}  # while its second checkpoint is being written


@pytest.fixture(scope="module")
def material(ranks, tmp_path_factory):
    root = tmp_path_factory.mktemp("life")
    ranks(1, "tests.training.finetune_material:make_material", str(root))
    write_corpus(root / "corpus")
    return root


class Life:
    """A training that is killed and goes on, beside one that never was."""

    def __init__(self, ranks, root, kind: str, job):
        """job: (output) -> arguments of tests.kills.ranks:train for a kind"""
        self.ranks, self.root, self.kind, self.job = ranks, root, kind, job
        self.whole, self.killed = root / "whole", root / "killed"

    def live(self) -> None:
        assert self._train(self.whole).exit_code == 0
        assert was_killed(self._train(self.killed, KILL), self.killed)
        assert self._train(self.killed).exit_code == 0

    def _train(self, output, environment=None):
        directory = output.with_name(f"{output.name}-log")
        return self.ranks.outcome(
            2, TRAIN, self.kind, self.job(output), None, directory=directory, environment=environment
        )


@pytest.fixture(scope="module")
def adapted(ranks, material, tmp_path_factory) -> Life:
    """LoRA on raw text under stage 3, as pretrain-baichuan13b-lora."""
    flags = ["--lora", "1", "--lora_dropout", "0.1", "--sharding", "stage3 offload", "--recompute", "1"]
    flags += ["--per_device_train_batch_size", "1", "--gradient_accumulation_steps", "4", "--learning_rate", "0.05"]
    flags += ["--max_steps", str(STEPS), "--save_steps", str(SAVED), "--loss_watch", "0"]
    root = tmp_path_factory.mktemp("adapted")
    life = Life(ranks, root, "pretrain", lambda output: [str(material), str(output), flags])
    life.live()
    return life


@pytest.fixture(scope="module")
def tuned(ranks, material, tmp_path_factory) -> Life:
    """All parameters under stage 2, as finetune-chatglm2-6b-2gpu."""
    more = {"per_device_train_batch_size": 2, "max_steps": STEPS, "save_steps": SAVED, "sharding": "unset"}
    root = tmp_path_factory.mktemp("tuned")

    def job(output):
        words = finetune_argv(material, output, **more)
        words[words.index("unset")] = "stage2 offload"
        return [words, "adamw"]

    life = Life(ranks, root, "finetune", job)
    life.live()
    return life


@pytest.mark.parametrize(
    "name", [pytest.param("adapted", marks=pytest.mark.long), pytest.param("tuned", marks=pytest.mark.nightly)]
)
def test_a_killed_run_goes_on_as_if_nothing_had_been(request, name):
    life = request.getfixturevalue(name)
    assert len(records(life.whole)) == STEPS
    assert records(life.killed) == records(life.whole)
    assert hashes(life.killed, STEPS) == hashes(life.whole, STEPS)


@pytest.mark.long
def test_the_adapter_is_complete_small_and_answers_merged_as_beside_its_base(ranks, adapted, material, tmp_path):
    """Two halves for each of 7 linear layers in 2 layers, alike in both runs; of the base nothing is written."""
    index = json.loads((adapted.killed / "peft_model.safetensors.index.json").read_text())
    assert len(index["weight_map"]) == 2 * 7 * 2
    [file], [other] = (list(run.glob("peft_model-*.safetensors")) for run in (adapted.killed, adapted.whole))
    assert file.read_bytes() == other.read_bytes()
    numbers = 2 * 8 * (4 * (64 + 64) + 3 * (64 + 128))
    assert 4 * numbers < file.stat().st_size < 4 * numbers + 4096
    assert not list(adapted.killed.glob("model*.safetensors"))

    merge = ["--adapter_path", str(adapted.killed), "--output_dir", str(tmp_path / "merged")]
    [[said]] = ranks(1, "tests.prediction.merged_logits_ranks:merge_all", [merge])
    assert said["exit_code"] == 0, said["stderr"]
    asked = [
        [tmp_path / "merged"],
        [material / "model", "--adapter_path", adapted.killed],
        [material / "model"],
    ]
    jobs = [
        [["--device", "cpu", "--max_new_tokens", "12", "--model_name_or_path", *map(str, one)], "A question?\n"]
        for one in asked
    ]
    [said] = ranks(1, "tests.prediction.predict_ranks:predict_all", jobs)
    assert [one["exit_code"] for one in said] == [0] * 3, said
    merged, beside, base = (one["stdout"] for one in said)
    assert merged == beside != base
