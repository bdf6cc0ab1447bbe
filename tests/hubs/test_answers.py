"""A hub that is no hub, is busy, or sends without end: one sentence, no traceback, no folder, no full disk."""

import json
from contextlib import contextmanager

import pytest

from launch.commands.download import main
from launch.errors import UserError
from launch.hubs import ai_studio, hugging_face
from launch.hubs import hub as hubs
from launch.hubs.repository import RemoteFile
from tests.hubs.hub_server import Handler, Repository, serving

SIZES = {"hidden_size": 64, "intermediate_size": 64, "vocab_size": 64, "num_hidden_layers": 1, "head_dim": 16}
SIZES |= {"max_position_embeddings": 64, "rms_norm_eps": 1e-6}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 4}
CONFIG = json.dumps({"model_type": "qwen3", "tie_word_embeddings": False, **SIZES, **HEADS}).encode()
REPOSITORY = Repository({"config.json": CONFIG, "model.safetensors": bytes(100)})
HUBS = ["huggingface", "aistudio"]


@contextmanager
def odd_hub(monkeypatch, tmp_path, odd):
    """odd: answers a request of the handler that it is given; False where the usual answer is to be given."""
    from huggingface_hub import configure_http_backend, constants, file_download

    class Odd(Handler):
        def do_GET(self) -> None:
            if not odd(self):
                super().do_GET()

    monkeypatch.chdir(tmp_path)
    with serving({"some/qwen": REPOSITORY}) as server:
        server.RequestHandlerClass = Odd
        monkeypatch.setattr(constants, "ENDPOINT", server.address)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)  # launch/evaluation/harness.py sets it in its process
        configure_http_backend()  # gives up connections made before
        template = f"{server.address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(file_download, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setenv("STUDIO_GIT_HOST", server.address)
        monkeypatch.setattr(hubs.time, "sleep", server.asked.append)
        yield server


def refusal(hub: str) -> str:
    with pytest.raises(UserError) as refused:
        main(["some/qwen", "--from", hub, "--only_config"])
    return str(refused.value)


ODD = [
    {},
    [],
    7,
    None,
    "text",
    [[]],
    ["a"],
    {"id": "a", "siblings": 7},
    {"id": "a", "siblings": [{}]},
    [{"type": "file"}],
]
ODD += [{"id": "a", "siblings": [{"rfilename": name, "size": size}]} for name in ("a", 7) for size in (-1, "9", 1.5)]
ODD += [[{"type": "file", "path": 7}], {"a": {"b": [{}]}}]


@pytest.mark.parametrize("hub", HUBS)
def test_an_answer_of_another_server_is_named_as_such(monkeypatch, tmp_path, hub):
    for body in ODD:
        with odd_hub(monkeypatch, tmp_path, lambda handler: handler.answer(200, body) or True):
            found = refusal(hub)
        assert "does not answer: what it sends" in found or "no config.json" in found or "lists no files" in found, body
        assert not list(tmp_path.iterdir()), body


def test_a_fault_of_ours_is_not_one_of_the_hub(monkeypatch, tmp_path):
    def broken(*_):
        raise KeyError("ours")

    with odd_hub(monkeypatch, tmp_path, lambda handler: False):
        for place in (hugging_face, ai_studio):
            monkeypatch.setattr(place, "Snapshot", broken)
        for hub in HUBS:
            with pytest.raises(KeyError, match="ours"):
                main(["some/qwen", "--from", hub, "--only_config"])


@pytest.mark.parametrize("hub", HUBS)
def test_a_redirect_to_itself_is_no_answer_and_leaves_no_folder(monkeypatch, tmp_path, hub):
    def odd(handler) -> bool:
        if "config.json" in handler.path:
            handler.answer(302, None, {"Location": handler.path})
        return "config.json" in handler.path

    with odd_hub(monkeypatch, tmp_path, odd):
        assert "does not answer" in refusal(hub)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()] and not (tmp_path / "models/original").exists()


@pytest.mark.parametrize("hub", HUBS)
@pytest.mark.parametrize("place", ["list", "file"])
def test_a_busy_hub_is_asked_again_when_it_says(monkeypatch, tmp_path, capsys, hub, place):
    left = 2

    def odd(handler) -> bool:
        nonlocal left
        of_file = "/resolve/" in handler.path or "/media/" in handler.path
        if of_file != (place == "file") or left == 0:
            return False
        left -= 1
        handler.answer(429, {}, {"Retry-After": wait})
        return True

    wait = "7"
    seconds = 10 if hub == "aistudio" and place == "list" else 7  # its client keeps no header
    with odd_hub(monkeypatch, tmp_path, odd) as server:
        main(["some/qwen", "--from", hub, "--only_config"])
        assert [one for one in server.asked if isinstance(one, int)] == [seconds, seconds]
        assert f"is busy: asked again in {seconds} s" in capsys.readouterr().err
    left, wait = 99, "100000"
    with odd_hub(monkeypatch, tmp_path / "models", odd) as server:
        if seconds == 7:
            assert "does not answer: HTTP 429: it asks to wait 100000 s" in refusal(hub)
            assert left == 98 and not [one for one in server.asked if isinstance(one, int)]
        else:
            assert "does not answer: HTTP 429" in refusal(hub)
            assert left == 99 - hubs.TRIES


@pytest.mark.parametrize("hub", HUBS)
def test_a_file_ends_where_the_hub_says(monkeypatch, tmp_path, hub):
    sent = 0

    def odd(handler) -> bool:
        nonlocal sent
        if handler.command == "HEAD" or not ("/resolve/" in handler.path or "/media/" in handler.path):
            return False
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        while sent < 2**29:
            handler.wfile.write(b"10000\r\n" + bytes(2**16) + b"\r\n")
            sent += 2**16
        return True

    with odd_hub(monkeypatch, tmp_path, odd):
        assert "config.json of some/qwen: came damaged" in refusal(hub)
    assert sent < 2**28 and not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_file_of_a_hub_has_a_name_and_a_size():
    for wrong in ((7, 1), ("a", -1), ("a", True), ("a", 1.5), ("a", None), ("a", 1, 7)):
        with pytest.raises(ValueError, match="not a file"):
            RemoteFile(*wrong)
