"""A studio in a folder of its own with a browser at its page."""

import pytest

from tests.repository_folder import link_repository
from tests.serving.browser import Browser, find_browser
from tests.serving.servers import start

TOKEN = "a-token-of-the-tests"
STUDIO = "from launch.commands import studio; studio.main(['--port', '0'])"


@pytest.fixture
def page(tmp_path, monkeypatch, request):
    """(folder of a studio, a browser at its page, its address). With a parameter: what the studio runs before."""
    path = find_browser()
    monkeypatch.setenv("STUDIO_TOKEN", TOKEN)
    (tmp_path / "repository").mkdir()
    folder = link_repository(tmp_path / "repository")
    studio = start(["-c", getattr(request, "param", "") + STUDIO], r"http://127\.0\.0\.1:(\d+)/#token=.*ready", folder)
    (tmp_path / "profile").mkdir()
    browser = Browser(path, tmp_path / "profile", f"{studio.url}/")
    browser.wait("!document.getElementById('token_form').hidden")  # the answer to its first request, without a token
    browser.run(f"localStorage.setItem('studio-token', {TOKEN!r})")
    browser.watch()
    browser.faults.clear()  # before it had the token
    yield folder, browser, studio.url
    browser.close()
    assert studio.stop() == 0
