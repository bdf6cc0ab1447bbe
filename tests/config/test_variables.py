"""Variables of make's command line that were meant to be others."""

import shlex

import pytest

from launch.config.variables import check_variables, given_variables
from launch.errors import UserError


def test_a_name_that_is_nearly_another_is_refused_and_others_are_left_alone():
    meant = {"GPU=4": "GPUS", "Gpus=4": "GPUS", "DEVICE_S=0": "DEVICES", "NODES=2": "NNODES", "ARG=x": "ARGS"}
    for word, name in meant.items():
        with pytest.raises(UserError, match=f"Did you mean {name}?"):
            check_variables({"MAKEFLAGS": f"s -j2 -- OUTPUT=it's {word}"})
    for flags in ("", "s -j2", " -- GPUS=4 DEVICE=gpu CUDA=12.6 X=1", r" -- ARGS=--max_steps\ 10\ GPU=4"):
        check_variables({"MAKEFLAGS": flags, "GPU": "4"})


def test_those_that_were_given_are_told_as_a_shell_takes_them():
    given = {"DATA": "my data", "ARGS": "--lora_rank 4", "MODEL": "models/it's", "GPUS": "", "HOME": "/root"}
    words = shlex.split(given_variables(given))
    assert words == ["MODEL=models/it's", "DATA=my data", "ARGS=--lora_rank 4"]
    assert given_variables({}) == ""
