"""The Chinese catalog: complete, with the same facts as the English messages, and used where they are printed."""

import os
import re
import subprocess
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_tools import language
from data_tools.dialogues.samples import Cuts
from data_tools.language import CATALOG, PLACE, is_chinese, localized, read_catalog, read_po, translated
from data_tools.terminal import CLOSING, columns, wrapped
from docs.tools.messages import ROOT, messages
from launch.environment.targets import help_text
from launch.plan.plan_report import _row
from tests.fuzzing import FEW_AND_MANY, cases, texts
from tests.recipes.machine import Machine

CHINA = {"LAUNCH_LANG": "zh"}
CHINESE = re.compile(r"[\u4e00-\u9fff]")
# What a translation repeats to the letter: flags, variables of make, numbers, paths, quoted commands.
FACTS = re.compile(
    r"--\w+|\b[A-Z][A-Z_]{2,}=|(?<![\w{.])\d[\d.,]*\d|`[^`]+`|"
    r"\b(?:docs|launch|data_tools|benchmarks|requirements)/[\w/.]*\w"
)


def test_every_message_of_the_code_is_translated_with_its_facts():
    catalog = read_po(CATALOG)
    missing = [one for one in messages() if not catalog.get(one)]
    assert not missing, "python -m docs.tools.messages, then translate:\n" + "\n".join(missing)
    gone = catalog.keys() - {"", *messages()}
    assert not gone, "python -m docs.tools.messages leaves out:\n" + "\n".join(gone)
    for english, chinese in read_po(CATALOG).items():
        if english:
            assert Counter(PLACE.findall(english)) == Counter(PLACE.findall(chinese)), english
            same_pages = chinese.replace("docs/zh/", "docs/")
            assert set(FACTS.findall(english)) <= set(FACTS.findall(same_pages)), english
            pages = re.findall(r"(?<![\w/])docs/([\w-]+\.md)", chinese)
            assert [page for page in pages if (ROOT / "docs/zh" / page).exists()] == [], (
                f"not the Chinese page: {chinese}"
            )


def test_messages_are_found_by_their_templates(monkeypatch):
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


def test_parts_of_a_joined_message_are_translated_and_the_rest_stays():
    assert translated("Zyx wvu tsr.") == "Zyx wvu tsr." and translated("") == ""
    assert translated("'src' is not a text: 5") == "'src' 不是文本：5"
    exact = next(english for english in read_catalog().exact if english.startswith("one of them"))
    both = translated(f"Zyx wvu; {exact}")
    assert both == f"Zyx wvu；{read_catalog().exact[exact]}"


def test_counts_of_what_was_cut_are_chinese_with_the_flag_that_mends_it():
    cuts = Cuts(3, 1, 2, 1, Counter(empty_reasoning=4))
    line = translated(f"of 1 dialogue: {cuts}, the longest has 3,072 tokens, --max_length 128")
    assert line.startswith("共 1 段对话：截断：3 个问题，1 个回答，2 个后续轮次；4 个回答没有推理")
    assert line.endswith("落在一个 token 之内，最长的有 3,072 个 token，--max_length 128")
    assert translated(cuts.fix) == "增大 --src_length 和 --max_length"
    assert translated("an empty cup") == "an empty cup", "no count"


@pytest.mark.parametrize(
    ("english", "chinese"),
    [
        ("flash attention: off (no GPU), exact attention", "flash attention：未启用（没有 GPU），精确注意力"),
        (
            "flash attention, tensor parallel beside products, no recompute",
            "flash attention，张量并行的通信与乘法重叠，不重计算",
        ),
        (
            "samples of 144 tokens + QLoRA: a base of 4 bits (tight)",
            "144 个 token 的样本 + QLoRA：4 比特的基座（很紧）",
        ),
        (
            '(1) ARGS="--lora 1": 21.1 GiB, time a token x 1.03; (2) ARGS="-a": 9.0 GiB, a/b',
            '(1) ARGS="--lora 1"：21.1 GiB，每个 token 的时间 x 1.03；(2) ARGS="-a"：9.0 GiB，a/b',
        ),
        (
            "fits: 9.5 GiB at the peak (backward, stage 1), A100-40G: 39.1 GiB",
            "放得下：峰值 9.5 GiB（反向，阶段 1），A100-40G：39.1 GiB",
        ),
        (
            "DOES NOT FIT: 9.5 GiB at the peak (forward), x: 8.0 GiB; uncalibrated (docs/plan.md)",
            "放不下：峰值 9.5 GiB（前向），x：8.0 GiB；未经校准（docs/plan.md）",
        ),
        ("fits: 9.5 GiB at the peak (loading), x: 8.0 GiB", "放得下：峰值 9.5 GiB（加载），x：8.0 GiB"),
        ("bfloat16, recompute full, loss in chunks", "bfloat16，整层重计算（full），损失分块计算"),
        (
            "2 broken rows, --max_broken_rows allows 0: a/b.jsonl:3: not JSON, Expecting value at column 52; "
            "a/b.jsonl:12: the last message is no answer: user. Mend or remove them, or leave them out: "
            "--max_broken_rows 2.",
            "2 行损坏，--max_broken_rows 允许 0：a/b.jsonl:3：不是 JSON，第 52 列 Expecting value；"
            "a/b.jsonl:12：最后一条消息不是回答：user。请改正或删除这些行，或者跳过它们：--max_broken_rows 2。",
        ),
        (
            "9.0 GB needed (2 x 4.0 GB of checkpoints + 1.0 GB model), 3 GB free at a/b",
            "需要 9.0 GB（2 x 4.0 GB 检查点 + 1.0 GB 模型），a/b 处有 3 GB",
        ),
    ],
)
def test_a_line_of_several_messages_is_chinese_as_a_whole(english, chinese):
    assert translated(english) == chinese


def test_the_columns_of_a_plan_are_chinese(monkeypatch):
    monkeypatch.setenv("LAUNCH_LANG", "zh")
    assert _row("peak phase", ["backward", "optimizer", "stage 0"]) == f"峰值阶段{' ' * 14}反向   优化器   阶段 0"


@pytest.mark.parametrize(("target", "first"), [("help", "用法：make TARGET"), ("data", "  data-clean ")])
def test_help_is_chinese_and_no_wider_than_a_terminal(target, first):
    done = subprocess.run(
        ["make", "--no-print-directory", target], cwd=ROOT, text=True, capture_output=True, env=os.environ | CHINA
    )
    lines = done.stdout.splitlines()
    assert lines[0].startswith(first) and len(lines) > 10
    assert [line for line in lines if columns(line.rstrip(CLOSING)) > 80] == []
    rows = [line for line in lines if re.match(r"  [a-z]", line)]
    assert [line for line in rows if not CHINESE.search(line) and "LoRA" not in line] == []


def test_chinese_is_wrapped_by_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    lines = wrapped("这台机器上没有显卡，" * 6 + "make rehearse-lora-1gpu", "  ", "    ").splitlines()
    assert all(columns(line) <= 42 for line in lines)  # a closing mark may stand out
    assert "".join(line.strip() for line in lines) == "这台机器上没有显卡，" * 6 + "make rehearse-lora-1gpu"
    assert not any(line.strip().startswith("，") for line in lines)


@FEW_AND_MANY
def test_what_a_message_echoes_is_cut_and_paths_and_sentences_are_not(monkeypatch, count):
    monkeypatch.setenv("LAUNCH_LANG", "en")

    @cases(count)
    @given(texts(), st.integers(301, 9000), st.sampled_from("9a=,[\x1b"))
    def cut(before, length, character):
        said = localized(f"{before} found {character * length}, allowed: 1")
        assert max(map(len, re.split(r"[\s/]", said))) <= 300 and said.endswith(" characters) allowed: 1")
        whole = f"{'/data' * 400} {'中' * 400} {'a b ' * 400}"
        assert localized(whole) == whole

    cut()


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


def test_plan_preflight_and_errors_are_printed_in_chinese_with_the_same_numbers(tmp_path):
    machine = Machine(tmp_path)
    for recipe, variables, part in [
        ("llama-7b/pretrain", {"ACTION": "plan"}, "每"),
        ("llama-7b/lora", {"ACTION": "run", "DATA": "/nowhere"}, "解决"),
        ("llama-7b/lora", {"ACTION": "plan", "MODEL": "no-such-model"}, "no-such-model"),
    ]:
        done = [machine.run(recipe, **variables, LAUNCH_LANG=language) for language in ("en", "zh")]
        english, chinese = (one.stdout + one.stderr for one in done)
        assert done[0].returncode == done[1].returncode
        assert not CHINESE.search(english)
        assert part in chinese
        assert len(CHINESE.findall(chinese)) > 20, chinese
        numbers = [Counter(re.findall(r"\d+", text)) for text in (english, chinese)]
        assert numbers[0] == numbers[1], chinese


def test_the_chinese_help_has_no_english_left_but_names(monkeypatch):
    """Nor does a line end in an opening mark."""
    monkeypatch.setenv("LAUNCH_LANG", "zh")
    monkeypatch.chdir(ROOT)
    lines = help_text().replace("（prefix tuning）", "").splitlines()
    assert len(lines) > 100
    assert [line for line in lines if re.search(r"[a-z]{2,} [a-z]{2,}|\d (card|process)|（$", line)] == []
