"""The Try part of the page in a headless browser: a result beside its base, by a server that stands for the real
one and by that; export."""

import json
from pathlib import Path

import psutil
import pytest

from tests.repository_folder import link_repository
from tests.serving.browser import Browser, find_browser
from tests.serving.servers import start
from tests.studio.test_page import TOKEN, click, picture, text
from tests.studio.test_trying import STANDS_FOR_SERVE, result_of

pytestmark = pytest.mark.nightly
STAND_IN = f"import launch.studio.trying as trying; trying.SERVE = {str(STANDS_FOR_SERVE)!r}"
STUDIO = "from launch.commands import studio; studio.main(['--port', '0', '--runs', '.'])"


SEND = "document.querySelector('#chat button.main')"
LAST = "[...document.querySelectorAll('#chat .answers')].at(-1)"


@pytest.fixture
def opened(tmp_path, monkeypatch):
    """opened(before, folder): a browser at the Try part of a studio that was started in `here`, with a result."""
    path, running = find_browser(), []
    monkeypatch.setenv("STUDIO_TOKEN", TOKEN)
    (tmp_path / "repository").mkdir()
    here = link_repository(tmp_path / "repository")

    def open_page(before: str, folder: str) -> Browser:
        studio = start(["-c", f"{before}\n{STUDIO}"], r"http://127\.0\.0\.1:(\d+)/#token=.*ready", here)
        running.append(lambda: _end(studio))
        (tmp_path / "profile").mkdir()
        browser = Browser(path, tmp_path / "profile", f"{studio.url}/?view=try&result={folder}")
        running.append(browser.close)
        browser.wait("!document.getElementById('token_form').hidden")
        browser.run(f"document.getElementById('token').value = {TOKEN!r}")
        click(browser, "#token_form button")
        return browser

    open_page.here = here
    yield open_page
    for end in reversed(running):
        end()


def _end(studio) -> None:
    """With a server that is still loaded, which ends with the studio."""
    servers = psutil.Process(studio.process.pid).children()
    loaded = [server for server in servers if "--grpc_port" in server.cmdline()]
    assert studio.stop() == 0 and loaded
    psutil.wait_procs(servers, timeout=10)
    assert not any(server.is_running() for server in servers)


def asked(browser: Browser, prompt: str, max_tokens: int = 64) -> list[str]:
    """The text of each column once all are at their end."""
    sent(browser, prompt, max_tokens)
    browser.wait(f"!{SEND}.disabled")
    return browser.run(f"[...{LAST}.querySelectorAll('.text')].map(answer => answer.textContent)")


def sent(browser: Browser, prompt: str, max_tokens: int) -> None:
    values = {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0}
    for name, value in values.items():
        browser.run(f"document.querySelector('#chat [name={name}]').value = {value!r}")
    browser.wait(f"!{SEND}.disabled")
    browser.run(f"{SEND}.click()")


def test_answers_are_texts(opened):
    result_of(opened.here / "run", "lora_config.json", base_model_name_or_path="llama-7b")
    browser = opened(STAND_IN, "run")
    browser.wait("document.getElementById('about_result').textContent.includes('llama-7b')")
    assert "25.10 GiB" in text(browser, "about_result")
    assert browser.run("[...document.querySelectorAll('label')].filter(label => !label.control).length") == 0
    click(browser, "#load")
    browser.wait("document.getElementById('trial').textContent == 'run: Ready.'")
    attack = "img src=x onerror=document.title='owned'"
    assert asked(browser, attack) == [f"<{attack}>"] * 2
    titles = browser.run("[...document.querySelectorAll('#chat h3')].map(title => title.textContent)")
    assert titles == ["Base: llama-7b", "Result: run"]
    assert browser.run("document.querySelectorAll('#chat img').length") == 0
    assert browser.run("document.title") == "Try · paddle-llm-recipes"
    asked(browser, "a", 5000)
    assert browser.run(f"{LAST}.querySelector('.wrong').textContent").startswith("max_tokens: found 5000")
    sent(browser, "slow endless", 2000)
    # One of them: this server computes one batch at a time, and the other question, of another model, waits for it.
    browser.wait(f"[...{LAST}.querySelectorAll('.text')].some(answer => answer.textContent.length > 20)")
    browser.run(
        "[...document.querySelectorAll('#chat .buttons button')].find(one => one.textContent == 'Stop').click()"
    )
    browser.wait(f"[...{LAST}.querySelectorAll('.status')].every(one => one.textContent == 'Stopped.')")
    assert asked(browser, "next") == ["<next>"] * 2
    sent(browser, "slow endless", 2000)
    browser.wait(f"[...{LAST}.querySelectorAll('.text')].some(answer => answer.textContent.length > 20)")
    browser.run("window.before = true; location.reload()")  # an answer stays as far as it has come
    browser.wait(f"!window.before && {LAST}?.querySelector('.status').textContent == 'Stopped.'")
    assert browser.run(f"[...{LAST}.querySelectorAll('.text')].some(answer => answer.textContent.length > 20)")


def test_each_result_has_a_chat_of_its_own_and_is_loaded_by_a_press_and_asked_what_was_held_out(opened):
    here: Path = opened.here
    messages = [{"role": "system", "content": "short"}, {"role": "user", "content": "a"}]
    messages += [{"role": "assistant", "content": "*b*"}]
    for name in ("first", "second"):
        result_of(here / name, "lora_config.json", base_model_name_or_path="llama-7b")
        summary = {"arguments": {"Data": {"dataset_name_or_path": str([str(here / name)])}}}
        (here / name / "run_summary.json").write_text(json.dumps(summary))
        (here / name / "train_log.jsonl").touch()
        (here / name / "chat_template.jinja").touch()  # it was trained on chats
        (here / name / "dev.json").write_text(json.dumps({"messages": messages}) + "\n")
    browser = opened(STAND_IN, "first")
    browser.wait("document.getElementById('about_result').textContent.includes('llama-7b')")
    assert text(browser, "trial") == "", "a link from elsewhere loads nothing"
    press = "[...document.querySelectorAll('#choose_result a')].find(one => one.textContent == '{}').click()"
    browser.run(press.format("second"))
    browser.wait("document.getElementById('trial').textContent == 'second: Ready.'")
    assert "System text “short”" in browser.run("document.querySelector('#chat summary').textContent")
    browser.run("[...document.querySelectorAll('#chat button')].find(one => one.textContent.includes('held')).click()")
    assert asked(browser, "a") == ["<short|a>"] * 2
    assert browser.run(f"{LAST}.querySelector('.reference').innerHTML").endswith("<p><em>b</em></p></div>")
    assert asked(browser, "c") == ["<short|a|<short|a>|c>"] * 2
    browser.run(press.format("first"))
    browser.wait("document.getElementById('trial').textContent == 'first: Ready.'")
    assert browser.run("document.querySelectorAll('#chat .asked').length") == 0
    browser.run(press.format("second"))
    browser.wait("document.querySelectorAll('#chat .asked').length == 2")


def test_a_real_model_beside_its_base(opened, ranks):
    here: Path = opened.here
    ranks(1, "tests.serving.material:make_served", str(here))
    config = here / "lora" / "lora_config.json"
    stated = json.loads(config.read_text())
    config.write_text(json.dumps(stated | {"base_model_name_or_path": "model"}))
    browser = opened("", "lora")
    browser.wait("!document.getElementById('load').disabled")
    click(browser, "#load")
    browser.wait("document.getElementById('trial').textContent == 'lora: Ready.'", seconds=120)
    base, result = asked(browser, "import os\n", 16)
    assert base and result and base != result
    assert [base, result] == asked(browser, "import os\n", 16)  # the likeliest tokens
    picture(browser, "try")
    click(browser, "#start_export")
    browser.wait("document.getElementById('tasks').textContent.includes('finished: exported/lora')")
    assert (here / "exported/lora/adapter_config.json").exists()
