"""Advice: which changes make a run fit, in which order, with which flags. Memory is a stand-in, time the real model."""

import shlex
from types import SimpleNamespace

import pytest

from launch import preflight
from launch.config.flag_values import flag_words, parse_flags
from launch.config.layout import Layout
from launch.config.run_config import RunConfig
from launch.plan import changes
from launch.plan.changes import advice_lines, cheapest_changes
from launch.plan.edits import Edit, Requested, edits, with_edits
from launch.plan.hardware import CARDS
from launch.plan.job import Job, Offload

CARD = CARDS["A100-80G"]
COMMON = "--output_dir out --per_device_train_batch_size 8 --gradient_accumulation_steps 4 --do_train 1"
PRETRAIN = f"--model_name_or_path facebook/llama-13b --max_seq_length 2048 --max_steps 10 --input_dir d {COMMON}"
LENGTHS = "--max_length 512 --src_length 384"
FINETUNE = f"--model_name_or_path facebook/llama-13b {LENGTHS} --dataset_name_or_path d {COMMON}"
GIB = 2**30


def run_of(words: str, processes: int, script: str = "launch/run_pretrain.py") -> RunConfig:
    return RunConfig(script, parse_flags(words.split()), processes=processes)


def asked(words: str, processes: int, script: str = "launch/run_pretrain.py") -> Requested:
    run = run_of(words, processes, script)
    return Requested(run, Job.from_run(run, CARD))


def titles(run: Requested) -> list[str]:
    return [edit.title for edit in edits(run)]


def stub_memory(monkeypatch, needs):
    """needs: GiB of a job."""

    def plan_memory(job, card):
        size = needs(job) * GIB
        return SimpleNamespace(peak_bytes=size, fits=size <= card.memory_bytes)

    monkeypatch.setattr(changes, "least_bytes", lambda job: 0)
    monkeypatch.setattr(changes, "is_far_too_large", lambda job, room: False)
    monkeypatch.setattr(changes, "plan_memory", plan_memory)


def test_the_list_is_in_the_literatures_order():
    run = asked(f"{FINETUNE} --do_eval 1", 4, "launch/finetune_generation.py")
    kinds = list(dict.fromkeys(edit.kind for edit in edits(run)))
    expected = "evaluation precision attention batch length sharding moments adapter recompute parallel model"
    assert kinds == expected.split()
    listed = titles(run)
    assert listed.index("LoRA") < listed.index("QLoRA: a base of 4 bits")
    assert [title for title in listed if title.startswith("sharding")] == [
        "sharding stage1",
        "sharding stage2",
        "sharding stage2, optimizer in host memory between steps",
        "sharding stage2 with offload",
        "sharding stage3",
        "sharding stage3, optimizer in host memory between steps",
        "sharding stage3 with offload",
    ]


@pytest.mark.parametrize(
    ("words", "offered", "not_offered"),
    [
        (
            "--bf16 1 --fp16_opt_level O2 --use_flash_attention on --recompute 1 --sharding stage2 "
            "--tensor_parallel_degree 2",
            {"sharding stage3", "tensor parallel 4", "pipeline parallel 2"},
            {"16 bit", "flash attention", "recompute full", "sharding stage1", "tensor parallel 2"},
        ),
        ("", {"sharding stage2 with offload"}, {"LoRA", "QLoRA: a base of 4 bits"}),  # pretraining
        # There is no optimizer to speak of, but the base can lie in host memory or in 4 bits.
        (
            "--lora 1",
            {"sharding stage3 with offload", "QLoRA: a base of 4 bits"},
            {"sharding stage2 with offload", "LoRA"},
        ),
    ],
)
def test_what_helps_and_is_not_done_is_offered(words, offered, not_offered):
    found = set(titles(asked(f"{PRETRAIN} {words}", 4)))
    assert offered <= found and not not_offered & found


def test_what_is_offloaded_is_offered_no_other_sharding():
    run = asked(f"{PRETRAIN} --sharding stage2 --bf16 1 --fp16_opt_level O2", 4)
    words = run.run.words | {"sharding": ["stage2", "offload"]}
    job = run.job.changed(offload=Offload(optimizer=True, gradients=True))
    offloaded = Requested(run.run.with_words(words), job)
    assert any(title.startswith("sharding") for title in titles(run))
    assert not any(title.startswith("sharding") for title in titles(offloaded))


def test_shorter_samples_keep_the_shares_of_question_and_answer():
    for lengths, flags in (
        (LENGTHS, {"max_length": "256", "src_length": "192"}),
        ("--max_length 512 --src_length 100", {"max_length": "256", "src_length": "50"}),
    ):
        run = asked(FINETUNE.replace(LENGTHS, lengths), 4, "launch/finetune_generation.py")
        (shorter,) = [edit for edit in edits(run) if edit.kind == "length"]
        assert shorter.flags == flags
    (shorter,) = [edit for edit in edits(asked(PRETRAIN, 4)) if edit.kind == "length"]
    assert shorter.flags == {"max_seq_length": "1024"}


@pytest.mark.parametrize(
    ("flags", "accumulation"),
    [
        ({"per_device_train_batch_size": "2"}, "16"),
        ({"tensor_parallel_degree": "4"}, "16"),
        ({"per_device_train_batch_size": "4", "tensor_parallel_degree": "2"}, "16"),
        ({"sharding": "stage2"}, "4"),
    ],
)
def test_a_change_keeps_the_samples_of_a_step(flags, accumulation):
    changed = with_edits(asked(PRETRAIN, 4), (Edit("some", "kind", flags),))
    assert changed["gradient_accumulation_steps"] == [accumulation]
    layout = Layout.from_flags(changed, 4)
    assert int(changed["per_device_train_batch_size"][0]) * int(accumulation) * layout.data_ranks == 8 * 4 * 4


def advise(words: str, processes: int, script: str = "launch/run_pretrain.py"):
    return cheapest_changes(run_of(words, processes, script), CARD, preflight.is_legal)


HALF = "--bf16 1 --fp16_opt_level O2 --use_flash_attention on"


def test_changes_fit_and_are_sorted_by_slowdown(monkeypatch):
    stub_memory(monkeypatch, lambda job: 10 * job.micro_batch + (0 if job.recompute else 30))
    found = advise(f"{PRETRAIN} {HALF}", 8)
    assert found and all(0 < change.peak_bytes <= CARD.memory_bytes for change in found)
    assert [round(change.slowdown, 2) for change in found] == sorted(round(change.slowdown, 2) for change in found)
    assert [change.title for change in found] == ["micro batch 4"]  # no pair that contains it
    assert found[0].arguments == "--per_device_train_batch_size 4 --gradient_accumulation_steps 8"
    assert found[0].slowdown > 1.0
    assert parse_flags([*f"{PRETRAIN} {HALF}".split(), *found[0].arguments.split()]) == found[0].flags


@pytest.mark.parametrize(
    ("needs", "found", "arguments"),
    [
        (  # a pair where no single change but one is enough
            lambda job: 10 * job.micro_batch + (0 if job.recompute == "full" else 60),
            ["micro batch 1", "micro batch 4 + recompute full"],
            "--per_device_train_batch_size 1 --gradient_accumulation_steps 32",
        ),
        (  # a triple where no pair is
            lambda job: (
                200 - 50 * ((job.recompute == "full") + (job.micro_batch == 1) + (job.layout.sharding == "stage3"))
            ),
            ["micro batch 1 + sharding stage3 + recompute full"],
            "--per_device_train_batch_size 1 --gradient_accumulation_steps 32 --sharding stage3 "
            "--recompute 1 --recompute_granularity full",
        ),
    ],
)
def test_changes_are_combined_where_one_is_not_enough(monkeypatch, needs, found, arguments):
    stub_memory(monkeypatch, needs)
    changes_found = advise(f"{PRETRAIN} {HALF}", 8)
    assert [change.title for change in changes_found] == found and changes_found[0].arguments == arguments


def test_nothing_illegal_is_offered_and_ties_go_in_the_literatures_order(monkeypatch):
    """Stage 3 with tensor parallel is not, nor the word offload, which upstream mistakes."""
    stub_memory(monkeypatch, lambda job: 50 if job.layout.sharding == "stage3" else 100)
    found = advise(f"{PRETRAIN} {HALF} --tensor_parallel_degree 2", 8)
    assert found == []
    assert "no change of the list makes it fit" in advice_lines(found)[0]
    stub_memory(monkeypatch, lambda job: 50 if job.micro_batch < 8 or job.recompute else 100)
    monkeypatch.setattr(changes, "_seconds_a_token", lambda job, card: 1.0)
    assert [change.title for change in advise(f"{PRETRAIN} {HALF}", 8)] == ["micro batch 4", "recompute core_attn"]


def test_what_else_is_trained_is_said(monkeypatch):
    stub_memory(monkeypatch, lambda job: 100 if job.trains_all else 20)
    found = advise(f"{FINETUNE} {HALF}", 1, "launch/finetune_generation.py")
    lines = advice_lines(found)
    assert [change.title for change in found] == ["LoRA"]
    assert lines[1].endswith("LoRA") and lines[1].split()[1:3] == ["20.0", "GiB"]
    assert lines[2].strip() == "adapters are trained, the model is frozen"
    assert lines[3].strip() == 'ARGS="--lora 1"'


def test_a_smaller_model_brings_its_tokenizer_and_is_combined_only_where_nothing_else_helps(monkeypatch):
    words = f"{PRETRAIN} {HALF}"
    stub_memory(monkeypatch, lambda job: 10 * job.micro_batch + (0 if job.config["num_hidden_layers"] < 40 else 100))
    found = advise(words, 8)
    assert found and all("smaller model" in change.title for change in found)
    stub_memory(monkeypatch, lambda job: 10 * job.micro_batch + (30 if job.recompute else 60))
    assert not [change for change in advise(words, 8) if "smaller model" in change.title]
    words = f"{FINETUNE} --tokenizer_name_or_path facebook/llama-13b"
    (smaller,) = [edit for edit in edits(asked(words, 1, "launch/finetune_generation.py")) if edit.kind == "model"]
    assert smaller.flags["model_name_or_path"] == smaller.flags["tokenizer_name_or_path"]
    assert smaller.flags["model_name_or_path"].startswith("facebook/")


def test_all_divisions_are_tried_but_no_two_changes_of_a_kind():
    ways = changes._timed(run_of(f"{PRETRAIN} {HALF}", 4), CARD, preflight.is_legal, 64)
    tried = {time.job.layout for time, _ in ways}
    assert len(tried) == 12 and all(layout.processes == 4 for layout in tried)
    assert {layout.sharding for layout in tried} == {"", "stage1", "stage2", "stage3"}
    stages = tuple(Edit(stage, "sharding", {"sharding": stage}) for stage in ("stage1", "stage2"))
    assert with_edits(asked(PRETRAIN, 4), stages) is None


def fastest(words: str, processes: int):
    return changes.fastest_layouts(run_of(words, processes), CARD, preflight.is_legal, 64)


def test_layouts_are_legal_different_fit_and_sorted_or_the_smallest_is_named(monkeypatch):
    stub_memory(monkeypatch, lambda job: 10 * job.micro_batch + 160 / job.layout.processes * job.layout.data_ranks)
    found = fastest(f"{PRETRAIN} {HALF}", 4)
    assert len({candidate.job.layout for candidate in found}) == len(found) == 3
    assert all(candidate.memory.fits for candidate in found)
    seconds = [candidate.time.step_seconds for candidate in found]
    assert seconds == sorted(seconds)
    for candidate in found:
        assert preflight.is_legal(run_of(PRETRAIN, 4).with_words(candidate.flags)), flag_words(candidate.flags)
        assert candidate.job == Job.from_flags("launch/run_pretrain.py", candidate.flags, 4, CARD)
        assert candidate.job.global_batch == 64
    stub_memory(monkeypatch, lambda job: 100 + job.micro_batch + (0 if job.recompute else 10))
    run = run_of(f"{PRETRAIN} {HALF}", 2)
    assert changes.fastest_layouts(run, CARD, preflight.is_legal, 8) == []
    smallest = changes.smallest_layout(run, CARD, preflight.is_legal, 8)
    assert (smallest.job.micro_batch, smallest.job.recompute) == (1, "full")


def test_what_is_faster_is_told_with_flags_that_make_it_so(monkeypatch):
    """One in the same layout and one in another, neither of which fits with a micro batch of 8 or more."""
    stub_memory(monkeypatch, lambda job: 10 * job.micro_batch)
    run = run_of(f"{PRETRAIN} {HALF} --tensor_parallel_degree 4 --recompute 1 --per_device_train_batch_size 1", 4)
    before = changes.plan_time(Job.from_run(run, CARD), CARD)
    lines = changes.faster_lines(run, changes.faster_ways(run, CARD, preflight.is_legal))
    assert lines[0].startswith("what is faster, with the same samples a step") and len(lines) == 5
    layouts = []
    for told, flags in zip(lines[1::2], lines[2::2], strict=True):
        words = shlex.split(flags.strip().removeprefix('ARGS="').removesuffix('"'))
        after = changes.plan_time(Job.from_run(run.with_words(run.words | parse_flags(words)), CARD), CARD)
        assert told.startswith(f"  x {before.step_seconds / after.step_seconds:4.2f}  ")
        assert before.job.global_batch == after.job.global_batch == 4 and after.job.micro_batch <= 4
        layouts.append(after.job.layout)
    assert sorted(layout == before.job.layout for layout in layouts) == [False, True]
    best = run.with_words(changes.faster_ways(run, CARD, preflight.is_legal)[0][1].flags)
    assert changes.faster_lines(best, changes.faster_ways(best, CARD, preflight.is_legal)) == []


@pytest.mark.long
def test_no_faster_layout_than_those_found_fits(monkeypatch):
    needs = {"stage3": 30, "stage2": 45, "stage1": 60, "": 100}
    stub_memory(monkeypatch, lambda job: needs[job.layout.sharding] + 10 * job.micro_batch)
    ways = [way for way in changes._timed(run_of(f"{PRETRAIN} {HALF}", 4), CARD, preflight.is_legal, 64)]
    fitting = [time for time, _ in ways if needs[time.job.layout.sharding] + 10 * time.job.micro_batch < 79.15]
    assert fastest(f"{PRETRAIN} {HALF}", 4)[0].time.step_seconds == min(time.step_seconds for time in fitting)
