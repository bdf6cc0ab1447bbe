"""run_pretrain continues a model of every family that can be pretrained, in every layout that the family has."""

import json
import shutil

import numpy as np
import pytest

from launch.families.arithmetic import ModelShape
from launch.families.named_configs import load_config
from launch.families.registry import FAMILIES
from launch.reporting.records import read_summary, read_train_log

RANKS = "tests.families.pretraining_ranks"
NAMES = [name for name in FAMILIES if "pretrain" not in FAMILIES[name].lacking]
LOSS_TOLERANCE = 2e-6
LAYOUTS = {  # feature: flags of two processes
    "tensor_parallel": ["--tensor_parallel_degree", "2"],
    "sequence_parallel": ["--tensor_parallel_degree", "2", "--sequence_parallel", "1"],
    "pipeline_parallel": ["--pipeline_parallel_degree", "2"],
}


@pytest.fixture(scope="module")
def materials(ranks, tmp_path_factory):
    directory = tmp_path_factory.mktemp("pretraining")
    ranks(1, f"{RANKS}:make_materials", str(directory), NAMES)
    return directory


@pytest.fixture(scope="module")
def one_process(ranks, materials):
    """Loss and gradient norm of each step, by family; trained at the first question."""
    done = {}

    def train(name: str) -> np.ndarray:
        if name not in done:
            done[name] = run(ranks, materials, name, 1, [])
        return done[name]

    return train


def run(ranks, materials, name: str, n: int, argv: list[str]) -> np.ndarray:
    output = materials / f"{name}-{n}{''.join(argv)}"
    ranks(n, f"{RANKS}:pretrain", str(materials), name, str(output), argv)
    records = [record for record in read_train_log(output) if "loss" in record]
    return np.array([[record["loss"], record["grad_norm"]] for record in records])


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_parameters_are_reported_and_the_loss_falls_from_its_closed_form(one_process, materials, name):
    losses = one_process(name)[:, 0]
    shape = ModelShape.from_config(load_config(str(materials / name)))
    assert read_summary(materials / f"{name}-1")["parameters"] == shape.parameters
    assert losses[0] == pytest.approx(shape.first_loss, rel=0.02)
    assert losses[2] != losses[0]


@pytest.mark.long
@pytest.mark.parametrize(
    ("feature", "name"),
    [(feature, name) for feature in LAYOUTS for name in NAMES if feature not in FAMILIES[name].lacking],
)
def test_two_processes_give_the_numbers_of_one(ranks, materials, one_process, feature, name):
    expected, found = one_process(name), run(ranks, materials, name, 2, LAYOUTS[feature])
    assert len(found) == len(expected) == 3
    assert np.abs(found[:, 0] - expected[:, 0]).max() <= LOSS_TOLERANCE
    assert (np.abs(found[:, 1] - expected[:, 1]) / expected[:, 1]).max() <= 1e-5


@pytest.fixture(scope="module")
def scaled(materials, one_process):
    """Qwen2 with YaRN, whose losses are others."""
    shutil.copytree(materials / "qwen2", materials / "qwen2-yarn")
    path = materials / "qwen2-yarn" / "config.json"
    block = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 16}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"rope_scaling": block}))
    assert np.abs(one_process("qwen2-yarn")[:, 0] - one_process("qwen2")[:, 0]).max() > 10 * LOSS_TOLERANCE
    return one_process("qwen2-yarn")


@pytest.mark.long
@pytest.mark.parametrize("feature", ["sequence_parallel", "pipeline_parallel"])
def test_two_processes_scale_positions_as_one(ranks, materials, scaled, feature):
    found = run(ranks, materials, "qwen2-yarn", 2, LAYOUTS[feature])
    assert np.abs(found[:, 0] - scaled[:, 0]).max() <= LOSS_TOLERANCE


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_a_model_keeps_its_positions_when_it_trains_on_shorter_samples(one_process, materials, name):
    one_process(name)
    for key in ("max_position_embeddings", "max_sequence_length"):
        before, after = (load_config(str(materials / folder)).get(key) for folder in (name, f"{name}-1"))
        assert before == after
