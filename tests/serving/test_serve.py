"""launch/commands/serve.py as a user starts it, with a real model: it answers as launch/commands/predict.py does."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.serving.servers import start_serve, try_to_serve

PROMPTS = ["What is this?", "a", "字 and more", "How many of them are there, and where?"]
MODELS = ("model", "poems", "prefix")
ALONE = "tests.evaluation.evaluate_ranks:alone"


@pytest.fixture(scope="module")
def server(served):
    adapters = (f"poems={served / 'lora'}", served / "prefix")
    server = start_serve("--model_name_or_path", served / "model", "--adapter", *adapters)
    yield server
    assert server.stop() == 0
    assert "".join(server.said).endswith("ready (Ctrl-C stops)\nstopped\n")


def greedy(client, model: str, prompt: str, **more) -> str:
    return client.completions.create(model=model, prompt=prompt, max_tokens=16, temperature=0, **more).choices[0].text


def test_greedy_answers_are_the_same_alone_and_in_a_batch(server, client):
    said = " ".join("".join(server.said).split())
    assert "1 ✓ model model = " in said and "2 ✓ model poems = " in said and "LoRA r 4" in said
    assert "a prefix of 4" in said and f"http://127.0.0.1:{server.port}/v1, no key" in said
    alone = {(model, prompt): greedy(client, model, prompt) for prompt in PROMPTS for model in MODELS}
    assert len({tuple(alone[model, prompt] for prompt in PROMPTS) for model in MODELS}) == 3  # adapters matter
    before = server.metric("batch_rows_count")
    with ThreadPoolExecutor(len(alone)) as pool:
        assert list(pool.map(lambda one: greedy(client, *one), alone)) == list(alone.values())
    tokens = 16 * len(alone)
    assert server.metric("batch_rows_count") - before < tokens / 2  # steps: most were together, whatever the model


@pytest.mark.long
def test_greedy_answers_are_those_of_predict(ranks, served, client):
    flags = ["--model_name_or_path", served / "model", "--max_new_tokens", 16, "--device", "cpu"]
    flags += [f"--prompt={prompt}" for prompt in PROMPTS]
    adapters = ([], ["--adapter_path", served / "lora"], ["--adapter_path", served / "prefix"])
    jobs = [[[str(word) for word in (*flags, *adapter)]] for adapter in adapters]
    for model, said in zip(MODELS, ranks(1, "tests.prediction.predict_ranks:predict_all", jobs)[0], strict=True):
        assert "".join(f"{greedy(client, model, prompt)}\n" for prompt in PROMPTS) == said["stdout"]


def test_log_probabilities_are_those_of_the_model(ranks, served, client):
    ask = {"max_tokens": 8, "temperature": 0, "logprobs": 1}
    for model, adapter in zip(MODELS, (None, str(served / "lora"), str(served / "prefix")), strict=True):
        [expected] = ranks(1, ALONE, str(served / "model"), adapter, [["", prompt] for prompt in PROMPTS])
        choices = client.completions.create(model=model, prompt=PROMPTS, echo=True, **ask).choices
        plain = client.completions.create(model=model, prompt=PROMPTS, **ask).choices
        for prompt, echo, one, value in zip(PROMPTS, choices, plain, expected, strict=True):
            size = len(echo.logprobs.tokens) - len(one.logprobs.tokens)
            assert sum(echo.logprobs.token_logprobs[1:size]) == pytest.approx(value, abs=2e-4)
            assert echo.text == prompt + one.text
            assert echo.logprobs.tokens[size:] == one.logprobs.tokens
            assert echo.logprobs.token_logprobs[size:] == pytest.approx(one.logprobs.token_logprobs, abs=1e-4)
            assert one.logprobs.token_logprobs == [max(top.values()) for top in one.logprobs.top_logprobs]


def test_a_chat_is_asked_by_the_template_of_the_family(client):
    messages = [{"role": "user", "content": "a"}]
    reply = client.chat.completions.create(model="model", messages=messages, max_tokens=16, temperature=0)
    assert reply.usage.prompt_tokens > 10  # what stands around the question
    assert reply.choices[0].message.content != greedy(client, "model", "a")


def test_another_address_wants_a_key_or_insecure(tmp_path):
    said = try_to_serve("--model_name_or_path", tmp_path, "--host", "0.0.0.0")
    assert said.returncode == 2 and said.stdout == ""
    assert said.stderr.startswith("error: --host: found 0.0.0.0, which others can reach. Give a key (--api_key or ")


@pytest.mark.long
@pytest.mark.parametrize(("key", "sign"), [("schlüssel", "'\\xfc'"), ("two words", "' '"), ("\udcff", "'\\udcff'")])
def test_a_key_that_no_header_can_carry_is_refused(tmp_path, monkeypatch, key, sign):
    monkeypatch.setenv("SERVE_API_KEY", key)
    said = try_to_serve("--model_name_or_path", tmp_path)
    assert said.returncode == 2
    assert said.stderr.startswith(f"error: SERVE_API_KEY: found {sign} in it, which clients cannot send in a header.")


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--port", "{port}"],
            "error: --host 127.0.0.1 --port {port}: Address already in use. Choose another, such as --port ",
        ),
        (["--port", "{port}"], ', of make ARGS="--port '),
        (["--port", "0", "--grpc_port", "{port}"], "error: --grpc_port {port} on 127.0.0.1: "),
        (["--port", "65536"], "argument --port: found '65536', expected a port, 0 to 65535"),
        (["--host", "no.such.host.example", "--insecure"], "error: --host no.such.host.example --port 8000: "),
        (["--adapter", "a={root}/lora", "a={root}/prefix"], "error: --adapter: found 'a' twice"),
        (["--adapter", "{root}/lora", "{root}/nowhere"], "error: --adapter: {root}/nowhere is no directory."),
        (["--adapter", "{root}/pairs", "--port", "0"], "pairs: no adapter: neither lora_config.json nor"),
        (["--chat_template", "nobody", "--port", "0"], "error: --chat_template: found 'nobody', allowed: "),
        (
            ["--chat_template", "{here}/endless.jinja", "--port", "0"],
            "endless.jinja: it calls itself without end. Anot",
        ),
    ],
    ids=lambda one: one[0] if isinstance(one, list) else "",
)
def test_mistakes_are_named(server, served, tmp_path, words, message):
    (tmp_path / "endless.jinja").write_text("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}")
    places = {"root": served, "here": tmp_path, "port": server.port}
    said = try_to_serve("--model_name_or_path", served / "model", *(word.format(**places) for word in words))
    assert said.returncode == 2
    assert message.format(**places) in said.stderr and "Traceback" not in said.stderr
