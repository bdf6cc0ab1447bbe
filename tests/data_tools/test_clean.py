"""What is dropped, by which rule, and that the rest stays as it was."""

import io
import json
import random
import subprocess
import sys
import tracemalloc

import pytest

from data_tools.clean import DIGIT, LETTER, clean_files, proportion, rules
from data_tools.text.duplicates import ExactDuplicates, NearDuplicates, shingles, signature, text_digest
from tests.data_tools.conftest import ROOT, run_module

WORDS = [f"word{i}" for i in range(500)] + list("中文训练数据模型语言处理清洗重复文本")


def words(count: int, seed: int) -> list[str]:
    return random.Random(seed).choices(WORDS, k=count)


@pytest.fixture
def clean(write_rows):
    """clean([text, ...], alone, ...) -> (texts kept, what was dropped)"""

    def run(texts, alone=(), **options):
        path = write_rows("a.jsonl", [{"id": i, "text": text} for i, text in enumerate(texts)])
        output, dropped = io.BytesIO(), []
        report = clean_files([path], output, list(alone), workers=0, on_drop=dropped.append, **options)
        kept = [json.loads(line)["text"] for line in output.getvalue().splitlines()]
        assert report.kept == len(kept) and report.dropped.total() == len(dropped)
        return kept, [(one.rule, one.text, (one.like or "").rpartition(":")[2]) for one in dropped]

    return run


@pytest.mark.parametrize(
    "asked, dropped",
    [
        ({"min_chars": 3}, ["ab", "  ab   "]),
        ({"max_chars": 3}, ["12 34", "中文 text"]),
        ({"min_letters": 0.5}, ["12 34", "..."]),
        ({"max_digits": 0.9}, ["12 34"]),
        ({"min_chars": 3, "max_digits": 0.5}, ["ab", "  ab   ", "12 34"]),
    ],
)
def test_rules_for_a_text_alone(clean, asked, dropped):
    texts = ["ab", "abc", "  ab   ", "12 34", "...", "中文 text"]
    kept, found = clean(texts, rules(**asked))
    assert kept == [text for text in texts if text not in dropped]
    assert [text for _, text, _ in found] == dropped
    assert {rule for rule, _, _ in found} <= set(asked)
    assert proportion(LETTER, "ab 中文 12") == pytest.approx(4 / 6) and proportion(LETTER, " \n") == 0
    assert proportion(DIGIT, "ab 中文 12 ٣") == pytest.approx(3 / 7)


def test_exact_duplicates_keep_the_first(clean):
    kept, found = clean(["one", "two", " one\n", "One", "two"], exact=True)
    assert kept == ["one", "two", "One"]
    assert found == [("exact", " one\n", "1"), ("exact", "two", "2")]
    kept, found = clean(["a1", "ab", "ab"], rules(max_digits=0.1), exact=True)  # what a rule drops is no original
    assert (kept, found) == (["ab"], [("max_digits", "a1", ""), ("exact", "ab", "2")])


def jaccard(one: str, other: str) -> float:
    a, b = set(shingles(one)), set(shingles(other))
    return len(a & b) / len(a | b)


def test_near_duplicates(clean):
    """A word changed in 300 is a near copy; half of the words is not; Chinese without spaces, too."""
    original = words(300, seed=1)
    near, half = original.copy(), original.copy()
    near[150] = "changed"
    half[::2] = words(150, seed=2)
    characters = "的一是在不了有和人这中大为上个国我以要他时来用们生到作地"
    chinese = "".join(random.Random(3).choices(characters, k=300))
    texts = [" ".join(one) for one in (original, near, half)] + [chinese, chinese[:200] + "吗" + chinese[200:], "short"]
    assert jaccard(texts[0], texts[1]) > 0.9 > 0.1 > jaccard(texts[0], texts[2])
    kept, found = clean(texts, near=0.8)
    assert kept == [texts[0], texts[2], texts[3], "short"]
    assert found == [("near", texts[1], "1"), ("near", texts[4], "4")]
    assert shingles("...") == [b"..."]
    found = sorted(one.decode() for one in shingles("One two 中文 THREE four"))
    assert found == ["one two 中 文 three", "two 中 文 three four"]


@pytest.mark.parametrize(
    ("seen", "key", "fewest", "most"),
    [(ExactDuplicates(), text_digest, 100, 250), (NearDuplicates(0.8), signature, 4000, 7000)],
    ids=["exact", "near"],
)
def test_memory_of_a_document(seen, key, fewest, most):
    """About 200 bytes and about 6 KB, as docs/data.md says."""
    seen.find(key("brings what is imported and made once"), "before")
    tracemalloc.start()
    for number in range(100):
        seen.find(key(f"{number} words that no other text has, {number} of {number}"), f"texts/train.jsonl:{number}")
    taken = tracemalloc.get_traced_memory()[0] / 100
    tracemalloc.stop()
    assert fewest < taken < most


@pytest.mark.parametrize("pairs", [20, pytest.param(100, marks=pytest.mark.long)])
def test_how_many_near_duplicates_are_found(pairs):
    """Of pairs of known similarity: nearly all well above the threshold, hardly any well below."""
    found = {0.95: 0, 0.6: 0}
    for seed in range(pairs):
        original = [f"{seed} {i}" for i in range(400)]
        for similarity in found:
            index = NearDuplicates(0.8)
            common = round(400 * 2 * similarity / (1 + similarity))  # of 400 each: common / (800 - common)
            copy = original[:common] + [f"x{i}" for i in range(400 - common)]
            index.find(minima(original), "a")
            found[similarity] += index.find(minima(copy), "b") == "a"
    assert found[0.95] >= 0.95 * pairs and found[0.6] <= 0.01 * pairs


def minima(shingles_of_a_text: list[str]):
    """The signature of a text with these shingles."""
    from datasketch import MinHash

    from data_tools.text.duplicates import MINIMA, SCHEME

    minhash = MinHash(num_perm=MINIMA, scheme=SCHEME)
    minhash.update_batch([one.encode() for one in shingles_of_a_text])
    return minhash.hashvalues


def test_a_signature_does_not_depend_on_the_run():
    program = "from data_tools.text.duplicates import signature; print(signature('a b c d e f g 中文').tolist())"
    command = [sys.executable, "-c", program]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "1"})
    assert json.loads(found.stdout) == signature("a b c d e f g 中文").tolist()


def test_lines_pass_unchanged_through_a_pipe(tmp_path):
    lines = ['{"id": 7,   "text":"caf\\u00e9 one"}', "", '{"text": "two"}', '{"text": ""}', '{"text": "two"}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    with open(tmp_path / "a.jsonl", "rb") as stdin:
        words = ("--input", "-", "--output", "-", "--exact", "--dropped")
        done = run_module("clean", *words, tmp_path / "dropped.jsonl", stdin=stdin)
    assert done.stdout.splitlines() == [lines[0], lines[2]]
    told = ["kept 2 of 4 documents", "empty: 1", "exact: 1 dropped", "    -:5 (as -:3): two"]
    assert done.stderr.splitlines()[-4:] == told
    dropped = json.loads((tmp_path / "dropped.jsonl").read_text())
    assert dropped == {"rule": "exact", "where": "-:5", "text": "two", "like": "-:3"}


def test_a_closed_standard_output_is_no_place(command, monkeypatch, write_rows):
    monkeypatch.setattr(sys, "__stdout__", None)
    done = command("clean", "--input", write_rows("a.jsonl", [{"text": "a"}]), "--output", "-", "--exact")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("error: --output -: the standard output is closed.")


def test_a_link_goes_on_to_name_what_is_written(command, tmp_path, write_rows):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "o.jsonl").symlink_to(tmp_path / "elsewhere" / "whole.jsonl")
    done = command(
        "clean",
        "--input",
        write_rows("a.jsonl", [{"text": "a text"}]),
        "--output",
        str(tmp_path / "o.jsonl"),
        "--exact",
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "o.jsonl").is_symlink() and "a text" in (tmp_path / "elsewhere" / "whole.jsonl").read_text()


def test_what_is_read_is_not_replaced(command, tmp_path):
    """A file by another name; what an earlier run wrote into the folder that is read; --dropped, too."""
    source, linked = tmp_path / "a.jsonl", tmp_path / "linked.jsonl"
    source.write_text('{"text": "x"}\n{"text": "long"}\n')
    linked.symlink_to(source)
    for named in (("--input", source, "--output", linked), ("--input", tmp_path, "--output", "-", "--dropped", source)):
        done = command("clean", *named, "--min_chars", 2)
        assert (done.returncode, done.stdout) == (2, "") and done.stderr == (
            f"error: cannot write {named[-1]}: it is {source} of --input, which it would replace. Name another.\n"
        )
    assert source.read_text().count("\n") == 2 and linked.is_symlink()
