"""The Chinese catalog: complete, with the same facts as the English messages, and used where they are printed."""

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from data_tools import language
from data_tools.language import CATALOG, PLACE, is_chinese, read_catalog, read_po, translated
from data_tools.terminal import columns, wrapped
from docs.tools.messages import messages
from launch.config.layout import ACCUMULATION, MICRO_BATCH, Layout, keep_global_batch

ROOT = Path(__file__).resolve().parents[2]
CHINESE = re.compile(r"[\u4e00-\u9fff]")
# What a translation repeats to the letter: flags, variables of make, numbers, paths, quoted commands.
FACTS = re.compile(
    r"--\w+|\b[A-Z][A-Z_]{2,}=|(?<![\w{.])\d[\d.,]*\d|`[^`]+`|"
    r"\b(?:docs|launch|data_tools|benchmarks|requirements)/[\w/.]*\w"
)


def test_every_message_of_the_code_is_translated():
    catalog = read_po(CATALOG)
    missing = [one for one in messages() if not catalog.get(one)]
    assert not missing, "python -m docs.tools.messages, then translate:\n" + "\n".join(missing)
    gone = catalog.keys() - {"", *messages()}
    assert not gone, "python -m docs.tools.messages leaves out:\n" + "\n".join(gone)


def test_a_translation_has_the_facts_of_its_message():
    for english, chinese in read_po(CATALOG).items():
        if english:
            assert Counter(PLACE.findall(english)) == Counter(PLACE.findall(chinese)), english
            assert set(FACTS.findall(english)) <= set(FACTS.findall(chinese)), english


def test_messages_are_found_by_their_templates(monkeypatch):
    """Each template, filled with numbers, comes out as its own translation with the same numbers."""
    wrong = []
    for english, chinese in read_po(CATALOG).items():
        places = sorted(set(PLACE.findall(english)))
        letters = sum(letter.isalpha() for letter in PLACE.sub("", english))
        if not english or (places and letters < language.SHORTEST_LITERAL):
            continue
        fill = {number: f"7{number}3" for number in places}
        filled, expected = (PLACE.sub(lambda place: fill[place[1]], text) for text in (english, chinese))
        if translated(filled) != expected:
            wrong.append(f"{filled}\n  {translated(filled)}\n  {expected}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("environment", "chinese"),
    [
        ({}, False),
        ({"LANG": "C.UTF-8"}, False),
        ({"LANG": "zh_CN.UTF-8"}, True),
        ({"LANG": "en_US.UTF-8", "LC_ALL": "zh_TW"}, True),
        ({"LANG": "zh_CN.UTF-8", "LC_MESSAGES": "en_US.UTF-8"}, False),
        ({"LANG": "en_US.UTF-8", "LAUNCH_LANG": "zh"}, True),
        ({"LANG": "zh_CN.UTF-8", "LAUNCH_LANG": "en"}, False),
    ],
)
def test_which_language(environment, chinese):
    assert is_chinese(environment) is chinese


def test_what_the_catalog_does_not_have_stays():
    assert translated("Zyx wvu tsr.") == "Zyx wvu tsr."
    assert translated("") == ""


@pytest.mark.parametrize(
    "title",
    [
        "optimizer and gradients in host memory",
        "optimizer, gradients and parameters in host memory",
        "optimizer in host memory between steps",
        "nothing in host memory",
    ],
)
def test_what_fit_keeps_in_host_memory_is_a_phrase(title):
    line = translated(f"FIT for 4090: {title}: 25.7 -> 21.2 GiB, time a token x 1.10")
    assert line == f"FIT（4090）：{read_catalog().exact[title]}：25.7 -> 21.2 GiB，每个 token 的时间 x 1.10"


def test_a_smaller_micro_batch_is_told_in_chinese():
    words = {ACCUMULATION: ["1"], MICRO_BATCH: ["2"]}
    _, line = keep_global_batch(words, Layout.from_flags(words, 8), 16)
    assert translated(line) == f"GPUS：16，而不是 8，--{MICRO_BATCH} 1，而不是 2：每步样本数不变"


def test_parts_of_a_joined_message_are_translated_and_the_rest_stays():
    exact = next(english for english in read_catalog().exact if english.startswith("one of them"))
    both = translated(f"Zyx wvu; {exact}")
    assert both == f"Zyx wvu；{read_catalog().exact[exact]}"


def test_chinese_is_wrapped_by_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    lines = wrapped("这台机器上没有显卡，" * 6 + "make rehearse-lora-1gpu", "  ", "    ").splitlines()
    assert all(columns(line) <= 42 for line in lines)  # a closing mark may stand out
    assert "".join(line.strip() for line in lines) == "这台机器上没有显卡，" * 6 + "make rehearse-lora-1gpu"
    assert not any(line.strip().startswith("，") for line in lines)


def test_a_long_text_takes_no_time(monkeypatch):
    """Counted, not measured: how often a template is held against a text."""
    tried = []
    original = language.Template.values
    monkeypatch.setattr(language.Template, "values", lambda self, text: tried.append(1) or original(self, text))
    templates = len(read_catalog().templates)
    compiler = "\n".join(f"  | error: a{number}: b, c; d. e: f, g" for number in range(200))
    text = f"building fused_ln failed:\n{compiler}\nZyx wvu, tsr: qpo; nml. " + "k, j: i; h. " * 500
    assert translated(text).count("  | error") == 200
    assert len(tried) <= 4 * templates  # the whole, and each of its lines that is not indented
    tried.clear()
    translated("a, b: c; d. " * 30)
    joints = 4 * 30 - 1
    assert len(tried) <= (2 * joints + 2) * templates  # the whole, and both sides of each place to cut it


def output(command: list[str], **environment) -> tuple[str, int]:
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, timeout=120, check=False
    )
    return done.stdout + done.stderr, done.returncode


def numbers(text: str) -> Counter[str]:
    """All but the free disk space, which other processes change between two commands."""
    return Counter(re.findall(r"\d+", re.sub(r"\d+ GB free|空闲 \d+ GB", "", text)))


def test_plan_preflight_and_errors_are_printed_in_chinese_with_the_same_numbers():
    python = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    commands = [
        (["bash", "recipes/llama-7b/pretrain.sh"], {"ACTION": "plan", "PATH": python}, "每"),
        (["bash", "recipes/llama-7b/lora.sh"], {"ACTION": "run", "PATH": python, "DATA": "/nowhere"}, "解决"),
        ([sys.executable, "launch/commands/plan_run.py", "no-such-model"], {}, "no-such-model"),
    ]
    for command, environment, part in commands:
        english, code = output(command, **environment, LAUNCH_LANG="en")
        chinese, chinese_code = output(command, **environment, LAUNCH_LANG="zh")
        assert code == chinese_code
        assert not CHINESE.search(english)
        assert part in chinese
        assert len(CHINESE.findall(chinese)) > 20, chinese
        assert numbers(english) == numbers(chinese), chinese
