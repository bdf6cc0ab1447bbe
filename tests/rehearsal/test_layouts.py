"""All bridges together: layouts beyond those that recipes use train to the losses of one process."""

import numpy as np
import pytest

CASES = "tests.rehearsal.layout_ranks"
LAYOUTS = {  # name: (processes, those that see different samples, flags)
    "pp4": (4, 1, {"pipeline_parallel_degree": 4}),
    "tp2-pp2-sequence-parallel": (
        4,
        1,
        {"tensor_parallel_degree": 2, "pipeline_parallel_degree": 2, "sequence_parallel": True},
    ),
    "stage3": (2, 2, {"sharding": "stage3"}),
}


@pytest.fixture(scope="module")
def model(ranks, tmp_path_factory) -> str:
    directory = str(tmp_path_factory.mktemp("model"))
    ranks(1, f"{CASES}:save_model", directory)
    return directory


@pytest.fixture(scope="module")
def expected(ranks, model, tmp_path_factory) -> np.ndarray:
    (losses,) = ranks(1, f"{CASES}:losses", model, str(tmp_path_factory.mktemp("one")), {})
    return np.array(losses)


@pytest.mark.parametrize("name", LAYOUTS)
def test_losses_of_one_process(ranks, model, expected, tmp_path, name):
    n, data_ranks, flags = LAYOUTS[name]
    for rank, found in enumerate(ranks(n, f"{CASES}:losses", model, str(tmp_path), flags, data_ranks)):
        assert len(found) == len(expected) == 5
        assert np.abs(np.array(found) - expected).max() <= 2e-6, f"rank {rank}"
