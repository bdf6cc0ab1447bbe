"""Shipped recipes and wrong variants of them, on pretended machines: exactly which findings appear."""

import shlex
from pathlib import Path

import pytest

from launch import preflight
from launch.families.named_configs import load_config
from launch.preflight import gpus, host, memory
from launch.preflight.report import Finding
from launch.preflight.requested import requested_run
from launch.preflight.rules import RULES, Rule, adapters, model_limits
from launch.recipe import parse_recipe
from tests.corpora import write_corpus, write_dialogues
from tests.devices.fake_nvml import GIB, FakeNvml
from tests.preflight.variants import A100S, PAIRS, VARIANTS
from tests.recipes.machine import ROOT
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
    for dialogues in ("data", "build/demo-finetune/data", "build/demo-grpo/prompts"):
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


def findings_of(recipe: str, argv: str = "", check=preflight.run, **wishes: str) -> list[Finding]:
    """What `recipes/RECIPE.sh ARGV` with these variables would show before anything starts."""
    recipe, own = parse_recipe([str(ROOT / "recipes" / f"{recipe}.sh"), *shlex.split(argv)])
    return check(requested_run(recipe, wishes, own=own)[0])


def matches(found: list, expected: list) -> bool:
    """Whether they are as many, and each has the subject and the part of the text expected, which may be of the fix."""
    return len(found) == len(expected) and all(
        one.subject == subject and part in f"{one.found}. Fix: {one.fix}"
        for one, (subject, part) in zip(found, expected, strict=True)
    )


def split(findings: list) -> tuple[list, list]:
    """(faults, announcements about flags), each in the order in which they are shown."""
    faults = [finding for finding in findings if not finding.ok]
    return faults, [finding for finding in findings if finding.ok and finding.subject.startswith("--")]


IN_MAKE_TEST = ("llama-7b/pretrain", "qwen2.5-7b/dpo-lora", "tiny/lora")
SHIPPED = [one if name(one) in IN_MAKE_TEST else pytest.param(one, marks=pytest.mark.long) for one in RECIPES]


@pytest.mark.parametrize("recipe", SHIPPED, ids=name)
def test_a_recipe_as_shipped_passes_on_the_machine_it_is_for(machine, recipe):
    machine(A100S[:8])
    if folder := {"tiny/lora": "build/demo/model", "tiny/grpo": "build/demo-grpo/base"}.get(name(recipe)):
        save_base(Path(folder), load_config("llama-rehearsal"))
    if recipe in PREFERENCE_TUNING:
        write_files(PAIRS)
    assert split(findings_of(name(recipe))) == ([], [])


def check_variant(machine, variant, check, **wishes) -> None:
    machine(variant.here, variant.files)
    faults, told = split(findings_of(variant.recipe, variant.argv, check, **wishes, **variant.wishes))
    assert matches(faults, variant.faults), faults
    assert matches(told, variant.told), told
    assert all(fault.fix for fault in faults)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_variant(machine, variant):
    if variant.of_flags_alone:
        check_variant(machine, variant, preflight.run_on_flags, FIT="off")
    else:
        check_variant(machine, variant, preflight.run)


@pytest.mark.nightly
@pytest.mark.parametrize("variant", [variant for variant in VARIANTS if variant.of_flags_alone], ids=str)
def test_no_other_check_says_more_of_a_variant(machine, variant):
    check_variant(machine, variant, preflight.run)


def test_every_rule_is_met_by_a_variant(tmp_path, monkeypatch):
    """All but those of model families, which have tests of their own, and of flags that pretraining does not have."""
    met = []
    monkeypatch.setattr(Rule, "finding", lambda rule, run, real=Rule.finding: met.append(rule) or real(rule, run))
    monkeypatch.chdir(tmp_path)
    for variant in VARIANTS:
        write_files(variant.files)
        findings_of(variant.recipe, variant.argv, preflight.run_on_flags, FIT="off", **variant.wishes)
    elsewhere = [*model_limits.FAMILY_RULES, *adapters.RULES, *(rule for rule in RULES if "lora" in rule.found)]
    missing = [(rule.flag, rule.found) for rule in RULES if rule not in met and rule not in elsewhere]
    assert not missing, "\n".join(map(str, missing))
