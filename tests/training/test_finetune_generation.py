"""finetune_generation.py as a user meets it: what counts, what it writes, and what it says to mistakes."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file

from data_tools.formats.dialogues.chat_template import directory_template
from data_tools.formats.dialogues.dialogue import Dialogue, Turn
from launch.families.arithmetic import lora_parameters, prefix_parameters
from launch.families.named_configs import load_config
from launch.families.registry import family_of_config
from launch.reporting.records import read_summary, read_train_log
from tests.training.finetune_material import argv, write_first

FINETUNE = "tests.training.finetune_ranks:finetune"
LOAD = "tests.training.finetune_ranks:load_into_a_wider_model"
LOOK = "tests.training.finetune_ranks:finetune_and_look"
ADAPTER = "peft_model-00001-of-00001.safetensors"
ADAPTER_FILES = {
    ADAPTER,
    "peft_model.safetensors.index.json",
    "sentencepiece.bpe.model",
    "special_tokens_map.json",
    "tokenizer_config.json",
}
REPORT_FILES = {"run.lock", "run_summary.json", "train_log.jsonl"}


@pytest.fixture(scope="module")
def material(ranks, tmp_path_factory):
    root = tmp_path_factory.mktemp("finetuning")
    ranks(1, "tests.training.finetune_material:make_material", str(root))
    return root


@pytest.fixture(scope="module")
def few(material):
    """37 dialogues: five steps of 8, the last of 5."""
    return write_first(material / "pairs", material / "few", 37)


@pytest.fixture
def run(ranks, material, tmp_path):
    """run(lora=1, ...): what was said and the output directory of a run that must end well."""

    def finish(name="out", **changes):
        [said] = ranks(1, FINETUNE, argv(material, tmp_path / name, **changes))
        assert said["exit_code"] == 0, said["stderr"]
        return said["stdout"], tmp_path / name

    return finish


@pytest.fixture
def refused(ranks, material, tmp_path):
    """refused(...): the error of a run that must not start."""

    def refuse(**changes):
        [said] = ranks(1, FINETUNE, argv(material, tmp_path / "out", **changes))
        assert said["exit_code"] == 2
        assert "Traceback" not in said["stderr"]
        assert not (tmp_path / "out").exists()
        return said["stderr"]

    return refuse


def column(output, key: str) -> list[float]:
    return [record[key] for record in read_train_log(output) if "loss" in record]


def config(material) -> dict:
    return load_config(str(material / "model"))


@pytest.fixture(scope="module")
def looked_at(ranks, material, few, tmp_path_factory):
    """LoRA on query and value for three steps, seen from inside: (facts, output directory)."""
    output = tmp_path_factory.mktemp("lora") / "out"
    changes = {"lora": 1, "lora_rank": 4, "lora_target_modules": "q_proj v_proj", "max_steps": 3}
    [facts] = ranks(1, LOOK, argv(material, output, **changes), [], 0)
    return facts, output


# ---- steps and epochs


def test_epochs_read_every_sample_once_and_end_with_a_partial_step(run, few):
    said, output = run(dataset_name_or_path=few, max_steps=-1, num_train_epochs=1, do_eval=1)
    assert column(output, "consumed_samples") == [8, 16, 24, 32, 37]
    assert column(output, "epoch")[-1] == 1.0
    # dev.json holds the same dialogues: all their tokens, and all of those that count, once
    training_data = said.split("training data: 37 dialogues (src/tgt), ")[1]
    tokens = int(training_data.split(" ")[0].replace(",", ""))
    counted = int(training_data.split(" tokens, ")[1].split(" ")[0].replace(",", ""))
    assert column(output, "consumed_tokens")[-1] == tokens
    assert read_summary(output)["evaluation"]["eval_tokens"] == counted
    assert "steps: 5 of 8 samples (about" in said and "4.6 steps an epoch, 1.00 epochs" in said


def test_data_smaller_than_a_batch_are_one_step(run, material, tmp_path):
    one = write_first(material / "pairs", tmp_path / "one", 1)
    _, output = run(dataset_name_or_path=one, max_steps=-1, num_train_epochs=1, do_eval=1)
    assert column(output, "consumed_samples") == [1]
    assert read_summary(output)["evaluation"]["eval_loss"] > 0


def test_steps_win_over_epochs_and_repetition_is_announced(run, few):
    said, output = run(dataset_name_or_path=few, max_steps=6, num_train_epochs=1)
    assert column(output, "consumed_samples")[-1] == 48
    assert "warning: --max_steps 6 reads each sample 1.3 times" in said


# ---- loss and evaluation


def test_every_token_of_a_step_weighs_the_same(run, few):
    """However the samples of a step are cut into micro batches; the partial last step, too."""
    flags = {"dataset_name_or_path": few, "max_steps": -1, "num_train_epochs": 1}
    _, whole = run("whole", **flags)
    _, cut = run("cut", per_device_train_batch_size=1, gradient_accumulation_steps=8, **flags)
    np.testing.assert_allclose(column(cut, "loss"), column(whole, "loss"), rtol=0, atol=2e-6)
    np.testing.assert_allclose(column(cut, "grad_norm"), column(whole, "grad_norm"), rtol=1e-5)


def test_evaluation_does_not_depend_on_the_micro_batch(run, few):
    found = []
    for size in (1, 5, 37):
        _, output = run(f"by{size}", dataset_name_or_path=few, max_steps=1, do_eval=1, per_device_eval_batch_size=size)
        found.append(read_summary(output)["evaluation"])
    for one in found[1:]:
        assert (one["eval_tokens"], one["eval_accuracy"]) == (found[0]["eval_tokens"], found[0]["eval_accuracy"])
        assert abs(one["eval_loss"] - found[0]["eval_loss"]) <= 2e-6


def test_loss_counts_answers_and_their_ends_alone(ranks, material):
    """The first loss is the mean of the log-probabilities that the model gives to just these tokens."""
    [(expected, found)] = ranks(1, "tests.training.finetune_ranks:first_loss_by_hand", str(material))
    assert found == pytest.approx(expected, abs=2e-6)


# ---- LoRA


def test_first_loss_of_lora_is_the_models_to_the_last_bit(run):
    losses = [column(run(name, max_steps=1, lora=lora)[1], "loss") for name, lora in (("full", 0), ("lora", 1))]
    assert losses[0] == losses[1]


def test_lora_trains_as_many_parameters_as_the_formula_says(looked_at, material):
    assert looked_at[0]["trainable"] == lora_parameters(config(material), ["q_proj", "v_proj"], 4) == 2 * 2 * 4 * 128


def test_all_linear_layers_are_the_default(ranks, material, few, tmp_path):
    [facts] = ranks(1, LOOK, argv(material, tmp_path / "out", lora=1, lora_rank=2, max_steps=1), [], 0)
    layers = family_of_config(config(material)).linear_layers
    assert facts["trainable"] == lora_parameters(config(material), layers, 2)


def test_frozen_weights_stay_to_the_last_bit_and_every_adapter_moves(looked_at, material):
    facts, _ = looked_at
    base = {name for path in (material / "model").glob("*.safetensors") for name in load_file(path)}
    assert set(facts["unchanged"]) == base
    adapters = [f"{layer}.lora_{part}" for layer in sorted(targets()) for part in "AB"]
    assert facts["changed"] == adapters


def targets() -> list[str]:
    return [f"llama.layers.{i}.self_attn.{name}_proj" for i in range(2) for name in "qv"]


def test_adapter_directory_holds_the_adapter_its_configuration_and_the_tokenizer(looked_at, material):
    _, output = looked_at
    files = {path.name for path in output.iterdir() if path.is_file()}
    assert files == ADAPTER_FILES | REPORT_FILES | {"lora_config.json"}
    stored = load_file(output / ADAPTER)
    assert sorted(stored) == [f"{layer}.lora_{part}" for layer in sorted(targets()) for part in "AB"]
    elements = lora_parameters(config(material), ["q_proj", "v_proj"], 4)
    assert sum(tensor.nbytes for tensor in stored.values()) == 4 * elements
    header = len(stored) * 200
    assert (output / ADAPTER).stat().st_size <= 4 * elements + header
    kept = json.loads((output / "lora_config.json").read_text())
    assert (kept["r"], kept["lora_alpha"], kept["lora_dropout"], kept["scaling"]) == (4, 8, 0.0, 2.0)


def test_adapter_read_back_gives_the_trained_logits(looked_at):
    assert looked_at[0]["adapter"] is True


def test_lora_continues_from_its_checkpoint(run):
    flags = {"lora": 1, "max_steps": 6, "save_steps": 3}
    _, whole = run("whole", **flags)
    _, continued = run("continued", resume_from_checkpoint=whole / "checkpoint-3", **flags)
    assert column(continued, "loss") == column(whole, "loss")[3:]
    first, second = load_file(whole / ADAPTER), load_file(continued / ADAPTER)
    assert all(np.array_equal(first[key], second[key]) for key in first)


# ---- prefix tuning


@pytest.fixture(scope="module")
def prefixed(ranks, material, few, tmp_path_factory):
    """A prefix of 6 for three steps, seen from inside: (facts, output directory)."""
    output = tmp_path_factory.mktemp("prefix") / "out"
    changes = {"prefix_tuning": 1, "num_prefix_tokens": 6, "learning_rate": 3e-2, "max_steps": 3}
    [facts] = ranks(1, LOOK, argv(material, output, **changes), [], 0)
    return facts, output


def test_prefix_trains_as_many_parameters_as_the_formula_says(prefixed, material):
    """6 tokens x 2 layers x key and value x 4 heads x 16."""
    assert prefixed[0]["trainable"] == prefix_parameters(config(material), 6) == 6 * 2 * 2 * 64


def test_prefix_leaves_the_model_to_the_last_bit(prefixed, material):
    base = {name for path in (material / "model").glob("*.safetensors") for name in load_file(path)}
    assert set(prefixed[0]["unchanged"]) == base
    assert prefixed[0]["changed"] == ["0.weight"]


def test_prefix_directory_holds_the_prefix_its_configuration_and_the_tokenizer(prefixed):
    _, output = prefixed
    files = {path.name for path in output.iterdir() if path.is_file()}
    assert files == ADAPTER_FILES | REPORT_FILES | {"prefix_config.json"}
    assert load_file(output / ADAPTER)["0.weight"].shape == (6, 2 * 2 * 64)
    assert (output / ADAPTER).stat().st_size <= 4 * 6 * 256 + 200


def test_prefix_read_back_gives_the_trained_logits(prefixed):
    assert prefixed[0]["adapter"] is True


def test_adapter_of_another_model_is_refused(ranks, material, looked_at, prefixed, tmp_path):
    said = ranks(1, LOAD, str(material), [str(tmp_path), str(looked_at[1]), str(prefixed[1])])[0]
    assert said[0] == f"{tmp_path}: no adapter: neither lora_config.json nor prefix_config.json is there."
    assert said[1].startswith(f"{looked_at[1]}: this adapter does not fit the model: ") and "[128, 4]" in said[1]
    assert said[2] == (
        f"{prefixed[1]}: this adapter does not fit the model: different: 0.weight (found [6, 256], expected [6, 512])"
    )


# ---- learning


@pytest.mark.parametrize(
    "method",
    [
        pytest.param({"learning_rate": 3e-3, "max_steps": 60}, marks=pytest.mark.long),
        {"lora": 1, "learning_rate": 1e-2, "max_steps": 60},
        pytest.param(
            {"lora": 1, "weight_quantize_algo": "nf4", "learning_rate": 1e-2, "max_steps": 60}, marks=pytest.mark.long
        ),
        pytest.param(
            {"prefix_tuning": 1, "num_prefix_tokens": 64, "learning_rate": 0.3, "lr_scheduler_type": "linear"}
            | {"max_steps": 200},
            marks=pytest.mark.long,
        ),
    ],
    ids=["full", "lora", "qlora", "prefix"],
)
def test_a_few_dialogues_are_learnt_by_heart(ranks, material, tmp_path, method):
    """32 dialogues, within 100 steps: far below half the first loss; each token of each answer is the most likely one,
    and so the answers are what the model says."""
    data = write_first(material / "pairs", tmp_path / "data", 32, shortest=True)
    flags = argv(
        material, tmp_path / "out", dataset_name_or_path=data, do_eval=1,
        per_device_train_batch_size=32, per_device_eval_batch_size=32, eval_steps=1000, cpu_fast="auto", **method,
    )  # fmt: skip
    rows = [json.loads(line) for line in (data / "train.json").read_text().splitlines()[:4]]
    [facts] = ranks(1, LOOK, flags, [row["src"] for row in rows], 40)
    losses = column(tmp_path / "out", "loss")
    assert losses[-1] < losses[0] / 2
    assert read_summary(tmp_path / "out")["evaluation"]["eval_accuracy"] == 1.0
    assert facts["texts"] == [row["tgt"] for row in rows]


# ---- refusals


def test_broken_rows_stop_before_training_and_may_be_allowed(refused, run, tmp_path, material):
    data = write_first(material / "pairs", tmp_path / "data", 9)
    with open(data / "train.json", "a") as file:
        file.write('{"src": "no answer"}\n')
    error = refused(dataset_name_or_path=data)
    assert f"1 broken row, --max_broken_rows allows 0: {data}/train.json:10: no key 'tgt', only src." in error
    said, _ = run(dataset_name_or_path=data, max_steps=1, max_broken_rows=1)
    assert f"broken rows left out: 1, the first {data}/train.json:10: no key 'tgt', only src" in said


def test_question_that_leaves_no_room_for_an_answer_is_refused(refused):
    assert "--src_length 96, no less than --max_length 96" in refused(src_length=96)


def test_chat_template_that_is_nowhere_is_refused(refused):
    assert "--chat_template --chat_template: found 'alpaca', allowed: baichuan," in refused(chat_template="alpaca")


def test_lora_on_what_is_no_linear_layer_is_refused(ranks, material, tmp_path):
    [said] = ranks(1, FINETUNE, argv(material, tmp_path / "out", lora=1, lora_target_modules="q_proj embed_tokens"))
    assert said["exit_code"] == 2
    assert "--lora_target_modules: found embed_tokens, allowed: q_proj, k_proj," in said["stderr"]


def test_chats_take_the_template_of_the_models_family_and_it_is_saved(run, material):
    said, output = run(dataset_name_or_path=material / "chats", max_steps=1, max_length=400)
    assert "training data: 512 dialogues (messages)" in said
    assert "chat template: llama (of the model's family)\na sample; what is learnt stands in [[ ]]:\n" in said
    saved = directory_template(output)
    assert saved.trained and "[INST]" in saved.source
    [[(before, after)]] = [saved.render(Dialogue((Turn("Q", "A"),)))]
    assert (before, after) == ("<s>[INST] Q [/INST]", " A </s>")


def test_chats_take_the_models_own_template_which_the_adapter_brings_to_predict(ranks, run, material, tmp_path):
    model = shutil.copytree(material / "model", tmp_path / "model")
    config = json.loads((model / "tokenizer_config.json").read_text())
    turn = "{% if m.role == 'user' %}U:{{ m.content }}={% else %}{{ m.content }}</s>{% endif %}"
    own = "{% for m in messages %}" + turn + "{% endfor %}"
    named = [{"name": "default", "template": own}, {"name": "other", "template": "{% break %}"}]
    (model / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": named}))
    chats = tmp_path / "chats"
    chats.mkdir()
    messages = [{"role": "user", "content": "why?"}, {"role": "assistant", "content": "so."}]
    (chats / "train.json").write_text(json.dumps({"messages": messages}) + "\n")
    flags = {"dataset_name_or_path": chats, "model_name_or_path": model, "max_steps": 1, "lora": 1}
    said, output = run(**flags, per_device_train_batch_size=1)
    assert f"chat template: {model}/tokenizer_config.json\na sample; what is learnt stands in [[ ]]:\n" in said
    assert "    U:why?=[[so.</s>]]\n" in said
    ask = ["--model_name_or_path", str(model), "--adapter_path", str(output), "--prompt", "why?", "--device", "cpu"]
    [said] = ranks(1, "tests.prediction.predict_ranks:predict", ask)
    assert said["exit_code"] == 0 and f"chat template: {output}/tokenizer_config.json\n" in said["stderr"]
    assert directory_template(output).source == own and directory_template(output).trained
    [said] = ranks(1, "tests.prediction.predict_ranks:predict", [*ask, "--chat_template", "none"])
    assert "chat template: none, the bare texts\n" in said["stderr"]


def test_model_without_a_tokenizer_is_refused(refused):
    assert "the model comes without a tokenizer" in refused(model_name_or_path="llama-rehearsal", continue_training=0)
