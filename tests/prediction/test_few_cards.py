"""A Baichuan-13B on few cards: LoRA beside a base in 4 bits is trained, merged and asked, on one process as on two."""

import json

import pytest

from launch.families.named_configs import load_config
from launch.plan.hardware import card_of_memory
from launch.plan.inference import plan_answers
from launch.reporting.records import read_summary
from launch.tape.quantized import Format
from tests.training.finetune_material import argv, write_first

PREDICT = "tests.prediction.predict_ranks:predict_all"
# What each adapter is trained beside. Blocks of 16 are not cut by tensor parallelism.
BASES = {"nf4": {"weight_quantize_algo": "nf4", "weight_blocksize": 16}, "int8": {"weight_quantize_algo": "llm.int8"}}
INT8 = {"weight_quantize_algo": "weight_only_int8"}


@pytest.fixture(scope="module")
def trained(ranks, tmp_path_factory, name):
    """A directory with model, eight dialogues in data, adapter which has learnt these by heart, and merged of both."""
    root, base = tmp_path_factory.mktemp("few"), BASES[name]
    ranks(1, "tests.prediction.few_cards_ranks:make_baichuan", str(root))
    data = write_first(root / "pairs", root / "data", 8, shortest=True)
    flags = argv(root, root / "adapter", dataset_name_or_path=data, lora=1, learning_rate=1e-2, max_steps=120, **base)
    [said] = ranks(1, "tests.training.finetune_ranks:finetune", flags, time_limit=600)
    assert said["exit_code"] == 0, said["stderr"]
    assert f"base: 14 linear layers in {base['weight_quantize_algo']}, " in said["stdout"]
    merge = ["--adapter_path", str(root / "adapter"), "--output_dir", str(root / "merged")]
    [[said]] = ranks(1, "tests.runs_ranks:train_all", "commands.merge", [merge])
    assert said["exit_code"] == 0, said["stderr"]
    return root


@pytest.mark.parametrize(
    "name",
    [pytest.param("nf4", marks=pytest.mark.long), pytest.param("int8", marks=pytest.mark.nightly)],
    scope="module",
)
def test_it_says_what_was_learnt_beside_its_base_and_merged_on_one_process_as_on_two(ranks, trained, name, tmp_path):
    """The base in 16 bits is not quite the one of the training, and 4 bits are farther from it than 8."""
    dialogues = trained / "data" / "dev.json"
    learnt = [json.loads(line)["tgt"] for line in dialogues.read_text().splitlines()]

    def ask(processes: int, *asked: tuple[str, bool, dict]) -> list[list[str]]:
        """asked: model, whether with the adapter, flags."""
        jobs = []
        for number, (model, adapter, more) in enumerate(asked):
            values = {"model_name_or_path": trained / model, "data_file": dialogues, "max_new_tokens": 40} | more
            values |= {"device": "cpu", "output_file": tmp_path / f"{processes}-{number}"}
            values |= {"adapter_path": trained / "adapter"} if adapter else {}
            jobs.append([[word for key, value in values.items() for word in (f"--{key}", str(value))], ""])
        for said in ranks(processes, PREDICT, jobs, time_limit=300):
            assert [one["exit_code"] for one in said] == [0] * len(jobs), said
        files = [tmp_path / f"{processes}-{number}" for number in range(len(jobs))]
        return [[json.loads(line)["prediction"] for line in file.read_text().splitlines()] for file in files]

    both = [("model", True, BASES[name]), ("model", True, {})]
    beside, plain, without, merged, int8 = ask(
        1, *both, ("model", False, BASES[name]), ("merged", False, {}), ("model", True, INT8)
    )
    assert beside == learnt != without
    assert merged == plain
    if name == "int8":
        assert plain == int8 == learnt
    assert sum(ours == theirs for ours, theirs in zip(merged, learnt, strict=True)) >= {"nf4": 3, "int8": 8}[name]
    assert ask(2, *both) == [beside, plain]


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["int8"], scope="module")
@pytest.mark.parametrize("base", [{}, BASES["nf4"]], ids=str)
def test_two_processes_evaluate_as_one(ranks, trained, name, tmp_path, base):
    """The merged model, whole and with a base in 4 bits: loss and answers."""
    found = []
    for processes in (1, 2):
        output = tmp_path / str(processes)
        flags = {"dataset_name_or_path": trained / "data", "model_name_or_path": trained / "merged"} | base
        flags |= {"do_train": 0, "do_eval": 1, "eval_with_do_generation": 1, "tensor_parallel_degree": processes}
        for said in ranks(processes, "tests.training.finetune_ranks:finetune", argv(trained, output, **flags)):
            assert said["exit_code"] == 0, said["stderr"]
        [file] = (output / "predictions").iterdir()
        found.append((read_summary(output)["evaluation"], file.read_text().splitlines()))
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
    """And cards that cannot divide the model have none."""
    jobs = [[["--model_name_or_path", "baichuan-13b", "--plan", cards], ""] for cards in ("2x24", "3x24")]
    [[fits, refused]] = ranks(1, PREDICT, jobs)
    assert fits["exit_code"] == 0
    assert "Baichuan-13B, float16, on 2 cards; 1 x (1024 + 128) tokens" in fits["stdout"]
    assert "fits: 4090 has 23.6 GiB" in fits["stdout"]
    assert refused["exit_code"] == 2 and refused["stdout"] == ""
    assert "3 processes cannot divide this model's attention heads, 40. Use 2:" in refused["stderr"]
