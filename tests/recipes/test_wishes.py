"""The user's variables and flags: which win, what they change, what is refused."""

import pytest

from launch.config.recipe_file import load_recipes
from launch.preflight.requested import requested_run
from tests.recipes.machine import ROOT, Machine
from tests.recipes.test_rendered import printed_flags

PRETRAIN = "llama-7b/pretrain"
TWO_NODES = {"NNODES": "2", "MASTER": "127.0.0.1:8090"}


@pytest.fixture(scope="module")
def machine(tmp_path_factory) -> Machine:
    return Machine(tmp_path_factory.mktemp("machine"))


@pytest.mark.parametrize(
    ("flags", "variables", "changed"),
    [
        (("--max_steps", "10", "--bf16=1"), {}, {"max_steps": "10", "bf16": "1"}),
        (
            (),
            {"MODEL": "m", "DATA": "d", "OUTPUT": "o", "ARGS": "--output_dir p --seed 7"},
            {"model_name_or_path": "m", "input_dir": "d", "output_dir": "p", "seed": "7"},
        ),
        (("--gradient_accumulation_steps", "4"), {"GPUS": "16"}, {"gradient_accumulation_steps": "2"}),
    ],
    ids=["later flags win", "ARGS win over variables", "more cards take from the accumulation"],
)
def test_what_wins(machine, flags, variables, changed):
    printed = printed_flags(machine.print(PRETRAIN, *flags, **variables))
    assert {name: printed[name] for name in changed} == {name: [value] for name, value in changed.items()}


def test_a_model_that_cannot_pack_a_kind_of_card_and_the_commands_of_all_nodes(machine):
    done = machine.run("llama-7b/lora", ACTION="print", FIT="off", MODEL="glm-515m")
    assert "--zero_padding 0 \\" in done.stdout
    assert done.stderr.startswith("--zero_padding 0 instead of 1: GLM has no packing: its positions restart")
    assert len(done.stderr.splitlines()) == 1
    done = machine.run("llama-7b/lora", ACTION="print", FIT="off", MODEL="glm-515m", ARGS="--zero_padding 1")
    assert "--zero_padding 1\n" in done.stdout and done.stderr == ""
    # Of 24 GB the memory alone means a 4090.
    planned = machine.run("llama-7b/qlora", ACTION="plan", CARD="3090").stdout
    assert "3090: 23.7 GiB" in planned and "4090" not in planned
    done = machine.run("tiny/pretrain", ACTION="print", GPUS="2")
    assert done.stderr == "error: GPUS, DEVICES, CARD: this recipe runs on the CPU. Leave them out.\n"
    printed = machine.run(PRETRAIN, ACTION="print", GPUS="4", RANK="1", **TWO_NODES).stdout
    first, second = printed.split("\n\n")
    assert first.startswith("# node 0\n") and second.startswith("# node 1, this one\n")
    for rank, command in enumerate((first, second)):
        assert f" --gpus 0,1,2,3 --nnodes 2 --rank {rank} --master 127.0.0.1:8090 --host 127.0.0.1 " in command
    assert "--log_dir ./checkpoints/llama-7b-pretrain/log/node-1 " in second
    assert first.splitlines()[2:] == second.splitlines()[2:]


@pytest.mark.parametrize(
    ("recipe", "flags", "variables", "printed", "told"),
    [
        (PRETRAIN, (), {"GPUS": "8", "FIT": "off"}, ["--gpus 0,1,2,3,4,5,6,7 "], ""),
        (
            PRETRAIN,
            (),
            {"GPUS": "2", "FIT": "off", "CUDA_VISIBLE_DEVICES": "6,7"},
            ["--gpus 6,7 ", "--gradient_accumulation_steps 32 \\"],
            "GPUS: 2 instead of 8, --gradient_accumulation_steps 32 instead of 8: as many samples a step\n",
        ),
        (
            PRETRAIN,
            (),
            {"DEVICES": "4,5,6,7", "FIT": "off", "OUTPUT": "/runs/one"},
            ["--gpus 4,5,6,7 ", "--gradient_accumulation_steps 16 \\", "--log_dir /runs/one/log "],
            "GPUS: 4 instead of 8, ",
        ),
        (
            PRETRAIN,
            ("--model_type", "llama"),
            {"ARGS": "--sharding_degree 4"},
            ["--sharding_parallel_degree 4\n"],
            "--model_type is left out: ",
        ),
        (
            PRETRAIN,
            ("--gradient_accumulation_steps", "4"),
            TWO_NODES | {"RANK": "1"},
            ["--gradient_accumulation_steps 2\n"],
            "NNODES x GPUS: 16 instead of 8, --gradient_accumulation_steps 2 instead of 4: as many samples a step\n",
        ),
        (  # as its header says: tensor 4 x pipeline 2 x sharding 2 on 2 x 8 cards, the same samples a step
            "llama-7b/pretrain-4d",
            (),
            TWO_NODES | {"RANK": "0", "ARGS": "--tensor_parallel_degree 4", "FIT": "off"},
            ["--tensor_parallel_degree 4\n", "--gradient_accumulation_steps 64 "],
            "NNODES x GPUS: 16 instead of 8, --gradient_accumulation_steps 64: ",
        ),
        (
            "tiny/pretrain",
            ("--gradient_accumulation_steps", "2"),
            {"PROCESSES": "4"},
            ["--nproc_per_node 4 ", "--gradient_accumulation_steps 1\n"],
            "PROCESSES: 4 instead of 2, ",
        ),
    ],
)
def test_what_is_printed_and_told(machine, recipe, flags, variables, printed, told):
    done = machine.run(recipe, *flags, ACTION="print", **variables)
    assert done.returncode == 0 and [piece for piece in printed if piece not in done.stdout] == []
    assert done.stderr == told if told.endswith("\n") or not told else done.stderr.startswith(told)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"GPUS": "3"}, "cannot be dealt to 3 cards. Possible: 1, 2, 4, 8, 16,"),
        ({"GPUS": "512"}, "cannot be dealt to 512 cards. Possible: 1, 2, 4, 8, 16,"),
        ({"GPUS": "two"}, "GPUS: found 'two', expected a whole number from 1 to 1,024."),
        ({"GPUS": "2", "DEVICES": "0,1,2"}, "GPUS=2 does not agree with DEVICES=0,1,2."),
        ({"DEVICES": "0,1,0"}, "DEVICES=0,1,0 names a card twice"),
        ({"CARD": "3090", "GPU_MEMORY_GB": "80"}, "CARD=3090 has 24 GB, not 80: leave one out."),
        ({"CARD": "H800"}, "CARD: found 'H800', known: A100-80G"),
        ({"DEVICES": "cuda:0"}, "DEVICES: found 'cuda:0', expected numbers of cards with commas"),
        ({"ARGS": '--seed "7'}, 'error: ARGS=--seed "7: No closing quotation'),
        ({"ARGS": "seed 7"}, "error: ARGS=seed 7: 'seed' is not a flag: expected --name value."),
        ({"ACTION": "fly"}, "ACTION: found 'fly', allowed: run, print, rehearse, plan, k8s."),
        (TWO_NODES, "NNODES: 2 nodes need RANK= (this node's number, 0 to 1), too; one node: NNODES=1."),
        (TWO_NODES | {"RANK": "0", "GPUS": "3"}, "NNODES x GPUS: found 6, but the samples of a step"),
        ({"PROCESSES": "2"}, "PROCESSES: this recipe runs on cards, one process each."),
    ],
)
def test_wish_that_cannot_be_met(machine, variables, message):
    done = machine.run(PRETRAIN, **({"ACTION": "print"} | variables))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ") and message in done.stderr


def test_a_model_brings_its_tokenizer():
    """Another model with the tokenizer of the recipe's would train on wrong ids."""
    for recipe in load_recipes(ROOT):
        run, _ = requested_run(recipe, {"MODEL": "models/mine"})
        assert run.explicit["model_name_or_path"] == ["models/mine"] and "tokenizer_name_or_path" not in run.explicit
