"""A model that is sharded over ranks: rank 0 answers as one process does, the others follow."""

import re
import signal
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path

import psutil
import pytest

from tests.serving.servers import start_serve, try_to_serve

ANSWERED = "tests.serving.sharded_ranks:answered"


@pytest.fixture(scope="module")
def alone(ranks, served):
    return ranks(1, ANSWERED, str(served))[0]


def close(event):
    """Sums over ranks round differently."""
    if isinstance(event, list):
        return [close(one) for one in event]
    return pytest.approx(event, abs=2e-5) if isinstance(event, float) else event


def test_two_ranks_answer_as_one(ranks, served, alone):
    """A base, a LoRA and a prefix together; prompts that begin alike; chunks; scored prompts; drawn tokens."""
    together, follower = ranks(2, ANSWERED, str(served))
    assert follower is None
    assert len({str(told) for told in alone}) == len(alone)
    for told, expected in zip(together, alone, strict=True):
        assert [close(event) for event in told] == expected


def test_a_step_that_fails_on_all_ranks_fails_as_on_one(ranks, served, alone):
    together, _ = ranks(2, ANSWERED, str(served), "all")
    assert [[close(event) for event in told] for told in together] == alone


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "said"),
    [("leader", "a step failed, and not on all ranks alike: the server ends"), ("follower", "timed out")],
)
def test_a_step_that_fails_on_one_rank_ends_all(ranks, served, tmp_path, fault, said):
    outcome = ranks.outcome(2, ANSWERED, str(served), fault, directory=tmp_path, time_limit=60)
    assert outcome.exit_code == 1
    logs = [path.read_text() for path in sorted(tmp_path.glob("workerlog.*"))]
    assert any(said in log for log in logs) and "no memory for this step" in "".join(logs)


def flags(served: Path) -> list[str]:
    adapters = [f"lora={served}/lora", f"{served}/prefix"]
    return ["--model_name_or_path", f"{served}/model", "--adapter", *adapters, "--device", "cpu"]


@pytest.mark.long
def test_a_server_on_two_ranks_answers_as_on_one(served):
    asked = list(product(["model", "lora", "prefix"], ["What is this?", "字 and more", "a"]))
    texts = []
    for degree in (1, 2):
        server = start_serve(*flags(served), "--tensor_parallel_degree", degree)
        with ThreadPoolExecutor(len(asked)) as pool:
            texts.append(list(pool.map(partial(_answer, server), asked)))
        below = psutil.Process(server.process.pid).children(recursive=True)
        assert "FLAGS" not in "".join(server.said)
        assert server.stop(signal.SIGINT) == 0 and "".join(server.said).endswith("ready (Ctrl-C stops)\nstopped\n")
        assert not any(one.is_running() for one in below)
    assert texts[0] == texts[1] and len(set(texts[0])) == len(asked)


@pytest.mark.long
def test_a_rank_that_dies_ends_the_server(served, monkeypatch):
    """Its logs are kept, without the variables that the launcher writes there."""
    monkeypatch.setenv("SERVE_API_KEY", "-very-secret")
    server = start_serve(*flags(served), "--tensor_parallel_degree", 2)
    _answer(server, ("model", "a"), "-very-secret")
    below = psutil.Process(server.process.pid).children(recursive=True)
    ranks = [one for one in below if "launch/commands/serve.py" in " ".join(one.cmdline()) and "-u" in one.cmdline()]
    [follower] = [one for one in ranks if one.environ()["PADDLE_TRAINER_ID"] == "1"]
    follower.kill()
    assert server.process.wait(timeout=60) == 128 + signal.SIGKILL
    assert (found := re.search(r"rank 1 failed with exit code 137; its log is (\S+)/workerlog.1", "".join(server.said)))
    logs = Path(found[1])
    assert (logs / "workerlog.1").is_file() and not any(b"very-secret" in log.read_bytes() for log in logs.iterdir())
    assert not any(one.is_running() for one in below)


def _answer(server, asked: tuple[str, str], key: str = "none") -> str:
    model, prompt = asked
    return (
        server.client(key).completions.create(model=model, prompt=prompt, max_tokens=12, temperature=0).choices[0].text
    )


@pytest.mark.long
def test_what_cannot_be_sharded_is_refused(served):
    two = ["--tensor_parallel_degree", "2"]
    for words, variables, said in (
        (["--tensor_parallel_degree", "3"], {}, "3 processes cannot divide this model's"),
        (["--device", "gpu", *two], {"CUDA_VISIBLE_DEVICES": "0"}, "found 2, but cards here: 1."),
        (two, {"PADDLE_TRAINERS_NUM": "4"}, "found 2, but the launcher has started 4 ranks."),
        (["--host", "no.such.host.example", "--insecure"], {"PADDLE_TRAINER_ID": "1"}, "--host no.such.host.example"),
        ([], {"PADDLE_TRAINERS_NUM": "4", "PADDLE_LOCAL_SIZE": "2"}, "4 ranks, 2 of them on this machine."),
    ):
        done = try_to_serve(*flags(served), "--port", "0", "--grpc_port", "0", *words, **variables)
        assert done.returncode == 2 and said in done.stderr, done.stderr
