"""The page without a server: in a browser it shows the numbers of the command."""

import json
import shutil
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from launch.commands import studio_static
from launch.errors import UserError
from launch.studio.answers import answer_in_json
from tests.serving.browser import Browser, find_browser
from tests.studio.test_planning import choice, printed

CHOICES = [
    choice("lora-qwen3-8b", GPUS="2", CARD="3090", ARGS="--max_length 2048"),
    choice("finetune-llama7b-pipeline"),
    choice("lora-tiny"),
    choice("finetune-qwen2.5-0.5b"),
]


def test_a_mistake_is_an_answer():
    assert "recipe: found 'x'" in json.loads(answer_in_json("plan", '{"recipe": "x"}', False))["detail"]
    assert "发现 'x'" in json.loads(answer_in_json("plan", '{"recipe": "x"}', True))["detail"]


def test_a_folder_with_files_is_refused_and_what_is_there_stays(tmp_path):
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(UserError, match="not an empty folder"):
        studio_static.main(["--output", str(tmp_path)])
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_without_npm_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match="npm: not found.*install Node.js"):
        studio_static.main(["--output", str(tmp_path / "page")])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_the_numbers_are_those_of_the_command(tmp_path):
    path = find_browser()
    if not shutil.which("npm"):
        pytest.skip("no npm here")
    try:
        studio_static.main(["--output", str(tmp_path / "page")])
    except UserError as error:
        if "was not fetched" in str(error):
            pytest.skip(str(error))
        raise
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "page"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    (tmp_path / "profile").mkdir()
    browser = Browser(path, tmp_path / "profile", f"http://127.0.0.1:{server.server_port}/")
    try:
        browser.wait("document.getElementById('verdict').textContent", seconds=120)
        assert browser.run("document.querySelector('nav').hidden && document.getElementById('loading').hidden")
        for chosen in CHOICES:
            given = json.dumps({"recipe": chosen.recipe.target} | chosen.variables)
            asked = f"fetch('api/plan', {{body: {given!r}}}).then(reply => reply.json())"
            found = browser.run(f"{asked}.then(found => JSON.stringify(found.plan))")
            plan = json.loads(found)
            plan.pop("peak_parts")
            assert plan == printed(chosen)
    finally:
        browser.close()
        server.shutdown()
        server.server_close()
