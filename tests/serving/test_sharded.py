"""A model that is sharded over ranks: rank 0 answers as one process does, the others follow."""

import pytest

ANSWERED = "tests.serving.sharded_ranks:answered"


@pytest.fixture(scope="module")
def root(ranks, tmp_path_factory):
    root = tmp_path_factory.mktemp("sharded")
    ranks(1, "tests.serving.material:make_served", str(root))
    return str(root)


@pytest.fixture(scope="module")
def alone(ranks, root):
    return ranks(1, ANSWERED, root)[0]


def close(event):
    """Sums over ranks round differently."""
    if isinstance(event, list):
        return [close(one) for one in event]
    return pytest.approx(event, abs=2e-5) if isinstance(event, float) else event


def test_two_ranks_answer_as_one(ranks, root, alone):
    """A base, a LoRA and a prefix together; prompts that begin alike; chunks; scored prompts; drawn tokens."""
    together, follower = ranks(2, ANSWERED, root)
    assert follower is None
    assert len({str(told) for told in alone}) == len(alone)
    for told, expected in zip(together, alone, strict=True):
        assert [close(event) for event in told] == expected


def test_a_step_that_fails_on_all_ranks_fails_as_on_one(ranks, root, alone):
    """The rows go on with the tokens that they have."""
    together, _ = ranks(2, ANSWERED, root, "all")
    assert [[close(event) for event in told] for told in together] == alone


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("leader", "a step failed on some of the ranks only: the server ends"),
        ("follower", "timed out"),
    ],
)
def test_a_step_that_fails_on_one_rank_ends_all(ranks, root, tmp_path, fault, said):
    outcome = ranks.outcome(2, ANSWERED, root, fault, directory=tmp_path, time_limit=60)
    assert outcome.exit_code == 1
    logs = [path.read_text() for path in sorted(tmp_path.glob("workerlog.*"))]
    assert any(said in log for log in logs) and "no memory for this step" in "".join(logs)
