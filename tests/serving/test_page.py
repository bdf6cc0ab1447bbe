"""The page of the server in a headless browser: what is typed is answered, mistakes are shown, Stop frees the place."""

import json
import subprocess
from urllib.parse import quote

import pytest

from tests.serving.browser import Browser, find_browser
from tests.serving.servers import start_fake


@pytest.fixture
def opened(tmp_path):
    """opened(key): (server, browser with its page)."""
    path, running = find_browser(), []

    def open_page(key: str | None = None):
        server = start_fake(key=key)
        running.append(server.stop)
        (tmp_path / "profile").mkdir()
        browser = Browser(path, tmp_path / "profile", f"{server.url}/")
        running.append(browser.close)
        return server, browser

    yield open_page
    for end in reversed(running):
        end()


SEND = "document.querySelector('#chat button.main')"
LAST = "[...document.querySelectorAll('#chat .answer')].at(-1)"


def type_in(browser: Browser, **values: object) -> None:
    for name, value in values.items():
        browser.run(f"document.querySelector('[name={name}], #{name}').value = {str(value)!r}")


def answered(browser: Browser) -> str:
    """Click Send, and the text of the answer once it has ended."""
    browser.run(f"{SEND}.click()")
    browser.wait(f"!{SEND}.disabled")
    return browser.run(f"{LAST}.querySelector('.text').textContent")


def status(browser: Browser) -> str:
    return browser.run(f"{LAST}.querySelector('.status').textContent")


@pytest.mark.long
def test_texts_and_chats_are_answered_and_mistakes_are_shown(opened):
    server, browser = opened()
    browser.wait("document.getElementById('model').length == 2")
    assert browser.run("document.getElementById('key').offsetParent === null")  # nobody asks for one
    chosen = browser.run("[...document.querySelectorAll('select')].map(select => select.value).join()")
    assert chosen == "poems,,chat/completions", "the adapter, which was trained on chats"
    policy = server.ask("/")[1], browser.run("fetch('/').then(reply => reply.headers.get('content-security-policy'))")
    assert "<script>" not in policy[0] and policy[1] == "default-src 'self'; frame-ancestors 'none'"
    assert browser.run("document.title") == "poems · paddle-llm-recipes"
    type_in(browser, way="completions", prompt="字 é <b>")
    assert answered(browser) == "<字 é <b>>"
    assert browser.run("document.querySelectorAll('#chat b').length") == 0  # texts are shown as texts
    assert status(browser).startswith("12 tokens, ")
    assert server.metric('requests_total{model="poems",outcome="answered"}') == 1
    browser.run("[...document.querySelectorAll('#chat button')].find(one => one.textContent == 'New chat').click()")
    type_in(browser, way="chat/completions", prompt="hello", max_tokens=3)
    assert answered(browser) == "<Be"  # the system text of its training, which is filled in
    type_in(browser, way="completions", prompt="silent")
    assert answered(browser) == "" and status(browser).startswith("An empty answer. 0 tokens, ")
    shown = r"markdown('# a\n- **b** `<i>`\n```\n<b>\n```').map(one => one.outerHTML).join('')"
    marked = f"import('./page/chat.js').then(({{markdown}}) => {shown})"
    assert browser.run(marked) == (
        "<p><strong>a</strong></p><ul><li><strong>b</strong> <code>&lt;i&gt;</code></li></ul>"
        '<pre tabindex="0"><code>&lt;b&gt;</code></pre>'
    )
    for text, continues, kept in (
        ("def f(x):\n    if x:\n        return 1", False, True),
        ("one\ntwo", True, True),
        ("one\ntwo", False, False),
        ("- a\n    - b", False, False),
    ):
        shown = f"shownText({json.dumps(text)}, {json.dumps(continues)})[0].outerHTML"
        pre = browser.run(f"import('./page/chat.js').then(({{shownText}}) => {shown})").startswith("<pre")
        assert pre == kept, text
    type_in(browser, prompt="a", max_tokens=5000)
    assert answered(browser) == ""
    assert status(browser).startswith("max_tokens: found 5000, at most 2000")
    curl = subprocess.run(["bash", "-c", browser.run("curl.textContent")], capture_output=True, text=True).stdout
    assert json.loads(curl)["choices"][0]["message"]["content"] == "<Be brief.|Hello>"
    assert '"role":"system","content":"Be brief."' in browser.run("python.textContent")
    assert browser.run("studio.hidden")
    assert f'base_url="{server.url}/v1"' in browser.run("python.textContent")
    browser.run("document.getElementById('beside').value = 'base'; beside.dispatchEvent(new Event('change'))")
    type_in(browser, top_p=0.5)
    browser.run("document.querySelector('[name=top_p]').dispatchEvent(new Event('input', {bubbles: true}))")
    browser.run("window.before = true; document.getElementById('language').click()")
    browser.wait("!window.before && document.querySelector('#chat .main:not(:disabled)')?.textContent == '发送'")
    assert browser.run("[beside.value, document.querySelector('[name=top_p]').value]") == ["base", "0.5"]
    for address, shown in (
        ("http://127.0.0.1:1/?view=try", True),
        ("javascript:alert(1)", False),
        ("http://x.y", False),
    ):
        browser.run(f"window.before = true; location.search = '?studio={quote(address)}'")
        browser.wait("!window.before && document.querySelector('#chat .main:not(:disabled)')")
        assert browser.run("studio.hidden ? '' : studio.href") == address * shown


@pytest.mark.nightly
def test_stop_frees_the_place(opened):
    server, browser = opened()
    browser.wait("document.getElementById('model').length == 2")
    type_in(browser, prompt="slow endless", max_tokens=2000)
    browser.run(f"{SEND}.click()")
    browser.wait(f"{LAST}?.querySelector('.text').textContent.length > 20")
    browser.run("[...document.querySelectorAll('#chat button')].find(one => one.textContent == 'Stop').click()")
    browser.wait(f"{LAST}.querySelector('.status').textContent == 'Stopped.'")
    server.wait_for("running_rows", 0)


@pytest.mark.nightly
def test_a_key_is_asked_for(opened):
    server, browser = opened("secret")
    browser.wait("document.getElementById('key').offsetParent !== null")
    type_in(browser, key="secret")
    browser.run("document.getElementById('key').dispatchEvent(new Event('change'))")
    browser.wait("document.getElementById('model').length == 2")
    type_in(browser, prompt="a")
    assert answered(browser) == "<Be brief.|a>"
