"""Dialogues of any form to train.json and dev.json."""

import io
import json
import subprocess
from pathlib import Path

import pytest
from rich.console import Console

from data_tools.dialogues.chat_template import ChatTemplate
from data_tools.dialogues.datasets import find_sources
from data_tools.dialogues.messages import plain_dialogue
from data_tools.dialogues.rows import read_rows
from data_tools.formats.errors import DataError
from data_tools.sft import dev_warning, read_dialogues, report_lengths
from tests.data_tools.conftest import ROOT
from tests.data_tools.dialogues.test_dialogue import SHAREGPT, said

PAIR, SCENE = {"src": "q", "tgt": "a"}, {"messages": said("system", "be kind", "user", "q", "assistant", "a")}
TURNS = {"src": ["q", "r"], "tgt": ["a", "b"]}
ADVERTISE, ALPACA = {"content": "q", "summary": "a"}, {"instruction": "do", "input": "this", "output": "done"}


def read(*files, dev_percent=0.0, columns=(None, None), allowed=0, exact=False):
    return read_dialogues(list(files), dev_percent, *columns, allowed, exact)


@pytest.mark.parametrize(
    ("row", "written"),
    [
        (PAIR, PAIR),
        (ADVERTISE, PAIR),
        (ALPACA, {"messages": said("user", "do\n\nthis", "assistant", "done")}),
        ({"conversations": said("human", "q", "gpt", "a", **SHAREGPT)}, {"messages": SCENE["messages"][1:]}),
        (SCENE, SCENE),
        (TURNS, TURNS),
    ],
)
def test_each_form_becomes_one_that_training_reads(write_rows, row, written):
    sides = read(write_rows("a.json", [row]))
    assert [json.loads(row) for row in sides.train] == [written]
    again = read_rows(write_rows("b.json", [json.loads(row) for row in sides.train]))
    assert again.entries == list(sides.train.values())
    assert again.schema.chat == ("messages" in written)


def test_a_question_with_all_its_answers_is_on_one_side(write_rows):
    rows = [{"content": f"question {i % 400}", "summary": f"answer {i}"} for i in range(1200)]
    sides = read(write_rows("a.json", rows), dev_percent=20)
    questions = [{dialogue.messages[0].text for dialogue in side.values()} for side in (sides.train, sides.dev)]
    assert not questions[0] & questions[1]
    assert len(sides.train) + len(sides.dev) == 1200 and 0.15 < len(sides.dev) / 1200 < 0.25
    fewer = read(write_rows("b.json", rows[:300]), dev_percent=20)
    assert set(fewer.dev) <= set(sides.dev) and set(fewer.train) <= set(sides.train)
    for count, percent, held in ((1200, 10, 120), (40, 10, 4), (3, 2, 1), (2, 90, 1), (1, 10, 0), (9, 0, 0)):
        exact = read(write_rows("c.json", rows[:count]), dev_percent=percent, exact=True)
        assert (len(exact.train), len(exact.dev)) == (count - held, held)


def test_rows_that_are_repeated_broken_named_and_mixed(write_rows):
    file = write_rows("a.json", [PAIR, {"src": "q"}, PAIR, {"src": "q", "tgt": "b"}])
    sides = read(file, allowed=1)
    assert (len(sides.train), sides.repeated, sides.broken) == (2, 1, 1)
    with pytest.raises(DataError, match=r"1 broken row, --max_broken_rows allows 0: .*a\.json:2"):
        read(file)
    sides = read(write_rows("a.json", [{"q": "x", "a": "y"}]), columns=("q", "a"))
    assert list(sides.train) == ['{"src": "x", "tgt": "y"}']
    with pytest.raises(DataError, match=r"b\.json has instruction/output, the files before it are of the other kind"):
        read(write_rows("a.json", [ADVERTISE]), write_rows("b.json", [ALPACA]))
    with pytest.raises(DataError, match="all questions of .* go to dev.json"):
        read(write_rows("a.json", [PAIR]), dev_percent=100)


def lengths(dialogues, tokenizer, template=None, src_length=40, max_length=80) -> str:
    console = Console(file=io.StringIO(), width=200)
    report_lengths(dialogues, str(tokenizer), template, src_length, max_length, console=console)
    return console.file.getvalue()


def test_lengths_against_limits(write_rows, tokenizer_dir):
    """A dialogue that the template changes is told and not counted."""
    sides = read(write_rows("a.json", [{"src": "x" * n, "tgt": "1" * 6} for n in (1, 1 << 7)]))
    told = lengths(sides.train.values(), tokenizer_dir, src_length=4, max_length=8)
    assert "cut: 1 question, " in told and "beyond --max_length" in told
    assert "nothing is cut from --max_length" in told
    template = ChatTemplate("{% for m in messages %}{{ m.content.split('</think>')[-1] }}{% endfor %}", "mine")
    dialogues = [plain_dialogue((("q", answer),)) for answer in ("a", "<think>x</think>b", "c")]
    told = lengths(dialogues, tokenizer_dir, template)
    assert told.startswith("1 that training will refuse, the first: mine: it leaves out or changes the assistant text")
    assert "100.0%" in told and "nothing cut" in told
    with pytest.raises(DataError, match="mine: it leaves out"):
        lengths(dialogues[1:2], tokenizer_dir, template)


def test_the_command(command, write_rows, tokenizer_dir, tmp_path):
    file = write_rows("a.json", [{"content": f"question {i}", "summary": f"answer {i}"} for i in range(300)])
    done = command("sft", "--input", file, "--output", tmp_path / "out", "--tokenizer", tokenizer_dir)
    assert (done.returncode, done.stderr) == (0, "")
    train, dev = (len((tmp_path / "out" / name).read_text().splitlines()) for name in ("train.json", "dev.json"))
    assert train + dev == 300 and 0 < dev < 30
    assert done.stdout.startswith(f"{tmp_path}/out/train.json: {train} dialogues\n{tmp_path}/out/dev.json: {dev} dial")
    assert "nothing cut" in done.stdout and "\nwarning: " in done.stdout and "\nform: content/summary\n" in done.stdout
    assert done.stdout.endswith(f"; here: make lora-tiny DATA={tmp_path}/out\n")
    assert dev_warning(20, 980, 2) == [] == dev_warning(0, 3, 0)
    assert dev_warning(1, 49, 2) == ["warning: 1 dialogue in dev.json: of so few rows set more aside, --dev_percent 40"]
    assert dev_warning(0, 9, 2)[0].startswith("warning: no dev.json, which an evaluation needs: ")
    again = command("sft", "--input", tmp_path / "out", "--output", tmp_path / "again", "--dev_percent", 0)
    assert f"train.json: {train} dialogues" in again.stdout, "of a folder what is trained on"
    assert again.stderr.startswith(f"left out of {tmp_path}/out: 1 file not for training (known are .json, ")
    assert again.stderr.endswith("): dev.json\n")
    folder = tmp_path / "set" / "train"
    folder.mkdir(parents=True)
    for name in ("a.json", "b.txt", ".c.json"):
        (folder / name).write_text('{"src": "Q", "tgt": "A"}')
    inside = command("sft", "--input", tmp_path / "set", "--output", tmp_path / "third", "--dev_percent", 0)
    assert inside.stderr.endswith("): train/b.txt\n"), "hidden files need no word"


def test_csv_is_read_like_json(write_rows, tmp_path):
    (tmp_path / "a.csv").write_bytes(
        b'\xef\xbb\xbfsrc,tgt,n\r\n"what, now?","one\r\ntwo ""x""",1\r\n\r\nb,c,2\r\nb,c\r\n'
    )
    sides = read(str(tmp_path / "a.csv"), allowed=1)
    same = read(write_rows("a.json", [{"src": "what, now?", "tgt": 'one\r\ntwo "x"'}, {"src": "b", "tgt": "c"}]))
    assert list(sides.train) == list(same.train) and sides.unused == "keys that are not used: n (2 rows)"
    with pytest.raises(DataError, match=r"a\.csv:6: 2 columns, expected 3"):
        read(str(tmp_path / "a.csv"))
    for content, message in (
        (b'src,tgt\na,"b\nc,d\n', r":2: unexpected end of data"),
        (b"a,a\n1,2\n", ":1: found a, a"),
    ):
        (tmp_path / "b.csv").write_bytes(content)
        with pytest.raises(DataError, match=message):
            read(str(tmp_path / "b.csv"))
    (tmp_path / "a.csv").rename(tmp_path / "train.csv")
    [source] = find_sources(str(tmp_path))
    assert source.train == (tmp_path / "train.csv",) and source.dev == ()
    (tmp_path / "train.csv").rename(tmp_path / "other.csv")
    with pytest.raises(DataError, match=r"looked for train\.json .*; found a\.json, b\.csv, other\.csv\. `make d"):
        find_sources(str(tmp_path))


@pytest.mark.parametrize("tool", [("sft",), ("preference", "split")])
def test_the_only_source_is_not_replaced_and_what_training_would_read_beside_it_is_told(
    command, write_rows, tmp_path, tool
):
    """By the folder itself, by a link to it, and by a link in another folder; then files of an earlier call."""
    keys = ("src", "tgt") if tool == ("sft",) else ("prompt", "chosen")
    rows = [{keys[0]: f"q{i}", keys[1]: f"a{i}", "rejected": "no"} for i in range(200)]
    source = Path(write_rows("train.json", rows))
    before = source.read_bytes()
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "train.json").symlink_to(source)
    (tmp_path / "alias").symlink_to(tmp_path)
    out = tmp_path / "out"

    def told(*words) -> str:
        done = command(*tool, *words)
        assert (done.returncode, done.stdout == "") in ((2, True), (0, False)), done
        return done.stderr.strip()

    for folder in (tmp_path, tmp_path / "alias", tmp_path / "linked"):
        assert told("--input", source, "--output", folder, "--dev_percent", 20) == (
            f"error: cannot write {folder}/train.json: it is {source} of --input, which it would replace. Name another."
        )
    assert source.read_bytes() == before and not (tmp_path / "dev.json").exists()

    assert not told("--input", source, "--output", out, "--dev_percent", 20)
    kept = {path.name: path.read_bytes() for path in out.iterdir()}
    assert sorted(kept) == ["dev.json", "train.json"] and sum(text.count(b"\n") for text in kept.values()) == 200
    beside = f"error: {out}: {{}} is there, which training would read together with what is written now: {{}}."
    refused = told("--input", source, "--output", out, "--dev_percent", 0)
    assert refused.startswith(beside.format("dev.json", "train.json"))
    assert {path.name: path.read_bytes() for path in out.iterdir()} == kept
    assert not told("--input", source, "--output", out, "--dev_percent", 50), "both are written anew"
    (out / "train.jsonl").write_bytes(before)
    refused = told("--input", out / "train.jsonl", "--output", out, "--dev_percent", 50)
    assert refused.startswith(beside.format("train.jsonl", "train.json, dev.json"))
    (tmp_path / "other" / "dev").mkdir(parents=True)
    (tmp_path / "other" / "dev" / "1.json").write_bytes(before)
    refused = told("--input", source, "--output", tmp_path / "other", "--dev_percent", 0)
    assert f"{tmp_path}/other: dev/1.json is there" in refused and not (tmp_path / "other" / "train.json").exists()


def test_the_make_target(write_rows, tmp_path):
    rows = [{"content": f"q{number}", "summary": f"a{number}"} for number in range(200)]
    arguments = f"--input {write_rows('rows.json', rows)} --output {tmp_path / 'data'}"
    words = ["make", "-o", "setup", "data-sft", f"ARGS={arguments}"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = [len((tmp_path / "data" / name).read_text().splitlines()) for name in ("train.json", "dev.json")]
    assert sum(lines) == 200
    assert 0 < lines[1] < 20
