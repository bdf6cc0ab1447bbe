"""64 clients at once, by REST, streams and gRPC, on a base and two adapters: nothing lost, nothing mixed."""

import random
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from launch.serving.rpc import generation_pb2 as messages
from launch.serving.rpc import generation_pb2_grpc as stubs
from tests.serving.servers import start_serve

pytestmark = pytest.mark.nightly
CLIENTS, ASKS, TOKENS = 64, 4, 12
MODELS = ("model", "poems", "prefix")


@pytest.fixture(scope="module")
def server(served):
    adapters = (f"poems={served / 'lora'}", served / "prefix")
    server = start_serve("--model_name_or_path", served / "model", "--adapter", *adapters, "--queue_size", CLIENTS)
    yield server
    assert server.stop() == 0


def whole(server, client, channel, model: str, prompt: str) -> str:
    reply = client.completions.create(model=model, prompt=prompt, max_tokens=TOKENS, temperature=0)
    return reply.choices[0].text


def streamed(server, client, channel, model: str, prompt: str) -> str:
    events = client.completions.create(model=model, prompt=prompt, max_tokens=TOKENS, temperature=0, stream=True)
    return "".join(event.choices[0].text for event in events)


def by_grpc(server, client, channel, model: str, prompt: str) -> str:
    options = messages.Options(max_tokens=TOKENS, temperature=0)
    request = messages.CompleteRequest(model=model, prompts=[prompt], options=options)
    return stubs.GenerationStub(channel).Complete(request).answers[0].text


def test_64_clients_at_once(server):
    prompts = [f"{number} of them" for number in range(16)]
    with grpc.insecure_channel(server.grpc) as channel:
        first = server.client()
        alone = {(model, text): whole(server, first, channel, model, text) for model in MODELS for text in prompts}

        def ask_in_turn(number: int) -> None:
            draw, client = random.Random(number), server.client()
            for _ in range(ASKS):
                model, prompt = draw.choice(MODELS), draw.choice(prompts)
                way = draw.choice((whole, streamed, by_grpc))
                assert way(server, client, channel, model, prompt) == alone[model, prompt], (way, model, prompt)

        with ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(ask_in_turn, range(CLIENTS)))
    before = server.metric("batch_rows_count")
    said = first.completions.create(model="model", prompt=prompts * 4, max_tokens=TOKENS, temperature=0)
    assert [choice.text for choice in said.choices] == [alone["model", text] for text in prompts * 4]
    # A step for each token, and some in which prompts of 256 tokens are computed: a batch is as full as it can be.
    assert server.metric("batch_rows_count") - before <= TOKENS + 4
    answered = sum(server.metric(f'requests_total{{model="{model}",outcome="answered"}}') for model in MODELS)
    assert answered == len(alone) + CLIENTS * ASKS + 1
    assert server.metric("waiting_rows") == server.metric("running_rows") == 0
