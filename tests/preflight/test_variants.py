"""Shipped recipes and wrong variants of them, on pretended machines: exactly which findings appear."""

from pathlib import Path

import pytest

from launch.errors import UserError
from launch.families.named_configs import load_config
from launch.preflight import gpus, host, memory
from launch.preflight.rules import RULES, Rule, adapters, model_limits
from tests.corpora import write_corpus, write_dialogues
from tests.devices.fake_nvml import GIB, FakeNvml
from tests.preflight.recipe_findings import recipe_findings
from tests.preflight.variants import VARIANTS, preferences
from tests.preflight.variants.variant import A100S, FOUR_D, PRETRAIN
from tests.recipes.test_rendered import PREFERENCE_TUNING, RECIPES, name
from tests.weights.lora_material import save_base


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """machine(cards, files): a folder with the recipes' data on a machine with those cards."""
    for variable in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)
    for corpus in ("data/corpus", "build/demo/data/corpus"):
        (tmp_path / corpus).parent.mkdir(parents=True)
        write_corpus(tmp_path / corpus)
    for dialogues in ("data", "build/demo-finetune/data"):
        write_dialogues(tmp_path / dialogues)
    monkeypatch.setattr(host, "free_bytes", lambda directory: 10**12)
    monkeypatch.setattr(memory, "available_bytes", lambda: 512 * GIB)

    def make(here, files=()):
        nvml = FakeNvml(here, has_driver=bool(here))
        for attribute in ("list_cards", "driver"):
            monkeypatch.setattr(gpus, attribute, lambda real=getattr(gpus, attribute): real(nvml))
        monkeypatch.setattr(gpus, "nvlink_pairs", lambda chosen, real=gpus.nvlink_pairs: real(chosen, nvml))
        monkeypatch.setattr(gpus, "paddle_build", lambda: "12.6")
        write_files(dict(files))

    return make


def write_files(files: dict) -> None:
    for path, text in files.items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text)


def matches(found: list, expected: tuple) -> bool:
    """Whether they are as many, and each has the subject and the part of the text expected, which may be of the fix."""
    return len(found) == len(expected) and all(
        one.subject == subject and part in f"{one.found}. Fix: {one.fix}"
        for one, (subject, part) in zip(found, expected, strict=True)
    )


def split(findings: list) -> tuple[list, list]:
    """(faults, announcements about flags), each in the order in which they are shown."""
    faults = [finding for finding in findings if not finding.ok]
    return faults, [finding for finding in findings if finding.ok and finding.subject.startswith("--")]


@pytest.mark.parametrize("recipe", RECIPES, ids=name)
def test_a_recipe_as_shipped_passes_on_the_machine_it_is_for(machine, recipe):
    machine(A100S[:8])
    if name(recipe) == "tiny/lora":
        save_base(Path("build/demo/model"), load_config("llama-rehearsal"))
    if recipe in PREFERENCE_TUNING:
        write_files(preferences.FILES)
    assert split(recipe_findings(name(recipe))) == ([], [])


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_variant(machine, variant):
    machine(variant.here, variant.files)
    faults, told = split(recipe_findings(variant.recipe, variant.argv, **variant.wishes))
    assert matches(faults, variant.faults), faults
    assert matches(told, variant.told), told
    assert all(fault.fix for fault in faults)


def test_there_are_forty_and_more():
    assert len(VARIANTS) >= 40


def test_wishes_that_cannot_be_met_are_refused_before(machine):
    machine(A100S)
    for wishes, message in [
        ({"DEVICES": "0,0"}, "names a card twice"),
        ({"GPUS": "3"}, "cannot be dealt to 3 cards"),
    ]:
        with pytest.raises(UserError, match=message):
            recipe_findings(PRETRAIN, **wishes)
    with pytest.raises(UserError, match="4 for each copy of the model. Possible: 4, 8, 16"):
        recipe_findings(FOUR_D, GPUS="6")


def test_two_nodes_worth_of_cards_keep_the_samples_of_a_step(machine):
    machine(A100S)
    findings = recipe_findings(FOUR_D, GPUS="16", ARGS="--tensor_parallel_degree 4")
    assert split(findings) == ([], [])
    [layout] = [finding.found for finding in findings if finding.subject == "layout"]
    assert layout == (
        "16 processes: sharding stage1 2 x tensor parallel 4 x pipeline parallel 2; 256 samples a step "
        "(data ranks 2 x micro batch 2 x accumulation 64)"
    )


def test_every_row_of_the_matrix_is_met(machine, monkeypatch):
    """All but those of model families, which have tests of their own, and of flags that pretraining does not have."""
    met = []
    monkeypatch.setattr(Rule, "finding", lambda rule, run, real=Rule.finding: met.append(rule) or real(rule, run))
    machine(A100S[:8])
    for variant in VARIANTS:
        write_files(variant.files)
        recipe_findings(variant.recipe, variant.argv, **variant.wishes)
    elsewhere = [*model_limits.FAMILY_RULES, *adapters.RULES, *(rule for rule in RULES if "lora" in rule.found)]
    missing = [(rule.flag, rule.found) for rule in RULES if rule not in met and rule not in elsewhere]
    assert not missing, "\n".join(map(str, missing))
