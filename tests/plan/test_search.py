"""Advice: which changes make a run fit, in which order, with which flags. Memory is a stand-in, time the real model."""

import shlex
from types import SimpleNamespace

import pytest

from launch import preflight
from launch.config.flag_values import flag_arguments, parse_flags
from launch.config.layout import Layout
from launch.config.run_config import RunConfig
from launch.plan import search
from launch.plan.hardware import CARDS
from launch.plan.job import Job, Offload
from launch.plan.search import Edit, candidates
from launch.plan.time_plan import plan_time
from launch.plan.variations import layouts, literature
from launch.preflight import proposals
from launch.preflight.proposals import advice_lines, changes_that_fit

CARD = CARDS["A100-80G"]
COMMON = "--output_dir out --per_device_train_batch_size 8 --gradient_accumulation_steps 4 --do_train 1"
PRETRAIN = f"--model_name_or_path facebook/llama-13b --max_seq_length 2048 --max_steps 10 --input_dir d {COMMON}"
LENGTHS = "--max_length 512 --src_length 384"
FINETUNE = f"--model_name_or_path facebook/llama-13b {LENGTHS} --dataset_name_or_path d {COMMON}"
GIB = 2**30


def run_of(words: str, processes: int, script: str = "launch/run_pretrain.py") -> RunConfig:
    return RunConfig(script, parse_flags(words.split()), processes=processes)


def edits(words: str, processes: int, script: str = "launch/run_pretrain.py") -> list[Edit]:
    run = run_of(words, processes, script)
    return list(literature(run, Job.from_run(run, CARD)))


def titles(*asked) -> list[str]:
    return [edit.title for edit in edits(*asked)]


def stub_memory(monkeypatch, needs):
    """needs: GiB of a job."""

    def plan_memory(job, card):
        size = needs(job) * GIB
        return SimpleNamespace(peak_bytes=size, fits=size <= card.memory_bytes, tight=False)

    monkeypatch.setattr(search, "bytes_if_far", lambda job, room: 0)
    monkeypatch.setattr(search, "plan_memory", plan_memory)


def test_the_list_is_in_the_literatures_order():
    asked = f"{FINETUNE} --do_eval 1", 4, "launch/finetune_generation.py"
    kinds = list(dict.fromkeys(edit.kind for edit in edits(*asked)))
    expected = "evaluation precision attention batch length sharding moments adapter recompute parallel model"
    assert kinds == expected.split()
    listed = titles(*asked)
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
    found = set(titles(f"{PRETRAIN} {words}", 4))
    assert offered <= found and not not_offered & found


def test_what_is_offloaded_is_offered_no_other_sharding():
    run = run_of(f"{PRETRAIN} --sharding stage2 --bf16 1 --fp16_opt_level O2", 4)
    job = Job.from_run(run, CARD)
    offloaded = job.changed(offload=Offload(optimizer=True, gradients=True))
    assert any(edit.kind == "sharding" for edit in literature(run, job))
    assert not any(edit.kind == "sharding" for edit in literature(run, offloaded))


def test_shorter_samples_keep_the_shares_of_question_and_answer():
    for lengths, flags in (
        (LENGTHS, {"max_length": "256", "src_length": "192"}),
        ("--max_length 512 --src_length 100", {"max_length": "256", "src_length": "50"}),
    ):
        asked = FINETUNE.replace(LENGTHS, lengths), 4, "launch/finetune_generation.py"
        (shorter,) = [edit for edit in edits(*asked) if edit.kind == "length"]
        assert shorter.flags == flags
    (shorter,) = [edit for edit in edits(PRETRAIN, 4) if edit.kind == "length"]
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
    [found] = candidates(run_of(PRETRAIN, 4), CARD, [(Edit("some", "kind", flags),)], 8 * 4 * 4)
    changed = found.flags
    assert changed["gradient_accumulation_steps"] == [accumulation]
    layout = Layout.from_flags(changed, 4)
    assert found.job == Job.from_flags("launch/run_pretrain.py", changed, 4, CARD)
    assert int(changed["per_device_train_batch_size"][0]) * int(accumulation) * layout.data_ranks == 8 * 4 * 4


def advise(words: str, processes: int, script: str = "launch/run_pretrain.py"):
    return changes_that_fit(run_of(words, processes, script), CARD, 8)


HALF = "--bf16 1 --fp16_opt_level O2 --use_flash_attention on"


def test_changes_fit_and_are_sorted_by_slowdown(monkeypatch):
    stub_memory(monkeypatch, lambda job: 10 * job.micro_batch + (0 if job.recompute else 30))
    found = advise(f"{PRETRAIN} {HALF}", 8)
    assert found and all(0 < change.candidate.peak_bytes <= CARD.memory_bytes for change in found)
    assert [round(change.slowdown, 2) for change in found] == sorted(round(change.slowdown, 2) for change in found)
    assert [change.title for change in found] == ["micro batch 4"]  # no pair that contains it
    assert found[0].arguments == "--per_device_train_batch_size 4 --gradient_accumulation_steps 8"
    assert found[0].slowdown > 1.0
    assert parse_flags([*f"{PRETRAIN} {HALF}".split(), *found[0].arguments.split()]) == found[0].candidate.flags


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
    changes = advise(f"{PRETRAIN} {HALF}", 8)
    assert [change.title for change in changes] == found and changes[0].arguments == arguments


def test_nothing_illegal_is_offered_and_ties_go_in_the_literatures_order(monkeypatch):
    """Stage 3 with tensor parallel is not, nor the word offload, which upstream mistakes."""
    stub_memory(monkeypatch, lambda job: 50 if job.layout.sharding == "stage3" else 100)
    found = advise(f"{PRETRAIN} {HALF} --tensor_parallel_degree 2", 8)
    assert found == []
    assert "no change of the list makes it fit" in advice_lines(found)[0]
    stub_memory(monkeypatch, lambda job: 50 if job.micro_batch < 8 or job.recompute else 100)
    same = SimpleNamespace(tokens_per_second=1.0)
    monkeypatch.setattr(search, "plan_time", lambda job, card: SimpleNamespace(spread=same))
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
    (smaller,) = [edit for edit in edits(words, 1, "launch/finetune_generation.py") if edit.kind == "model"]
    assert smaller.flags["model_name_or_path"] == smaller.flags["tokenizer_name_or_path"]
    assert smaller.flags["model_name_or_path"].startswith("facebook/")


def divided(words: str):
    """All candidates of 4 processes that are legal."""
    ways = candidates(run_of(words, 4), CARD, ((edit,) for edit in layouts(4)), 64, [1 << place for place in range(7)])
    return [way for way in ways if preflight.is_legal(way.run.with_explicit(way.flags))]


def test_all_divisions_are_tried_but_no_two_changes_of_a_kind():
    tried = {way.job.layout for way in divided(f"{PRETRAIN} {HALF}")}
    assert len(tried) == 12 and all(layout.processes == 4 for layout in tried)
    assert {layout.sharding for layout in tried} == {"", "stage1", "stage2", "stage3"}
    stages = tuple(Edit(stage, "sharding", {"sharding": stage}) for stage in ("stage1", "stage2"))
    assert list(candidates(run_of(PRETRAIN, 4), CARD, [stages], 128)) == []


def fastest(words: str, processes: int):
    return proposals.fastest_layouts(run_of(words, processes), CARD, 64)


def test_layouts_are_legal_different_fit_and_sorted_or_the_smallest_is_named(monkeypatch):
    stub_memory(monkeypatch, lambda job: 10 * job.micro_batch + 160 / job.layout.processes * job.layout.data_ranks)
    found = fastest(f"{PRETRAIN} {HALF}", 4)
    assert len({candidate.job.layout for candidate in found}) == len(found) == 3
    assert all(candidate.memory.fits for candidate in found)
    seconds = [candidate.time.step_seconds for candidate in found]
    assert seconds == sorted(seconds)
    for candidate in found:
        assert preflight.is_legal(run_of(PRETRAIN, 4).with_explicit(candidate.flags)), flag_arguments(candidate.flags)
        assert candidate.job == Job.from_flags("launch/run_pretrain.py", candidate.flags, 4, CARD)
        assert candidate.job.global_batch == 64
    stub_memory(monkeypatch, lambda job: 100 + job.micro_batch + (0 if job.recompute else 10))
    run = run_of(f"{PRETRAIN} {HALF}", 2)
    assert proposals.fastest_layouts(run, CARD, 8) == []
    smallest = proposals.smallest_layout(run, CARD, 8)
    assert (smallest.job.micro_batch, smallest.job.recompute) == (1, "full")


def test_what_is_faster_is_told_with_flags_that_make_it_so(monkeypatch):
    """One in the same layout and one in another, neither of which fits with a micro batch of 8 or more."""
    stub_memory(monkeypatch, lambda job: 10 * job.micro_batch)
    run = run_of(f"{PRETRAIN} {HALF} --tensor_parallel_degree 4 --recompute 1 --per_device_train_batch_size 1", 4)
    before = plan_time(Job.from_run(run, CARD), CARD)
    lines = proposals.faster_lines(proposals.faster_ways(run, CARD))
    assert lines[0].startswith("what is faster, with the same samples a step") and len(lines) == 5
    layouts = []
    for told, flags in zip(lines[1::2], lines[2::2], strict=True):
        words = shlex.split(flags.strip().removeprefix('ARGS="').removesuffix('"'))
        after = plan_time(Job.from_run(run.changed(parse_flags(words)), CARD), CARD)
        assert told.startswith(f"  x {before.step_seconds / after.step_seconds:4.2f}  ")
        assert before.job.global_batch == after.job.global_batch == 4 and after.job.micro_batch <= 4
        layouts.append(after.job.layout)
    assert sorted(layout == before.job.layout for layout in layouts) == [False, True]
    best = run.with_explicit(proposals.faster_ways(run, CARD)[0].candidate.flags)
    assert proposals.faster_ways(best, CARD) == []


@pytest.mark.long
def test_no_faster_layout_than_those_found_fits(monkeypatch):
    needs = {"stage3": 30, "stage2": 45, "stage1": 60, "": 100}
    stub_memory(monkeypatch, lambda job: needs[job.layout.sharding] + 10 * job.micro_batch)
    fitting = [
        way.seconds
        for way in divided(f"{PRETRAIN} {HALF}")
        if needs[way.job.layout.sharding] + 10 * way.job.micro_batch < 79.15
    ]
    assert fastest(f"{PRETRAIN} {HALF}", 4)[0].seconds == min(fitting)
