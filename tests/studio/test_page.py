"""The page in a headless browser, as a person uses it who has read nothing: plan, change, take advice, rehearse, watch,
stop, compare. The pictures of docs/studio.md are taken here, into the folder of the variable STUDIO_PICTURES."""

import os
import shutil
from pathlib import Path

import pytest

from tests.repository_folder import link_repository
from tests.serving.browser import Browser, find_browser
from tests.serving.servers import start

pytestmark = [pytest.mark.long, pytest.mark.skipif(shutil.which("make") is None, reason="no make here")]
TOKEN = "a-token-of-the-tests"
FIRST, SECOND = "build/first/output", "build/second/output"


@pytest.fixture
def browser(tmp_path, monkeypatch):
    """At the page of a studio that make has started."""
    path = find_browser()
    monkeypatch.setenv("STUDIO_TOKEN", TOKEN)
    (tmp_path / "repository").mkdir()
    folder = link_repository(tmp_path / "repository")
    script = 'exec make --no-print-directory -o setup studio ARGS="--port 0"'  # .venv is ours
    ready = r"http://127\.0\.0\.1:(\d+)/#token=.*ready"
    studio = start(["-c", f"import os; os.execvp('sh', ['sh', '-c', {script!r}])"], ready, folder)
    (tmp_path / "profile").mkdir()
    browser = Browser(path, tmp_path / "profile", f"{studio.url}/")
    yield browser
    browser.close()
    assert studio.stop() in (0, -15)


def text(browser: Browser, name: str) -> str:
    return browser.run(f"document.getElementById({name!r}).textContent")


def click(browser: Browser, selector: str) -> None:
    browser.run(f"document.querySelector({selector!r}).click()")


def choose(browser: Browser, **values: str) -> None:
    """Type into controls of the plan, and wait until it is planned."""
    for name, value in values.items():
        control = f"document.getElementById('choice').elements[{name!r}]"
        browser.run(f"{control}.value = {value!r}; {control}.dispatchEvent(new Event('input', {{bubbles: true}}))")
    browser.wait(f"document.getElementById('command').textContent.includes({list(values.values())[-1]!r})")


def picture(browser: Browser, name: str) -> None:
    if folder := os.environ.get("STUDIO_PICTURES"):
        browser.run(
            "document.getElementById('language').style.visibility = 'hidden'"
        )  # its letters may be lacking here
        browser.picture(Path(folder) / f"studio-{name}.png")
        browser.run("document.getElementById('language').style.visibility = ''")


def watched(browser: Browser, output: str, pattern: str, seconds: float = 180) -> None:
    """Until the row of a run says something."""
    row = "[...document.querySelectorAll('#list li')].map(row => row.innerText)"
    browser.wait(f"{row}.some(text => text.includes({output!r}) && /{pattern}/.test(text))", seconds)


def test_from_the_first_view_to_compared_curves(browser):
    browser.wait("!document.getElementById('token_form').hidden")
    browser.run(f"document.getElementById('token').value = {TOKEN!r}")
    click(browser, "#token_form button")
    browser.wait("!document.getElementById('home').hidden")
    click(browser, "#door_plan")
    browser.wait("document.getElementById('verdict').textContent")
    assert text(browser, "command") == "make lora-qwen3-8b"
    assert browser.run("document.title") == "Plan · paddle-llm-recipes"
    assert TOKEN not in browser.run("location.href")
    assert browser.run("[...document.querySelectorAll('label')].filter(label => !label.control).length") == 0

    # A plan that does not fit, and the advice that makes it fit.
    choose(browser, recipe="finetune-llama7b", CARD="4090")
    browser.wait("document.querySelector('#verdict.wrong') && document.querySelector('#advice button')")
    assert browser.run("document.querySelectorAll('#bars .bar').length") == 1
    picture(browser, "plan")
    click(browser, "#advice button")
    browser.wait("document.querySelector('#verdict.good')")
    assert " CARD=4090 ARGS='--" in text(browser, "command")
    planned = browser.run("location.href")
    browser.run("history.back()")
    browser.wait("document.querySelector('#verdict.wrong')")
    browser.run(f"location.href = {planned!r}")  # a link holds the whole choice
    browser.wait("document.querySelector('#verdict.good')")

    # What is refused is told beside the control, and cannot be started.
    choose(browser, GPUS="3")
    browser.wait("document.querySelector('[name=GPUS][aria-invalid]')")
    assert "cannot be dealt to 3" in browser.run("document.querySelector('[name=GPUS]').parentNode.innerText")
    assert browser.run("document.getElementById('rehearse').disabled && !document.getElementById('check')")

    # The length is written by the flag that the recipe has, and its control shows it.
    choose(browser, recipe="pretrain-baichuan13b-lora")
    choose(browser, tokens="1536")
    assert text(browser, "command") == "make pretrain-baichuan13b-lora CARD=4090 ARGS='--max_seq_length 1536'"
    assert browser.run("document.getElementById('choice').elements.tokens.value") == "1536"
    for way, recipe in (("back", "pretrain"), ("back", "finetune"), ("forward", "pretrain")):  # typing: one step
        browser.run(f"history.{way}()")
        browser.wait(f"document.getElementById('choice').elements.recipe.value.startsWith({recipe!r})")
        assert "1536" not in browser.run("location.search")

    # A foreign token changes nothing; nor does a number that cannot be.
    browser.run("location.hash = 'token=foreign'; location.reload()")
    browser.wait("location.hash == '' && document.getElementById('verdict')?.textContent")
    assert browser.run("localStorage.getItem('studio-token')") == TOKEN
    price = "document.querySelector('[name=price]')"
    browser.run(f"{price}.value = -3; {price}.dispatchEvent(new Event('input', {{bubbles: true}}))")
    browser.wait("document.querySelector('[name=price][aria-invalid]')")

    # Data, of a file that is dropped: it is kept, divided without its broken row, and set; what counts is marked.
    choose(browser, recipe="lora-qwen3-8b")
    rows = "".join(f'{{"src": "why {n}?", "tgt": "so."}}\\n' for n in range(9)) + "none"
    browser.run(
        f"const given = new DataTransfer(); given.items.add(new File(['{rows}'], 'mine.json'));"
        "const input = document.getElementById('dropped');"
        "input.files = given.files; input.dispatchEvent(new Event('change'))"
    )
    browser.wait("document.getElementById('next').textContent.includes('broken rows')")
    assert "build/uploads/mine/mine.json:10: not JSON" in text(browser, "data")
    click(browser, "#next button")
    browser.wait("document.querySelector('#data').textContent.includes('train.json')")
    assert "build/uploads/mine/data/train.json: src/tgt, " in text(browser, "data")
    assert text(browser, "command") == "make lora-qwen3-8b DATA=build/uploads/mine/data CARD=4090"
    assert browser.run("document.querySelector('#data pre mark').textContent").startswith("so.<|im_end|>")

    # A rehearsal, its curve and its log; then another, which is stopped, beside it.
    choose(browser, recipe="lora-tiny", OUTPUT="build/first")
    browser.wait("!document.getElementById('rehearse').disabled")
    click(browser, "#rehearse")
    assert browser.run(
        "document.querySelector('#rehearse:disabled, #runs:not([hidden])') !== null"
    )  # for a second click
    watched(browser, FIRST, "running")
    browser.run("list.firstChild.dataset.mark = 'kept'")
    watched(browser, FIRST, r"finished[^]*step 20 of 20")
    assert browser.run("list.firstChild.dataset.mark") == "kept"  # updated in place
    browser.wait("document.querySelectorAll('#curves polyline').length >= 4")
    browser.wait("document.getElementById('log').textContent.includes('rehearsed. Logs of all ranks')")
    picture(browser, "run")
    click(browser, "#to_plan")
    choose(browser, ARGS="--learning_rate 1e-2", OUTPUT="build/second")
    click(browser, "#rehearse")
    watched(browser, SECOND, r"(running|finished)[^]*\d\.\d{4}")
    for _ in range(2):  # it asks once; on a fast machine it may have ended by itself
        browser.run("document.querySelector('[id^=stop]')?.click()")
    watched(browser, SECOND, "stopped|finished")
    click(browser, "#one a")  # back to the list, where both are ticked
    for output in (FIRST, SECOND):
        browser.run(f"document.getElementById('show{output}').click()")
    browser.wait("!document.getElementById('compare').disabled")
    click(browser, "#compare")
    label = "document.querySelector('#curves .legend').textContent"
    browser.wait(f"{label}.includes('Rehearsal: LoRA · demo · ')")
    browser.wait("new Set([...document.querySelectorAll('#curves polyline')].map(line => line.outerHTML)).size >= 8")
    picture(browser, "runs")
    rows = "[...document.querySelectorAll('#differences tr')].map(row => [...row.cells].map(cell => cell.textContent))"
    [[flag, *values]] = [row for row in browser.run(rows) if row[0].startswith("--")]
    assert flag == "--learning_rate" and sorted(map(float, values)) == [0.005, 0.01]
    browser.run(  # a chart, as a mouse reads it
        "const svg = document.querySelector('#curves svg'), box = svg.getBoundingClientRect(), at = left => svg"
        ".dispatchEvent(new PointerEvent('pointermove', {bubbles: true, clientX: left, clientY: box.top + 20}))"
    )
    for place, step in (("box.right - 5", 20), ("box.left", 1)):
        browser.run(f"at({place})")
        assert browser.run("document.querySelector('.read').textContent").startswith(f"step {step}: ")
    browser.run("drawing.log.click()")  # as new records do, it draws anew: what is read stays
    assert browser.run("document.querySelector('.read').textContent").startswith("step 1: ")

    # The other language: no word is left out.
    click(browser, "#language")
    browser.wait("document.documentElement.lang == 'zh' && document.getElementById('to_plan').textContent == '计划'")
