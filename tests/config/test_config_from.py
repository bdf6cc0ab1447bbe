"""`make config-from`: files like PaddleNLP's, for each model and method, become commands that are legal and planned."""

import json
import shlex

import pytest

from launch import preflight
from launch.commands import config_from
from launch.config.flag_values import Flags, known_flags, parse_flags
from launch.config.recipe_file import load_recipes
from launch.config.run_config import RunConfig
from launch.guard import guarded
from launch.preflight.requested import requested_run
from launch.recipe import planned
from tests.config.paddlenlp_files import FILES, MODELS, arguments
from tests.store import ROOT

RECIPES = {recipe.target: recipe for recipe in load_recipes(ROOT)}


def values(run: RunConfig) -> dict:
    """Those of all flags but the model, which is planned by another name."""
    return {name: getattr(run.flags, name) for name in known_flags(run.script) if name != "model_name_or_path"}


def printed(capsys, *words: str) -> tuple[list[str], list[str], str, Flags]:
    """The lines with #, the words of the launcher's command, the command of make and what its recipe adds."""
    assert guarded(config_from.main, list(words)) in (0, None)
    text, make = capsys.readouterr().out.split("\n\n")
    lines = text.splitlines()
    told = [line for line in lines if line.startswith("#")]
    *by_recipe, make = make.splitlines()
    added = " ".join(line.removeprefix("#").strip() for line in by_recipe).partition("with these flags of its own: ")[2]
    command = "\n".join(lines[len(told) :]).replace("\\\n", " ")
    return told, shlex.split(command), make, parse_flags(shlex.split(added))


FILES_OF_MAKE_TEST = ("llama/pretrain", "llama/sft", "llama/lora", "llama/qlora", "bloom/pt", "chatglm2/sft")


@pytest.mark.parametrize(
    "name", [one if one in FILES_OF_MAKE_TEST else pytest.param(one, marks=pytest.mark.long) for one in FILES]
)
def test_every_file_becomes_a_legal_command_and_a_plan(name, tmp_path, capsys, monkeypatch):
    """Both: what the launcher gets, and the recipe with CONFIG=, as it is planned."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "arguments.json"
    file.write_text(json.dumps(arguments(name)))
    _, words, make, added = printed(capsys, str(file))
    script = next(number for number, word in enumerate(words) if word.endswith(".py"))
    run = RunConfig(
        words[script], parse_flags(words[script + 1 :]), processes=len(words[words.index("--gpus") + 1].split(","))
    )
    assert preflight.is_legal(run), [finding for finding in preflight.run_on_flags(run) if not finding.ok]
    assert run.flags.model_name_or_path == MODELS[name.partition("/")[0]]
    by_hand, variables = run, dict(word.split("=") for word in shlex.split(make)[2:])
    run, _ = requested_run(RECIPES[make.split()[1]], variables | {"FIT": "off"}, sizes_alone=True)
    assert values(by_hand.changed(added)) == values(run)
    assert [finding for finding in preflight.run_on_flags(run) if not finding.ok] == []
    assert json.loads(planned(run, "json"))["peak_bytes"] > 1 << 30


@pytest.mark.parametrize(
    ("name", "gpus", "make"),
    [
        ("llama/sft", 8, "make finetune-llama3-8b CONFIG={}"),
        ("llama/pretrain", 8, "make pretrain-llama3-8b CONFIG={}"),
        ("llama/lora", 1, "make lora-llama3-8b CONFIG={}"),
        ("llama/qlora", 1, "make qlora-llama3-8b CONFIG={}"),
        ("llama/pt", 1, "make prefix-llama7b CONFIG={}"),
        ("chatglm2/sft", 8, "make finetune-chatglm2-6b-2gpu CONFIG={} GPUS=8"),
        ("bloom/sft", 4, "make finetune-llama7b CONFIG={}"),
    ],
)
def test_cards_and_the_nearest_recipe(name, gpus, make, tmp_path, capsys):
    file = tmp_path / "arguments.json"
    file.write_text(json.dumps(arguments(name)))
    _, words, command, _ = printed(capsys, str(file))
    assert words[words.index("--gpus") + 1] == ",".join(map(str, range(gpus)))
    assert command == make.format(file)


@pytest.mark.parametrize(
    ("stated", "words", "message"),
    [
        (
            {"seed": 1},
            [],
            "Expected loss_type or beta or max_seq_len or dataset_name_or_path or input_dir, or more of",
        ),
        (arguments("llama/sft") | {"pipeline_parallel_degree": 2}, [], "--sharding: stage2 with --pipeline_parallel_"),
        (
            arguments("bloom/sft"),
            ["--gpus", "3"],
            "--tensor_parallel_degree: tensor parallel 4 x pipeline parallel 1 do",
        ),
        ({"rl_algorithm": "grpo"}, [], ":1: rl_algorithm: this is a file for PaddleNLP's PPO or GRPO, which has"),
    ],
)
def test_what_makes_no_command_is_refused(stated, words, message, tmp_path, capsys):
    file = tmp_path / "arguments.json"
    file.write_text(json.dumps(stated))
    assert guarded(config_from.main, [str(file), *words]) == 2
    out, err = capsys.readouterr()
    assert out == "" and message in err
