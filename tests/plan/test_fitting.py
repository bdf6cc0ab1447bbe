"""FIT: what a recipe's own flags become on its cards, on others, and beside the user's."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from launch import preflight
from launch.config.recipe_file import Recipe, recipe_paths
from launch.config.run_config import RunConfig
from launch.families.named_configs import load_config
from launch.plan import search
from launch.plan.hardware import CARDS
from launch.plan.job import Job, Offload
from launch.plan.memory_model import host_bytes
from launch.plan.time_plan import plan_time
from launch.plan.variations import literature
from launch.preflight import proposals
from launch.preflight.proposals import SPARE, fastest_layouts, fit
from launch.preflight.requested import card_of_plan, requested_run
from tests.recipes.machine import ROOT

ON_CARDS = {f"{path.parent.name}/{path.stem}": path for path in recipe_paths(ROOT) if Recipe.load(path).gpus}


def recipe_run(name: str, args: str = "", **variables: str) -> RunConfig:
    return requested_run(Recipe.load(ON_CARDS[name]), variables | {"ARGS": args})[0]


def batch(run: RunConfig) -> tuple[int, int]:
    return run.flags.per_device_train_batch_size, run.flags.gradient_accumulation_steps


IN_EVERY_RUN = {"llama-7b/pretrain", "qwen3-8b/qlora", "chatglm2-6b/full-2gpu", "baichuan-13b/lora-2gpu"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in IN_EVERY_RUN else [pytest.mark.long]) for name in ON_CARDS]
)
def test_a_recipe_is_as_fast_as_the_best_that_make_fit_finds_in_its_layout(name, monkeypatch):
    """Within 5 %; as it stands, it is fitted to its hardware within a tenth."""
    run, stated = recipe_run(name), recipe_run(name, FIT="off")
    card = card_of_plan(run)

    def same_kind(other: RunConfig) -> bool:
        sequence = bool(other.flags.sequence_parallel) == bool(run.flags.sequence_parallel)
        return other.layout == run.layout and sequence and legal(other)

    legal = preflight.is_legal
    monkeypatch.setattr(preflight, "is_legal", same_kind)
    spared = replace(card, memory_bytes=int((1 - SPARE) * card.memory_bytes))
    best = fastest_layouts(run, spared, run.global_batch)[0].time.tokens_per_second
    ours, as_it_stands = (plan_time(Job.from_run(one, card), card).tokens_per_second for one in (run, stated))
    assert ours >= 0.95 * best
    assert as_it_stands >= 0.9 * ours


def test_a_larger_card_is_used_with_nothing_in_host_memory():
    small, large = (recipe_run("llama-7b/lora", GPU_MEMORY_GB=size) for size in ("24", "80"))
    assert batch(small)[0] < batch(large)[0]
    assert not large.flags.recompute
    run = recipe_run("chatglm2-6b/full-2gpu", GPU_MEMORY_GB="80")
    assert run.flags.sharding == "stage2"
    assert run.fitted["sharding"] == ["stage2"]
    given = recipe_run("chatglm2-6b/full-2gpu", '--sharding "stage2 offload"', GPU_MEMORY_GB="80")
    assert given.flags.sharding == "stage2 offload"


def test_as_many_answers_are_sampled_at_once_as_there_is_memory_for():
    runs = [recipe_run("qwen3-4b/grpo-qlora", GPU_MEMORY_GB=size) for size in ("16", "24", "80")]
    assert [run.flags.sampled_at_once for run in runs] == [32, 64, 128], "of 128 answers a step"
    assert recipe_run("qwen3-4b/grpo-qlora", "--sampled_at_once 8", GPU_MEMORY_GB="80").flags.sampled_at_once == 8
    [*fewer] = [edit.flags for edit in literature(runs[1], Job.from_run(runs[1])) if edit.kind == "sampling"]
    assert fewer == [{"sampled_at_once": size} for size in ("32", "16", "8")], "where it does not fit"


@pytest.mark.parametrize(
    ("args", "kept"),
    [
        ("--recompute 1", {"recompute", "recompute_granularity"}),
        ("--per_device_train_batch_size 8", {"per_device_train_batch_size", "gradient_accumulation_steps"}),
        ("--gradient_accumulation_steps 8", {"per_device_train_batch_size", "gradient_accumulation_steps"}),
    ],
)
def test_what_the_user_has_given_stays(args, kept):
    run, asked = (recipe_run("llama-7b/qlora", args, GPU_MEMORY_GB="16", FIT=fit) for fit in ("", "off"))
    assert not kept & set(run.fitted)
    assert {name: run.explicit.get(name) for name in kept} == {name: asked.explicit.get(name) for name in kept}
    assert asked.fitted is None


def test_the_micro_batch_stays_where_noise_depends_on_its_padding():
    run = recipe_run("llama-7b/lora", "--neftune 1 --zero_padding 0", GPU_MEMORY_GB="80")
    packed = recipe_run("llama-7b/lora", "--neftune 1 --zero_padding 1", GPU_MEMORY_GB="80")
    stated = recipe_run("llama-7b/lora", FIT="off")
    assert batch(run) == batch(stated) != batch(packed)


@pytest.fixture
def anything_is_legal(monkeypatch):
    monkeypatch.setattr(preflight, "is_legal", lambda run: True)


@pytest.mark.usefixtures("anything_is_legal")
def test_the_micro_batch_stays_where_a_loss_is_a_mean_over_it(tmp_path):
    """The auxiliary loss of experts, which pretraining adds and fine-tuning leaves out; a line says so."""

    def fitted(name: str, trained: bool):
        (tmp_path / "config.json").write_text(json.dumps(EXPERTS | {"output_router_logits": trained}))
        return fit(recipe_run(name, MODEL=str(tmp_path), FIT="off"), CARD)

    kept = fitted("llama-7b/pretrain", True)
    assert "batch" not in kept.after.kinds
    assert kept.lines()[0] == (
        "micro batch 4 x accumulation 8 stays as it is: "
        "the auxiliary loss of the experts is a mean over the micro batch"
    )
    for other in (fitted("llama-7b/pretrain", False), fitted("llama-7b/lora", True)):
        assert "batch" in other.after.kinds and not other.batch_stays


JOB = recipe_run("llama-7b/lora", FIT="off")
CARD = CARDS["A100-40G"]
EXPERTS = load_config("qwen2-moe-rehearsal")


def with_memory(monkeypatch, needs) -> None:
    """needs: the share of the card that a job takes at its peak."""

    def plan(job, card):
        return SimpleNamespace(peak_bytes=int(needs(job) * CARD.memory_bytes))

    monkeypatch.setattr(search, "plan_memory", plan)
    monkeypatch.setattr(search, "bytes_if_far", lambda job, room: 0)


@pytest.mark.usefixtures("anything_is_legal")
def test_last_resorts_are_the_spared_share_and_a_smaller_evaluation_batch(monkeypatch):
    with_memory(monkeypatch, lambda job: 2.0)
    assert fit(JOB, CARD).after.changes == {}  # the check of the memory offers what alters the training
    with_memory(monkeypatch, lambda job: 0.99 if job.recompute == "full" and job.micro_batch == 1 else 1.2)
    fitted = fit(JOB, CARD)
    assert fitted.after.changes["recompute_granularity"] == ["full"]
    assert fitted.after.changes["per_device_train_batch_size"] == ["1"]
    with_memory(monkeypatch, lambda job: 0.5 if job.eval_batch == 1 else 1.2)
    fitted = fit(JOB, CARD)
    assert fitted.after.changes["per_device_eval_batch_size"] == ["1"]
    assert fitted.lines()[-1].startswith("evaluation batch 1: ")


@pytest.mark.usefixtures("anything_is_legal")
def test_more_is_kept_in_host_memory_only_where_nothing_fits_without(monkeypatch):
    run = recipe_run("chatglm2-6b/full-2gpu", FIT="off")
    run = run.changed({"sharding": ["stage2"]})
    with_memory(monkeypatch, lambda job: 0.5 if job.offload.optimizer or job.micro_batch == 1 else 1.2)
    fitted = fit(run, CARD)
    assert fitted.after.changes["per_device_train_batch_size"] == ["1"] and not fitted.after.job.offload.optimizer
    with_memory(monkeypatch, lambda job: 0.5 if job.offload.optimizer else 1.2)
    assert fit(run, CARD).after.job.offload.optimizer
    assert fit(run, CARD, host_bytes=2**30).after.changes == {}


def test_activations_are_kept_in_host_memory_only_where_nothing_else_is_enough(monkeypatch):
    """Where the host has room for those of one sample; with fewer samples at once, or the optimizer there, if that is
    enough."""
    run = recipe_run("llama-7b/finetune-stage2", FIT="off")
    with_memory(monkeypatch, lambda job: 0.5 if job.offload.activations and job.micro_batch == 1 else 1.2)
    fitted = fit(run, CARD)
    words = fitted.after.changes
    assert words["offload"] == ["activations"] and words["recompute_granularity"] == ["full"]
    assert fitted.lines()[0].startswith("recompute full, activations in host memory: ")
    needed = sum(host_bytes(fitted.after.job).values())
    assert fit(run, CARD, needed).after.changes == words
    assert fit(run, CARD, needed - 1).after.changes == {}
    with_memory(monkeypatch, lambda job: 0.5 if job.offload.activations or job.offload.optimizer else 1.2)
    assert not fit(run, CARD).after.job.offload.activations
    with_memory(monkeypatch, lambda job: 0.5 if job.offload.activations or job.micro_batch == 1 else 1.2)
    assert fit(run, CARD).after.job.offload == Offload()


@pytest.mark.usefixtures("anything_is_legal")
def test_a_change_is_worth_it_and_allowed(monkeypatch):
    """A larger micro batch is faster by 4 %."""
    with_memory(monkeypatch, lambda job: 0.5)
    assert fit(JOB, CARD).after.changes == {}
    monkeypatch.setattr(proposals, "WORTH", 0.03)
    assert fit(JOB, CARD).after.changes["per_device_train_batch_size"] == ["16"]
    with_memory(monkeypatch, lambda job: 1.2 if job.recompute == "" else 0.5)
    monkeypatch.setattr(preflight, "is_legal", lambda run: run.flags.recompute_granularity != "core_attn")
    fitted = fit(JOB, CARD)
    assert fitted.after.job.recompute == "full_attn"


def test_each_change_is_told_with_its_effect():
    fitted = fit(recipe_run("llama-7b/lora", FIT="off"), CARDS["4090"])
    lines = fitted.lines()
    assert len(lines) == len(fitted.after.edits) == 1
    before, after = (f"{way.peak_bytes / 2**30:.1f}" for way in (fitted.before, fitted.after))
    seconds = f"{fitted.after.seconds / fitted.before.seconds:.2f}"
    assert lines[0].endswith(f": {before} -> {after} GiB, time a token x {seconds}")
