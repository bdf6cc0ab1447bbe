"""The plan and the data of the studio's page under quick hands: what is given stays, and faults are said."""

import pytest

from tests.studio.test_page import text
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
