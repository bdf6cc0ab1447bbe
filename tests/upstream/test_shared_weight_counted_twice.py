"""The gradient norm of a pipeline with tied embeddings."""

import pytest

from launch.reporting.records import read_train_log

PRETRAIN = "tests.upstream.shared_weight_ranks:pretrain"
PIPELINE = [
    "--pipeline_parallel_degree",
    "2",
    "--per_device_train_batch_size",
    "4",
    "--gradient_accumulation_steps",
    "2",
]


@pytest.fixture(scope="module")
def norms(ranks, tmp_path_factory):
    """norms(n, argv, corrected): the gradient norm of each step on n ranks."""
    root = tmp_path_factory.mktemp("tied")
    ranks(1, "tests.distributed.training_ranks:make_material", str(root), 4, {"tie_word_embeddings": True})

    def run(n: int, argv: list[str], corrected: bool = True) -> list[float]:
        output = root / f"{n}-{corrected}"
        ranks(n, PRETRAIN, str(root), str(output), argv, corrected)
        return [record["grad_norm"] for record in read_train_log(output) if "loss" in record]

    return run


def test_is_that_of_one_process(norms):
    single = norms(1, ["--per_device_train_batch_size", "8"])
    assert norms(2, PIPELINE) == pytest.approx(single, rel=1e-5)
    assert norms(2, PIPELINE, corrected=False)[0] > 1.05 * single[0]  # the fault is still upstream's
