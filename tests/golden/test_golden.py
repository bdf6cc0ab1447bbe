"""Each recipe's rehearsal gives its stored curve: within 1e-4 on any processor, to the bit twice on this one."""

import json

import pytest

from tests.golden.curves import DIRECTORY, Curve, golden_file, read_golden
from tests.recipes.rehearsing import recipes_by_target, rehearse_well

TARGETS = sorted(recipes_by_target())
# Two processes; the long tests have eight, in a layout that tests/recipes rehearses, too.
ESSENTIAL = {"pretrain-tiny"}
LONG = {"pretrain-llama7b", "lora-tiny", "dpo-lora-qwen2.5-7b", "qlora-qwen3-8b", "finetune-chatglm2-6b-2gpu"}


def test_every_recipe_has_a_curve():
    missing = [target for target in TARGETS if not golden_file(target).exists()]
    assert not missing, f'python -m tests.golden {" ".join(missing)} --reason "..." stores what is missing'


def test_every_curve_has_a_recipe_a_processor_and_a_reason():
    for file in DIRECTORY.glob("*.json"):
        stored = json.loads(file.read_text())
        assert file.stem in TARGETS, f"{file.name}: there is no such recipe; remove the file"
        assert all(stored[key] for key in ("reason", "processor", "versions", "losses", "grad_norms")), file.name


@pytest.mark.parametrize(
    "target",
    [
        pytest.param(one, marks=[] if one in ESSENTIAL else [pytest.mark.long if one in LONG else pytest.mark.nightly])
        for one in TARGETS
    ],
)
def test_rehearsal_gives_the_stored_curve(rehearsals, target):
    assert read_golden(target).differences(Curve.of_run(rehearsals(target).output)) == ""


@pytest.mark.long
def test_two_rehearsals_are_equal_to_the_bit(rehearsals, tmp_path):
    first, second = rehearsals("pretrain-tiny"), rehearse_well("pretrain-tiny", tmp_path)
    assert Curve.of_run(second.output) == Curve.of_run(first.output)
    weights = [{file.name: file.read_bytes() for file in run.output.glob("*.safetensors")} for run in (first, second)]
    assert weights[0] and weights[0] == weights[1]


CURVE = Curve([7.0, 6.5], [1.0, 2.0])


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (Curve([7.0006, 6.5004], [1.00005, 2.0001]), ""),
        (Curve([7.0, 6.501], [1.0, 2.0]), "losses from step 2 on: 6.501 instead of 6.5, at most 1.5e-04 away"),
        (Curve([7.0, 6.5], [1.001, 2.0]), "gradient norms from step 1 on: 1.001 instead of 1.0"),
        (Curve([7.0, float("nan")], [1.0, 2.0]), "losses from step 2 on: nan instead of 6.5"),
        (Curve([7.0], [1.0]), "1 losses instead of 2; 1 gradient norms instead of 2"),
    ],
)
def test_what_counts_as_different(found, message):
    differences = CURVE.differences(found)
    assert differences.startswith(message) and bool(differences) == bool(message)
