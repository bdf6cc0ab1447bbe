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


def tiered(name: str) -> pytest.MarkDecorator:
    """ChatGLM2's classes are corrected in several places: the others are like LLaMA, which tests/distributed trains."""
    return pytest.mark.long if name == "chatglm_v2" else pytest.mark.nightly


@pytest.mark.parametrize("name", [pytest.param(name, marks=tiered(name)) for name in NAMES])
def test_one_process_trains_from_the_closed_form_and_keeps_its_positions(one_process, materials, name):
    """Its samples are shorter than the model's positions."""
    losses = one_process(name)[:, 0]
    shape = ModelShape.from_config(load_config(str(materials / name)))
    assert read_summary(materials / f"{name}-1")["parameters"] == shape.parameters
    assert losses[0] == pytest.approx(shape.first_loss, rel=0.02)
    assert losses[2] != losses[0]
    before, after = (load_config(str(materials / folder)) for folder in (name, f"{name}-1"))
    for key in ("max_position_embeddings", "max_sequence_length"):
        assert before.get(key) == after.get(key)


@pytest.mark.parametrize(
    ("feature", "name"),
    [
        pytest.param(feature, name, marks=tiered(name))
        for feature in LAYOUTS
        for name in NAMES
        if feature not in FAMILIES[name].lacking
    ],
)
def test_two_processes_give_the_numbers_of_one(ranks, materials, one_process, feature, name):
    expected, found = one_process(name), run(ranks, materials, name, 2, LAYOUTS[feature])
    assert len(found) == len(expected) == 3
    assert np.abs(found[:, 0] - expected[:, 0]).max() <= LOSS_TOLERANCE
    assert (np.abs(found[:, 1] - expected[:, 1]) / expected[:, 1]).max() <= 1e-5


@pytest.mark.nightly
def test_two_processes_scale_positions_as_one(ranks, materials, one_process):
    """Of Qwen2 with YaRN, whose losses are others."""
    shutil.copytree(materials / "qwen2", materials / "qwen2-yarn")
    path = materials / "qwen2-yarn" / "config.json"
    block = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 16}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"rope_scaling": block}))
    expected = one_process("qwen2-yarn")[:, 0]
    assert np.abs(expected - one_process("qwen2")[:, 0]).max() > 10 * LOSS_TOLERANCE
    for feature in ("sequence_parallel", "pipeline_parallel"):
        found = run(ranks, materials, "qwen2-yarn", 2, LAYOUTS[feature])
        assert np.abs(found[:, 0] - expected).max() <= LOSS_TOLERANCE, feature
