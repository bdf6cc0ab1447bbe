"""Runs of the page in a headless browser: what a row and a comparison say of runs whose files are written here."""

import json
from pathlib import Path

import psutil
import pytest

from tests.serving.browser import Browser
from tests.studio.test_page import click, text
from tests.studio.test_walk import go

pytestmark = pytest.mark.long
ROWS = "[...document.querySelectorAll('#differences tr')].map(row => [...row.cells].map(one => one.innerText))"


def write_run(output: Path, steps: int, losses: dict[int, float], held_out: dict[int, float], **flags) -> None:
    """Write the files of a finished run."""
    output.mkdir(parents=True, exist_ok=True)
    records = [{"global_step": step, "loss": loss, "progress": step / steps} for step, loss in losses.items()]
    records += [{"global_step": step, "eval_loss": loss} for step, loss in held_out.items()]
    records.sort(key=lambda record: record["global_step"])
    (output / "train_log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (output / "run_summary.json").write_text(json.dumps({"arguments": {"A": flags}}))


def write_start(folder: Path, name: str, pid: int = 2**22, created: float = 1.0, **given: str) -> None:
    """Write what a studio knows of a run that it has started; by default it has ended."""
    known = {"name": name, "command": "make lora-tiny", "action": "run", "pid": pid, "created": created}
    known |= {"output": f"build/{name}", "log_dir": f"build/{name}/log"} | given
    (folder / "build/studio").mkdir(parents=True, exist_ok=True)
    (folder / f"build/studio/{name}.json").write_text(json.dumps(known))


def better(browser: Browser, url: str, words: str) -> None:
    go(browser, url, {"view": "runs", "shown": "build/short|build/long"})
    browser.wait(f"document.getElementById('better')?.textContent.includes({words!r})")


def test_runs_of_other_lengths_and_rates_are_ranked_by_their_last_held_out_losses(page):
    folder, browser, url = page
    same = {"dataset_name_or_path": "['d']", "model_name_or_path": "m", "seed": 1}
    write_run(folder / "build/short", 20, {1: 3.0, 20: 2.5}, {20: 2.4}, **same, max_steps=20, learning_rate=1e-3)
    longer = {"max_steps": 40, "learning_rate": 3e-4, "num_train_epochs": 2, "seed": 2}
    longer["dataset_name_or_path"] = "d"  # as a command names it whose summary is not yet written
    write_run(folder / "build/long", 40, {1: 3.0, 40: 1.5}, {20: 2.5, 40: 2.25}, **same | longer)
    better(browser, url, ", 2.2500 (then 2.4000; their steps differ: 40, 20)")
    assert text(browser, "better").startswith("The lowest loss on held-out rows: long")
    assert ["Last loss on held-out rows", "2.2500 (step 40)", "2.4000 (step 20)"] in browser.run(ROWS)
    assert "Duration" in [row[0] for row in browser.run(ROWS)]
    for flag, words in (("dataset_name_or_path", "the data"), ("tokenizer_name_or_path", "the model")):
        for name in ("short", "long"):
            flags = {"arguments": {"A": same | {flag: name}}}
            (folder / f"build/{name}/run_summary.json").write_text(json.dumps(flags))
        better(browser, url, f"cannot be ranked by their losses, for they differ in {words} (short / long). Ask both")


def test_a_row_shows_step_loss_and_time_once_and_that_it_is_stopping(page):
    folder, browser, url = page
    alive, output = psutil.Process(), folder / "build/demo/model"  # this one stands for a demo that goes on
    output.mkdir(parents=True)
    record = {"global_step": 20, "loss": 3.25, "progress": 0.04, "eta_seconds": 1541.0}
    (output / "train_log.jsonl").write_text(json.dumps(record) + "\n")
    write_start(
        folder, "x", alive.pid, alive.create_time(), action="demo", command="make demo", output="build/demo/model"
    )
    (folder / "build/studio/x.log").write_text("step 20/500 4%  loss 3.2500  ETA 25m41s\n")
    go(browser, url, {"view": "runs"})
    told = "document.querySelector('#list .below .small')?.textContent"
    browser.wait(told)
    assert browser.run(told) == "step 20 of 500 · loss 3.2500 · minutes left: 26 · build/demo/model"
    (folder / "build/studio/x.stop").touch()
    browser.wait("document.querySelector('#list .state').textContent == '▶ stopping: saving a checkpoint'")
    buttons = "[...document.querySelectorAll('#list .buttons button')].map(one => one.textContent)"
    assert browser.run(buttons) == ["Name and notes"]
    assert browser.run(told) == "step 20 of 500 · loss 3.2500 · build/demo/model"


SCORES = [  # losses, losses on held-out rows, whether it goes on, what is said
    ({1: 3.061, 20: 3.229}, {}, True, "It is too early to say whether it learns."),
    ({1: 3.061, 2: 9.2}, {}, True, "The loss has climbed: lower the learning rate. It went from 3.061 to 9.200"),
    ({1: 3.061, 2: 3.2, 40: 3.229}, {}, True, "It is too early to say whether it learns."),  # of 500
    ({1: 3.0, 20: 3.2, 60: 2.5}, {}, True, "learning: loss fell from 3.000 to 2.500"),
    ({1: 3.0, 20: 3.2, 60: 3.25}, {}, True, "not learning: loss went from 3.000 to 3.250"),
    ({1: 3.0, 9: 3.2, 18: 2.5}, {}, False, "learning: loss fell from 3.000 to 2.500"),
    ({1: 6.0, 2: 0.9, 12: 2.7}, {12: 2.9}, False, "These are too few steps to say whether it has learned."),
    ({1: 3.0, 2: 1.0, 17: 3.5, 18: 2.5}, {}, False, "no clear trend: loss went from 3.000 to 2.500"),
    (
        {1: 6.0, 9: 1.0, 114: 0.002},
        {114: 1.084},
        False,
        "learning: loss fell from 6.000 to 0.002, on held-out rows: 1.084",
    ),
    (
        {1: 6.0, 60: 1.0, 114: 0.002},
        {38: 0.9, 76: 0.8, 114: 1.084},
        False,
        "overfitting: on held-out rows loss rose from 0.800 to 1.084 (since step 76), "
        "on training rows from 6.000 to 0.002",
    ),
    (
        {1: 3.0, 9: 3.2, 18: 3.5},
        {6: 3.0, 18: 2.5},
        False,
        "learning: on held-out rows loss fell from 3.000 to 2.500, on training rows from 3.000 to 3.500",
    ),
]


def test_whether_a_run_learns_is_said_after_enough_steps_and_not_against_the_held_out_rows(page):
    folder, browser, url = page
    alive = psutil.Process()
    for place, (losses, held_out, goes_on, words) in enumerate(SCORES):
        write_run(folder / f"build/run{place}", 500, losses, held_out, warmup_steps=3)
        if goes_on:
            write_start(folder, f"run{place}", alive.pid, alive.create_time() - 1)
        go(browser, url, {"view": "runs", "shown": f"build/run{place}"})
        browser.wait(f"document.querySelector('#curves .legend')?.textContent == {words!r}")


def test_an_evaluation_is_told_in_words_beside_the_base_with_its_answers(page):
    folder, browser, url = page
    write_run(folder / "build/chats", 40, {1: 3.0, 40: 1.5}, {}, dataset_name_or_path="['data']")
    (folder / "build/chats/config.json").write_text((folder / "launch/families/configs/llama-tiny.json").read_text())
    (folder / "data").mkdir()
    (folder / "data/dev.json").write_text('{"src": "Where?", "tgt": "In Fort Quill."}\n')
    (folder / "evaluations").mkdir()
    for name, answer, f1 in (("", "Fort Quill.", 0.8), ("-base", "<b>No</b>", 0.25)):
        sample = {"digest": "d", "place": "data/dev.json:1", "resps": [[answer]], "metrics": ["exact_match", "f1"]}
        report = {"results": {"pairs": {"exact_match,none": 0.0, "f1,none": f1}}, "samples": {"pairs": [sample]}}
        (folder / f"evaluations/chats{name}.json").write_text(json.dumps(report))
    command = "make evaluate MODEL=build/chats TASKS=pairs=data/dev.json OUTPUT=evaluations/chats.json"
    write_start(folder, "measured", action="evaluate", command=command, output="evaluations/chats.json")
    (folder / "build/studio/measured.exit").write_text("0")
    (folder / "build/studio/measured.log").write_text("")
    go(browser, url, {"view": "try", "result": "build/chats"})
    rows = "[...document.querySelectorAll('#task_evaluate tr')].map(row => [...row.cells].map(one => one.textContent))"
    browser.wait(f"{rows}.length == 5")
    assert browser.run(rows) == [
        ["Measure", "Base", "Result"],
        ["answers that are the reference, letter by letter", "0.0%", "0.0%"],
        ["F1, words shared with the reference", "25.0%", "80.0%"],
        ["Question", "Reference", "Base", "Result"],
        ["Where?", "In Fort Quill.", "<b>No</b>", "Fort Quill."],
    ]
    words = "Held-out rows: 1, better than the base; so few rows say little: the difference may be chance"
    assert words in text(browser, "task_evaluate")


FAILED = """error: launch: stopped after step 5: the gradient is 0 in 3 records in a row: the weights do not change.
Likely causes, the likeliest first:
  1. the learning rate is too high: found 90, try 0.0001; also --max_grad_norm 1.0
  2. no token counts: every answer was cut off (--src_length, --max_length), or labels are all ignored
Nothing was saved since: there is no checkpoint yet. To go on all the same: --loss_watch 0.
"""


def test_a_failed_run_names_the_likeliest_cause_and_starts_anew_where_it_has_no_checkpoint(page):
    folder, browser, url = page
    write_start(folder, "bad")
    (folder / "build/studio/bad.exit").write_text("2")
    (folder / "build/studio/bad.log").write_text(FAILED)
    go(browser, url, {"view": "runs"})
    browser.wait("document.querySelector('#list .reason')?.textContent")
    assert browser.run("document.querySelector('#list .reason > p').textContent") == (
        "launch: stopped after step 5: the gradient is 0 in 3 records in a row: the weights do not change. "
        "The likeliest cause: the learning rate is too high: found 90, try 0.0001; "
        "also --max_grad_norm 1.0 (exit code 2)"
    )
    buttons = "[...document.querySelectorAll('#list .buttons button')].map(one => one.textContent)"
    assert "Start anew" in browser.run(buttons) and "Resume" not in browser.run(buttons)
    assert browser.run("document.querySelector('#list .buttons .main').textContent") == "Change and run again"


def test_a_finished_run_leads_to_what_comes_after_and_a_rehearsal_to_the_real_run(page):
    folder, browser, url = page
    config = (folder / "launch/families/configs/llama-tiny.json").read_text()
    for name, action, command in (
        ("done", "run", "make lora-tiny OUTPUT=build/done"),
        ("rehearsed", "rehearse", "make rehearse-lora-qwen3-8b OUTPUT=build/rehearsed"),
    ):
        write_run(folder / f"build/{name}", 40, {1: 3.0, 40: 1.5}, {20: 2.5, 40: 2.25})
        (folder / f"build/{name}/config.json").write_text(config)
        write_start(folder, name, action=action, command=command)
    buttons = "[...document.querySelectorAll('#list .buttons button')].filter(one => one.checkVisibility())"
    row = "[...document.querySelectorAll('#list li:not([hidden])')].map(one => one.innerText).join()"
    go(browser, url, {"view": "runs", "shown": "build/rehearsed"})
    browser.wait(f"{row}.includes('The rehearsal passed. The real run: make lora-qwen3-8b OUTPUT=build/rehearsed')")
    assert browser.run(f"{buttons}.map(one => one.textContent)") == ["Change and run again", "Name and notes"]
    go(browser, url, {"view": "runs", "shown": "build/done"})
    browser.wait(f"{row}.includes('loss 1.5000 · loss on held-out rows 2.2500')")
    assert browser.run(f"{buttons}.map(one => one.textContent)")[:2] == ["Try", "Keep: merge, export, serve"]
    browser.run("document.querySelector('[id^=keep]').click()")
    browser.wait("document.querySelector('#try:not([hidden]) #after:not([hidden]) #task_export')")
    browser.wait("document.getElementById('after').getBoundingClientRect().top < innerHeight")
    assert text(browser, "trial") == ""  # nothing is loaded for it


def test_charts_are_read_by_keys_and_zoomed_by_two_fingers_and_buttons(page):
    folder, browser, url = page
    write_run(folder / "build/done", 100, {step: 3 - step / 100 for step in range(1, 101)}, {50: 2.75, 100: 2.25})
    browser.show_as(390, 844, "light")
    go(browser, url, {"view": "runs", "shown": "build/done"})
    chart = "document.querySelector('#curves svg')"
    browser.wait(chart)
    told = "document.querySelector('#curves .read').innerText.replace(/\\s+/g, ' ').trim()"
    browser.run(f"{chart}.focus()")
    for key, words in (
        ("Home", "step 1: 2.99 evaluation 2.75 (50)"),
        ("ArrowRight", "step 2: 2.98 evaluation 2.75 (50)"),
        ("PageDown", "step 12: 2.88 evaluation 2.75 (50)"),
        ("End", "step 100: 2 evaluation 2.25"),
        ("ArrowLeft", "step 99: 2.01 evaluation 2.25 (100)"),
    ):
        browser.call("Input.dispatchKeyEvent", {"type": "keyDown", "key": key})
        assert browser.run(told) == words
        assert browser.run(f"{chart}.ariaValueText").startswith(words.split(":")[0])
    browser.call("Input.dispatchKeyEvent", {"type": "keyDown", "key": "+"})
    assert browser.run("new URLSearchParams(location.search).get('zoom')") == "50-100"
    assert browser.run(f"document.activeElement == {chart} && {told}") == "step 99: 2.01 evaluation 2.25 (100)"
    click(browser, "#zoom_out")
    assert "zoom" not in browser.run("location.search")

    browser.run(f"{chart}.scrollIntoView({{block: 'center'}})")
    left, width, top = browser.run(
        f"(({{left, width}}) => [left, width, {chart}.getBoundingClientRect().top + 50])({chart}.plot())"
    )
    for kind, shares in (
        ("touchStart", (0.4, 0.6)),
        ("touchMove", (0.3, 0.7)),
        ("touchMove", (0.2, 0.8)),
        ("touchEnd", ()),
    ):
        points = [{"x": left + share * width, "y": top, "id": place} for place, share in enumerate(shares)]
        browser.call("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    browser.wait("/zoom=3[345]-6[678]/.test(location.search)")  # a third: what lay under the fingers stays there
    first, last = browser.run(f"{chart}.steps")
    click(browser, "#farther")
    browser.wait(f"{chart}.steps[1] - {chart}.steps[0] >= {2 * (last - first)}")


def test_runs_are_found_by_words_and_taken_from_the_list_without_their_files(page):
    folder, browser, url = page
    for name in ("first", "second"):
        write_run(folder / f"build/{name}", 10, {1: 3.0, 10: 2.0}, {}, do_train=True)
    write_run(folder / "build/judged/evaluation", 10, {}, {1: 2.0}, do_train=False)  # no run
    go(browser, url, {"view": "runs"})
    links = "[...document.querySelectorAll('#list li:not([hidden]) .title a:first-child')]"
    links += ".map(one => one.textContent.split(' ')[0])"
    browser.wait(f"{links}.length == 2 && other_work.textContent == 'Other work (1)'")

    def search(words: str) -> None:
        browser.run(f"search.value = {words!r}; search.dispatchEvent(new Event('input'))")

    search("FIN build/second")
    assert browser.run(links) == ["second"] and "q=FIN+build" in browser.run("location.search")
    search("nothing")
    assert browser.run(links) == [] and browser.run("!none_found.hidden")
    search("")
    press = "[...document.querySelectorAll('#list li:not([hidden]) .note button')].at(-1).click()"
    click(browser, "[id='notebuild/second']")
    browser.run(press)
    browser.wait(f"{links}.join() == 'first' && hidden_runs.textContent == 'Taken from the list (1)'")
    assert (folder / "build/second/train_log.jsonl").exists()
    click(browser, "#hidden_runs")
    browser.wait(f"{links}.join() == 'second'")
    click(browser, "[id='notebuild/second']")
    browser.run(press)
    click(browser, "#only_runs")
    browser.wait(f"{links}.length == 2")


def test_a_long_list_is_short_at_first_sorted_by_loss_and_seen_again_where_one_was(page):
    folder, browser, url = page
    for place in range(35):
        loss = 9 - place % 7 - place / 100  # place 34 has the lowest
        write_run(folder / f"build/run{place:02}", 10, {1: 9.0, 10: 2.0}, {10: loss}, do_train=True)
    browser.show_as(390, 844, "light")
    go(browser, url, {"view": "runs"})
    listed = "[...document.querySelectorAll('#list li:not([hidden])')].map(one => one.output)"
    browser.wait(f"{listed}.length == 30 && all_runs.textContent == 'Show all (35)'")
    click(browser, "#sort")
    assert browser.run(listed)[:3] == ["build/run34", "build/run27", "build/run20"]
    click(browser, "#all_runs")
    assert len(browser.run(listed)) == 35
    browser.run("scrollTo(0, 2000)")
    browser.wait("sessionStorage.getItem(`scroll ${location.search}`) == 2000")
    click(browser, "[id='openbuild/run13']")
    browser.wait("document.querySelector('#curves svg') && scrollY == 0")
    browser.run("history.back()")
    browser.wait(f"{listed}.length == 35 && scrollY == 2000")
    assert browser.run("comparing.getBoundingClientRect().top") == 0  # in sight
    browser.run("window.before = true; location.reload()")
    browser.wait(f"!window.before && {listed}.length == 35 && scrollY == 2000")


def test_a_run_leads_to_a_plan_with_its_own_choice_alone(page):
    folder, browser, url = page
    write_run(folder / "build/done", 10, {1: 3.0, 10: 2.0}, {})
    write_start(folder, "done", command="make lora-tiny OUTPUT=build/done ARGS='--learning_rate 3e-3'")
    go(browser, url, {"view": "runs", "smooth": "0.5"})
    browser.wait("document.querySelector('[id=\"planbuild/done\"]')")
    click(browser, "[id='planbuild/done']")
    browser.wait("location.search.includes('view=plan')")
    wanted = "?recipe=lora-tiny&OUTPUT=build%2Fdone&ARGS=--learning_rate+3e-3"
    assert set(browser.run("location.search.slice(1)").split("&")) == {"view=plan", *wanted[1:].split("&")}
