"""make evaluate: answers that the model writes, and their scores."""

import json
import shutil
import subprocess
import sys

import pytest

from data_tools.formats.benchmarks.files import Asked, read_benchmark
from data_tools.formats.benchmarks.forms import FORMS
from data_tools.formats.benchmarks.questions import Question
from data_tools.formats.dialogues.encoding import Encoding
from data_tools.formats.errors import DataError
from data_tools.formats.han import are_chinese
from launch.errors import UserError
from launch.evaluation.benchmark_requests import Encoder
from launch.evaluation.comparison import compare
from launch.evaluation.tasks import measures, open_task
from launch.evaluation.written_scores import Scores
from tests.evaluation.test_evaluate import CHAT, EVALUATE, OFFLINE, ROOT, argv, read

WRITE = "tests.evaluation.evaluate_ranks:write_written"
ALONE = "tests.evaluation.evaluate_ranks:written_alone"
TASKS = ("gsm8k=gsm8k", "squad=squad", "cmrc=cmrc", "qa=qa")


@pytest.fixture(scope="module")
def material(ranks, tmp_path_factory):
    root = tmp_path_factory.mktemp("written")
    ranks(1, "tests.training.finetune_material:make_material", str(root / "llama"))
    ranks(1, WRITE, str(root), {})
    return root


ANSWERS = {
    "a number behind four signs": ("strict_match", "so 3 #### $1,250. and 7", ["it is\n#### 1250"], 0),
    "a number behind four signs, with a comma": ("strict_match", "so 3 #### 1,250. and 7", ["it is\n#### 1250"], 1),
    "the first number behind four signs": ("strict_match", "#### 7 #### 8", ["#### 8"], 0),
    "no number behind four signs": ("strict_match", "1250", ["#### 1250"], 0),
    "the last number": ("flexible_extract", "3 and $1,250. Done", ["it is\n#### 1250"], 1),
    "the last number, below zero": ("flexible_extract", "3 or -4", ["it is\n#### -4"], 1),
    "not the last number": ("flexible_extract", "1250 or 3", ["it is\n#### 1250"], 0),
    "a line break behind the right number": ("strict_match", "#### 8", ["#### 8\n"], 1),
    "no number": ("flexible_extract", "none", ["#### 1250"], 0),
    "signs and articles": ("exact_match", " The  Cat's, an\n", ["a dog", "cats"], 1),
    "an article in a word": ("exact_match", "theory", ["ory"], 0),
    "no answer": ("exact_match", "", ["unanswerable", ""], 1),
    "the best of the right answers": ("f1", "the cat sat", ["dog", "cat sat on mats"], 2 / 3),
    "nothing said": ("f1", "", ["cat"], 0),
    "nothing to be said": ("f1", ".", ["unanswerable", ""], 1),
    "Chinese by characters": ("f1", "北京市。", ["北京"], 4 / 5),
    "Chinese signs": ("exact_match", "《北京》", ["北京"], 1),
    "longest common subsequence": ("rouge_l", "the dog ran", ["cat", "the big dog ran"], 6 / 7),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_scores(name):
    measure, answer, right, expected = ANSWERS[name]
    assert Scores([measure], are_chinese(right)).of(answer, right)[measure] == pytest.approx(expected, rel=1e-12)


def test_bleu_is_of_all_answers_together_and_compared_so():
    from sacrebleu.metrics import BLEU

    said = ["the cat sat on the mat today", "a dog", "it rained all day in the town"] * 12
    right = [["the cat sat on a mat today", "cats"], ["a dog ran", "dog"], ["it rained the whole day", "rain"]] * 12
    scores = Scores(["bleu"], chinese=False)
    records = [scores.of(said[number], right[number]) | {"digest": str(number)} for number in range(36)]
    expected = BLEU().corpus_score(said, [[of[number] for of in right] for number in (0, 1)]).score
    assert measures(records)["bleu"] == pytest.approx(expected, rel=1e-12) and 20 < expected < 60
    perfect = [scores.of(of[0], of) | {"digest": str(number)} for number, of in enumerate(right)]
    [line] = compare(*({"tasks": {"qa": {"records": of}}} for of in (records, perfect)))
    assert line.startswith(f"qa (36)  bleu {expected:.4f} -> 100.0000  +{100 - expected:.4f} [+")
    assert line.endswith("  better")
    low, high = (float(word.strip("[],")) for word in line.split()[7:9])
    assert low < 100 - expected < high < low + 20


def test_fractions_are_compared():
    def report(f1: float) -> dict:
        return {"tasks": {"squad": {"records": [{"digest": str(n), "f1": f1 * (n % 2)} for n in range(100)]}}}

    [line] = compare(report(1.0), report(0.5))
    low, high = (float(word.strip("[],")) for word in line.split()[7:9])
    # Binomial(100, 1/2): its 2.5 % and 97.5 % quantiles are 40 and 60.
    assert line.startswith("squad (100)  f1 0.5000 -> 0.2500  -0.2500 [")
    assert (low, high) == pytest.approx((-0.30, -0.20), abs=0.006) and line.endswith("  worse")


def encoder_of_bytes(positions: int, written: int = 5, marks: tuple[int, ...] = (), begin=()) -> Encoder:
    return Encoder(Encoding(None, lambda text: list(text.encode()), begin, 2, 99, 99, marks), 1, positions, written)


def test_a_prompt_that_leaves_no_room_for_an_answer_loses_its_beginning():
    asked = Asked(Question((("a question", "right"),), 0), "x:1", "about ", ())
    for marks, positions, kept in (
        ((), 99, [1, *b"about a question"]),
        ((), 9, list(b"tion")),
        ((7,), 9, [*b"ion", 7]),
    ):
        request = encoder_of_bytes(positions, marks=marks, begin=(1,)).prompt(asked)
        assert list(request.ids) == kept and request.start == len(kept) and request.cut == (positions == 9)


def test_a_question_is_cut_for_its_choice_and_a_choice_never():
    asked = Asked(Question((("a question", "right"), ("a question", "no")), 0), "x:1", "about ", ())
    whole, _ = encoder_of_bytes(99).choices(asked)
    assert (bytes(whole.ids), whole.start, whole.cut) == (b"about a question right", 16, False)
    right, no = encoder_of_bytes(6).choices(asked)  # the last id is predicted, and has no position
    assert (bytes(right.ids), right.start, right.cut) == (b"n right", 1, True)
    assert (bytes(no.ids), no.start, no.cut) == (b"tion no", 4, True)
    with pytest.raises(DataError, match="x:1: the choice 'right' has 6 tokens, the model 5 positions. Leave the row"):
        encoder_of_bytes(5).choices(asked)


def test_an_answer_that_leaves_no_room_for_its_question_is_refused():
    asked = Asked(Question((("a question", "right"),), 0), "x:1", "about ", ())
    encoder = encoder_of_bytes(9, 6, (7, 8))
    encoder.require_room()
    assert encoder.prompt(asked).ids == (*b"n", 7, 8)
    for written in (7, 8, 9):
        encoder = encoder_of_bytes(9, written, (7, 8))
        assert encoder.prompt(asked).ids == (7, 8)
        expected = f"--max_new_tokens: found {written}, the model has 9 positions for question and answer. --max_new_"
        with pytest.raises(UserError, match=expected):
            encoder.require_room()


@pytest.mark.parametrize(
    ("form", "answers", "chinese"),
    [
        ("squad", [["冰"]], False),
        ("cmrc", [["iPhone"]], True),
        ("qa", [["Yuan dynasty (元朝)"], ["cats"], ["元"]], False),
        ("qa", [["元朝"], ["北京市", "北京"], ["iPhone"], ["1998"], ["1999"], ["12"]], True),  # numbers: no language
        ("qa", [["1998"]], False),
    ],
)
def test_the_language_of_a_task_is_not_that_of_one_character(form, answers, chinese, tmp_path):
    rows = [
        {"context": "Ice" if form == "squad" else "冰", "question": f"{number}?"}
        | {"answers": of if form == "qa" else {"text": of}}
        for number, of in enumerate(answers)
    ]
    (tmp_path / "x_test.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    scores = open_task(
        str(tmp_path / "x_test.jsonl") if form != "qa" else f"qa={tmp_path}/x_test.jsonl", None, 0, None
    ).scores
    assert scores.chinese is chinese
    # The articles of English are left out, the signs of Chinese.
    assert scores.of("the cat", ["cat"])["exact_match"] == (not chinese)
    assert scores.of("元朝。", ["元朝"])["exact_match"] == chinese


def test_what_stands_before_all_choices_is_tokenized_once():
    """With examples it is nearly all of the text."""
    encoded = []
    encoding = Encoding(None, lambda text: encoded.append(text) or list(text.encode()), (), 2, 99, 99)
    asked = Asked(Question(tuple(("which?", letter) for letter in "ABCD"), 0), "x:1", "", ())
    requests = Encoder(encoding, 1, 99, 5).choices(asked)
    assert encoded == ["which?", *(f"which? {letter}" for letter in "ABCD")]
    assert [bytes(request.ids[request.start :]) for request in requests] == [b" A", b" B", b" C", b" D"]


def test_what_cannot_be_written_is_refused(material, tmp_path, ranks):
    flags = argv(material, tmp_path / "out.json", "--max_new_tokens", "512", tasks=TASKS[:1])
    [said] = ranks(1, EVALUATE, flags)
    expected = "--max_new_tokens: found 512, the model has 512 positions for question and answer. --max_new_tokens 256"
    assert said["exit_code"] == 2 and expected in said["stderr"]


def answers(task: dict) -> list[str]:
    return [record["written"] for record in task["records"]]


def test_a_killed_evaluation_goes_on_and_answers_are_those_of_one_at_a_time(ranks, material, tmp_path):
    tasks, more = TASKS[:2], ("--max_new_tokens", "12", "--batch_size", "4", "--num_fewshot", "1")
    flags = argv(material, tmp_path / "out.json", *more, tasks=tasks)
    ranks.outcome(1, EVALUATE, flags, 5, directory=tmp_path / "job")
    partial = tmp_path / ".out.json.unfinished"
    lines = partial.read_text().splitlines()
    assert len(lines) == 1 + 5
    task, item, answer = json.loads(lines[1])
    assert task == 0 and isinstance(answer, str)
    lines[1] = json.dumps([task, item, "kept #### 5"])  # what is there is not written again
    partial.write_text("\n".join(lines) + "\n")
    [said] = ranks(1, EVALUATE, flags)
    found = read(said, tmp_path / "out.json")
    assert answers(found["gsm8k"])[item] == "kept #### 5"
    assert f"squad (6)  exact_match {found['squad']['exact_match']:.4f} ± " in said["stdout"]
    asked = {name: read_benchmark(material / name, None, None, 1)[1] for name in found}
    texts = [each.before + each.question.turn[0] for of in asked.values() for each in of]
    assert texts[0].count("Question: ") == 2 and "\n#### 7\n\nQuestion: " in texts[0]
    ends = [list(FORMS[name].until) for name, of in asked.items() for _ in of]
    [expected] = ranks(1, ALONE, str(material / "llama" / "model"), None, texts, ends, 12)
    expected[item] = "kept #### 5"
    assert [answer for of in found.values() for answer in answers(of)] == expected


def test_an_answer_ends_before_its_first_end_and_takes_no_more_steps(ranks, material):
    """In a batch with others, which go on."""
    [found] = ranks(1, "tests.evaluation.evaluate_ranks:ended", str(material / "llama" / "model"))
    end, whole = found["end"], found["whole"]
    assert found["ended"] == [text.split(end)[0] for text in whole]
    assert found["ended"][0] != whole[0] and found["ended"][1] == whole[1]
    assert found["steps alone"] < found["steps"] == 24


@pytest.mark.long
@pytest.mark.parametrize(("form", "shots"), [("bare", 0), ("chat", 1)])
def test_the_harness_writes_and_scores_the_same(ranks, material, tmp_path, form, shots):
    pytest.importorskip("lm_eval")
    shutil.copytree(material / "llama" / "model", tmp_path / "llama" / "model")
    config = tmp_path / "llama" / "model" / "tokenizer_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"chat_template": CHAT}))
    more = ["--num_fewshot", str(shots), "--max_new_tokens", "16", *(["--apply_chat_template"] * (form == "chat"))]
    ours = {}
    for run in ("first", "second"):  # the second with right answers from the first
        ranks(1, WRITE, str(tmp_path), {name: answers(of) for name, of in ours.items()})
        [said] = ranks(1, EVALUATE, argv(tmp_path, tmp_path / f"{run}.json", *more, tasks=TASKS))
        ours = read(said, tmp_path / f"{run}.json")
    harness = ["tests.evaluation.harness", tmp_path / "hf", tmp_path, tmp_path / "theirs.json", str(shots), form, *ours]
    export = ["launch/commands/export.py", tmp_path / "llama" / "model", tmp_path / "hf"]
    for command in (export, ["-m", *harness]):
        done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, env=OFFLINE)
        assert done.returncode == 0, done.stderr
    theirs = json.loads((tmp_path / "theirs.json").read_text())
    for name, of in ours.items():
        # transformers' slow tokenizer leaves out a space that an answer begins with.
        assert [answer.strip() for answer in answers(of)] == [answer.strip() for answer in theirs[name]["written"]]
        for measure, value in theirs[name]["measures"].items():
            assert of[measure] == pytest.approx(value, abs=1e-9), (name, measure)
    assert all(0 < ours[name][measure] < 1 for name in ("squad", "cmrc", "qa") for measure in ("exact_match", "f1"))


@pytest.mark.long
def test_a_family_that_reads_questions_in_both_directions_answers_as_it_does_in_predict(ranks, tmp_path):
    ranks(1, "tests.evaluation.evaluate_ranks:make_rehearsal", str(tmp_path / "glm"), "glm-rehearsal")
    ranks(1, WRITE, str(tmp_path), {})
    flags = argv(tmp_path, tmp_path / "out.json", "--max_new_tokens", "12", model="glm/model", tasks=("qa=qa",))
    [said] = ranks(1, EVALUATE, flags)
    found = answers(read(said, tmp_path / "out.json")["qa"])
    asked = [each.question.turn[0] for each in read_benchmark(tmp_path / "qa", None, None, 0)[1]]
    (tmp_path / "asked.jsonl").write_text("".join(json.dumps({"src": text}) + "\n" for text in asked))
    predict = ["--data_file", tmp_path / "asked.jsonl", "--output_file", tmp_path / "said.json", "--max_new_tokens", 12]
    predict += ["--model_name_or_path", tmp_path / "glm" / "model", "--chat_template", "none", "--device", "cpu"]
    [said] = ranks(1, "tests.prediction.predict_ranks:predict", [*map(str, predict)])
    assert said["exit_code"] == 0, said["stderr"]
    rows = map(json.loads, (tmp_path / "said.json").read_text().splitlines())
    assert found == [row["prediction"] for row in rows] and len(set(found)) > 1
    (tmp_path / "p_test.jsonl").write_text('{"goal": "x", "sol1": "y", "sol2": "z", "label": 0}\n')
    flags = argv(tmp_path, tmp_path / "both.json", model="glm/model", tasks=("qa=qa", "p_test.jsonl"))
    [said] = ranks(1, EVALUATE, flags)
    assert said["exit_code"] == 2 and "--tasks piqa: GLM reads a question in both directions" in said["stderr"]
