"""Measures for low memory: what fits, and what docs/low-memory.md names."""

import re

import pytest

from launch.commands.guide import main
from launch.errors import UserError
from launch.plan.hardware import CARDS
from launch.plan.measures import ComparedCase, measures
from tests.recipes.rehearsing import recipes_by_target
from tests.store import ROOT

PAGE = ROOT / "docs" / "low-memory.md"
BAICHUAN = ComparedCase("baichuan-13b", 2, CARDS["4090"])


@pytest.fixture(scope="module")
def of_baichuan():
    return {one.name: one for one in measures(BAICHUAN)}


def test_what_fits_13b_on_two_cards_of_24_gb(of_baichuan):
    """A measure that changes nothing is left out: flash attention is part of the one before it, 16 bit."""
    fitting = {name for name, one in of_baichuan.items() if one.fits}
    assert {"stage 3 with offload", "LoRA on a base of 8 bits", "LoRA, pipeline parallel 2"} < fitting
    assert len(fitting) == 6 and "flash attention" not in of_baichuan and "recompute" in of_baichuan
    assert len({one.numbers for one in of_baichuan.values()}) == len(of_baichuan)
    sharded = of_baichuan["LoRA, stage 3: the base is sharded"]
    assert sharded.phase == "loading" and sharded.card_bytes > 2 * 13.2e9
    offloaded = of_baichuan["LoRA, stage 3 with offload"]
    quantized = of_baichuan["LoRA on a base of 4 bits (QLoRA)"]
    assert quantized.tokens_per_second > 2 * offloaded.tokens_per_second
    assert offloaded.host_bytes > 2 * 2 * 13.2e9  # read as a whole on each rank


def test_the_command_prints_a_table_and_the_page_names_recipes(capsys):
    main(["measures", "llama-tiny", "--gpus", "2", "--card", "T4"])
    title, _, head, *rows = capsys.readouterr().out.splitlines()
    assert title == (
        "llama-tiny, 2 x T4, 16 samples of 1024 tokens a step; this kind of card is uncalibrated (docs/plan.md)"
    )
    assert head.startswith("| measure | GiB on a card") and len(rows) == 19
    with pytest.raises(UserError, match="'nothing' is no directory"):
        main(["measures", "nothing"])
    one_card = measures(ComparedCase("chatglm-6b", 1, CARDS["4090"], length=256))
    assert not any("sharding" in one.flags for one in one_card)
    named = set(re.findall(r"`make ([a-z0-9.-]+)", PAGE.read_text(encoding="utf-8"))) - {"fit"}
    assert len(named) >= 6 and named <= recipes_by_target().keys()
