"""The HTTP of the studio: who may ask, what is said in Chinese, what cannot be started; and the words of the page."""

import asyncio
import json
import re

import httpx
import pytest
from starlette.testclient import TestClient

from launch.methods.registry import METHODS
from launch.studio import app
from launch.studio.app import CHAT, PAGE, make_app
from launch.studio.runs import Runs
from launch.studio.trying import Trial

TOKEN = "a-token-of-the-tests"
KEY = {"Authorization": f"Bearer {TOKEN}"}
CHOICE = {"recipe": "lora-qwen3-8b"}


class Recorded(Runs):
    """Starts nothing."""

    def __init__(self):
        super().__init__()
        self.started = []

    def start(self, choice, action):
        self.started.append((choice.recipe.target, choice.variables, action))
        return "build/somewhere"


@pytest.fixture
def runs():
    return Recorded()


@pytest.fixture
def client(runs):
    ours = make_app(TOKEN, runs, Trial(), slow=None)  # no advice is asked for
    return TestClient(ours, base_url="http://127.0.0.1:8020")


def test_nothing_but_the_page_is_answered_without_the_token_nor_by_other_names(client, runs):
    ours = [(method, route.path) for route in app.api_of(TOKEN, runs, Trial(), None).routes for method in route.methods]
    assert len(ours) == 29
    for method, path in ours:
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            assert client.request(method, path, headers=headers, json=CHOICE).status_code == 401, path
    assert runs.started == []
    assert "<title>" in client.get("/").text
    assert client.get("/page/main.js").headers["content-security-policy"].startswith("default-src 'self'")
    assert client.get("/page/../app.py").status_code == 404
    assert "export function chat(" in client.get("/chat/chat.js").text
    packed, small = (client.get(f"/api/{path}", headers=KEY).headers for path in ("offered", "uploads"))
    assert packed["content-encoding"] == "gzip" and "content-encoding" not in small
    script = client.get("/page/main.js")
    unchanged = client.get("/page/main.js", headers={"If-None-Match": script.headers["etag"]})
    assert (unchanged.status_code, unchanged.content, unchanged.headers.get("content-encoding")) == (304, b"", None)
    assert TestClient(client.app, base_url="http://[::1]:8020").get("/").status_code == 200
    assert client.get("/", headers={"Host": "evil.example"}).status_code == 400
    assert client.post("/api/start/rehearse", headers=KEY | {"Host": "evil.example"}, json=CHOICE).status_code == 400
    elsewhere = TestClient(make_app(TOKEN, runs, Trial(), slow=None, local=False), base_url="http://gpu01:8020")
    assert elsewhere.get("/api/runs", headers=KEY).status_code == 200
    assert elsewhere.get("/api/runs").status_code == 401
    assert runs.started == []


def test_what_is_refused_is_not_started(client, runs, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for action, choice, said in [
        ("rehearse", CHOICE | {"ARGS": "--max_length x"}, "found 'x'"),
        ("run", CHOICE | {"DATA": "nowhere"}, "nowhere"),  # a rehearsal would have data of its own
        ("rehearse", {"recipe": "nothing"}, "recipe: found 'nothing'"),
    ]:
        reply = client.post(f"/api/start/{action}", headers=KEY, json=choice)
        assert reply.status_code == 400 and said in reply.json()["detail"], reply.text
    assert runs.started == []
    assert client.post("/api/start/rehearse", headers=KEY, json=CHOICE).json() == "build/somewhere"
    assert runs.started == [("lora-qwen3-8b", {}, "rehearse")]


def test_what_no_path_can_be_and_a_large_body_are_mistakes_of_the_request(client, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert client.get("/api/records", headers=KEY, params={"output": "build", "offset": -5}).status_code == 422
    for path, given in [
        ("records", {"output": "\0"}),
        ("log", {"output": "\0", "of": "0"}),
        ("records", {"output": f"build/{'x' * 5000}"}),
    ]:
        reply = client.get(f"/api/{path}", headers=KEY, params=given)
        assert reply.status_code == 400, (path, reply.text)
    for path in ("plan", "checks", "start/rehearse", "start/run"):
        reply = client.post(f"/api/{path}", headers=KEY, json=CHOICE | {"OUTPUT": "x" * 5000})
        assert reply.status_code == 400 and "too long" in reply.json()["detail"], (
            path,
            reply.status_code,
            reply.text[:300],
        )
    big = CHOICE | {"ARGS": "x" * app.LARGEST_BODY}
    assert client.post("/api/plan", headers=KEY, json=big).status_code == 413
    long = client.post("/api/note", headers=KEY, json={"output": "a", "name": "n" * 101}).json()["detail"]
    assert long.startswith("name: found 'n") and long.endswith(", expected at most 100 characters")
    stated = KEY | {"Content-Length": str(app.LARGEST_BODY + 1)}
    assert client.post("/api/plan", headers=stated, json=CHOICE).status_code == 413


def test_messages_are_translated_and_names_are_not(client):
    reply = client.post("/api/plan", headers=KEY | {"Accept-Language": "zh"}, json=CHOICE).json()
    assert reply["verdict"].startswith("放得下") or not reply["verdict"].isascii()
    assert reply["values"]["DATA"] == "./data" and reply["command"] == "lora-qwen3-8b"
    wrong = client.post("/api/plan", headers=KEY | {"Accept-Language": "zh"}, json={"recipe": "x"})
    assert wrong.status_code == 400 and "发现 'x'" in wrong.json()["detail"]


def words_of(folder) -> set[str]:
    """The texts of a page that are translated when they are shown."""
    scripts = "".join(path.read_text() for path in folder.glob("*.js"))
    words = set(re.findall(r"data-t>([^<]+)<", (folder / "index.html").read_text()))
    for call in re.findall(r"\bt\(([^()]*)\)", scripts):
        words |= set(re.findall(r'"([^"]+)"', call))
    words |= set(re.findall(r'\b(?:step|button|label|labelled)\("([^"]+)"', scripts))
    words |= set(re.findall(r'\bfield\("\w+", "([^"]+)"', scripts) + re.findall(r'\["\w+", "([^"]+)", \{', scripts))
    words |= set(re.findall(r'^  "build/[\w/-]+": "([^"]+)",$', scripts, re.M))  # of a demo's folder
    charts = re.findall(r'^  \["([^"]+)", ".*, "([^"]+)"\],$', scripts, re.M)
    return words | {word for chart in charts for word in chart}


def test_every_word_of_the_page_is_translated_and_nothing_loaded_from_elsewhere():
    from launch.studio.planning import offered

    methods, parts = {recipe["method"] for recipe in offered()["recipes"]}, set(offered()["parts"])
    methods |= {method.title for method in METHODS}  # of runs without a recipe
    chat, ours = words_of(CHAT), words_of(PAGE) | {"running", "finished", "failed", "stopped"} | methods | parts
    assert set(json.loads((CHAT / "zh.json").read_text())) == chat
    assert set(json.loads((PAGE / "zh.json").read_text())) == ours - chat
    for path in [*PAGE.iterdir(), *CHAT.iterdir()]:
        found = re.findall(r"""(?:https?:)?//[\w.]+|(?:src|href)="/|fetch\(["`]/""", path.read_text())
        assert [one for one in found if one != "http://www.w3.org"] == [], path.name


def test_a_recipe_has_its_chinese_name(client):
    found = client.get("/api/offered", headers=KEY | {"Accept-Language": "zh"}).json()["recipes"]
    names = {recipe["target"]: recipe["summary"] for recipe in found}
    assert names["lora-qwen3-8b"] == "Qwen3-8B LoRA 微调，一张卡"
    assert not [name for name in names.values() if not re.search("[一-鿿]", name)]


def test_layouts_that_wait_hold_nobody(runs):
    """More of them than there are threads."""

    async def ask() -> list[int]:
        begun, go = asyncio.Semaphore(0), asyncio.Event()

        async def slow(function, choice):
            begun.release()
            await go.wait()
            return []

        transport = httpx.ASGITransport(make_app(TOKEN, runs, Trial(), slow))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8020", headers=KEY) as client:
            waiting = [asyncio.create_task(client.post("/api/layouts", json=CHOICE)) for _ in range(60)]
            for _ in waiting:
                await begun.acquire()
            asked = [client.get("/"), client.get("/api/runs"), client.get("/api/runs", headers={"Authorization": ""})]
            found = [(await one).status_code for one in asked]
            assert not any(one.done() for one in waiting)
            go.set()
            return found + [(await one).status_code for one in waiting]

    assert asyncio.run(ask()) == [200, 200, 401, *[200] * 60]
