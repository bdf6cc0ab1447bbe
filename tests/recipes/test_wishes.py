"""The user's variables and flags: which win, what they change, what is refused."""

import pytest

from launch.config.recipe_file import recipe_paths
from tests.recipes.machine import ROOT, Machine
from tests.recipes.test_rendered import printed_flags


@pytest.fixture
def machine(tmp_path) -> Machine:
    return Machine(tmp_path)


def test_later_flags_win(machine):
    flags = printed_flags(machine.print("llama-7b/pretrain", "--max_steps", "10", "--bf16=1"))
    assert (flags["max_steps"], flags["bf16"]) == (["10"], ["1"])


def test_variables_are_flags_and_args_win_over_them(machine):
    flags = printed_flags(
        machine.print("llama-7b/pretrain", MODEL="m", DATA="d", OUTPUT="o", ARGS="--output_dir p --seed 7")
    )
    changed = [flags[name] for name in ("model_name_or_path", "input_dir", "output_dir", "seed")]
    assert changed == [["m"], ["d"], ["p"], ["7"]]


def test_a_model_that_cannot_pack_is_padded_with_a_line(machine):
    done = machine.run("llama-7b/lora", ACTION="print", FIT="off", MODEL="glm-515m")
    assert "--zero_padding 0 \\" in done.stdout
    assert done.stderr.startswith("--zero_padding 0 instead of 1: GLM has no packing: its positions restart")
    assert len(done.stderr.splitlines()) == 1
    done = machine.run("llama-7b/lora", ACTION="print", FIT="off", MODEL="glm-515m", ARGS="--zero_padding 1")
    assert "--zero_padding 1\n" in done.stdout and done.stderr == ""


def test_logs_go_below_the_output(machine):
    words = machine.print("llama-7b/pretrain", OUTPUT="/runs/one")
    assert words[words.index("--log_dir") + 1] == "/runs/one/log"


@pytest.mark.parametrize(("gpus", "accumulation"), [("1", "64"), ("2", "32"), ("4", "16"), ("8", "8")])
def test_fewer_cards_keep_the_global_batch(machine, gpus, accumulation):
    done = machine.run("llama-7b/pretrain", ACTION="print", GPUS=gpus, FIT="off")
    assert f"--gradient_accumulation_steps {accumulation} \\" in done.stdout
    assert f"--gpus {','.join(str(n) for n in range(int(gpus)))} " in done.stdout
    told = (
        f"GPUS: {gpus} instead of 8, --gradient_accumulation_steps {accumulation} instead of 8: "
        "as many samples a step\n"
    )
    assert done.stderr == ("" if gpus == "8" else told)


def test_more_cards_take_from_the_accumulation(machine):
    flags = printed_flags(machine.print("llama-7b/pretrain", "--gradient_accumulation_steps", "4", GPUS="16"))
    assert flags["gradient_accumulation_steps"] == ["2"]


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"GPUS": "3"}, "cannot be dealt to 3 cards. Possible: 1, 2, 4, 8, 16,"),
        ({"GPUS": "512"}, "cannot be dealt to 512 cards. Possible: 1, 2, 4, 8, 16,"),
        ({"GPUS": "two"}, "GPUS: found 'two', expected a whole number above 0."),
        ({"GPUS": "2", "DEVICES": "0,1,2"}, "GPUS=2 does not agree with DEVICES=0,1,2."),
        ({"DEVICES": "0,1,0"}, "DEVICES=0,1,0 names a card twice"),
        ({"CARD": "3090", "GPU_MEMORY_GB": "80"}, "CARD=3090 has 24 GB, not 80: leave one out."),
        ({"CARD": "H800"}, "CARD: found 'H800', known: A100-80G"),
        ({"DEVICES": "0-3"}, "DEVICES: found '0-3', expected numbers of cards with commas"),
        ({"DEVICES": "cuda:0"}, "DEVICES: found 'cuda:0', expected numbers of cards"),
        ({"GPU_MEMORY_GB": "-4"}, "GPU_MEMORY_GB: found '-4', expected a whole number above 0."),
        ({"ARGS": '--seed "7'}, 'error: ARGS=--seed "7: No closing quotation'),
        ({"ARGS": "seed 7"}, "error: ARGS=seed 7: 'seed' is not a flag: expected --name value."),
        ({"ACTION": "fly"}, "ACTION: found 'fly', allowed: run, print, rehearse, plan, k8s."),
    ],
)
def test_wish_that_cannot_be_met(machine, variables, message):
    done = machine.run("llama-7b/pretrain", **({"ACTION": "print"} | variables))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ") and message in done.stderr


def test_names_of_26_become_todays(machine):
    done = machine.run("llama-7b/pretrain", "--model_type", "llama", ACTION="print", ARGS="--sharding_degree 4")
    assert "--sharding_parallel_degree 4\n" in done.stdout and "--model_type" not in done.stdout
    assert "--sharding_degree is --sharding_parallel_degree today\n" in done.stderr


def test_cards_of_ones_choice(machine):
    done = machine.run("llama-7b/pretrain", ACTION="print", DEVICES="4,5,6,7", FIT="off")
    assert "--gpus 4,5,6,7 " in done.stdout and "--gradient_accumulation_steps 16 \\" in done.stdout


def test_a_kind_of_card_is_planned_as_it_is(machine):
    """Of 24 GB the memory alone means a 4090."""
    planned = machine.run("llama-7b/qlora", ACTION="plan", CARD="3090").stdout
    assert "3090: 23.7 GiB" in planned and "4090" not in planned


def test_visible_cards_are_used(machine):
    done = machine.run("llama-7b/pretrain", ACTION="print", GPUS="2", CUDA_VISIBLE_DEVICES="6,7")
    assert "--gpus 6,7 " in done.stdout


def test_cards_for_a_recipe_of_the_cpu(machine):
    done = machine.run("tiny/pretrain", ACTION="print", GPUS="2")
    assert done.returncode == 2
    assert done.stderr == "error: GPUS, DEVICES, CARD: this recipe runs on the CPU. Leave them out.\n"


RECIPES = [str(path.relative_to(ROOT / "recipes").with_suffix("")) for path in recipe_paths(ROOT)]


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_model_brings_its_tokenizer(machine, recipe):
    """Another model with the tokenizer of the recipe's would train on wrong ids."""
    printed = machine.run(recipe, ACTION="print", MODEL="models/mine").stdout
    assert "--model_name_or_path models/mine" in printed and "--tokenizer_name_or_path" not in printed


TWO_NODES = {"NNODES": "2", "MASTER": "127.0.0.1:8090"}


def test_ranks_of_all_nodes_share_the_batch(machine):
    """16 cards instead of 8 take half the accumulation."""
    done = machine.run("llama-7b/pretrain", "--gradient_accumulation_steps", "4", ACTION="print", RANK="1", **TWO_NODES)
    assert "--gradient_accumulation_steps 2\n" in done.stdout
    assert done.stderr == (
        "NNODES x GPUS: 16 instead of 8, --gradient_accumulation_steps 2 instead of 4: as many samples a step\n"
    )


def test_the_commands_of_all_nodes_are_printed(machine):
    printed = machine.run("llama-7b/pretrain", ACTION="print", GPUS="4", RANK="1", **TWO_NODES).stdout
    first, second = printed.split("\n\n")
    assert first.startswith("# node 0\n") and second.startswith("# node 1, this one\n")
    assert " --gpus 0,1,2,3 --nnodes 2 --rank 0 --master 127.0.0.1:8090 --host 127.0.0.1 " in first
    assert " --gpus 0,1,2,3 --nnodes 2 --rank 1 --master 127.0.0.1:8090 --host 127.0.0.1 " in second
    assert "--log_dir ./checkpoints/llama-7b-pretrain/log/node-1 " in second
    assert first.splitlines()[2:] == second.splitlines()[2:]


def test_two_nodes_of_the_four_dimensional_recipe(machine):
    """As its header says: tensor 4 x pipeline 2 x sharding 2 on 2 x 8 cards, the same samples a step."""
    wishes = TWO_NODES | {"RANK": "0", "ARGS": "--tensor_parallel_degree 4", "FIT": "off"}
    done = machine.run("llama-7b/pretrain-4d", ACTION="print", **wishes)
    first, _ = done.stdout.split("\n\n")
    flags = printed_flags(first.replace("\\\n", " ").split())
    assert (flags["tensor_parallel_degree"], flags["gradient_accumulation_steps"]) == (["4"], ["64"])
    assert done.stderr.startswith("NNODES x GPUS: 16 instead of 8, --gradient_accumulation_steps 64: ")


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        (TWO_NODES, "NNODES: 2 nodes need RANK= (this node's number, 0 to 1), too; one node: NNODES=1."),
        (TWO_NODES | {"RANK": "0", "GPUS": "3"}, "NNODES x GPUS: found 6, but the samples of a step"),
        ({"PROCESSES": "2"}, "PROCESSES: this recipe runs on cards, one process each."),
    ],
)
def test_nodes_that_cannot_be(machine, variables, message):
    done = machine.run("llama-7b/pretrain", ACTION="print", **variables)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_processes_of_a_recipe_of_the_cpu(machine):
    done = machine.run("tiny/pretrain", "--gradient_accumulation_steps", "2", ACTION="print", PROCESSES="4")
    assert "--nproc_per_node 4 " in done.stdout and done.stdout.endswith("--gradient_accumulation_steps 1\n")
    assert done.stderr.startswith("PROCESSES: 4 instead of 2, ")
