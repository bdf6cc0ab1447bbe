"""Requests in rows: what a token sees and where it stands are as if each request were alone."""

import numpy as np
import pytest

from launch.evaluation.shared_prefixes import ScoredText, rows


def random_requests(count: int) -> list[ScoredText]:
    """Few ids, so that many begin alike, and some are the beginning of others."""
    random = np.random.default_rng(3)
    lengths = random.integers(2, 12, count)
    ids = [tuple(int(token) for token in random.integers(0, 3, length)) for length in lengths]
    return [ScoredText(each, int(random.integers(1, len(each)))) for each in ids]


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("limit", [1, 20, 10_000])
def test_each_token_sees_its_request_and_nothing_else(share, limit):
    requests = random_requests(60)
    seen = []
    for row in rows(requests, limit, share):
        mask = row.mask()[0, 0]
        assert len(row.ids) <= limit or len(row.requests) == 1
        for number, nodes in zip(row.requests, row.nodes, strict=True):
            request = requests[number]
            assert len(nodes) == len(request.ids) - request.start
            for offset, node in enumerate(nodes):
                visible = np.flatnonzero(mask[node])
                given = request.ids[: request.start + offset]
                assert tuple(row.ids[visible]) == given
                assert row.positions[visible].tolist() == list(range(len(given)))
            seen.append(number)
    assert sorted(seen) == list(range(60))


def test_a_common_beginning_is_there_once():
    shots = tuple(range(100, 200))
    requests = [ScoredText((*shots, question, 7, choice), 102) for question in range(5) for choice in (1, 2, 3, 4)]
    [row] = rows(requests, 1000, share=True)
    assert len(row.ids) == 100 + 5 * 2  # the choices themselves are predicted, and predict nothing
    assert row.ends[0] == 110 and row.ends[100] == 102
    assert sum(len(alone.ids) for alone in rows(requests, 1000, share=False)) == 20 * 102


def test_rows_keep_to_the_limit():
    requests = [ScoredText((*range(50), 60 + number, 1), 51) for number in range(20)]
    sizes = [len(row.ids) for row in rows(requests, 55, share=True)]
    assert sizes == [55] * 4


def test_requests_in_rows_of_their_own_come_by_length_the_longest_first():
    """So rows that are read together have little padding, and the first batch needs the most memory."""
    requests = random_requests(60)
    lengths = [len(row.ids) for row in rows(requests, 1, share=False)]
    assert lengths == sorted((len(request.ids) - 1 for request in requests), reverse=True) and len(set(lengths)) > 5
