"""Files of dialogues: where they are broken is told, counted, and stops or not."""

import json

import pytest

from data_tools.formats.dialogues.rows import Fault, check_faults, read_rows, unused_line
from data_tools.formats.errors import DataError


@pytest.fixture
def file(tmp_path):
    return tmp_path / "train.json"


def write(file, *rows) -> None:
    """Rows that are text already are written as they are."""
    lines = [row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


GOOD = {"src": "Q", "tgt": "A"}


def test_lines_and_a_list_hold_the_same(file):
    write(file, GOOD, "", GOOD)
    lines = read_rows(file)
    file.write_text(json.dumps([GOOD, GOOD]))
    assert read_rows(file).entries == lines.entries and len(lines.entries) == 2
    assert lines.faults == []


def test_each_broken_row_is_told_with_its_line_and_reason(file):
    write(file, GOOD, '{"src" "Q"}', "", '["Q"]', {"src": "Q"}, '"text"', GOOD)
    rows = read_rows(file)
    assert len(rows.entries) == 2
    assert rows.faults == [
        Fault(str(file), 2, "not JSON, Expecting ':' delimiter at column 8"),
        Fault(str(file), 4, "a JSON list, expected an object"),
        Fault(str(file), 5, "no key 'tgt', only src"),
        Fault(str(file), 6, "a JSON text, expected an object"),
    ]


def test_a_row_of_chats_without_its_key_is_a_fault_with_its_line(file):
    chat = {"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}]}
    write(file, chat, {"text": "Q"}, chat)
    rows = read_rows(file)
    assert len(rows.entries) == 2
    assert [str(fault) for fault in rows.faults] == [f"{file}:2: no key 'messages', only text"]


def test_keys_that_are_not_used_are_counted(file):
    write(file, GOOD | {"id": 1, "note": ""}, GOOD | {"id": 2})
    assert unused_line([read_rows(file)]) == "keys that are not used: id (2 rows), note (1 row)"
    write(file, GOOD)
    assert unused_line([read_rows(file)]) == ""


@pytest.mark.parametrize("content", ['{"src": "Q", "tgt": "A"}\n', '[{"src": "Q", "tgt": "A"}]'])
def test_a_byte_order_mark_is_no_part_of_a_file(file, content):
    file.write_text("\ufeff" + content, encoding="utf-8")
    assert len(read_rows(file).entries) == 1


def test_json_that_python_refuses_is_a_fault(file):
    write(file, GOOD, '{"src": ' + "9" * 5000 + "}", "[" * 100_000)
    assert [fault.reason.partition(",")[0] for fault in read_rows(file).faults] == ["JSON that Python refuses"] * 2


def test_a_text_in_a_list_is_named_and_not_repeated(file):
    """It may hold anything, such as half a character, which no terminal shows."""
    file.write_text(json.dumps([GOOD, "\ud800"]))
    assert read_rows(file).faults == [Fault(str(file), 2, "a JSON text, expected an object")]


def test_bytes_that_are_no_text(file):
    file.write_bytes(b'{"src": "Q", "tgt": "A"}\n{"src": "\xff", "tgt": "A"}\n')
    assert [str(fault) for fault in read_rows(file).faults] == [
        f"{file}:2: not UTF-8 at byte 9. Convert the file to UTF-8"
    ]


def test_a_file_of_gb18030_is_told_with_the_command_that_converts_it(file):
    file.write_bytes('{"src": "问", "tgt": "答"}\n'.encode("gb18030") * 3)
    with pytest.raises(DataError) as refused:
        read_rows(file)
    assert str(refused.value) == (
        f"{file}: none of the first rows can be read. Line 1: not UTF-8 at byte 9, can be read as GB18030. "
        f"Convert the file: `iconv -f GB18030 -t UTF-8 {file} > {file.parent}/utf8-train.json`."
    )


def test_broken_row_of_a_list_has_its_number(file):
    file.write_text(json.dumps([GOOD, {"src": "Q"}]))
    assert read_rows(file).faults == [Fault(str(file), 2, "no key 'tgt', only src")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "train.json: the file is empty. Give one with rows."),
        ("\n  \n", "train.json: the file is empty"),
        ("[]", "train.json: the file is empty"),
        ("{}", "the keys of the first rows are none"),
        ("[1, 2", "Line 1: not JSON"),
        ("no json at all", "Line 1: not JSON"),
        ('{"src": "Q", "tgt": ""}', "no row can be used, 1 broken row\\. .*train.json:1: an empty answer"),
    ],
)
def test_file_without_dialogues(file, content, message):
    file.write_text(content)
    with pytest.raises(DataError, match=message):
        read_rows(file)


def test_file_that_is_not_there(file):
    with pytest.raises(DataError, match="train.json: No such file"):
        read_rows(file)


def test_more_faults_than_allowed_stop_with_places_number_and_way_out():
    faults = [Fault("a.json", line, "an empty answer") for line in range(1, 8)]
    check_faults(faults, 7)
    with pytest.raises(DataError) as refused:
        check_faults(faults, 6)
    assert str(refused.value) == (
        "7 broken rows, --max_broken_rows allows 6: a.json:1: an empty answer; a.json:2: an empty answer; "
        "a.json:3: an empty answer; a.json:4: an empty answer; a.json:5: an empty answer; and 2 more. "
        "Mend or remove them, or leave them out: --max_broken_rows 7."
    )
