"""A server with little memory for keys and values refuses what can never fit, and takes no more for many requests."""

import random
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import openai
import psutil
import pytest

from tests.serving.servers import start_serve

pytestmark = pytest.mark.nightly
TOKENS, ASKS = 1024, 120


def test_memory_is_flat_and_limited(ranks, tmp_path):
    ranks(1, "tests.serving.material:make_served", str(tmp_path))
    limit = TOKENS * 1024 / 2**30  # its tokens take 1 KiB
    server = start_serve("--model_name_or_path", tmp_path / "model", "--kv_cache_gb", limit, "--device", "cpu")
    assert f"keys and values: {TOKENS:,} tokens of 1,024 bytes" in " ".join("".join(server.said).split())
    client, process, draw = server.client(), psutil.Process(server.process.pid), random.Random(0)

    def ask(size: int) -> str:
        prompt = [draw.randrange(5, 200) for _ in range(size)]
        return client.completions.create(model="model", prompt=prompt, max_tokens=12).choices[0].finish_reason

    with pytest.raises(
        openai.BadRequestError, match=r"1060 tokens with the answer, .* memory for 1024 \(--kv_cache_gb"
    ):
        client.completions.create(model="model", prompt=[7] * 60, max_tokens=1000)
    used = [process.memory_info().rss]
    with ThreadPoolExecutor(32) as pool:
        for _ in range(4):
            assert all(pool.map(ask, [draw.randrange(1, 90) for _ in range(ASKS)]))
            used.append(process.memory_info().rss)
    first, *_, last = (after - before for before, after in pairwise(used))
    assert last < max(8 * 2**20, first / 2), used  # the first fills what is kept: pools, arenas, blocks
    assert server.stop() == 0
