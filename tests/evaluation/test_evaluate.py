"""make evaluate: its numbers are those of lm-eval with a model that is asked for one text at a time."""

import json
import shutil
import subprocess
import sys

import pytest

from launch.commands import evaluate as command
from launch.guard import guarded
from tests.store import ROOT

EVALUATE = "tests.evaluation.evaluate_ranks:evaluate"
ALONE = "tests.evaluation.evaluate_ranks:alone"
LM_EVALS = {
    "mmlu": "mmlu/default/mmlu_international_law.yaml",
    "ceval": "ceval/ceval-valid_law.yaml",
    "cmmlu": "cmmlu/cmmlu_agronomy.yaml",
    "arc": "arc/arc_easy.yaml",
    "hellaswag": "hellaswag/hellaswag.yaml",
    "boolq": "super_glue/boolq/default.yaml",
    "piqa": "piqa/piqa.yaml",
    "winogrande": "winogrande/default.yaml",
    "gsm8k": "gsm8k/gsm8k.yaml",
}
pytestmark = pytest.mark.usefixtures("lm_eval")


@pytest.fixture(scope="module")
def material(ranks, tmp_path_factory):
    root = tmp_path_factory.mktemp("evaluate")
    ranks(1, "tests.training.finetune_material:make_material", str(root / "llama"))
    ranks(1, "tests.evaluation.evaluate_ranks:write_tasks", str(root))
    return root


def argv(root, output, *more: str, model: str = "llama/model", tasks=("mmlu", "hellaswag")) -> list[str]:
    flags = ["--model_name_or_path", str(root / model), "--output_file", str(output), "--device", "cpu"]
    return [*flags, "--tasks", *(f"{name}={root / name}" for name in tasks), *more]


def read(said, output) -> dict:
    assert said["exit_code"] == 0, said["stderr"]
    return json.loads(output.read_text())


def likelihoods(report: dict, task: str) -> list[float]:
    return [answer[0][0] for sample in report["samples"][task] for answer in sample["resps"]]


@pytest.mark.parametrize(
    ("names", "shots"),
    [
        (("mmlu", "hellaswag", "gsm8k"), "1"),
        pytest.param(tuple(LM_EVALS), "2", marks=pytest.mark.long),
        pytest.param(tuple(LM_EVALS), "0", marks=pytest.mark.nightly),
    ],
)
def test_numbers_are_those_of_lm_eval_with_its_own_data_sets(ranks, material, tmp_path, names, shots):
    """Prompts, examples, log-likelihoods, answers, measures, standard errors."""
    flags = argv(material, tmp_path / "out.json", "--num_fewshot", shots, "--max_new_tokens", "8", tasks=names)
    [said] = ranks(1, EVALUATE, flags)
    ours = read(said, tmp_path / "out.json")
    files = {name: LM_EVALS[name] for name in names}
    asked = (str(material / "llama" / "model"), str(material), files, int(shots), 8, str(tmp_path / "cache"))
    [theirs] = ranks(1, "tests.evaluation.evaluate_ranks:reference", *asked)
    for name in names:
        task = {"mmlu": "mmlu_international_law", "ceval": "ceval-valid_law", "cmmlu": "cmmlu_agronomy"}.get(name, name)
        for key, value in theirs["results"][name].items():
            if "," in key:
                assert ours["results"][task][key] == pytest.approx(value, abs=1e-12), (name, key)
        answers = [sample["resps"] for sample in ours["samples"][task]]
        if name == "gsm8k":
            assert answers == theirs["answers"][name]
            continue
        for our, their in zip(answers, theirs["answers"][name], strict=True):
            assert [one[0][0] for one in our] == pytest.approx([one[0][0] for one in their], abs=2e-5)
            assert [one[0][1] for one in our] == [one[0][1] for one in their]
    assert "|mmlu                " in said["stdout"] and f"{tmp_path / 'out.json'}: the results" in said["stdout"]


@pytest.mark.long
def test_texts_are_those_of_windows_and_two_ranks_and_small_batches_give_the_same(ranks, material, tmp_path):
    tasks = ("hellaswag", "text", "gsm8k", "qa")
    for number, tokens in ((1, "4096"), (2, "128")):
        sizes = ("--tokens_per_batch", tokens, "--batch_size", str(5 - number), "--max_new_tokens", "8")
        flags = argv(material, tmp_path / f"{number}.json", *sizes, "--num_fewshot", "0", tasks=tasks)
        for said in ranks(number, EVALUATE, flags):
            assert said["exit_code"] == 0, said["stderr"]
    one, two = (json.loads((tmp_path / f"{number}.json").read_text()) for number in (1, 2))
    assert likelihoods(two, "hellaswag") == pytest.approx(likelihoods(one, "hellaswag"), abs=2e-5)
    sums = [[sample["bits_per_byte"] for sample in report["samples"]["text"]] for report in (one, two)]
    assert [nats for nats, _ in sums[1]] == pytest.approx([nats for nats, _ in sums[0]], rel=1e-6)
    lines = (material / "text" / "text_test.jsonl").read_text().splitlines()
    texts = [json.loads(line)["text"] for line in lines]
    assert [size for _, size in sums[0]] == [len(text.encode()) for text in texts]
    short = min(range(len(texts)), key=lambda number: len(texts[number]))
    [[expected]] = ranks(1, ALONE, str(material / "llama" / "model"), None, [["", texts[short]]])
    assert len(texts[short]) < 500 and sums[0][short][0] < expected  # the first id is scored, too, behind another one
    for task in ("gsm8k", "qa"):
        answers = [sample["resps"] for sample in one["samples"][task]]
        assert answers == [sample["resps"] for sample in two["samples"][task]] and len(set(map(str, answers))) > 2


@pytest.mark.long
def test_a_killed_evaluation_goes_on_to_the_same_numbers(ranks, material, tmp_path):
    """To the bit, and computes nothing twice."""
    sizes = ("--tokens_per_batch", "256", "--batch_size", "3", "--max_new_tokens", "8", "--num_fewshot", "0")
    flags = [argv(material, tmp_path / f"{name}.json", *sizes, tasks=("mmlu", "hellaswag", "gsm8k")) for name in "ab"]
    [whole] = ranks(1, EVALUATE, flags[0])
    expected = read(whole, tmp_path / "a.json")
    partial, kept = tmp_path / ".b.json.unfinished", whole["batches"] - 1
    for number, after in enumerate((3, kept - 3)):  # killed twice: among choices, and among answers
        ranks.outcome(1, EVALUATE, flags[1], after, directory=tmp_path / f"job{number}")
        assert not (tmp_path / "b.json").exists()
    lines = partial.read_bytes().splitlines(keepends=True)
    assert len(lines) == 1 + kept and kept > 8
    partial.write_bytes(b"".join(lines) + b'["generate_until", "cu')  # as a kill may leave it
    [said] = ranks(1, EVALUATE, flags[1])
    assert read(said, tmp_path / "b.json") == expected and said["batches"] == 1 and not partial.exists()
    [said] = ranks(1, EVALUATE, flags[1])
    assert said["exit_code"] == 2 and "there are results already. Name another file: --output_file" in said["stderr"]
    # Of other tasks it is refused; with other batches it goes on, and says so.
    (tmp_path / "b.json").unlink()
    partial.write_bytes(b"".join(lines))
    [said] = ranks(1, EVALUATE, [*flags[1], "--limit", "2"])
    assert said["exit_code"] == 2 and "of another model, other tasks or other settings. Remove it, or" in said["stderr"]
    [said] = ranks(1, EVALUATE, [*flags[1], "--batch_size", "1"])
    assert (
        "--batch_size is 1, was 3: what is left is computed in other batches than it would have been" in said["stderr"]
    )
    assert read(said, tmp_path / "b.json")["samples"] == expected["samples"]


@pytest.mark.parametrize("size", [49_152, pytest.param(131_072, marks=pytest.mark.long)])
def test_log_probabilities_over_a_real_vocabulary(ranks, size):
    [errors] = ranks(1, "tests.evaluation.evaluate_ranks:over_a_vocabulary", size)
    assert max(errors) < 1e-12


@pytest.mark.long
def test_what_does_not_fit_the_models_positions(ranks, material, tmp_path):
    row = {"goal": "the model " * 400, "sol1": "reads", "sol2": "learns", "label": 0}
    (tmp_path / "piqa").mkdir()
    file = tmp_path / "piqa" / "p_val.jsonl"
    file.write_text(json.dumps(row) + "\n" + json.dumps(row | {"goal": "a"}) + "\n")
    flags = [*argv(material, tmp_path / "out.json", tasks=()), f"piqa={file}"]
    [said] = ranks(1, EVALUATE, flags)
    expected = "2 of 4 texts longer than the model's 512 positions: the beginning is left out\n"
    assert said["exit_code"] == 0 and expected in said["stderr"]
    file.write_text(json.dumps(row | {"sol2": "the model " * 600}))
    [said] = ranks(1, EVALUATE, [*argv(material, tmp_path / "x.json", tasks=()), f"piqa={file}"])
    assert said["exit_code"] == 2 and f"{file}:1: the choice " in said["stderr"]
    assert "tokens, the model 512 positions. Leave the row out." in said["stderr"]
    [said] = ranks(1, EVALUATE, argv(material, tmp_path / "y.json", "--max_new_tokens", "512", tasks=("qa",)))
    expected = "--max_new_tokens: found 512, the model has 512 positions for question and answer. --max_new_tokens 256"
    assert said["exit_code"] == 2 and expected in said["stderr"]


def test_what_cannot_be_used_is_refused_before_paddle_starts(material, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "start_paddle", lambda on_cpu: pytest.fail("Paddle starts"))
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("results")
    adapter = ("--adapter_path", f"{tmp_path}/folder")
    twice = ("--tasks", f"piqa={material}/piqa", f"piqa={material}/piqa")
    for output, more, expected in (
        ("folder", (), f"cannot write {tmp_path}/folder: it is a folder. Name a file: --output_file."),
        ("file", (), f"{tmp_path}/file: there are results already. Name another file: --output_file."),
        ("file/x", (), f"cannot write {tmp_path}/file/x: File exists. Name a file in another folder: --output_file."),
        ("x", adapter, f"{tmp_path}/folder: no adapter: neither lora_config.json nor prefix_config.json is there."),
        ("x", twice, "--tasks: found piqa twice. Evaluate each alone, with its own --output_file."),
    ):
        exit_code = guarded(command.main, argv(material, tmp_path / output, *more, tasks=("piqa",)))
        assert (exit_code, capsys.readouterr().err) == (2, f"error: {expected}\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def asked(material, name: str) -> list[list[str]]:
    """[text before, continuation] of each choice."""
    from tests.evaluation.test_tasks import load

    _, task = load(f"{name}={material / name}", num_fewshot=0)
    task.build_all_requests()
    return [list(one.args) for one in task.instances]


@pytest.mark.long
def test_an_adapter_is_used_and_compared_with_its_base(ranks, material, tmp_path):
    from tests.training.finetune_material import argv as finetune

    flags = finetune(material / "llama", tmp_path / "lora", lora=1, learning_rate=1e-2, max_steps=8)
    [said] = ranks(1, "tests.training.finetune_ranks:finetune", flags)
    assert said["exit_code"] == 0, said["stderr"]
    base, tuned, lora = tmp_path / "base.json", tmp_path / "tuned.json", str(tmp_path / "lora")
    more = ("--max_new_tokens", "8", "--num_fewshot", "0")
    ranks(1, EVALUATE, argv(material, base, *more, tasks=("winogrande", "qa")))
    [said] = ranks(1, EVALUATE, argv(material, tuned, *more, "--adapter_path", lora, tasks=("winogrande", "qa")))
    found = likelihoods(read(said, tuned), "winogrande")
    [expected] = ranks(1, ALONE, str(material / "llama" / "model"), lora, asked(material, "winogrande"))
    assert found == pytest.approx(expected, abs=2e-5)
    assert found != pytest.approx(likelihoods(json.loads(base.read_text()), "winogrande"), abs=0.1)
    [said] = ranks(1, EVALUATE, ["--compare", str(base), str(tuned)])
    assert said["stdout"].startswith(f"adapter: none -> {lora}\nqa (8)  exact_match ")
    assert "\nwinogrande (8)  acc " in said["stdout"]


@pytest.mark.long
def test_a_base_in_four_bits_gives_what_its_codes_stand_for(ranks, material, tmp_path):
    more = ("--weight_quantize_algo", "nf4")
    [said] = ranks(1, EVALUATE, argv(material, tmp_path / "out.json", *more, tasks=("hellaswag",)))
    found = likelihoods(read(said, tmp_path / "out.json"), "hellaswag")
    assert "base: 14 linear layers in nf4, " in said["stderr"]
    texts = asked(material, "hellaswag")
    [expected] = ranks(1, ALONE, str(material / "llama" / "model"), None, texts, "nf4")
    [whole] = ranks(1, ALONE, str(material / "llama" / "model"), None, texts)
    assert found == pytest.approx(expected, abs=2e-5) and found != pytest.approx(whole, abs=0.01)


@pytest.mark.long
def test_questions_are_asked_as_chats(ranks, material, tmp_path):
    more = ("--apply_chat_template", "--limit", "4", "--num_fewshot", "0")
    [said] = ranks(1, EVALUATE, argv(material, tmp_path / "chat.json", *more, tasks=("mmlu",)))
    found = likelihoods(read(said, tmp_path / "chat.json"), "mmlu_international_law")
    about = "The following are multiple choice questions (with answers) about international law.\n\n"
    chats = [
        [f"[INST] <<SYS>>\n{about}\n<</SYS>>\n\n{before.removeprefix(about)} [/INST]", choice.strip()]
        for before, choice in asked(material, "mmlu")[:16]
    ]
    assert "chat template: llama" in said["stderr"]
    [expected] = ranks(1, ALONE, str(material / "llama" / "model"), None, chats)
    assert found == pytest.approx(expected, abs=2e-5)


@pytest.mark.long
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


@pytest.mark.nightly
def test_a_command_starts_the_ranks_of_a_sharded_model(material, tmp_path):
    """As make evaluate GPUS=2 does it: the same log-likelihoods, and no line more."""
    said, found = [], []
    for degree in ("1", "2"):
        output = tmp_path / f"{degree}.json"
        flags = argv(material, output, "--tensor_parallel_degree", degree, tasks=("hellaswag",))
        started = [sys.executable, "launch/commands/evaluate.py", *flags]
        done = subprocess.run(started, cwd=ROOT, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout.replace(str(output), "OUTPUT").splitlines())
        found.append(likelihoods(json.loads(output.read_text()), "hellaswag"))
    assert found[1] == pytest.approx(found[0], abs=2e-5) and len(found[0]) == 32
    assert [line for line in said[1] if not line.startswith("chat template")] == said[0]


@pytest.mark.nightly
def test_a_family_without_shared_beginnings(ranks, material, tmp_path):
    ranks(1, "tests.evaluation.evaluate_ranks:make_opt", str(tmp_path / "opt"))
    shutil.copytree(material / "hellaswag", tmp_path / "hellaswag")
    flags = argv(tmp_path, tmp_path / "out.json", model="opt/model", tasks=("hellaswag",))
    [said] = ranks(1, EVALUATE, flags)
    [expected] = ranks(1, ALONE, str(tmp_path / "opt" / "model"), None, asked(tmp_path, "hellaswag"))
    assert likelihoods(read(said, tmp_path / "out.json"), "hellaswag") == pytest.approx(expected, abs=2e-5)


@pytest.mark.long
def test_an_answer_ends_before_its_first_end_and_takes_no_more_steps(ranks, material):
    """In a batch with others, which go on."""
    [found] = ranks(1, "tests.evaluation.evaluate_ranks:ended", str(material / "llama" / "model"))
    end, whole = found["end"], found["whole"]
    assert found["ended"] == [text.split(end)[0] for text in whole] and end not in whole[1]
    assert found["alone"] == found["ended"][:1] != whole[:1] and 0 < found["steps"] < 24


@pytest.mark.nightly
def test_a_family_that_reads_questions_in_both_directions_answers_as_it_does_in_predict(ranks, material, tmp_path):
    ranks(1, "tests.evaluation.evaluate_ranks:make_rehearsal", str(tmp_path / "glm"), "glm-rehearsal")
    shutil.copytree(material / "qa", tmp_path / "qa")
    more = ("--max_new_tokens", "12", "--num_fewshot", "0")
    flags = argv(tmp_path, tmp_path / "out.json", *more, model="glm/model", tasks=("qa",))
    [said] = ranks(1, EVALUATE, flags)
    found = [sample["resps"][0][0] for sample in read(said, tmp_path / "out.json")["samples"]["qa"]]
    rows = [{"src": before} for before, _ in asked(tmp_path, "qa")]
    (tmp_path / "asked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    predict = ["--data_file", tmp_path / "asked.jsonl", "--output_file", tmp_path / "said.json", "--max_new_tokens", 12]
    predict += ["--model_name_or_path", tmp_path / "glm" / "model", "--chat_template", "none", "--device", "cpu"]
    [said] = ranks(1, "tests.prediction.predict_ranks:predict", [*map(str, predict)])
    assert said["exit_code"] == 0, said["stderr"]
    rows = map(json.loads, (tmp_path / "said.json").read_text().splitlines())
    assert found == [row["prediction"] for row in rows] and len(set(found)) > 1
    flags = argv(material, tmp_path / "both.json", tasks=("qa", "piqa"))
    flags[1] = str(tmp_path / "glm" / "model")
    [said] = ranks(1, EVALUATE, [*flags, "--num_fewshot", "0"])
    assert said["exit_code"] == 2 and "--tasks piqa: GLM reads a question in both directions" in said["stderr"]
