"""run_dpo.py: the losses by the formulas of their papers, the reference, what is logged, layouts and resuming."""

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from launch.config.flag_values import parse_flags
from launch.config.preference_flags import COMPARES, KTO, OF_MEANS, weights_of
from launch.processes.logs import KILLED
from launch.reporting.records import read_summary, read_train_log
from tests.ranks import ROOT
from tests.training.finetune_material import argv, write_first

RANKS = "tests.training.preference_ranks"
RUN = f"{RANKS}:run"
FEW = 22  # three steps of 8, the last of 6
FULL, LORA = {}, {"lora": 1, "lora_rank": 4}
PAIRED = [loss for loss in COMPARES if loss != KTO]


@pytest.fixture(scope="module")
def material(ranks, tmp_path_factory):
    root = tmp_path_factory.mktemp("preferences")
    ranks(1, "tests.training.finetune_material:make_material", str(root))
    write_first(root / "preferences", root / "few", FEW)
    return root


@pytest.fixture
def run(ranks, material, tmp_path):
    """run(name, processes, beta=1, ...): the output directory of a run that must end well."""

    def finish(name="out", processes=1, **changes):
        flags = {"dataset_name_or_path": material / "few", "max_steps": 3, "learning_rate": 1e-2} | changes
        [said, *_] = ranks(processes, RUN, argv(material, tmp_path / name, **flags))
        assert said["exit_code"] == 0, said["stderr"] + said["stdout"][-2000:]
        finish.said = said["stdout"]
        return tmp_path / name

    def refused(name, **changes):
        """What a run says that must not begin."""
        flags = {"dataset_name_or_path": material / "few"} | changes
        [said] = ranks(1, RUN, argv(material, tmp_path / name, **flags))
        assert said["exit_code"] == 2, said["stdout"]
        return said["stderr"]

    finish.folder, finish.refused = tmp_path, refused
    return finish


def column(output, key: str) -> list[float]:
    return [record[key] for record in read_train_log(output) if "learning_rate" in record]


# ---- formulas


def log_sigmoid(x):
    return -np.logaddexp(0, -x)


def by_the_paper(loss: str, chosen, rejected, beta: float, gamma: float, smoothing: float):
    """float64. chosen, rejected: log-ratios to the reference, of means over tokens where the paper has them."""
    if loss == "sigmoid":  # arXiv 2305.18290, equation 7; label smoothing of cDPO, equation 3
        margin = beta * (chosen - rejected)
        return -(1 - smoothing) * log_sigmoid(margin) - smoothing * log_sigmoid(-margin)
    if loss == "simpo":  # arXiv 2405.14734, equation 6
        margin = beta * chosen - beta * rejected - gamma
        return -(1 - smoothing) * log_sigmoid(margin) - smoothing * log_sigmoid(-margin)
    if loss == "hinge":  # arXiv 2309.06657, equation 7
        return np.maximum(0, 1 - beta * (chosen - rejected))
    if loss == "ipo":  # arXiv 2310.12036, equation 17
        return (chosen - rejected - 1 / (2 * beta)) ** 2
    odds = [np.exp(score) / (1 - np.exp(score)) for score in (chosen, rejected)]  # arXiv 2403.07691, equations 4 and 7
    return -log_sigmoid(np.log(odds[0] / odds[1]))


@pytest.mark.parametrize("loss", PAIRED)
def test_losses_are_those_of_the_papers(ranks, loss):
    rng = np.random.default_rng(0)
    scores = -rng.uniform(0.05, 4, [2, 12])
    before = -rng.uniform(0.05, 4, [2, 12]) if COMPARES[loss] else np.zeros([2, 12])
    for beta, gamma, smoothing in ((0.1, 0.5, 0.0), (2.0, 1.4, 0.2)):
        expected = by_the_paper(loss, *(scores - before), beta, gamma, smoothing)
        given = {"loss_type": loss, "beta": beta, "simpo_gamma": gamma, "label_smoothing": smoothing}
        [found] = ranks(1, "tests.training.preference_ranks:losses_of", given, scores.tolist(), before.tolist())
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_orpo_weighs_its_terms_as_its_paper():
    args = SimpleNamespace(loss_type="or", pref_loss_ratio=None, sft_loss_ratio=None)
    assert weights_of(args) == (0.1, 1.0)
    assert weights_of(SimpleNamespace(loss_type="sigmoid", pref_loss_ratio=None, sft_loss_ratio=0.2)) == (1.0, 0.2)


@pytest.mark.parametrize("lora", [FULL, LORA], ids=["full", "lora"])
@pytest.mark.parametrize("loss", PAIRED)
def test_a_run_has_the_loss_of_the_formula(ranks, run, material, loss, lora):
    """The first step and, once the policy has moved, the evaluation: of pairs one by one, whose log-probabilities are
    those of the models that the run begins and ends with."""
    flags = {"loss_type": loss, "beta": 0.5, "simpo_gamma": 0.3, "label_smoothing": 0.1, "sft_loss_ratio": 0.25}
    output = run(do_eval=1, loss_chunk_tokens=40, **flags, **lora)
    [found] = ranks(1, "tests.training.preference_ranks:by_hand", str(material), str(output))
    before, after = np.array(found["before"]), np.array(found["after"])  # [pairs, (chosen, rejected), (sum, tokens)]

    def expected(now):
        sums, tokens = now[..., 0], now[..., 1]
        scale = tokens if loss in OF_MEANS else 1
        reference = before[..., 0] / scale if COMPARES[loss] else 0
        chosen, rejected = (sums / scale - reference).T
        smoothing = 0.1 if loss in ("sigmoid", "simpo") else 0
        each = by_the_paper(loss, chosen, rejected, 0.5, 0.3, smoothing)
        weight = 0.1 if loss == "or" else 1
        rewards = 0.5 * np.stack([chosen, rejected])
        return weight * each - 0.25 * sums[:, 0] / tokens[:, 0], rewards

    first = [record for record in read_train_log(output) if "learning_rate" in record][0]
    losses, _ = expected(before)
    assert first["loss"] == pytest.approx(losses[found["first_step"]].mean(), abs=2e-6)
    losses, (chosen, rejected) = expected(after)
    evaluated = read_summary(output)["evaluation"]
    assert evaluated["eval_loss"] == pytest.approx(losses.mean(), abs=5e-6)
    assert evaluated["eval_rewards_margin"] == pytest.approx((chosen - rejected).mean(), abs=2e-5)
    assert evaluated["eval_accuracy"] == (chosen > rejected).mean()
    assert evaluated["eval_pairs"] == FEW
    assert evaluated["eval_logps_chosen"] == pytest.approx(after[:, 0, 0].mean(), rel=1e-6)
    assert evaluated["eval_tokens_rejected"] == after[:, 1, 1].mean()
    assert ("eval_kl" in evaluated) == COMPARES[loss]


def test_hinge_may_rest(run):
    """Where all margins are wide enough the gradient is 0, and the run goes on."""
    output = run(loss_type="hinge", beta=1000, max_steps=14)
    assert column(output, "grad_norm")[-4:] == [0, 0, 0, 0]
    assert column(output, "loss")[-1] == 0


def test_a_run_that_unlearns_both_responses_says_so(run, material):
    """Rejected responses differ from chosen ones in a word, and the model knows the chosen ones by heart: a margin is
    found nowhere but below. Their own loss holds them."""
    rows = [json.loads(line) for line in (material / "preferences" / "train.json").read_text().splitlines()]
    alike = [row | {"rejected": row["rejected"].split()[0] + " " + row["chosen"].partition(" ")[2]} for row in rows]
    data = run.folder / "alike"
    data.mkdir()
    lines = [json.dumps(row) + "\n" for row in alike if row["rejected"] != row["chosen"]]
    (data / "train.json").write_text("".join(lines[:16]))
    knows = run("knows", dataset_name_or_path=data, max_steps=30, pref_loss_ratio=0, sft_loss_ratio=1)
    flags = {"dataset_name_or_path": data, "model_name_or_path": knows, "beta": 0.01, "max_steps": 14}
    collapsed = run("collapsed", **flags)
    told = "the margin grows while both responses become less likely: a token of the chosen ones by"
    assert run.said.count(f"warning: {told}") == 1
    assert [told in record["warning"] for record in read_train_log(collapsed) if "warning" in record] == [True]
    assert column(collapsed, "logps_chosen")[-1] < column(collapsed, "logps_chosen")[0] - 50
    run("held", sft_loss_ratio=1, **flags)
    assert told not in run.said


# ---- batches, layouts, resuming


@pytest.mark.parametrize("lora", [FULL, pytest.param(LORA, marks=pytest.mark.long)], ids=["full", "lora"])
def test_every_pair_of_a_step_weighs_the_same(run, lora):
    """However the pairs of a step are cut into micro batches, computed in chunks, divided over ranks."""
    lora = lora | {"learning_rate": 1e-3}
    one = run("one", **lora)
    ways = {
        "cut": {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 8},
        "chunks": {"loss_chunk_tokens": 40},
        "tp2": {"processes": 2, "tensor_parallel_degree": 2},
        "tp2-chunks": {"processes": 2, "tensor_parallel_degree": 2, "loss_chunk_tokens": 40},
        "stage2": {"processes": 2, "sharding": "stage2", "per_device_train_batch_size": 4},
        "stage3": {"processes": 2, "sharding": "stage3", "per_device_train_batch_size": 4},
        "tp2-sp": {"processes": 2, "tensor_parallel_degree": 2, "sequence_parallel": 1},
        "precomputed": {"reference": "precomputed"},
        "precomputed-tp2": {"processes": 2, "tensor_parallel_degree": 2, "reference": "precomputed"},
    }
    for stage in ("stage2", "stage3"):
        offload = {"processes": 2, "sharding": [f"{stage} offload"], "per_device_train_batch_size": 4}
        ways[f"{stage}-offload"] = offload | ({} if "lora" in lora else {"reference": "precomputed"})
    for name, flags in ways.items():
        output = run(name, **lora, **flags)
        # A margin is the difference of sums of some 200 nats, which float32 rounds to 1.5e-5, times beta.
        for key, bound in (("loss", 2e-6), ("accuracy", 0), ("rewards_margin", 5e-6), ("kl", 2e-6)):
            found, expected = column(output, key), column(one, key)
            np.testing.assert_allclose(found, expected, rtol=0, atol=bound, err_msg=f"{name} {key}")
        np.testing.assert_allclose(column(output, "grad_norm"), column(one, "grad_norm"), rtol=2e-5, err_msg=name)


CHANGING = {"pipeline_parallel_config": "disable_p2p_cache_shape", "per_device_train_batch_size": 2}
PP2 = {"processes": 2, "pipeline_parallel_degree": 2, "gradient_accumulation_steps": 4, **CHANGING}
TP2_PP2 = PP2 | {"processes": 4, "tensor_parallel_degree": 2}
ONCE, PACKED = {"reference": "precomputed"}, {"zero_padding": 1}
# A loss has four sums of some 200 nats, each of which float32 rounds to 1.5e-5, times beta, in packed-lora 0.05.
CLOSE = (("loss", 4 * 1.5e-5 * 0.05), ("accuracy", 0), ("rewards_margin", 5e-6), ("logps_chosen", 1e-4))


@pytest.mark.parametrize(
    ("flags", "ways"),
    [
        pytest.param(ONCE, [PP2], id="sigmoid"),
        pytest.param(ONCE | PACKED | LORA | {"beta": 0.05}, [PP2, TP2_PP2], id="packed-lora", marks=pytest.mark.long),
        pytest.param({"loss_type": "simpo"}, [TP2_PP2], id="simpo", marks=pytest.mark.long),
        pytest.param({"loss_type": "or"} | LORA, [PP2 | {"loss_chunk_tokens": 40}], id="or", marks=pytest.mark.long),
    ],
)
def test_pipelines_have_the_losses_and_measures_of_one_process(run, flags, ways):
    """In steps, the last of which has fewer pairs, and in an evaluation, whose last batch has."""
    flags = {"do_eval": 1, "learning_rate": 1e-3, "num_train_epochs": 1, "max_steps": -1} | flags
    one = run("one", **flags)
    measures = [*CLOSE, ("kl", 2e-6)] if "reference" in flags else CLOSE
    for number, way in enumerate(ways):
        output = run(f"way-{number}", **flags, **way)
        for key, bound in measures:
            # Before the first update a margin is 0 but for its rounding, which so decides who is right.
            first = 1 if key == "accuracy" else 0
            steps = (column(each, key)[first:] for each in (output, one))
            np.testing.assert_allclose(*steps, rtol=0, atol=bound, err_msg=key)
            found, expected = (read_summary(each)["evaluation"][f"eval_{key}"] for each in (output, one))
            assert found == pytest.approx(expected, abs=max(bound, 5e-6)), key
        assert read_summary(output)["evaluation"]["eval_pairs"] == FEW
        np.testing.assert_allclose(column(output, "grad_norm"), column(one, "grad_norm"), rtol=2e-5)


@pytest.mark.long
def test_a_pipeline_goes_on_as_one_process_and_back(run):
    """With the reference that the first layout has computed."""
    flags = {"max_steps": 4, "learning_rate": 1e-3, "save_steps": 2, **ONCE}
    whole = run("whole", **flags)
    for name, ways in {"from": (PP2, {}), "to": ({}, PP2)}.items():
        run(name, **flags | {"max_steps": 2} | ways[0])
        file = run.folder / name / "reference" / "train.values"
        written = file.stat().st_mtime_ns
        parts = run(name, **flags, **ways[1])
        assert file.stat().st_mtime_ns == written, name
        np.testing.assert_allclose(column(parts, "loss"), column(whole, "loss"), rtol=0, atol=2e-6, err_msg=name)


@pytest.mark.parametrize(
    "packing", [{}, {"zero_padding": 1, "per_device_train_batch_size": 2}], ids=["apart", "packed"]
)
def test_a_precomputed_reference_is_that_of_a_copy(run, packing):
    """In training and in evaluation, and of a run that goes on, which reads what the first part has computed."""
    flags = {"max_steps": 4, "do_eval": 1, "learning_rate": 1e-3, "sft_loss_ratio": 0.1, **packing}
    copy = run("copy", **flags)
    whole = run("whole", reference="precomputed", **flags)
    run("parts", reference="precomputed", save_steps=2, **flags | {"max_steps": 2})
    written = {file.name: file.stat().st_mtime_ns for file in (run.folder / "parts" / "reference").iterdir()}
    parts = run("parts", reference="precomputed", save_steps=2, **flags)
    assert {file.name: file.stat().st_mtime_ns for file in (parts / "reference").iterdir()} == written
    for key, bound in (("loss", 1e-6), ("rewards_margin", 5e-6), ("kl", 1e-6), ("logps_chosen", 1e-4)):
        np.testing.assert_allclose(column(whole, key), column(copy, key), rtol=0, atol=bound, err_msg=key)
        assert column(parts, key) == column(whole, key), key
        evaluated = [read_summary(output)["evaluation"][f"eval_{key}"] for output in (copy, whole)]
        assert evaluated[1] == pytest.approx(evaluated[0], abs=bound)


@pytest.mark.parametrize("signal", ["SIGKILL", "SIGINT"])
def test_what_is_computed_of_a_reference_is_kept(ranks, run, material, signal):
    """Of a run that ends in the middle of it, after two parts of three."""
    flags = argv(material, run.folder / "out", dataset_name_or_path=material / "few", reference="precomputed")
    log = run.folder / "log"
    outcome = ranks.outcome(1, f"{RANKS}:ended_while_computing", flags, 2, signal, directory=log, grace=0.2)
    told = (log / "workerlog.0").read_text()
    assert outcome.exit_code == (KILLED if signal == "SIGKILL" else 0), told
    assert ("stopped by SIGINT after step 0 of 4; no step was made." in told) == (signal == "SIGINT")
    record = json.loads((run.folder / "out" / "reference" / "train.json").read_text())
    assert [part["samples"] for part in record["parts"]] == [8, 8]
    [said] = ranks(1, f"{RANKS}:ended_while_computing", flags, 0, signal)
    assert said == [6]  # of 22


def test_time_that_ends_while_a_reference_is_computed_ends_the_run(run):
    """Of a run that has made all of its steps, too."""
    flags = {"reference": "precomputed", "save_steps": 2, "max_steps": 2}
    output = run("out", **flags)
    shutil.rmtree(output / "reference")
    run("out", max_run_minutes=1e-3, **flags)
    assert "stopped by --max_run_minutes 0.001 after step 2 of 2; " in run.said
    assert "checkpoint-2 is whole" in run.said


def test_a_reference_by_other_weights_or_with_damage_is_not_used(run, material):
    flags = {"reference": "precomputed", "save_steps": 2, "max_steps": 2, "learning_rate": 1e-3}
    output = run("out", **flags)
    losses = column(output, "loss")
    file = output / "reference" / "train.values"
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    shutil.rmtree(output / "checkpoint-2")
    run("out", overwrite_output_dir=1, resume_from_checkpoint="none", **flags)
    assert "train.values is not what was written; computed again" in run.said and column(output, "loss") == losses
    other = shutil.copytree(material / "model", run.folder / "other")
    [weights] = other.glob("*.safetensors")
    content = bytearray(weights.read_bytes())
    content[8 + int.from_bytes(content[:8], "little")] ^= 1  # the first byte of the first tensor
    weights.write_bytes(content)
    changed = flags | {"model_name_or_path": other, "max_steps": 3}
    told = run.refused("out", **changed)
    assert "is of another model (weights) than --model_name_or_path names now" in told
    run("out", resume_changed="model", **changed)
    assert "other weights; computed again" in run.said


def test_values_that_cannot_be_written_end_all_ranks(ranks, material, tmp_path):
    """None waits for the one that writes."""
    (tmp_path / "out" / "reference" / "train.values").mkdir(parents=True)
    flags = {"dataset_name_or_path": material / "few", "max_steps": 1, "reference": "precomputed"}
    found = ranks(2, RUN, argv(material, tmp_path / "out", **flags))
    assert [said["exit_code"] for said in found] == [2, 2]
    assert all("Is a directory" in said["stderr"] and "train.values" in said["stderr"] for said in found)


def test_equal_models_have_the_loss_ln_2(run):
    """In each step, the last of which has fewer pairs."""
    output = run(learning_rate=0, num_train_epochs=1, max_steps=-1, **LORA)
    assert column(output, "loss") == pytest.approx([np.log(2)] * 3, abs=1e-7)
    for key in ("rewards_margin", "kl", "accuracy"):
        assert column(output, key) == [0, 0, 0]
    assert "pairs: loss 0.6931  accuracy 0.0%  margin +0.000 (+0.000 - +0.000)  KL 0.0000" in run.said


def test_packed_pairs_are_the_same_pairs(run):
    """All in one step."""
    flags = {"max_steps": 1, "do_eval": 1, "beta": 0.1, "sft_loss_ratio": 0.5, "learning_rate": 1e-3}
    apart = run("apart", per_device_train_batch_size=FEW, **flags)
    rows = run("rows", per_device_train_batch_size=FEW, zero_padding=1, num_train_epochs=1, **flags | {"max_steps": -1})
    assert column(rows, "loss") == pytest.approx(column(apart, "loss"), abs=2e-6)
    for key in ("eval_loss", "eval_kl", "eval_rewards_margin"):
        assert read_summary(rows)["evaluation"][key] == pytest.approx(read_summary(apart)["evaluation"][key], abs=5e-6)


def test_packed_batches_that_are_all_padding_count_for_nothing(run):
    """Of the last step, and of an evaluation on two ranks, the second of which has no pair left."""
    flags = {"loss_type": "simpo", "zero_padding": 1, "num_train_epochs": 1, "max_steps": -1, "do_eval": 1}
    whole = run("whole", per_device_train_batch_size=16, **flags)
    batches = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 8, "per_device_eval_batch_size": FEW}
    parts = run("parts", 2, **flags, **batches)
    assert column(parts, "loss") == pytest.approx(column(whole, "loss"), abs=2e-6)
    losses = [read_summary(output)["evaluation"]["eval_loss"] for output in (parts, whole)]
    assert losses[0] == pytest.approx(losses[1], abs=5e-6)


@pytest.mark.parametrize("lora", [FULL, LORA], ids=["full", "lora"])
def test_a_run_that_goes_on_is_the_run_to_the_bit(run, lora):
    """Its reference is still the model from before the first step, not that of the checkpoint."""
    flags = {"max_steps": 5, "learning_rate": 1e-3, **lora}
    whole = run("whole", **flags)
    run("parts", save_steps=2, **flags | {"max_steps": 2})
    parts = run("parts", save_steps=2, **flags)
    for key in ("loss", "grad_norm", "rewards_margin", "kl", "consumed_tokens"):
        assert column(parts, key) == column(whole, key), key
    assert json.loads((parts / "run_summary.json").read_text())["global_step"] == 5


def test_the_command_of_the_page(run, material):
    """docs/align.md, with a model and data of the tests."""
    page = (ROOT / "docs" / "align.md").read_text(encoding="utf-8")
    [line] = [line for line in page.splitlines() if line.startswith("python launch/run_dpo.py")]
    flags = {name: words[0] for name, words in parse_flags(line.split()[2:]).items()}
    given = {"model_name_or_path": material / "model", "dataset_name_or_path": material / "few", "max_steps": 2}
    output = run(**flags | given | {"output_dir": run.folder / "out"})
    assert {"eval_accuracy", "eval_rewards_margin"} <= read_summary(output)["evaluation"].keys()
    assert (output / "best").is_dir() and list(output.glob("peft_model*"))
