"""Numbers of a user: each in its range, before anything has that size; thousands of digits are no traceback."""

import argparse

import pytest

from data_tools.cli import MOST_CARDS, MOST_NODES, above_zero, cards, nodes, not_negative, port, whole_number
from launch.commands.predict import temperature
from launch.config.flag_values import known_flags
from launch.config.layout import LayoutError
from launch.config.numbers import MOST
from launch.config.recipe_file import ROOT, load_recipes
from launch.config.variables import KUBERNETES, NODES, RECIPE, apply_variables, number
from launch.errors import UserError
from launch.nodes.network import split_address
from launch.nodes.place import expand_hosts, read_nodes
from launch.processes.sharded import add_degree
from launch.studio.planning import RecipeChoice, layouts_of, plan_of

LONG = "9" * 5000
RECIPES = {recipe.target: recipe for recipe in load_recipes(ROOT)}


@pytest.mark.parametrize("name", [*MOST, "MTBF_HOURS"])
def test_a_variable_has_a_range(name):
    assert number(name, {name: "1"}) == 1 and number(name, {name: ""}) is None
    for value in (LONG, "1" + "0" * 15, "0", "-1", "1.5", "two", "1e3", "+1", "1_0"):
        with pytest.raises(UserError) as refused:
            number(name, {name: value})
        assert str(refused.value).startswith(f"{name}: found {value[:40]!r}, expected a whole number from 1 to ")
    for value in (most + 1 for most in [MOST.get(name)] if most):
        with pytest.raises(UserError, match=f"^{name}: found '{value}', expected a whole number from 1 to"):
            number(name, {name: str(value)})


@pytest.mark.parametrize("value", [LONG, "1000000000", "-1", "\ud800", "\x1b[2J", "٣" * 400, "nan"])
def test_no_variable_of_a_recipe_makes_something_of_its_size(value):
    """The page plans what its address says."""
    for target, counted in (("lora-qwen3-8b", "GPUS"), ("pretrain-tiny", "PROCESSES")):
        for name in (counted, "GPU_MEMORY_GB", "NNODES"):
            if name == "GPU_MEMORY_GB" and counted == "PROCESSES":
                continue
            with pytest.raises((UserError, LayoutError), match=f"^{name}: found"):
                if name == "NNODES":
                    read_nodes({"NNODES": value, "RANK": "1", "MASTER": "h:1"})
                else:
                    apply_variables(RECIPES[target], {name: value})
    choice = RecipeChoice.read({"recipe": "lora-qwen3-8b", "GPUS": value})
    assert [fault["control"] for fault in plan_of(choice)["faults"]] == ["GPUS"]
    with pytest.raises(UserError, match="^GPUS: found"):
        layouts_of(choice)


def test_types_of_flags_take_no_thousands_of_digits():
    for kind in (above_zero, not_negative, port, cards, nodes):
        above = {cards: MOST_CARDS, nodes: MOST_NODES, port: 65535}.get(kind)
        for text in (LONG, "-1", "", "a\x1b[2J", *([str(above + 1)] if above else [])):
            with pytest.raises(argparse.ArgumentTypeError) as refused:
                kind(text)
            assert len(str(refused.value)) < 120 and str(refused.value).isprintable()
    assert (above_zero("7"), not_negative("0"), port("65535"), whole_number("12", 12, 12)) == (7, 0, 65535, 12)


def test_flags_of_commands_have_ranges():
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_degree(parser.add_argument)
    with pytest.raises(argparse.ArgumentError, match="found '99999999999', expected a number of cards, 1 to 1,024"):
        parser.parse_args(["--tensor_parallel_degree", "99999999999"])
    for text in ("nan", "inf", "1e400", "-1"):
        with pytest.raises(argparse.ArgumentTypeError, match=f"^found {text}, expected 0 or more$"):
            temperature(text)


def test_addresses_and_lists_of_hosts_have_ranges():
    assert split_address("h:65535") == ("h", 65535) and expand_hosts("n[08-10]") == ["n08", "n09", "n10"]
    for address in ("h:65536", f"h:{LONG}", "h:0"):
        with pytest.raises(UserError, match="^MASTER: found"):
            split_address(address)
    for hosts in ("n[0-999999999]", f"n[0-{LONG}]", "n[2-1]"):
        with pytest.raises(UserError, match="^list of hosts: found"):
            expand_hosts(hosts)


def test_all_ranges_are_of_variables():
    assert set(MOST) <= {*RECIPE, *NODES, *KUBERNETES}


@pytest.mark.parametrize("target", [pytest.param("qlora-qwen3-8b", marks=pytest.mark.long), "pretrain-tiny"])
def test_a_word_that_is_none_of_a_flags_choices_is_a_fault_of_the_plan(target):
    known = known_flags(RECIPES[target].script)
    for name in (name for name, flag in known.items() if flag.choices):
        choice = RecipeChoice.read({"recipe": target, "ARGS": f"--{name} nonsense"})
        assert name in [fault["control"] for fault in plan_of(choice)["faults"]], name
