"""Preferences of any form checked, split and converted."""

import json
from dataclasses import replace

import pyarrow
import pytest
from pyarrow import parquet

from data_tools.preference import row_of
from data_tools.preferences.forms import PreferenceColumns
from tests.data_tools.dialogues.test_dialogue import said
from tests.data_tools.dialogues.test_encoding import encoding
from tests.data_tools.preferences.test_forms import FORMS, ULTRAFEEDBACK, preference


def pairs(count: int) -> list[dict]:
    return [{"prompt": f"q{i % 50}", "chosen": "yes" * (i + 1), "rejected": f"no{i}"} for i in range(count)]


@pytest.mark.parametrize("chat", [False, True])
def test_a_written_row_is_read_as_the_same(write_rows, chat):
    preferences = [form[2] for form in FORMS] + [preference("Q", None, "A", [("P", "O")], "S")]
    for one in preferences:
        again = PreferenceColumns().read(write_rows("a.json", [json.loads(row_of(one, chat))]))
        assert again.entries == [one] and again.schema.chat == chat


def test_check(command, write_rows, tokenizer_dir):
    rows = [
        *pairs(3),
        pairs(3)[0],
        {"prompt": "q0", "chosen": "no0", "rejected": "yes"},
        {"prompt": "q", "chosen": "x"},
    ]
    file = write_rows("a.json", rows)
    done = command("preference", "check", "--input", file, "--max_broken_rows", 1)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert lines == [
        f"{file}: 5 pairs (prompt/chosen/rejected), bare texts, 1 broken row",
        f"{file}:6: no key 'rejected', only prompt, chosen",
        "characters  prompts  chosen  rejected",
        "2 - 3        5       3         5",
        "4 - 7        0       1         0",
        "8 - 15        0       1         0",
        "chosen and rejected responses have 4.8 and 3.0 characters on average",
        "the chosen response is the longer one in 40.0% of pairs, as long in 60.0%",
        "3 different prompts; 1 repeated row; 2 rows that another one says the opposite of",
    ]
    words = ("preference", "check", "--input", file, "--tokenizer", tokenizer_dir)
    strict = command(*words, "--src_length", 1)
    assert strict.returncode == 2 and strict.stdout.splitlines()[2].split() == [
        "tokens",
        "prompts",
        "chosen",
        "rejected",
    ]
    assert strict.stderr.startswith("error: 1 broken row, --max_broken_rows allows 0: ")
    assert "--src_length 1 --max_length 2048: nothing cut; nothing is cut from --max_length " in strict.stdout
    cut = command(*words, "--max_length", 3, "--src_length", 2)
    assert "cut: 10 responses; nothing is cut" in cut.stdout and "beyond --max_length" in cut.stdout


def test_check_takes_half_of_a_short_length_for_the_prompt_and_no_more(command, write_rows, tokenizer_dir):
    rows = [{"prompt": f"{i} " * 700, "chosen": f"yes {i}", "rejected": f"no {i}"} for i in range(3)]
    words = ("preference", "check", "--input", write_rows("a.json", rows), "--tokenizer", tokenizer_dir)
    done = command(*words, "--max_length", 512)
    assert done.returncode == 0 and "--src_length 256 --max_length 512: cut: 3 prompts; nothing is cut" in done.stdout
    for tool in (words, ("sft", "--input", write_rows("b.json", [{"src": "q", "tgt": "a"}]), "--output", "nowhere")):
        done = command(*tool, "--max_length", 512, "--src_length", 1024)
        assert (done.returncode, done.stdout, done.stderr) == (
            2,
            "",
            "error: --src_length: found 1024, allowed: less than --max_length 512, for an answer to have room. "
            "--max_length 2048, or a shorter --src_length.\n",
        )


def test_check_of_single_responses(command, write_rows):
    rows = [{"prompt": f"q{i}", "completion": "x", "label": i > 0} for i in range(3)]
    told = command("preference", "check", "--input", write_rows("a.json", rows)).stdout
    assert "2 desired and 1 other responses (prompt/completion/label)" in told and "of pairs" not in told


def test_split_keeps_a_prompt_on_one_side(command, write_rows, tmp_path):
    file = write_rows("a.json", [*pairs(400), pairs(1)[0]])
    done = command("preference", "split", "--input", file, "--output", tmp_path / "out", "--dev_percent", 20)
    assert (done.returncode, done.stderr) == (0, "") and "1 repeated rows dropped" in done.stdout
    sides = [PreferenceColumns().read(tmp_path / "out" / name).entries for name in ("train.json", "dev.json")]
    assert sum(map(len, sides)) == 400 and 40 < len(sides[1]) < 140
    questions = [{one.prompt.messages[-1].text for one in side} for side in sides]
    assert not questions[0] & questions[1]
    again = tmp_path / "again"
    command("preference", "split", "--input", file, "--output", again, "--dev_percent", 20, "--seed", 1)
    assert {one.prompt.messages[-1].text for one in PreferenceColumns().read(again / "dev.json").entries} != questions[
        1
    ]


def test_convert_makes_messages_of_parquet(command, tmp_path):
    file, output = tmp_path / "a.parquet", tmp_path / "out.json"
    parquet.write_table(pyarrow.Table.from_pylist([ULTRAFEEDBACK]), file)
    done = command("preference", "convert", "--input", file, "--output", output)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert done.stdout.endswith(f"{output}: 1 pair\n")
    roles = {"prompt": ("user", "Q"), "chosen": ("assistant", "A"), "rejected": ("assistant", "B")}
    assert json.loads(output.read_text()) == {key: said(*words) for key, words in roles.items()}


def test_what_cannot_be_done_is_told_and_nothing_written(command, write_rows, tmp_path):
    good, chats, linked = write_rows("a.json", pairs(4)), write_rows("b.json", [ULTRAFEEDBACK]), tmp_path / "linked"
    linked.symlink_to(good)
    broken, out = write_rows("c.json", [*pairs(1), {"prompt": "q", "chosen": "a", "rejected": "a"}]), tmp_path / "out"
    for arguments, reason in [
        (("convert", "--input", good), "the following arguments are required for convert: --output"),
        (("split", "--input", good, chats, "--output", out), "some have chats, some bare texts"),
        (("split", "--input", good, "--output", out, "--dev_percent", 100), "all prompts of "),
        (("split", "--input", broken, "--output", out), "c.json:2: chosen and rejected are the same"),
        (("convert", "--input", broken, "--output", out), "c.json:2: chosen and rejected are the same"),
        (("convert", "--input", good, "--output", linked), f"{linked}: it is {good} of --input, which it would repla"),
    ]:
        done = command("preference", *arguments)
        assert done.returncode == 2 and "rows" not in done.stdout and not out.exists() and reason in done.stderr


def test_responses_that_a_tokenizer_does_not_tell_apart(command, write_rows, monkeypatch):
    def blind(_, template, src_length, max_length):
        return replace(encoding(template, src_length, max_length), encode=lambda text: [7] * len(text))

    monkeypatch.setattr("data_tools.preference.encoding_of", blind)
    file = write_rows("a.json", [{"prompt": "q", "chosen": one, "rejected": two} for one, two in (["yes", "no"], "ab")])
    told = command("preference", "check", "--input", file, "--tokenizer", "tok").stdout
    assert f"dropped: 1 pair whose responses are the same when cut, the first {file}:2;" in told
