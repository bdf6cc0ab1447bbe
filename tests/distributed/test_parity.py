"""Every layout gives the single-process numbers: losses, gradient norms, weights after a plain SGD step, evaluation."""

import numpy as np
import pytest
from safetensors.numpy import load_file

from launch.reporting.records import read_summary, read_train_log
from tests.distributed.layouts import LAYOUTS, SINGLE, Layout
from tests.distributed.training_ranks import SEQUENCE_LENGTH

PRETRAIN = "tests.distributed.training_ranks:pretrain"
# Four units in the last place of a loss near 5.5 in float32; correct layouts have been seen to differ by one.
LOSS_TOLERANCE = 2e-6
GRAD_NORM_TOLERANCE = 1e-5
# After one step of 1.0 times a gradient: relative to the tensor's largest change. Wrong factors show as 0.1 and more.
UPDATE_TOLERANCE = 1e-4

every_layout = pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)


class Runs:
    """Trains once per (layout, variant) and keeps the output directory."""

    def __init__(self, ranks, root):
        self.ranks, self.root, self.done = ranks, root, {}
        ranks(1, "tests.distributed.training_ranks:make_material", str(root))

    def __call__(self, layout: Layout, variant: str = "adamw", *argv: str):
        key = f"{layout.name}-{variant}"
        if key not in self.done:
            output = self.root / key
            world = self.ranks(
                layout.processes, PRETRAIN, str(self.root), str(output), [*layout.argv, *argv], variant.split("-")[0]
            )
            assert world == [layout.processes] * layout.processes
            topology = read_summary(output)["topology"]
            assert topology["processes"] == layout.processes
            assert topology["data_parallel_degree"] * topology["sharding_parallel_degree"] == layout.data_ranks
            self.done[key] = output
        return self.done[key]

    def adamw(self, layout: Layout):
        # 24 samples in batches of 5: the last ones are partly, or on some ranks wholly, padding.
        return self(layout, "adamw", "--do_eval", "1", "--per_device_eval_batch_size", "5")

    def sgd_step(self, layout: Layout):
        flags = ["--max_steps", "1", "--learning_rate", "1.0", "--max_grad_norm", "0", "--weight_decay", "0"]
        return self(layout, "sgd", *flags)


@pytest.fixture(scope="module")
def runs(ranks, tmp_path_factory) -> Runs:
    return Runs(ranks, tmp_path_factory.mktemp("parity"))


def column(output, key: str) -> np.ndarray:
    return np.array([record[key] for record in read_train_log(output) if "loss" in record])


def weights(directory) -> dict[str, np.ndarray]:
    return {
        name: tensor for path in sorted(directory.glob("*.safetensors")) for name, tensor in load_file(path).items()
    }


@every_layout
def test_losses_of_ten_steps(runs, layout):
    expected, found = column(runs.adamw(SINGLE), "loss"), column(runs.adamw(layout), "loss")
    assert len(expected) == len(found) == 10
    assert np.abs(found - expected).max() <= LOSS_TOLERANCE


@every_layout
def test_unclipped_gradient_norm_of_every_step(runs, layout):
    expected, found = column(runs.adamw(SINGLE), "grad_norm"), column(runs.adamw(layout), "grad_norm")
    assert (np.abs(found - expected) / expected).max() <= GRAD_NORM_TOLERANCE


@every_layout
def test_weights_after_one_plain_sgd_step(runs, layout):
    initial = weights(runs.root / "model")
    expected, found = weights(runs.sgd_step(SINGLE)), weights(runs.sgd_step(layout))
    assert expected.keys() == found.keys() == initial.keys()
    for name, start in initial.items():
        change = np.abs(expected[name] - start).max()
        assert change > 0, f"{name} was not trained"
        assert np.abs(found[name] - expected[name]).max() <= UPDATE_TOLERANCE * change, name


@every_layout
def test_evaluation_is_the_same_number(runs, layout):
    expected, found = (read_summary(runs.adamw(one))["evaluation"] for one in (SINGLE, layout))
    assert found["eval_tokens"] == expected["eval_tokens"] == 24 * SEQUENCE_LENGTH
    assert abs(found["eval_loss"] - expected["eval_loss"]) <= LOSS_TOLERANCE


def test_the_logged_gradient_norm_is_that_of_the_sgd_step(runs):
    """With learning rate 1 and no clipping the change of all weights is the gradient."""
    initial, updated = weights(runs.root / "model"), weights(runs.sgd_step(SINGLE))
    squares = sum(float(np.square(updated[name].astype("float64") - initial[name]).sum()) for name in initial)
    assert column(runs.sgd_step(SINGLE), "grad_norm")[0] == pytest.approx(squares**0.5, rel=1e-4)


def test_evaluation_does_not_depend_on_the_micro_batch(runs):
    one_by_one = runs(SINGLE, "adamw-eval1", "--do_eval", "1", "--per_device_eval_batch_size", "1")
    expected = read_summary(runs.adamw(SINGLE))["evaluation"]
    found = read_summary(one_by_one)["evaluation"]
    assert found["eval_tokens"] == expected["eval_tokens"]
    assert abs(found["eval_loss"] - expected["eval_loss"]) <= LOSS_TOLERANCE


def test_first_loss_on_uniformly_random_ids_is_the_closed_form(runs):
    """ln V + h sigma^2 / 2 within 0.5 %: ids are uniform here, so nothing but the formula is tested."""
    from launch.models.arithmetic import LlamaShape
    from launch.models.named_configs import load_config

    expected = LlamaShape.from_config(load_config(str(runs.root / "model"))).first_loss
    assert read_summary(runs.adamw(SINGLE))["first_loss"] == pytest.approx(expected, rel=0.005)
