"""A Baichuan-13B on few cards: LoRA beside a base in 4 bits is trained, merged and asked, on one process as on two."""

import json

import pytest

from launch.families.named_configs import load_config
from launch.plan.hardware import card_of_memory
from launch.plan.inference import plan_answers
from launch.reporting.records import read_summary
from launch.tape.quantized import Format
from tests.training.finetune_material import argv, write_first

PREDICT = "tests.prediction.predict_ranks:predict"
# What each adapter is trained beside. Blocks of 16 are not cut by tensor parallelism.
BASES = {
    "nf4": {"weight_quantize_algo": "nf4", "weight_blocksize": 16},
    "int8": {"weight_quantize_algo": "llm.int8"},
}


@pytest.fixture(scope="module")
def trained(ranks, tmp_path_factory):
    """A directory with model, eight dialogues in data, adapters nf4 and int8 which have learnt these by heart, and
    nf4-merged, int8-merged of them and the model."""
    root = tmp_path_factory.mktemp("few")
    ranks(1, "tests.prediction.few_cards_ranks:make_baichuan", str(root))
    data = write_first(root / "pairs", root / "data", 8, shortest=True)
    for name, base in BASES.items():
        flags = argv(root, root / name, dataset_name_or_path=data, lora=1, learning_rate=1e-2, max_steps=120, **base)
        [said] = ranks(1, "tests.training.finetune_ranks:finetune", flags, time_limit=600)
        assert said["exit_code"] == 0, said["stderr"]
        assert f"base: 14 linear layers in {base['weight_quantize_algo']}, " in said["stdout"]
    merges = [["--adapter_path", str(root / one), "--output_dir", str(root / f"{one}-merged")] for one in BASES]
    for said in ranks(1, "tests.prediction.merged_logits_ranks:merge_all", merges)[0]:
        assert said["exit_code"] == 0, said["stderr"]
    return root


@pytest.fixture
def answers(ranks, trained, tmp_path):
    """answers(...): what is said to the questions of the dialogues, on so many processes."""

    def ask(model: str, adapter: str | None, processes: int = 1, **more) -> list[str]:
        values = {"model_name_or_path": trained / model, "data_file": trained / "data" / "dev.json"}
        values |= {"max_new_tokens": 40, "device": "cpu", "output_file": tmp_path / "out.json"} | more
        values |= {"adapter_path": trained / adapter} if adapter else {}
        flags = [word for name, value in values.items() for word in (f"--{name}", str(value))]
        for said in ranks(processes, PREDICT, flags, time_limit=300):
            assert said["exit_code"] == 0, said["stderr"]
        return [json.loads(line)["prediction"] for line in (tmp_path / "out.json").read_text().splitlines()]

    return ask


@pytest.fixture
def learnt(trained) -> list[str]:
    return [json.loads(line)["tgt"] for line in (trained / "data" / "dev.json").read_text().splitlines()]


@pytest.mark.long
@pytest.mark.parametrize("name", BASES)
def test_beside_the_base_that_it_was_trained_with_it_says_what_was_learnt(answers, learnt, name):
    assert answers("model", name, **BASES[name]) == learnt
    assert answers("model", None, **BASES[name]) != learnt


@pytest.mark.long
@pytest.mark.parametrize("name", BASES)
def test_merged_it_says_what_base_and_adapter_say(answers, learnt, name):
    """The base in 16 bits is not quite the one of the training, and 4 bits are farther from it than 8."""
    merged = answers(f"{name}-merged", None)
    assert merged == answers("model", name)
    assert sum(ours == theirs for ours, theirs in zip(merged, learnt, strict=True)) >= {"nf4": 3, "int8": 8}[name]


@pytest.mark.long
@pytest.mark.parametrize("base", [{}, BASES["int8"], {"weight_quantize_algo": "weight_only_int8"}], ids=str)
def test_an_adapter_of_eight_bits_says_so_beside_all_of_these(answers, learnt, base):
    assert answers("model", "int8", **base) == learnt


@pytest.mark.long
@pytest.mark.parametrize(
    ("adapter", "base"), [("nf4", {}), ("nf4", BASES["nf4"]), ("int8", {}), ("int8", BASES["int8"])], ids=str
)
def test_two_processes_say_what_one_says(answers, adapter, base):
    assert answers("model", adapter, processes=2, **base) == answers("model", adapter, **base)


@pytest.mark.long
@pytest.mark.parametrize("base", [{}, BASES["nf4"]], ids=str)
def test_two_processes_evaluate_as_one(ranks, trained, tmp_path, base):
    """The merged model, whole and with a base in 4 bits: loss and answers."""
    found = []
    for processes in (1, 2):
        output = tmp_path / str(processes)
        flags = {"dataset_name_or_path": trained / "data", "model_name_or_path": trained / "int8-merged"} | base
        flags |= {"do_train": 0, "do_eval": 1, "eval_with_do_generation": 1, "tensor_parallel_degree": processes}
        for said in ranks(processes, "tests.training.finetune_ranks:finetune", argv(trained, output, **flags)):
            assert said["exit_code"] == 0, said["stderr"]
        [file] = (output / "predictions").iterdir()
        answers = file.read_text().splitlines()
        found.append((read_summary(output)["evaluation"], answers))
    (one, answers), (two, others) = found
    assert two["eval_loss"] == pytest.approx(one["eval_loss"], abs=2e-6)
    assert one["eval_loss"] < 1.0 and len(answers) == 8
    assert others == answers


@pytest.mark.parametrize(
    ("cards", "memory", "algo", "fits"),
    [
        (1, 24, None, False),
        (2, 24, None, True),
        (1, 24, "weight_only_int8", True),
        (1, 24, "nf4", True),
        (1, 16, "weight_only_int8", False),
        (1, 16, "nf4", True),
    ],
)
def test_where_thirteen_billion_parameters_fit(cards, memory, algo, fits):
    base = Format(algo, double_quant=algo == "nf4") if algo else None
    plan = plan_answers(load_config("baichuan-13b"), "float16", base, cards, batch=1, prompt=1024, answer=128)
    assert plan.fits(card_of_memory(memory)) == fits
    bytes_each = {None: 2 / cards, "weight_only_int8": 1.05, "nf4": 0.6}[algo]
    assert plan.parts["weights"] == pytest.approx(13.26e9 * bytes_each, rel=0.03)
    assert plan.parts["keys and values"] == 2 * 40 * 5120 // cards * 1152 * 2


def test_the_plan_is_printed_before_anything_is_loaded(ranks):
    [said] = ranks(1, PREDICT, ["--model_name_or_path", "baichuan-13b", "--plan", "2x24"])
    assert said["exit_code"] == 0
    assert "Baichuan-13B, float16, on 2 cards; 1 x (1024 + 128) tokens" in said["stdout"]
    assert "fits: 4090 has 23.6 GiB" in said["stdout"]


def test_cards_that_cannot_divide_the_model_have_no_plan(ranks):
    [said] = ranks(1, PREDICT, ["--model_name_or_path", "baichuan-13b", "--plan", "3x24"])
    assert said["exit_code"] == 2 and said["stdout"] == ""
    assert "3 processes cannot divide this model's attention heads, 40. Use 2:" in said["stderr"]
