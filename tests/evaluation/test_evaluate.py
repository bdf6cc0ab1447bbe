"""make evaluate: its numbers are those of one text at a time, alone, on two cards, with an adapter, or begun anew."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from data_tools.formats.benchmarks.files import read_benchmark
from launch.commands import evaluate as command
from launch.guard import guarded

ROOT = Path(__file__).resolve().parents[2]
OFFLINE = os.environ | {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
EVALUATE = "tests.evaluation.evaluate_ranks:evaluate"
ALONE = "tests.evaluation.evaluate_ranks:alone"


@pytest.fixture(scope="module")
def material(ranks, tmp_path_factory):
    root = tmp_path_factory.mktemp("evaluate")
    ranks(1, "tests.training.finetune_material:make_material", str(root / "llama"))
    ranks(1, "tests.evaluation.evaluate_ranks:write_tasks", str(root))
    return root


def argv(root, output, *more: str, model: str = "llama/model", tasks=("mmlu=mmlu", "hellaswag_val.jsonl")) -> list[str]:
    named = [name.replace("=", f"={root}/") if "=" in name else str(root / name) for name in tasks]
    flags = ["--model_name_or_path", str(root / model), "--output_file", str(output), "--device", "cpu"]
    return [*flags, "--tasks", *named, *more]


def read(said, output) -> dict:
    assert said["exit_code"] == 0, said["stderr"]
    return json.loads(output.read_text())["tasks"]


def likelihoods(task: dict) -> list[float]:
    return [
        value for record in task["records"] for value in record.get("log_likelihoods", [record.get("log_likelihood")])
    ]


def texts(root, name: str, shots: int = 0) -> list[list[str]]:
    _, asked = read_benchmark(root / name, None, None, shots)
    return [
        [each.before + before, each.question.between + choice]
        for each in asked
        for before, choice in each.question.pairs
    ]


def test_shared_beginnings_change_no_number(ranks, material, tmp_path):
    [said] = ranks(1, EVALUATE, argv(material, tmp_path / "out.json", "--num_fewshot", "3", tasks=("mmlu=mmlu",)))
    found = read(said, tmp_path / "out.json")["mmlu"]
    assert found["items"] == 16 and set(found["subjects"]) == {"law", "logic"}
    [expected] = ranks(1, ALONE, str(material / "llama" / "model"), None, texts(material, "mmlu", 3))
    assert likelihoods(found) == pytest.approx(expected, abs=2e-4)
    right = [record["acc"] for record in found["records"]]
    assert found["acc"] == sum(right) / 16
    assert f"mmlu (16)  acc {found['acc']:.4f} ± {found['acc_stderr']:.4f}" in said["stdout"]
    assert not list(tmp_path.glob(".*"))


def test_two_ranks_and_small_batches_give_the_same(ranks, material, tmp_path):
    ranks(1, "tests.evaluation.evaluate_ranks:write_written", str(material), {})
    tasks = ("hellaswag_val.jsonl", "winogrande_val.jsonl", "text=text.jsonl", "gsm8k=gsm8k", "qa=qa")
    for ranks_, name, tokens in ((1, "one", "4096"), (2, "two", "128")):
        sizes = ("--tokens_per_batch", tokens, "--batch_size", str(5 - ranks_), "--max_new_tokens", "8")
        flags = argv(material, tmp_path / f"{name}.json", *sizes, tasks=tasks)
        for said in ranks(ranks_, EVALUATE, flags):
            assert said["exit_code"] == 0, said["stderr"]
    one, two = (json.loads((tmp_path / f"{name}.json").read_text())["tasks"] for name in ("one", "two"))
    for task in ("hellaswag", "winogrande", "text"):
        assert likelihoods(two[task]) == pytest.approx(likelihoods(one[task]), rel=1e-5, abs=1e-4)
    assert one["text"]["bits_per_byte"] > 0
    for task in ("gsm8k", "qa"):
        written = [record["written"] for record in one[task]["records"]]
        assert written == [record["written"] for record in two[task]["records"]] and len(set(written)) == 6


def test_a_killed_evaluation_goes_on(ranks, material, tmp_path):
    whole, cut = tmp_path / "whole.json", tmp_path / "cut.json"
    [said] = ranks(1, EVALUATE, argv(material, whole))
    expected = read(said, whole)
    job = ranks.outcome(1, EVALUATE, argv(material, cut), 5, directory=tmp_path / "job")
    assert not cut.exists(), job
    lines = (tmp_path / ".cut.json.unfinished").read_text().splitlines()
    assert len(lines) == 1 + 5
    # What is there is not computed again: a number that no model gives stays.
    task, item, values = json.loads(lines[1])
    lines[1] = json.dumps([task, item, [-1.0, *values[1:]]])
    (tmp_path / ".cut.json.unfinished").write_text("\n".join(lines) + "\n")
    [said] = ranks(1, EVALUATE, argv(material, cut))
    found = read(said, cut)
    assert found["mmlu"]["records"][item]["log_likelihoods"] == [-1.0, *values[1:]]
    assert likelihoods(found["hellaswag"]) == pytest.approx(likelihoods(expected["hellaswag"]), abs=2e-5)
    [said] = ranks(1, EVALUATE, argv(material, cut))
    assert said["exit_code"] == 2 and "there are results already. Name another file: --output_file" in said["stderr"]


def test_an_item_is_kept_as_soon_as_it_is_finished(ranks, material, tmp_path):
    """Not when all that are sorted with it are."""
    flags = argv(material, tmp_path / "out.json", "--tokens_per_batch", "64", tasks=("hellaswag_val.jsonl",))
    ranks.outcome(1, EVALUATE, flags, 0, 40, directory=tmp_path / "job")  # of 48
    kept = (tmp_path / ".out.json.unfinished").read_text().splitlines()[1:]
    assert 6 <= len(kept) <= 10
    [said] = ranks(1, EVALUATE, flags)
    assert len(read(said, tmp_path / "out.json")["hellaswag"]["records"]) == 12
    # Each task has its own time that is left, of items that cost about the same.
    assert f"evaluating hellaswag: {len(kept) + 1} of 12, " in said["stderr"]
    assert said["stderr"].splitlines()[-1] == "evaluating hellaswag: 12 of 12, 0 s left"


def test_rounds_have_about_as_many_requests_and_a_text_without_tokens_has_none(ranks):
    [found] = ranks(1, "tests.evaluation.evaluate_ranks:in_rounds", [1024, 1, 1023, 4])
    assert found["rounds"] == [[0], [1, 2], [3]]
    [found] = ranks(1, "tests.evaluation.evaluate_ranks:in_rounds", [2, 0, 1, 0])
    assert found["found"] == [[[1, []], [3, []]], [[2, [2.0]]], [[0, [0.0, 1.0]]]]


def test_questions_without_room_are_counted(ranks, material, tmp_path):
    row = {"goal": "the model " * 400, "sol1": "reads", "sol2": "learns", "label": 0}
    (tmp_path / "p_val.jsonl").write_text(json.dumps(row) + "\n" + json.dumps(row | {"goal": "a"}) + "\n")
    [said] = ranks(1, EVALUATE, argv(material, tmp_path / "out.json", tasks=(str(tmp_path / "p_val.jsonl"),)))
    expected = "piqa: 1 of 2 questions longer than the model's 512 positions: the beginning is left out\n"
    assert said["exit_code"] == 0 and expected in said["stderr"]


def test_what_cannot_be_used_is_refused_before_paddle_starts(material, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "start_paddle", lambda on_cpu: pytest.fail("Paddle starts"))
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("results")
    adapter = ("--adapter_path", f"{tmp_path}/folder")
    for output, more, expected in (
        ("folder", (), f"cannot write {tmp_path}/folder: it is a folder. Name a file: --output_file."),
        ("file", (), f"{tmp_path}/file: there are results already. Name another file: --output_file."),
        ("file/x", (), f"cannot write {tmp_path}/file/x: File exists. Name a file in another folder: --output_file."),
        ("x", adapter, f"{tmp_path}/folder: no adapter: neither lora_config.json nor prefix_config.json is there."),
    ):
        exit_code = guarded(command.main, argv(material, tmp_path / output, *more, tasks=("piqa_val.jsonl",)))
        assert (exit_code, capsys.readouterr().err) == (2, f"error: {expected}\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


@pytest.mark.long
def test_after_ctrl_c_the_same_command_goes_on(material, tmp_path):
    words = argv(
        material, tmp_path / "out.json", "--tokens_per_batch", "32", tasks=("hellaswag_val.jsonl", "mmlu=mmlu")
    )
    started = [sys.executable, "launch/commands/evaluate.py", *words]
    run = subprocess.Popen(started, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    partial = tmp_path / ".out.json.unfinished"
    while run.poll() is None and (not partial.exists() or partial.read_bytes().count(b"\n") < 3):
        time.sleep(0.01)
    run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=60)
    assert (run.returncode, said.splitlines()[-1]) == (130, "interrupted: the same command goes on")
    kept = partial.read_text().splitlines()[1:]
    done = subprocess.run(started, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "out.json").read_text())["tasks"]
    for task, item, values in map(json.loads, kept):
        assert found[("hellaswag", "mmlu")[task]]["records"][item]["log_likelihoods"] == values
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"] and 2 <= len(kept) < 28


def test_an_adapter_is_used_and_compared_with_its_base(ranks, material, tmp_path):
    [said] = ranks(
        1, "tests.training.finetune_ranks:finetune", finetune_flags(material, tmp_path / "lora", max_steps=8)
    )
    assert said["exit_code"] == 0, said["stderr"]
    base, tuned = tmp_path / "base.json", tmp_path / "tuned.json"
    ranks(1, "tests.evaluation.evaluate_ranks:write_written", str(material), {})
    tasks = ("winogrande_val.jsonl", "qa=qa")
    ranks(1, EVALUATE, argv(material, base, "--max_new_tokens", "8", tasks=tasks))
    flags = argv(material, tuned, "--max_new_tokens", "8", "--adapter_path", str(tmp_path / "lora"), tasks=tasks)
    [said] = ranks(1, EVALUATE, flags)
    found, qa = (read(said, tuned)[name] for name in ("winogrande", "qa"))
    [expected] = ranks(1, ALONE, str(material / "llama" / "model"), str(tmp_path / "lora"), texts(material, tasks[0]))
    assert likelihoods(found) == pytest.approx(expected, abs=2e-4)
    assert likelihoods(found) != pytest.approx(
        likelihoods(json.loads(base.read_text())["tasks"]["winogrande"]), abs=0.1
    )
    asked = [before for before, _ in texts(material, "qa")[::2]]
    said = (str(material / "llama" / "model"), str(tmp_path / "lora"), asked, [["\n\n"]] * 6, 8)
    [expected] = ranks(1, "tests.evaluation.evaluate_ranks:written_alone", *said)
    of_base = json.loads(base.read_text())["tasks"]["qa"]["records"]
    assert [record["written"] for record in qa["records"]] == expected != [record["written"] for record in of_base]
    [said] = ranks(1, EVALUATE, ["--compare", str(base), str(tuned)])
    assert said["stdout"].startswith(f"adapter: none -> {tmp_path / 'lora'}\nqa (6)  bleu ")
    assert "\nwinogrande (6)  acc " in said["stdout"]


def test_a_base_in_four_bits_gives_what_its_codes_stand_for(ranks, material, tmp_path):
    [said] = ranks(1, EVALUATE, argv(material, tmp_path / "out.json", "--weight_quantize_algo", "nf4"))
    found = read(said, tmp_path / "out.json")
    assert "base: 14 linear layers in nf4, " in said["stderr"]
    for task, name in (("mmlu", "mmlu"), ("hellaswag", "hellaswag_val.jsonl")):
        asked = str(material / "llama" / "model"), None, texts(material, name)
        [expected] = ranks(1, ALONE, *asked, "nf4")
        [whole] = ranks(1, ALONE, *asked)
        assert likelihoods(found[task]) == pytest.approx(expected, abs=2e-4)
        assert likelihoods(found[task]) != pytest.approx(whole, abs=0.01)


def finetune_flags(material, output, **changes) -> list[str]:
    from tests.training.finetune_material import argv as flags

    return flags(material / "llama", output, lora=1, learning_rate=1e-2, **changes)


def test_the_make_target(material, tmp_path):
    """The commands of docs/evaluate.md, with other paths."""
    variables = [f"MODEL={material / 'llama' / 'model'}", f"TASKS=mmlu={material / 'mmlu'}", "ARGS=--num_fewshot 2"]
    evaluate = ["make", "-o", "setup", "evaluate"]
    results = tmp_path / "results.json"
    done = subprocess.run([*evaluate, *variables, f"OUTPUT={results}"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(results.read_text())["num_fewshot"] == 2
    done = subprocess.run([*evaluate, f"COMPARE={results} {results}"], cwd=ROOT, capture_output=True, text=True)
    assert [line.endswith("fewer than 30 items: not judged") for line in done.stdout.splitlines()] == [True]
    done = subprocess.run([*evaluate, variables[0]], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and "error: TASKS: not given." in done.stderr


@pytest.mark.long
def test_a_command_starts_the_ranks_of_a_sharded_model(material, tmp_path):
    """As make evaluate GPUS=2 does it: the same log-likelihoods, and no line more."""
    said, found = [], []
    for degree in ("1", "2"):
        output = tmp_path / f"{degree}.json"
        flags = argv(material, output, "--tensor_parallel_degree", degree, tasks=("hellaswag_val.jsonl",))
        done = subprocess.run(
            [sys.executable, "launch/commands/evaluate.py", *flags],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        said.append(done.stdout.replace(str(output), "OUTPUT").splitlines())
        found.append(likelihoods(json.loads(output.read_text())["tasks"]["hellaswag"]))
    assert found[1] == pytest.approx(found[0], abs=2e-4) and len(found[0]) == 48
    assert [line for line in said[1] if not line.startswith("chat template")] == said[0]


def test_questions_are_asked_as_chats(ranks, material, tmp_path):
    more = ("--apply_chat_template", "--limit", "4")
    [said] = ranks(1, EVALUATE, argv(material, tmp_path / "chat.json", *more, tasks=("mmlu=mmlu",)))
    found = read(said, tmp_path / "chat.json")["mmlu"]
    about = "The following are multiple choice questions (with answers) about law.\n\n"
    asked = texts(material, "mmlu")[:16]
    chats = [
        [f"[INST] <<SYS>>\n{about}\n<</SYS>>\n\n{before.removeprefix(about)} [/INST]", choice.strip()]
        for before, choice in asked
    ]
    assert asked[0][0].startswith(about) and "chat template: llama" in said["stderr"]
    [expected] = ranks(1, ALONE, str(material / "llama" / "model"), None, chats)
    assert likelihoods(found) == pytest.approx(expected, abs=2e-4)


@pytest.mark.long
def test_a_family_without_shared_beginnings(ranks, tmp_path):
    ranks(1, "tests.evaluation.evaluate_ranks:make_opt", str(tmp_path / "opt"))
    ranks(1, "tests.evaluation.evaluate_ranks:write_tasks", str(tmp_path))
    tasks = ("hellaswag_val.jsonl",)
    [said] = ranks(1, EVALUATE, argv(tmp_path, tmp_path / "out.json", model="opt/model", tasks=tasks))
    found = read(said, tmp_path / "out.json")["hellaswag"]
    [expected] = ranks(1, ALONE, str(tmp_path / "opt" / "model"), None, texts(tmp_path, tasks[0]))
    assert likelihoods(found) == pytest.approx(expected, abs=2e-4)


CHAT = (
    "{{bos_token}}{% for message in messages %}<{{message['role']}}>{{message['content']}}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


ALONE_ASKED = tuple(f"{name}_val.jsonl" for name in ("arc", "boolq", "hellaswag", "piqa", "winogrande"))
WITH_EXAMPLES = ("mmlu=law", "ceval=ceval", "cmmlu=cmmlu")


@pytest.mark.long
@pytest.mark.parametrize(
    ("form", "shots", "tasks"),
    [
        ("bare", 0, (*ALONE_ASKED, "text=text.jsonl")),
        ("chat", 0, ALONE_ASKED),
        ("bare", 2, WITH_EXAMPLES),
        ("chat", 2, WITH_EXAMPLES),
    ],
)
def test_the_harness_gives_the_same(ranks, material, tmp_path, form, shots, tasks):
    """Choices in the context, texts longer than the model's positions, examples, and questions asked as chats."""
    pytest.importorskip("lm_eval")
    shutil.copytree(material, tmp_path, dirs_exist_ok=True)
    config = tmp_path / "llama" / "model" / "tokenizer_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"chat_template": CHAT}))
    (tmp_path / "law").mkdir()
    for split in ("dev", "test"):
        shutil.copy(tmp_path / f"law_{split}.jsonl", tmp_path / "law")
    flags = argv(tmp_path, tmp_path / "ours.json", "--num_fewshot", str(shots), tasks=tasks)
    [said] = ranks(1, EVALUATE, [*flags, *(["--apply_chat_template"] if form == "chat" else [])])
    ours = read(said, tmp_path / "ours.json")
    harness = ["-m", "tests.evaluation.harness", tmp_path / "hf", tmp_path, tmp_path / "theirs.json", str(shots), form]
    export = ["launch/commands/export.py", tmp_path / "llama" / "model", tmp_path / "hf"]
    for words in (export, [*harness, *ours]):
        done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, env=OFFLINE)
        assert done.returncode == 0, done.stderr
    theirs = json.loads((tmp_path / "theirs.json").read_text())
    for name, found in ours.items():
        # In float32 both round each of up to 2,000 summed logarithms.
        assert likelihoods(found) == pytest.approx(theirs[name]["log_likelihoods"], rel=1e-6, abs=1e-4)
        measures = {key: value for key, value in found.items() if isinstance(value, float)}
        assert measures == pytest.approx(theirs[name]["measures"], rel=1e-5), name
