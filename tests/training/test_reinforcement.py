"""launch/train.py reinforcement: rewards, losses by the formulas of their papers, exact rollouts, resuming."""

import json
import os

import numpy as np
import pytest

from launch.commands.ledger import main as ledger
from launch.errors import UserError
from launch.generation.drawing import draw_scored
from launch.methods.reinforcement import ALGORITHMS
from launch.methods.reward_flags import read_rewards
from launch.training import rewarding
from launch.training.graders import grader
from launch.training.reward_worker import COUNTED_APART, MOST_PROCESSES
from launch.training.rewarding import Completion, RewardProcesses
from tests.distributed.cells import ANSWERED, DORA, FULL, LORA, NF4, REINFORCEMENT, ROWS
from tests.distributed.layouts import DP2, STAGE2
from tests.training.test_continuing import copies, with_other_weights

RANKS = "tests.training.rollout_ranks"
CALL = '{"name": "add", "arguments": {"b": 2, "a": 1}}'
OBJECT = '{"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}}'


@pytest.mark.parametrize(
    ("kind", "completion", "answer", "expected"),
    [
        ("number", "5 + 7 = 12.", "12", 1),
        ("number", "so 1,234.50", "#### 1234.5", 1),
        ("number", "12 of 13", "#### 12", 0),
        ("number", r"thus \boxed{\frac{1}{2}}, not 3", "0.5", 1),
        ("number", r"\boxed{2^{3}}", "8", 0),
        ("number", r"\boxed{2^3 \cdot 2}", "16", 1),
        ("number", r"\boxed{x + 1}", r"\boxed{x+1}", 1),
        ("number", r"\boxed{9**9**9}", "1", 0),
        ("number", "none", "none", 0),
        ("number", "1/0", "1", 0),
        ("choice", "The answer is (b), not A.", "B", 1),
        ("choice", "A or C", "A", 0),
        ("exact", " yes\n", "yes", 1),
        ("exact", "", "", 0),
        ("regex:^<a>", "<a>b", "", 1),
        ("regex:^<a>", "b<a>", "", 0),
        ("json:schema.json", '{"a": 1}', "", 1),
        ("json:schema.json", '{"a": true}', "", 0),
        ("json:schema.json", '{"b": 1}', "", 0),
        ("json", "{'a': 1}", "", 0),
        ("tool", f"<tool_call>\n{CALL}\n</tool_call>", '{"name": "add", "arguments": {"a": 1, "b": 2}}', 1),
        ("tool", f"<tool_call>\n{CALL}\n</tool_call>", '{"name": "add", "arguments": {"a": 1}}', 0),
        ("length:6", "", "", 0.5),
    ],
)
def test_built_in_rewards(tmp_path, monkeypatch, kind, completion, answer, expected):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "schema.json").write_text(OBJECT)
    [reward] = read_rewards([kind])
    grade = grader(reward.kind, reward.value, template="<tool_call>")
    assert grade({"completion": completion, "answer": answer, "tokens": 9}) == expected


def test_what_fails_is_worth_nothing_and_is_counted(tmp_path):
    """An exception, no number, an endless loop and too much memory; what is printed is no reward."""
    code = """
import time
def mine(dialogue, completion, row):
    print("0.25")
    if completion == "hang":
        time.sleep(60)
    if completion == "memory":
        bytearray(8 << 30)
    return {"no": None, "right": row["x"] + len(dialogue), "hang": 1, "memory": 1}[completion]
"""
    (tmp_path / "mine.py").write_text(code)
    counter = "command:sh -c 'while read line; do echo 2; done'"
    rewards = read_rewards(["0.5", f"{tmp_path}/mine.py:mine", "2", "exact", "0.1", counter])
    processes = RewardProcesses(rewards, seconds=2, gigabytes=4, sandbox=False)
    said = [
        Completion([{}], text, {"x": 3}, "right", 1) for text in ("right", "wrong", "no", "hang", "memory", "right")
    ]
    found = processes.of(said)
    assert [one.failed for one in found] == [0, 1, 1, 1, 1, 0]
    assert [one.total for one in found] == [0.5 * 4 + 2 + 0.2, 0.2, 0.2, 0.2, 0.2, 4.2]
    assert found[0].parts == {"mine": 4, "exact": 1, "command": 2}
    assert processes.faults == {"mine": "KeyError: 'wrong'"}


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("sleep 600", "it took more than 0.2 s (--reward_seconds)"),  # it never reads its input, which is long
        ("tr '\\0' 1 < /dev/zero", "it wrote 65,536 bytes and more for an answer"),
        (
            "while read line; do echo 1; read x < asked; echo 2; echo > written; done",
            "it wrote more than one line for an answer",
        ),
    ],
)
def test_what_a_command_writes_and_reads_has_limits(tmp_path, monkeypatch, script, reason):
    """The second one is asked when the first has answered, which then writes more; it answers behind that."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(rewarding, "START_SECONDS", 0.0 if "sleep" in script else 60.0)
    for pipe in ("asked", "written"):
        os.mkfifo(pipe)
    waits = "read line; echo > asked; read one < written; echo 1;" if "written" in script else ""
    (tmp_path / "bad.sh").write_text(script)
    (tmp_path / "good.sh").write_text(f"{waits} while read line; do echo 1; done")
    words = ["1", "command:sh bad.sh", "1", "command:sh good.sh"]
    processes = RewardProcesses(read_rewards(words), 0.2 if "sleep" in script else 60, 4, sandbox=False)
    found = processes.of([Completion([{}], "a" * 200_000, {}, "", 1)] * 2)
    assert found[1].total <= 1 and found[1].failed
    assert reason in processes.faults.values()


def test_a_function_that_takes_long_to_load_is_not_waited_for_twice(tmp_path, monkeypatch):
    monkeypatch.setattr(rewarding, "START_SECONDS", 0.1)
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(600)\ndef f(*_):\n    return 1\n")
    processes = RewardProcesses(read_rewards([f"{tmp_path}/slow.py:f"]), 600, 4, sandbox=False)
    [found] = processes.of([Completion([{}], "", {}, "", 1)])
    assert found.failed and processes.faults == {"f": "it took more than 0.1 s to load"}


def test_a_command_has_no_network_and_few_processes(tmp_path, monkeypatch):
    """Of the interfaces it has the loopback alone, where the kernel allows the sandbox; elsewhere it is not run.

    Its processes have a limit, by a kernel that counts those of the sandbox alone.
    """
    limits = "sed -n 's/^Max processes *//p' /proc/self/limits >> limits"
    (tmp_path / "check.sh").write_text(f"{limits}\nwhile read line; do tail -n +3 /proc/net/dev | wc -l; done")
    monkeypatch.chdir(tmp_path)
    processes = RewardProcesses(read_rewards([f"command:sh {tmp_path}/check.sh"]), 5, 4, sandbox=True)
    try:
        [found] = processes.of([Completion([{}], "", {}, "", 1)])
    except UserError as error:
        assert str(error).startswith("--reward_sandbox: the kernel refuses")
    else:
        assert found.parts == {"command": 1}
        if tuple(map(int, os.uname().release.split(".")[:2])) >= COUNTED_APART:
            assert (tmp_path / "limits").read_text().split()[:2] == [str(MOST_PROCESSES)] * 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing"], "found 1 nothing; expected number, choice"),
        (["0.5", "number", "json"], "found 0.5 number json; expected number"),
        (["x", "number"], "found x number; could not convert"),
        (["regex:("], "found 1 regex:(; missing )"),
        (["none.py:f"], "found 1 none.py:f; no such file none.py"),
        (["length"], "found 1 length; nothing stands behind the colon"),
    ],
)
def test_rewards_that_there_are_not(words, message):
    with pytest.raises(UserError) as error:
        read_rewards(words)
    assert message in str(error.value)


# ---- losses, against the formulas in float64


def by_the_paper(name: str, ratios, lengths, totals, longest: int) -> float:
    """The loss of a group of answers with these ln(ratio) of their tokens, of which the last one is cut off."""
    n, low, high = len(totals), *ALGORITHMS[name].clip
    advantages = totals - totals.mean()
    if name in ("grpo", "dapo", "gspo"):
        advantages = advantages / (totals.std(ddof=1) + 1e-4)
    if name == "rloo":
        advantages = np.array([totals[i] - np.delete(totals, i).mean() for i in range(n)])
    terms = []
    for row, length, advantage in zip(ratios, lengths, advantages, strict=True):
        logs = {"gspo": [row[:length].mean()] * length, "rloo": [row[:length].sum()] * length}.get(name, row[:length])
        ratio = np.exp(logs)
        terms.append(np.minimum(ratio * advantage, np.clip(ratio, 1 - low, 1 + high) * advantage))
    if name == "dr_grpo":
        return -sum(map(np.sum, terms)) / (n * longest)
    if name == "dapo":
        return -sum(map(np.sum, terms[:-1])) / sum(lengths[:-1])
    return -np.mean([term.mean() for term in terms])


@pytest.mark.parametrize("name", ALGORITHMS)
def test_losses_are_those_of_the_papers(ranks, name):
    rng = np.random.default_rng(0)
    lengths, totals = [4, 7, 1, 6], np.array([1.0, 0.0, 0.25, 1.0])
    ratios = rng.normal(0, 1e-3 if name == "gspo" else 0.2, (4, 7))
    [found] = ranks(1, f"{RANKS}:step_of", name, ratios.tolist(), lengths, totals.tolist(), 9)
    assert found["loss"] == pytest.approx(
        by_the_paper(name, ratios, lengths, totals, 9), abs=5e-7
    )  # sums of terms of 1
    assert 0 < np.sum(found["clipped"]) < np.size(found["clipped"])
    step = 1e-6  # the gradient, by differences of the formula
    for row, place in ((0, 1), (1, 6), (3, 0)):
        moved = ratios.copy()
        moved[row, place] += step
        slope = (by_the_paper(name, moved, lengths, totals, 9) - by_the_paper(name, ratios, lengths, totals, 9)) / step
        assert found["gradient"][row][place] == pytest.approx(slope, abs=1e-5)


@pytest.mark.parametrize(("top_k", "top_p"), [(0, 1.0), (5, 1.0), (0, 0.6), (6, 0.8)])
def test_the_loss_has_the_probability_that_the_sampler_drew_by(ranks, top_k, top_p):
    class Options:
        temperature = 0.7

    Options.top_k, Options.top_p = top_k, top_p
    rng = np.random.default_rng(1)
    logits = rng.normal(0, 2, (6, 40)).astype("float32")
    drawn = [draw_scored(row[:30], Options, rng) for row in logits]
    most = max(0 if one.kept is None else len(one.kept) for one in drawn)
    kept = [[*one.kept, *[-1] * (most - len(one.kept))] for one in drawn] if most else []
    kept = [[int(token) for token in row] for row in kept]
    [losses] = ranks(1, f"{RANKS}:sampled_losses", logits.tolist(), [one.token for one in drawn], kept, 0.7, 30)
    np.testing.assert_allclose(losses, [-one.logp for one in drawn], atol=2e-6)


def log_shares(logits) -> np.ndarray:
    return logits - np.log(np.exp(logits).sum())


@pytest.mark.parametrize("moved", [0.0, 0.5])
def test_what_a_teacher_teaches_is_the_reverse_kl(ranks, moved):
    """Over all tokens that there are: of the weights that have sampled, loss and gradient are those of the divergence.

    Of later ones a token's ratio is clipped, which its ln(p of the teacher / p of the sampler) is multiplied with.
    """
    rng = np.random.default_rng(2)
    old, teacher, step = rng.normal(0, 1.5, (3, 7))
    student = old + moved * step
    [found] = ranks(1, f"{RANKS}:distilled", student.tolist(), old.tolist(), teacher.tolist())
    new, sampled, other = map(log_shares, (student, old, teacher))
    above = other - sampled

    def loss(logits) -> float:
        ratio = np.exp(log_shares(logits) - sampled)
        return -(np.exp(sampled) * np.minimum(ratio * above, np.clip(ratio, 0.8, 1.2) * above)).sum()

    assert found["loss"] == pytest.approx(loss(student), abs=1e-6) and found["loss"] != 0
    assert found["apart"] == pytest.approx(-above.sum(), abs=1e-5)
    if not moved:
        divergence = (np.exp(new) * (new - other)).sum()
        assert found["loss"] == pytest.approx(divergence, abs=1e-6)
        assert found["gradient"] == pytest.approx(np.exp(new) * (new - other - divergence), abs=1e-6)
    slopes = [(loss(student + 1e-6 * one) - loss(student - 1e-6 * one)) / 2e-6 for one in np.eye(7)]
    assert found["gradient"] == pytest.approx(slopes, abs=1e-6)


def test_a_teacher_with_another_tokenizer_is_refused(runs, ranks):
    folder = str(runs.material / "wide")
    [found] = ranks(1, f"{RANKS}:tokenizer_of_a_teacher", folder)
    assert found.startswith(f"--teacher: {folder} has another tokenizer: 2 of the model's 384 tokens have another id")
    assert found.endswith("learn from rewards (--reward).")


def test_a_run_stops_where_sampler_and_trainer_disagree(ranks):
    for gap, is_first, message in ((0.02, True, "is 0.02 before the first"), (0.02, False, ""), (0.009, True, "")):
        [found] = ranks(1, f"{RANKS}:stops", gap, is_first)
        assert message in found and bool(message) == bool(found)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"failed_rewards": 2}, "2 rewards failed and count as 0, the first of mine: KeyError: 'a'"),
        ({"silent_groups": 0.81, "reward": 0.6}, "81% of the groups have answers that are all worth the same"),
        ({"silent_groups": 0.81, "reward": 0.4}, "easier prompts, a partial reward"),
        ({"truncated": 0.51, "silent_groups": 0.8}, "51% of the answers reach the largest length"),
        ({"truncated": 0.5, "failed_rewards": 0, "answer_tokens": 40}, ""),
        ({"answer_tokens": 41}, "answers have 41 tokens, 20 at first"),
        ({"entropy": 0.019, "reward": 0.3, "silent_groups": 0.9}, "entropy 0.019: the model no longer tries"),
        ({"entropy": 0.019, "reward": 0.9}, ""),
    ],
)
def test_warnings_with_a_cure(ranks, record, message):
    [found] = ranks(1, f"{RANKS}:warning", record)
    assert message in (found or "") and bool(message) == bool(found)


# ---- runs

USUAL = ANSWERED | {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "learning_rate": 1e-2}
BEGIN = "bu gumismi rumerzer butozo gumismi nerpisfu lodi nider berodi rer langisvis "  # over 32 tokens
TEN_PROMPTS = {"max_steps": -1, "num_train_epochs": 0.5}
LESS_MEMORY = {"quantize_head": 1, "offload_embedding": 1}
VARIANTS = {
    "lora": ROWS | DORA | TEN_PROMPTS | {"top_p": 0.9, "rollout_steps": 2, "rollout_passes": 2, "kl_weight": 0.1},
    "full": {"algorithm": "dapo", "mask_truncated": 0, "redraw_rounds": 2, "kl_weight": 0.05, "model": "qwen2"},
    "teacher": LORA | NF4 | LESS_MEMORY | {"teacher": "wide", "rollout_steps": 2, "top_k": 50, "model": "qwen2"},
    "rloo": {"algorithm": "rloo", "top_k": 20, "rollout_steps": 5, "loss_chunk_tokens": 40, "model": "wide"},
}


@pytest.mark.parametrize(
    "name", [name if name == "lora" else pytest.param(name, marks=pytest.mark.long) for name in VARIANTS]
)
def test_sampler_and_trainer_agree_and_a_run_goes_on_to_the_bit(runs, tmp_path, name):
    """The ratio of the first update is 1, as far as float32 has it; a checkpoint in the middle of a rollout has it."""
    for part in ("train.json", "dev.json"):  # prompts that begin alike, so that keys and values are taken over
        rows = map(json.loads, (runs.material / "few-pairs" / part).read_text().splitlines())
        (tmp_path / part).write_text("".join(json.dumps(row | {"src": BEGIN + row["src"]}) + "\n" for row in rows))
    usual = USUAL | {"dataset_name_or_path": tmp_path, "src_length": 128, "max_length": 140}
    flags = usual | {"max_steps": 6, "save_steps": 3} | VARIANTS[name]
    if "teacher" in flags:
        flags["teacher"] = runs.material / flags["teacher"]
    whole, continued = runs(REINFORCEMENT, **flags), runs.continued(REINFORCEMENT, **flags)
    gaps = [record["largest_gap"] for record in whole.steps if "largest_gap" in record]
    sampled, passes = (VARIANTS[name].get(f"rollout_{unit}", 1) for unit in ("steps", "passes"))
    assert len(gaps) == -(-6 // (sampled * passes))
    if passes == 2:  # prompts of two steps are read at once, then not until their steps have been made twice
        assert whole.column("consumed_samples").tolist() == [8, 8, 8, 8, 10, 10]
        assert "10.0 steps an epoch, 0.50 epochs" in whole.stdout
        assert ledger([str(continued.output)]) == 0
        rewards, learned = whole.column("reward"), whole.column("consumed_tokens")
        assert (rewards[2:4] == rewards[:2]).all() and rewards[5] == rewards[4] != rewards[0]
        assert (np.diff(learned)[1:3] == [learned[0], np.diff(learned)[0]]).all()
        later_ratios = whole.column("largest_log_ratio")[[1, 2, 3, 5]]
        assert later_ratios.min() > 100 * max(gaps) and whole.column("clipped")[2:4].max() > 0
    assert max(gaps) <= 5e-5 and max(record.get("far_gaps", 0) for record in whole.steps) <= 1e-3
    assert len(set(whole.column("reward"))) > 2 and whole.column("grad_norm").max() > 0
    later = {record["global_step"]: record for record in continued.steps}
    assert sorted(later) == [4, 5, 6]
    for record in whole.steps[3:]:
        for key in ("loss", "reward", "entropy", "largest_log_ratio", "grad_norm", "answer_tokens", "consumed_tokens"):
            assert record.get("reverse_kl") == later[record["global_step"]].get("reverse_kl")
            assert record[key] == later[record["global_step"]][key]
    for tensor, values in whole.weights.items():
        assert values.tobytes() == continued.weights[tensor].tobytes()
    if "teacher" in VARIANTS[name]:
        assert "\nword embedding: in host memory" in whole.stdout and " and the output layer in nf4" in whole.stdout
        copies(whole.output, tmp_path, ["again"])
        other = with_other_weights(flags["teacher"], tmp_path / "other")
        changes = {"teacher": other, "max_steps": 7, "output_dir": tmp_path / "again"}
        said = runs.said(REINFORCEMENT, {"again": flags | changes})["again"]
        assert said["exit_code"] == 2 and "so far: the teacher has other weights. Give the former" in said["stderr"]
    if "redraw_rounds" in VARIANTS[name]:
        redrawn = whole.column("redrawn_groups")
        assert redrawn.max() > 0 and (redrawn[3:] == [later[step]["redrawn_groups"] for step in (4, 5, 6)]).all()
        assert (whole.column("consumed_samples") == 4 * np.arange(1, 7) + np.cumsum(redrawn)).all()
        assert ledger([str(continued.output)]) == 0
    rows = [json.loads(line) for line in (whole.output / "rollouts" / "step-1.jsonl").read_text().splitlines()]
    assert len(rows) == 4 * 4 * sampled
    first = [row["reward"] for row in rows[:16]]
    assert np.mean(first) == whole.steps[0]["reward"]


@pytest.mark.long
def test_a_student_comes_near_its_teacher(runs):
    """Without a reward, and the first loss, where the ratio is 1, is the divergence itself."""
    teacher = runs(FULL, max_steps=20, learning_rate=1e-2, do_eval=0, save_steps=99).output
    flags = USUAL | {"max_steps": 16, "save_steps": 99, "learning_rate": 5e-3, "do_eval": 0, "teacher": teacher}
    del flags["reward"]
    run = runs(REINFORCEMENT, **flags)
    apart = run.column("reverse_kl")
    assert apart[0] > 2.5 and apart[-3:].max() < 1.5
    assert run.steps[0]["loss"] == pytest.approx(apart[0], abs=1e-5)
    assert not {"reward", "silent_groups", "kl"} & run.steps[0].keys() and "of the groups have" not in run.stdout
    assert f"entropy {run.steps[0]['entropy']:.2f}  KL to the teacher {apart[0]:.4f}" in run.stdout


@pytest.mark.long
@pytest.mark.parametrize("layout", [DP2, STAGE2], ids=["dp2", "stage2"])
def test_ranks_share_the_prompts_of_a_step(runs, layout):
    """The same prompts, random numbers and weights of tokens as on one process, so the same first answers."""
    flags = USUAL | LORA | {"max_steps": 3, "save_steps": 3, "kl_weight": 0.1, "group_size": 2, "redraw_rounds": 2}
    alone, shared = (
        runs(REINFORCEMENT, **flags),
        runs(REINFORCEMENT, layout=layout, **flags | {"gradient_accumulation_steps": 1}),
    )
    rows = [(run.output / "rollouts" / "step-1.jsonl").read_text() for run in (alone, shared)]
    assert rows[0] == rows[1]
    assert alone.steps[0]["redrawn_groups"] > 0
    for key in ("reward", "answer_tokens", "silent_groups", "redrawn_groups", "consumed_tokens"):
        assert shared.steps[0][key] == alone.steps[0][key]
    for key, bound in (("loss", 2e-6), ("entropy", 2e-6), ("grad_norm", 2e-5)):
        assert shared.steps[0][key] == pytest.approx(alone.steps[0][key], abs=bound)
    assert shared.column("largest_gap").max() <= 5e-5
    assert shared.evaluation["eval_answers"] == alone.evaluation["eval_answers"]
