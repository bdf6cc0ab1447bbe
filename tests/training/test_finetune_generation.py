"""finetune_generation.py as a user meets it: what counts, what it writes, and what it says to mistakes."""

import json
import shutil

import pytest
from safetensors.numpy import load_file

from data_tools.dialogues.chat_template import directory_template
from data_tools.dialogues.messages import plain_dialogue
from launch.families.arithmetic import lora_parameters, prefix_parameters
from launch.families.named_configs import load_config
from launch.families.registry import family_of_config
from launch.reporting.records import read_train_log
from tests.distributed.cells import DROPOUT, EPOCH, FULL, LORA, NF4, PREFIX
from tests.distributed.layouts import Layout
from tests.distributed.parity import numbers_apart
from tests.runs import FEW_PAIRS, SHORT_PAIRS, Run
from tests.training.finetune_material import write_first

RANKS = "tests.training.finetune_ranks"
ADAPTER = "peft_model-00001-of-00001.safetensors"
FILES = {
    ADAPTER,
    "peft_model.safetensors.index.json",
    "sentencepiece.bpe.model",
    "special_tokens_map.json",
    "tokenizer_config.json",
    "run.lock",
    "run_summary.json",
    "train_log.jsonl",
}
QUERY_VALUE = {"lora": 1, "lora_rank": 4, "lora_target_modules": "q_proj v_proj"}
long = pytest.mark.long


@pytest.fixture(scope="module")
def base(runs) -> set[str]:
    """The names of the model's tensors."""
    return {name for path in (runs.material / "model").glob("*.safetensors") for name in load_file(path)}


# ---- steps, loss and evaluation


def test_epochs_read_every_sample_once_and_end_with_a_partial_step(runs):
    run = runs(FULL, **EPOCH)
    assert [*run.column("consumed_samples")] == [8, 16, FEW_PAIRS]
    assert run.column("epoch")[-1] == 1.0
    # dev.json holds the same dialogues: all their tokens, and all of those that count, once
    training_data = run.stdout.split(f"training data: {FEW_PAIRS} dialogues (src/tgt), ")[1]
    tokens = int(training_data.split(" ")[0].replace(",", ""))
    counted = int(training_data.split(" tokens, ")[1].split(" ")[0].replace(",", ""))
    assert run.column("consumed_tokens")[-1] == tokens
    assert run.evaluation["eval_tokens"] == counted
    assert "steps: 3 of 8 samples (about" in run.stdout and "2.5 steps an epoch, 1.00 epochs" in run.stdout


@long
def test_data_smaller_than_a_batch_are_one_step(runs, tmp_path):
    one = write_first(runs.material / "pairs", tmp_path / "one", 1)
    run = runs(FULL, dataset_name_or_path=one, **EPOCH)
    assert [*run.column("consumed_samples")] == [1] and run.evaluation["eval_loss"] > 0


def test_numbers_do_not_depend_on_micro_batches(runs):
    """Every token of a step weighs the same, of the partial last step, too, and so does every one of an evaluation."""
    whole, cut = runs(FULL, **EPOCH), runs(FULL, layout=Layout(accumulation=8), per_device_eval_batch_size=1, **EPOCH)
    apart = numbers_apart(cut, whole)
    assert {"loss", "grad_norm", "eval_loss", "eval_accuracy", "eval_tokens"} <= apart.keys()
    assert all(found <= allowed for found, allowed in apart.values()), apart


def test_loss_counts_answers_and_their_ends_alone(ranks, runs):
    """It is the mean of the log-probabilities that the model gives to just these tokens."""
    data = runs.material / "short-pairs"
    run = runs(FULL, dataset_name_or_path=data, save_steps=99)
    assert f"warning: --max_steps 6 reads each sample {6 * 8 / SHORT_PAIRS:.1f} times" in run.stdout
    [expected] = ranks(1, f"{RANKS}:loss_by_hand", str(run.output), str(data))
    assert run.evaluation["eval_loss"] == pytest.approx(expected, abs=2e-6)


# ---- adapters


def written(run: Run) -> set[str]:
    return {path.name for path in run.output.iterdir() if path.is_file()}


def test_lora(runs, base):
    """It begins with the model's loss to the last bit, trains what the formula counts, and writes that alone."""
    run, config = runs(FULL, **QUERY_VALUE), load_config(str(runs.material / "model"))
    assert run.column("loss")[0] == runs(FULL).column("loss")[0]
    [facts] = run.facts
    elements = lora_parameters(config, ["q_proj", "v_proj"], 4)
    assert facts["trainable"] == elements == 2 * 2 * 4 * 128
    names = [f"llama.layers.{i}.self_attn.{name}_proj.lora_{part}" for i in range(2) for name in "qv" for part in "AB"]
    assert set(facts["unchanged"]) == base and facts["changed"] == names
    assert written(run) == FILES | {"lora_config.json"}
    stored = load_file(run.output / ADAPTER)
    assert sorted(stored) == names
    assert sum(tensor.nbytes for tensor in stored.values()) == 4 * elements
    assert (run.output / ADAPTER).stat().st_size <= 4 * elements + 200 * len(stored)
    kept = json.loads((run.output / "lora_config.json").read_text())
    assert (kept["r"], kept["lora_alpha"], kept["lora_dropout"], kept["scaling"]) == (4, 8, 0.0, 2.0)
    every_layer = family_of_config(config).linear_layers
    assert runs(FULL, **LORA).facts[0]["trainable"] == lora_parameters(config, every_layer, 4)


def test_prefix(runs, base):
    """6 tokens x 2 layers x key and value x 4 heads x 16."""
    run = runs(FULL, **PREFIX)
    [facts] = run.facts
    elements = prefix_parameters(load_config(str(runs.material / "model")), 6)
    assert facts["trainable"] == elements == 6 * 2 * 2 * 64
    assert set(facts["unchanged"]) == base and facts["changed"] == ["0.weight"]
    assert written(run) == FILES | {"prefix_config.json"}
    assert run.weights["0.weight"].shape == (6, 2 * 2 * 64)
    assert (run.output / ADAPTER).stat().st_size <= 4 * elements + 200


def test_adapter_of_another_model_is_refused(ranks, runs, tmp_path):
    lora, prefix = (runs(FULL, **flags).output for flags in (QUERY_VALUE, PREFIX))
    adapters = [str(tmp_path), str(lora), str(prefix)]
    [said] = ranks(1, f"{RANKS}:load_into_a_wider_model", str(runs.material), adapters)
    assert said[0] == f"{tmp_path}: no adapter: neither lora_config.json nor prefix_config.json is there."
    assert said[1].startswith(f"{lora}: this adapter does not fit the model: ") and "[128, 4]" in said[1]
    assert said[2] == (
        f"{prefix}: this adapter does not fit the model: different: 0.weight (found [6, 256], expected [6, 512])"
    )


@pytest.mark.parametrize(
    "method",
    [
        pytest.param({"learning_rate": 3e-3, "max_steps": 60}, marks=long),
        LORA | {"learning_rate": 1e-2, "max_steps": 60},
        pytest.param(LORA | NF4 | {"learning_rate": 1e-2, "max_steps": 60}, marks=long),
        pytest.param(
            {"prefix_tuning": 1, "num_prefix_tokens": 64, "learning_rate": 0.3, "lr_scheduler_type": "linear"}
            | {"max_steps": 200},
            marks=long,
        ),
    ],
    ids=["full", "lora", "qlora", "prefix"],
)
def test_a_few_dialogues_are_learnt_by_heart(runs, method):
    """Each token of each answer is the most likely one, and so the answers are what the model says, and are scored."""
    data, steps = runs.material / "short-pairs", method["max_steps"]
    flags = {"dataset_name_or_path": data, "eval_with_do_generation": 1, "eval_steps": steps // 2, "save_steps": 999}
    run = runs(FULL, model="wide", weight_decay=0, cpu_fast="auto", **flags, **method)
    losses, evaluation = run.column("loss"), run.evaluation
    assert losses[-1] < losses[0] / 2
    assert evaluation["eval_accuracy"] == 1.0
    assert [evaluation[f"eval_{name}"] for name in ("bleu", "rouge1", "rougel")] == pytest.approx([100, 100, 100])
    rows, answers = (
        [json.loads(line) for line in file.read_text().splitlines()]
        for file in (data / "dev.json", run.output / "predictions" / f"step-{steps}.jsonl")
    )
    assert answers == [{"question": row["src"], "reference": row["tgt"], "prediction": row["tgt"]} for row in rows]
    logged = [record["global_step"] for record in read_train_log(run.output) if "eval_bleu" in record]
    assert logged == [steps // 2, steps]


# ---- data, and refusals


def test_mistakes_stop_before_training(runs, tmp_path):
    data = write_first(runs.material / "pairs", tmp_path / "data", 9)
    with open(data / "train.json", "a") as file:
        file.write('{"src": "no answer"}\n')
    broken = f"{data}/train.json:10: no key 'tgt', only src"
    mistakes = {
        f"1 broken row, --max_broken_rows allows 0: {broken}.": {"dataset_name_or_path": data},
        "--src_length 96, no less than --max_length 96": {"src_length": 96},
        "--chat_template --chat_template: found 'alpaca', allowed: baichuan,": {"chat_template": "alpaca"},
        "found embed_tokens, allowed: q_proj, k_proj,": DROPOUT | {"lora_target_modules": "q_proj embed_tokens"},
        "the model comes without a tokenizer": {"model_name_or_path": "llama-rehearsal", "continue_training": 0},
    }
    out = tmp_path / "out"
    jobs = {told: flags | {"output_dir": out / str(number)} for number, (told, flags) in enumerate(mistakes.items())}
    allowed = {"dataset_name_or_path": data, "max_broken_rows": 1, "max_steps": 1, "output_dir": tmp_path / "allowed"}
    found = runs.said(FULL, jobs | {"allowed": allowed})
    assert f"broken rows left out: 1, the first {broken}" in found.pop("allowed")["stdout"]
    for told, said in found.items():
        assert said["exit_code"] == 2 and told in said["stderr"] and "Traceback" not in said["stderr"], told
    assert not list(out.rglob("train_log.jsonl"))


def test_chats_take_the_template_of_the_models_family_and_it_is_saved(runs):
    run = runs(FULL, dataset_name_or_path=runs.material / "chats", max_steps=1, max_length=400, do_eval=0)
    assert "training data: 512 dialogues (messages)" in run.stdout
    assert "chat template: llama (of the model's family)\na sample; its target tokens stand in [[ ]]:\n" in run.stdout
    saved = directory_template(run.output)
    assert saved.trained and "[INST]" in saved.source
    [[(before, after)]] = saved.render(plain_dialogue((("Q", "A"),))).samples
    assert (before, after) == ("<s>[INST] Q [/INST]", " A </s>")


@long
def test_chats_take_the_models_own_template_which_the_adapter_brings_to_predict(ranks, runs, tmp_path):
    model = shutil.copytree(runs.material / "model", tmp_path / "model")
    config = json.loads((model / "tokenizer_config.json").read_text())
    turn = "{% if m.role == 'user' %}U:{{ m.content }}={% else %}{{ m.content }}</s>{% endif %}"
    own = "{% for m in messages %}" + turn + "{% endfor %}"
    named = [{"name": "default", "template": own}, {"name": "other", "template": "{% break %}"}]
    (model / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": named}))
    (tmp_path / "chats").mkdir()
    messages = [{"role": "user", "content": "why?"}, {"role": "assistant", "content": "so."}]
    (tmp_path / "chats" / "train.json").write_text(json.dumps({"messages": messages}) + "\n")
    flags = {"dataset_name_or_path": tmp_path / "chats", "model_name_or_path": model, "max_steps": 1, "do_eval": 0}
    run = runs(FULL, layout=Layout(accumulation=8), **flags, **LORA)
    assert f"chat template: {model}/tokenizer_config.json\na sample; its target tokens stand in [[ ]]:\n" in run.stdout
    assert "    U:why?=[[so.</s>]]\n" in run.stdout
    ask = ["--model_name_or_path", str(model), "--adapter_path", str(run.output), "--prompt", "why?", "--device", "cpu"]
    [said] = ranks(1, "tests.prediction.predict_ranks:predict", ask)
    assert said["exit_code"] == 0 and f"chat template: {run.output}/tokenizer_config.json" in said["stderr"]
    assert directory_template(run.output).source == own and directory_template(run.output).trained
    [said] = ranks(1, "tests.prediction.predict_ranks:predict", [*ask, "--chat_template", "none"])
    assert "chat template: none, the bare texts" in said["stderr"]
