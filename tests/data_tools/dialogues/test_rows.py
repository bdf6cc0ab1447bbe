"""Files of dialogues: where they are broken is told, counted, and stops or not."""

import json

import pytest

from data_tools.dialogues.messages import plain_dialogue
from data_tools.dialogues.rows import Fault, check_faults, read_rows, unused_line
from data_tools.formats.errors import DataError

GOOD = {"src": "Q", "tgt": "A"}
LINE = json.dumps(GOOD) + "\n"
CHAT = json.dumps({"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}]}) + "\n"


@pytest.fixture
def file(tmp_path):
    return tmp_path / "train.json"


@pytest.mark.parametrize("content", [f"{LINE}\n{LINE}", json.dumps([GOOD, GOOD])], ids=["lines", "list"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_lines_and_a_list_hold_the_same_behind_a_byte_order_mark_too(file, mark, content):
    file.write_text(mark + content, encoding="utf-8")
    rows = read_rows(file)
    assert (rows.entries, rows.faults) == ([plain_dialogue((("Q", "A"),))] * 2, [])


@pytest.mark.parametrize(
    ("content", "good", "faults"),
    [
        (
            f'{LINE}{{"src" "Q"}}\n\n["Q"]\n{{"src": "Q"}}\n"text"\n{LINE}{{"src": "Q", "tgt": "b", "tgt": "c"}}\n',
            2,
            {
                2: "not JSON, Expecting ':' delimiter at column 8",
                4: "a JSON list, expected an object",
                5: "no key 'tgt', only src",
                6: "a JSON text, expected an object",
                8: "the key 'tgt' twice in an object",
            },
        ),
        (
            f'[\n{LINE},\n{{"src": "Q", "tgt": "A",\n"a": {{"b": 1, "b": 2}}}},\n{LINE}]',
            2,
            {4: "the key 'b' twice in an object"},
        ),
        # A text in a list may hold anything, such as half a character, which no terminal shows.
        (
            json.dumps([GOOD, "\ud800", {"src": "Q"}]),
            1,
            {2: "a JSON text, expected an object", 3: "no key 'tgt', only"},
        ),
        (f'{CHAT}{{"text": "Q"}}\n{CHAT}', 2, {2: "no key 'messages', only text"}),
        (LINE.encode() + b'{"src": "\xff"}\n', 1, {2: "not UTF-8 at byte 9. Convert the file to UTF-8"}),
        (
            LINE + '{"src": ' + "9" * 5000 + "}\n" + "[" * 100_000,
            1,
            dict.fromkeys((2, 3), "JSON that Python refuses, "),
        ),
    ],
    ids=["lines", "twice", "list", "chats", "bytes", "deep"],
)
def test_each_broken_row_is_told_with_its_line_and_reason(file, content, good, faults):
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    rows = read_rows(file)
    assert len(rows.entries) == good and {fault.file for fault in rows.faults} == {str(file)}
    found = {fault.line: fault.reason for fault in rows.faults}
    assert {line: found.get(line, "")[: len(reason)] for line, reason in faults.items()} == faults


def test_keys_that_are_not_used_are_counted(file):
    file.write_text(json.dumps([GOOD | {"id": 1, "note": ""}, GOOD | {"id": 2}]))
    assert unused_line([read_rows(file)]) == "keys that are not used: id (2 rows), note (1 row)"
    file.write_text(LINE)
    assert unused_line([read_rows(file)]) == ""


GB18030 = '{"src": "问", "tgt": "答"}\n'.encode("gb18030") * 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "{file}: No such file"),
        (b"", "{file}: the file is empty. Give one with rows."),
        (b"\n  \n", "{file}: the file is empty"),
        (b"[]", "{file}: the file is empty"),
        (b"{}", "the keys of the first rows are none"),
        (b'[{"a": 1', "Line 1: not JSON"),
        (b"no json at all", "Line 1: not JSON"),
        (b'{"src": "Q", "tgt": ""}', "no row can be used, 1 broken row. "),
        (b'{"src": "Q", "tgt": ""}', "{file}:1: an empty answer"),
        (
            GB18030,
            "{file}: none of the first rows can be read. Line 1: not UTF-8 at byte 9, can be read as GB18030. "
            "Convert the file: `iconv -f GB18030 -t UTF-8 {file} > {file.parent}/utf8-train.json`.",
        ),
    ],
)
def test_file_without_dialogues(file, content, message):
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(DataError) as refused:
        read_rows(file)
    assert message.format(file=file) in str(refused.value)


def test_more_faults_than_allowed_stop_with_places_number_and_way_out():
    faults = [Fault("a.json", line, "an empty answer") for line in range(1, 8)]
    check_faults(faults, 7)
    with pytest.raises(DataError) as refused:
        check_faults(faults, 6)
    shown = "".join(f"a.json:{line}: an empty answer; " for line in range(1, 6))
    assert str(refused.value) == (
        f"7 broken rows, --max_broken_rows allows 6: {shown}and 2 more. "
        "Mend or remove them, or leave them out: --max_broken_rows 7."
    )
