"""The page of the server in a headless browser: what is typed is answered, mistakes are shown, Stop frees the place."""

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


def type_in(browser: Browser, **values: object) -> None:
    for name, value in values.items():
        browser.run(f"document.getElementById({name!r}).value = {str(value)!r}")


def answered(browser: Browser) -> str:
    """Click Send, and the text of the answer once it has ended."""
    browser.run("document.getElementById('send').click()")
    browser.wait("!document.getElementById('send').disabled")
    return browser.run("[...document.querySelectorAll('#answer .said')].map(part => part.textContent).join('')")


def status(browser: Browser) -> str:
    return browser.run("document.getElementById('status').textContent")


@pytest.mark.long
def test_texts_and_chats_are_answered_and_mistakes_are_shown(opened):
    server, browser = opened()
    browser.wait("document.getElementById('model').length == 2")
    assert browser.run("document.getElementById('key').offsetParent === null")  # nobody asks for one
    chosen = browser.run("[...document.querySelectorAll('select')].map(select => select.value).join()")
    assert chosen == "poems,chat/completions", "the adapter, which was trained on chats"
    type_in(browser, model="poems", way="completions", prompt="字 é <b>")
    assert answered(browser) == "<字 é <b>>"
    assert browser.run("document.querySelectorAll('#answer b').length") == 0  # texts are shown as texts
    assert status(browser).startswith("12 tokens in ")
    assert server.metric('requests_total{model="poems",outcome="answered"}') == 1
    type_in(browser, way="chat/completions", prompt="hello", max_tokens=3)
    assert answered(browser) == "<he"
    type_in(browser, prompt="silent")
    assert answered(browser) == "" and status(browser).startswith("an empty answer: 0 tokens in ")
    type_in(browser, max_tokens=5000)
    assert answered(browser) == ""
    assert status(browser).startswith("max_tokens: found 5000, at most 2000")


@pytest.mark.nightly
def test_stop_frees_the_place(opened):
    server, browser = opened()
    browser.wait("document.getElementById('model').length == 2")
    type_in(browser, prompt="slow endless", max_tokens=2000)
    browser.run("document.getElementById('send').click()")
    browser.wait("document.querySelectorAll('#answer .said').length > 2")
    browser.run("document.getElementById('stop').click()")
    browser.wait("document.getElementById('status').textContent == 'stopped'")
    server.wait_for("running_rows", 0)


@pytest.mark.nightly
def test_a_key_is_asked_for(opened):
    server, browser = opened("secret")
    browser.wait("document.getElementById('key').offsetParent !== null")
    type_in(browser, key="secret")
    browser.run("document.getElementById('key').dispatchEvent(new Event('change'))")
    browser.wait("document.getElementById('model').length == 2")
    type_in(browser, prompt="a")
    assert answered(browser) == "<a>"
