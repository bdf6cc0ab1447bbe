"""The time model: published speeds, laws that any such model has to keep, and the run that took 50 days."""

import builtins
import json
import re
import statistics
from math import ceil, floor, fsum

import pytest

from benchmarks import plan_speed
from benchmarks.page import shown
from benchmarks.published import ROWS
from launch.config.flag_values import parse_flags
from launch.config.layout import Layout
from launch.config.run_config import RunConfig
from launch.families.named_configs import load_config
from launch.methods.preference_flags import PRECOMPUTED, SECOND_COPY
from launch.plan.hardware import CARDS
from launch.plan.job import BFLOAT16, FLOAT16, FLOAT32, Job, Lora, Offload, Prefix
from launch.plan.plan_report import duration, duration_of, speed_of, time_lines
from launch.plan.search import Candidate
from launch.plan.time_plan import (
    ACCUMULATE,
    ATTENTION,
    BUBBLE,
    ELEMENTWISE,
    GATHER,
    HOST,
    LARGE_SHARES,
    LOGITS,
    OFFLOAD,
    PRODUCTS,
    PUBLIC_SHARES,
    RECOMPUTE,
    REDUCE,
    SAMPLING_SHARES,
    SHARING,
    TENSOR,
    TimePlan,
    plan_time,
)
from launch.plan.work import ROW_PARALLEL, Pace, Work
from launch.tape.quantized import Format
from tests.store import ROOT

A100 = CARDS["A100-80G"]
JOB = Job(
    config=load_config("llama-7b"),
    layout=Layout(1, 1, 1, 1, ""),
    micro_batch=4,
    accumulation=8,
    sequence_length=2048,
    compute=FLOAT16,
    amp="O2",
    master_weights=True,
    flash_attention=True,
)


def longest(plan: TimePlan) -> str:
    return max(plan.parts, key=plan.parts.get)


def ids(row):
    return f"{row.source} {row.name}"


def test_published_speeds_are_met_and_the_range_is_theirs():
    large, small = ({ids(row): abs(plan_speed.error(row)) for row in ROWS if row.source in of} for of in ("AB", "C"))
    assert max(large.values()) < 0.15 and statistics.median(large.values()) < 0.05, large
    assert max(small.values()) < 0.40, small
    large = [row for row in ROWS if row.source in "AB"]
    assert [row for row in ROWS if plan_time(row.job, CARDS[row.card]).shares == LARGE_SHARES] == large
    found = [row.tokens_per_second / plan_speed.estimate(row) for row in large]
    assert (floor(100 * min(found)) / 100, ceil(100 * max(found)) / 100) == LARGE_SHARES


def test_recompute_costs_the_forward_pass_again():
    plain, again = plan_time(JOB, A100), plan_time(JOB.changed(recompute="full"), A100)
    assert again.parts[PRODUCTS] == plain.parts[PRODUCTS]
    assert again.parts[RECOMPUTE] == pytest.approx(plain.parts[PRODUCTS] / 3, rel=0.35)
    assert again.step_seconds - plain.step_seconds == pytest.approx(again.parts[RECOMPUTE], rel=0.01)
    kinds = ("", "core_attn", "full_attn", "full")
    seconds = [plan_time(JOB.changed(recompute=kind), A100).step_seconds for kind in kinds]
    assert seconds == sorted(seconds) and len(set(seconds)) == 4


def test_days_tokens_and_the_bubble_are_those_of_the_step():
    plan = plan_time(JOB.changed(layout=Layout(1, 1, 1, 4, "")), A100)
    once_a_step = sum(plan.parts.get(part, 0) for part in ("optimizer", HOST))
    assert plan.parts[BUBBLE] / (plan.step_seconds - once_a_step) == pytest.approx(3 / (8 + 3), rel=1e-6)
    assert longest(plan_time(JOB.changed(config=load_config("llama-tiny"), micro_batch=1), A100)) == HOST
    plan = plan_time(JOB.changed(layout=Layout(8, 1, 1, 1, "")), A100)
    assert plan.tokens_per_second == pytest.approx(8 * 4 * 8 * 2048 / plan.step_seconds)
    assert plan.days(256 * 86400) == pytest.approx(plan.step_seconds)
    assert plan.mfu == pytest.approx(plan.tokens_per_second_per_card * 6 * 6607339520 / 312e12, rel=1e-3)


def test_tensor_parallel_collectives_send_what_an_all_reduce_sends():
    """One for each of the seven linear layers: of the outputs of two, of the input's gradient of five."""
    four = JOB.changed(layout=Layout(1, 1, 4, 1, ""))
    size = 4 * 2048 * 4096 * 2 * 2 * 3 / 4  # tokens x hidden x fp16, 2 (n - 1) / n
    each = size / (300e9 * 0.65) + 20e-6
    assert plan_time(four, A100).parts[TENSOR] == pytest.approx(8 * 32 * 7 * each)
    assert plan_time(four.changed(recompute="full"), A100).parts[TENSOR] == pytest.approx(8 * 32 * 9 * each)
    sequence = plan_time(four.changed(sequence_parallel=True), A100).parts[TENSOR]
    assert sequence == pytest.approx(8 * 32 * 7 * (each + 20e-6))
    assert TENSOR not in plan_time(JOB, A100).parts


def test_ranks_that_share_samples_send_all_but_their_own_part():
    """Queries, keys, values and outputs, both ways, and each is put in order twice."""
    two = JOB.changed(layout=Layout(2, 1, 1, 1, "", 2), flash_attention=True)
    size = 4 * 1024 * 4 * 4096 * 2  # tokens x tensors x hidden x fp16
    each = size / 2 / (300e9 * 0.65) + 4 * 20e-6 + 4 * size / (2039e9 * 0.8)
    plan = plan_time(two, A100)
    assert plan.parts[SHARING] == pytest.approx(8 * 32 * 2 * each)
    assert plan_time(two.changed(recompute="full"), A100).parts[SHARING] == pytest.approx(8 * 32 * 3 * each)
    whole = plan_time(JOB.changed(flash_attention=True), A100)
    assert plan.parts[ATTENTION] == pytest.approx(whole.parts[ATTENTION] / 2)
    assert plan.tokens == whole.tokens and not plan.calibrated


def test_what_overlaps_is_no_more_than_the_products_that_hide_it():
    """Over PCIe no product is as long as its collective; on NVLink those of large weights are."""
    four = JOB.changed(layout=Layout(1, 1, 4, 1, ""))
    for card in (A100, CARDS["4090"]):
        plain, beside = (plan_time(four.changed(tensor_parallel_overlap=on), card) for on in (False, True))
        work = Work(four, Pace(card, FLOAT16, 2))
        each = plain.parts[TENSOR] / 8 / 32 / 7
        hidden = [min(each, work.product(linear)) for linear in work.linear if linear.module not in ROW_PARALLEL]
        assert len(hidden) == 5
        assert plain.parts[TENSOR] - beside.parts[TENSOR] == pytest.approx(8 * 32 * sum(hidden))
        assert plain.parts.keys() == beside.parts.keys()


def test_a_fused_rotary_embedding_reads_and_writes_once():
    plain, fused = (plan_time(JOB.changed(fused_rope=on), A100).parts[ELEMENTWISE] for on in (False, True))
    saved = 3 * (11 - 2) * (4096 + 4096) * 4 * 2048 * 2  # forward and twice backward, of queries and keys in fp16
    assert plain - fused == pytest.approx(8 * 32 * saved / (2039e9 * 0.8))


def test_what_sharding_sends():
    layout = Layout(1, 4, 1, 1, "stage3")
    plain = plan_time(JOB.changed(layout=layout), A100).parts[GATHER]
    assert plain == pytest.approx(8 * (2 * 6738415616 * 2 * 3 / 4 / (300e9 * 0.65) + 2 * 224 * 20e-6))
    assert plan_time(JOB.changed(layout=layout, recompute="full"), A100).parts[GATHER] == pytest.approx(1.5 * plain)
    seconds = {
        stage: plan_time(JOB.changed(layout=Layout(1, 4, 1, 1, stage)), A100).parts[REDUCE]
        for stage in ("stage1", "stage2")
    }
    assert seconds["stage2"] / seconds["stage1"] == pytest.approx((8 + 1) / 2, rel=0.01)


def test_gradients_of_further_micro_batches_are_read_and_added_and_float32_ones_widened_first():
    """6.7 billion of 2 bytes: two read, one written, seven times of eight; in float32 12 bytes, and 6 each time."""
    size = 6738415616 / (2039e9 * 0.8)
    stage2 = JOB.changed(layout=Layout(1, 4, 1, 1, "stage2"))  # a quarter of them
    assert plan_time(JOB, A100).parts[ACCUMULATE] == pytest.approx(7 * 6 * size)
    assert plan_time(stage2, A100).parts[ACCUMULATE] == pytest.approx(7 * 6 * size / 4)
    assert ACCUMULATE not in plan_time(JOB.changed(accumulation=1), A100).parts
    master = plan_time(stage2.changed(master_gradients=True), A100).parts[ACCUMULATE]
    assert master == pytest.approx((7 * 12 / 4 + 8 * 6) * size)


@pytest.mark.parametrize(
    ("changes", "moved"),
    [
        ({}, 24 + 2 + 6 * 2),
        ({"compute": BFLOAT16}, 24 + 2 + 4 * 2),
        ({"compute": BFLOAT16, "master_gradients": True}, 24 + 2 + 4 * 4),
        ({"compute": FLOAT32, "master_weights": False}, 24 + 4 * 4),
    ],
)
def test_adamw_moves_states_and_the_gradient_by_its_width(changes, moved):
    """float16 gradients are unscaled first: one more reading and writing."""
    seconds = plan_time(JOB.changed(**changes), A100).parts["optimizer"]
    assert seconds == pytest.approx(6738415616 * moved / (2039e9 * 0.8))


def test_chunks_of_the_loss_have_shorter_products_and_sum_the_heads_gradient():
    """4 chunks of 2048 tokens: 18 bytes a weight of the head for each and 18 at the end; none where it is frozen."""
    whole = JOB.changed(accumulation=1, loss_chunk_tokens="off")
    chunked = whole.changed(loss_chunk_tokens="2048")
    added = {
        adapter: plan_time(chunked.changed(adapter=adapter), A100).parts[LOGITS]
        - plan_time(whole.changed(adapter=adapter), A100).parts[LOGITS]
        for adapter in (None, Lora(8, ("q_proj",)))
    }
    flops, rate = 2 * 8192 * 4096 * 32000, 312e12 * 0.85 * 4096 / 4496 * 32000 / 32400
    longer = flops / rate * (2448 / 2048 - 8592 / 8192)
    assert added[None] == pytest.approx(3 * longer + 4096 * 32000 * (4 * 18 + 18) / (2039e9 * 0.8))
    assert added[Lora(8, ("q_proj",))] == pytest.approx(2 * longer)
    at_once = plan_time(chunked.changed(loss_chunk_tokens="8192"), A100).parts[LOGITS]
    assert at_once == plan_time(whole, A100).parts[LOGITS]


def test_flash_attention_with_alibi_and_with_a_mask():
    """136 elements, for which the kernel is that of 160."""
    alibi = JOB.changed(accumulation=1, config=JOB.config | {"alibi": True})
    scores = 4 * 2048 * 2048 * 32 * 32  # samples, tokens, keys, heads, layers
    flops = 3.5 * 4 * 128 * scores / (312e12 * 0.5)
    assert plan_time(JOB.changed(accumulation=1), A100).parts["attention"] == pytest.approx(flops / 2)
    assert plan_time(alibi, A100).parts["attention"] == pytest.approx(flops / 2 * 160 / 128)
    # Forward once, backward once.
    job = JOB.changed(micro_batch=1, accumulation=1)
    causal, masked = (plan_time(one, A100).parts["attention"] for one in (job, job.changed(dense_mask=True)))
    heads, layers = job.config["num_attention_heads"], job.config["num_hidden_layers"]
    read = layers * 2 * heads * job.sequence_length**2 * job.item / job.layout.tensor_parallel_degree
    assert masked == pytest.approx(2 * causal + Pace(A100, job.compute, job.item).stream(read))


def test_adapters_sum_their_own_gradients_alone():
    layout = Layout(8, 1, 1, 1, "")
    full = plan_time(JOB.changed(layout=layout), A100)
    lora = plan_time(JOB.changed(layout=layout, adapter=Lora(8, ("q_proj", "v_proj"))), A100)
    assert lora.parts[PRODUCTS] == pytest.approx(full.parts[PRODUCTS] * 2 / 3)
    assert lora.parts[REDUCE] < 0.01 * full.parts[REDUCE]
    dora = plan_time(JOB.changed(layout=layout, adapter=Lora(8, ("q_proj", "v_proj"), dora=True)), A100)
    size = 2 * 32 * 2 * 4096  # fp16, layers, outputs
    assert dora.parts[REDUCE] - lora.parts[REDUCE] == pytest.approx(2 * 7 / 8 * size / (300e9 * 0.65))
    read = 3 * 5 * size * 8 * 4 * 2048 / (2039e9 * 0.8)  # of each token, forward and twice backward
    assert dora.parts[ELEMENTWISE] - lora.parts[ELEMENTWISE] == pytest.approx(read)
    job = JOB.changed(config=load_config("llama-3-8b"), layout=Layout(8, 1, 1, 1, ""), adapter=Prefix(128))
    size = 2 * 128 * 2 * 32 * 8 * 128  # fp16, tokens, keys and values, layers, their heads and sizes
    assert plan_time(job, A100).parts[REDUCE] == pytest.approx(2 * 7 / 8 * size / (300e9 * 0.65) + 20e-6)


def test_a_whole_run_is_no_faster_by_a_pass_that_comes_before_it():
    """The reference's pass before training takes as long as in the steps, and ways are compared with it."""
    pairs = JOB.changed(loss_type="sigmoid", own_loss=True)
    beside, before = (plan_time(pairs.changed(reference=one), A100) for one in (SECOND_COPY, PRECOMPUTED))
    assert before.step_seconds < 0.8 * beside.step_seconds and before.tokens_per_second > beside.tokens_per_second
    assert before.spread.tokens_per_second == pytest.approx(beside.tokens_per_second)
    assert before.spread.seconds(10) == pytest.approx(before.seconds(10)) and before.spread.mfu < before.mfu
    assert beside.spread is beside
    assert Candidate(RunConfig(""), A100, before.job).seconds == before.spread.step_seconds


def test_a_quantized_base_is_written_out_before_each_product():
    lora = JOB.changed(adapter=Lora(8, ("q_proj", "v_proj")), recompute="full")
    plain, quantized = plan_time(lora, A100), plan_time(lora.changed(base=Format("nf4")), A100)
    once = 8 * (0.5 + 2 + 2 + 4 + 4 + 4 + 4 + 2 + 2 + 2) * 32 * (4 * 4096**2 + 3 * 4096 * 11008) / (2039e9 * 0.8)
    assert quantized.parts[PRODUCTS] - plain.parts[PRODUCTS] == pytest.approx(2 * once)
    assert quantized.parts[RECOMPUTE] - plain.parts[RECOMPUTE] == pytest.approx(once)


def test_what_goes_to_the_host_and_back():
    plan = plan_time(JOB.changed(offload=Offload(optimizer=True)), A100)
    assert plan.parts[OFFLOAD] == pytest.approx(2 * 12 * 6738415616 / (31.5e9 * 0.8))
    plan = plan_time(JOB.changed(offload=Offload(activations=True), recompute="full"), A100)
    inputs = 2 * JOB.micro_batch * JOB.sequence_length * 4096 * 32
    assert plan.parts[OFFLOAD] == pytest.approx(JOB.accumulation * 2 * inputs / (31.5e9 * 0.8))
    # Stage 2: 24 bytes of states to the card and back, gradients of 2 bytes 2 x 8 - 1 times with the micro
    # batches and 6 times for the update; stage 3 sends slices to the card, three times a micro batch, and nothing
    # back.
    job = JOB.changed(layout=Layout(1, 4, 1, 1, "stage2"), offload=Offload(optimizer=True, gradients=True))
    assert plan_time(job, A100).parts[OFFLOAD] == pytest.approx((24 + 2 * 21) * 6738415616 / 4 / (31.5e9 * 0.8))
    slices = job.changed(
        layout=Layout(1, 4, 1, 1, "stage3"),
        offload=Offload(optimizer=True, gradients=True, parameters=True),
        recompute="full",
    )
    fetched = plan_time(slices, A100).parts["parameters from the host"]
    assert fetched == pytest.approx(8 * 3 * 2 * 6738415616 / 4 / (31.5e9 * 0.8))


def test_the_50_days_lie_in_the_range_of_the_documents_tables():
    """Baichuan-13B LoRA, two RTX 4090, stage 3 with offload, 1024 tokens, 3.07 million rows."""
    days = {
        (slot, size): plan_speed.case(slot, size).days(plan_speed.ROWS_OF_THE_CASE)
        for slot in plan_speed.SLOTS
        for size in (2, 4, 8)
    }
    assert min(days.values()) < 50 < max(days.values())
    for slot in ((3, 16), (4, 8)):
        assert days[slot, 8] < 50 < days[slot, 4]
    assert days[(4, 16), 4] < 50 < days[(4, 16), 2]
    for slot in plan_speed.SLOTS:
        assert longest(plan_speed.case(slot, 4)) in ("gathering parameters", "parameters from the host")
    assert shown("plan_speed") == plan_speed.page(), "python benchmarks/plan_speed.py --markdown"


def test_the_lines_say_speed_duration_and_parts():
    plan = plan_time(JOB.changed(recompute="full"), A100)
    first, second = time_lines(plan, steps=1000)
    assert first == (
        f"time: {plan.step_seconds:.2f} s a step, {plan.tokens_per_second:,.0f} tokens/s on all ranks, "
        f"MFU {plan.mfu:.0%}; 1,000 steps: {1000 * plan.step_seconds / 3600:.1f} hours; ± 7% (docs/plan.md)"
    )
    assert second.startswith("      matrix products ") and ", other " in second
    days = 1e6 / plan.job.global_batch * plan.step_seconds / 86400
    assert f"; a million samples of 2,048 tokens: {days:.1f} days; " in time_lines(plan)[0] and 2 < days < 20


def test_reinforcement_samples_before_it_learns():
    """80 answers of 256 tokens to prompts of 256, 64 at once: decoding steps of 4 groups, then of one."""
    job = JOB.changed(
        micro_batch=1, accumulation=10, rows=8, sequence_length=512, prompt_length=256, sampled_at_once=64
    )
    plan, rate, reading = plan_time(job, A100), 2039e9 * 0.8, 2039e9 * 0.71
    found, weights = plan.sampling, 32 * (4 * 4096**2 + 3 * 4096 * 11008)
    assert found["matrix products"] == pytest.approx(256 * 2 * weights * 2 / reading)
    measured = json.loads((ROOT / "benchmarks" / "results" / "bare_card_h200.json").read_text())["decoding"]
    assert min(round(measured[f"products of {rows} rows"]["share"], 2) for rows in (1, 8, 16, 64)) == 0.71
    seen = 80 * (256 + 256 / 2) * 1.125  # places, half of the answers being there
    scores = 4 * 2 + 24  # bytes of each head's score of a place
    assert found["keys and values"] == pytest.approx(256 * 32 * seen * (2 * 4096 * 2 + 32 * scores) / rate)
    on_card = fsum(found[part] for part in ("matrix products", "keys and values", "element-wise", "logits"))
    assert on_card + found[HOST] == pytest.approx(256 * 32 * (2 * 0.6e-3 + 5 * 0.5e-3))
    assert found["drawing tokens"] == pytest.approx(256 * 80 * 32000 * (4 / (31.5e9 * 0.8) + 6.5e-9))
    prompt = Work(job.changed(rows=1, sequence_length=256), Pace(A100, FLOAT16, 2)).forward.total
    assert found["prompts"] == pytest.approx(10 * 32 * max(prompt, 1.1e-3))
    # Four steps at once, each made twice: 5 times 64 answers.
    several = plan_time(job.changed(rollout_steps=4, rollout_passes=2), A100)
    assert several.sampling["matrix products"] == pytest.approx(256 * 5 / 8 * weights * 2 / reading)
    assert [phase.tokens for phase in several.phases.values()] == [40 * 256, 80 * 512]
    assert plan_time(job.changed(sorts_ids=True), A100).sampling["drawing tokens"] > 20 * found["drawing tokens"]
    cpu = plan_time(job.changed(on_gpu=False, compute=FLOAT32), None).sampling
    assert cpu["drawing tokens"] == pytest.approx(256 * 80 * 32000 * 6.5e-9)
    assert cpu[HOST] == pytest.approx(256 * 32 * (2 * 0.6e-3 + 5 * 0.5e-3)), "beside the arithmetic"

    learned, sampled = fsum(plan.parts.values()), fsum(found.values())
    assert plan.step_seconds == pytest.approx(learned + sampled)
    shares = zip(PUBLIC_SHARES, SAMPLING_SHARES, strict=True)
    assert plan.shares == pytest.approx([plan.step_seconds / (learned / a + sampled / b) for a, b in shares])
    first, *lines = time_lines(plan, steps=100)
    assert "uncalibrated" in first, "on an A100, too"
    speed = [float(f"{share * 80 * 256 / sampled:.1e}") for share in SAMPLING_SHARES]
    assert lines[0].startswith(
        f"      sampling: 20,480 tokens in {sampled / 2:.0f}–{2 * sampled:.0f} s ({sampled / plan.step_seconds:.0%}), "
        f"{speed[0]:,.0f}–{speed[1]:,.0f} tokens/s: waiting for the host "
    )
    assert lines[1].startswith(f"      learning: 40,960 tokens in {learned:.2f} s (") and "never measured" in lines[2]


def test_a_card_without_published_runs_gets_a_range_and_small_batches_a_wider_error():
    plan = plan_time(JOB, CARDS["T4"])
    low, high = (float(f"{share * plan.tokens_per_second:.1e}") for share in PUBLIC_SHARES)
    assert speed_of(plan) == f"{low:,.0f}–{high:,.0f}" and low < plan.tokens_per_second < high
    line = time_lines(plan, steps=1000)[0]
    assert re.fullmatch(
        r"time: [\d.]+–[\d.]+ s a step, [\d,]+–[\d,]+ tokens/s on all ranks, MFU \d+–\d+%; 1,000 steps: "
        r"[\d.]+–[\d.]+ hours; uncalibrated \(docs/plan.md\)",
        line,
    )
    assert duration_of(plan, 7000) == "93 minutes–2.3 hours"  # 5,600 and 8,300 s
    assert duration_of(plan, 1_230_000 * PUBLIC_SHARES[1]) == "14–21 days"  # by 1.23 and 1.85 million seconds: not 14.2
    assert duration_of(plan, 13) == "10–15 s"  # not 10.00 and 15.00, which nobody knows
    assert speed_of(plan_time(JOB, A100)) == f"{plan_time(JOB, A100).tokens_per_second:,.0f}"
    assert plan_time(JOB.changed(micro_batch=1), A100).error == pytest.approx(max(PUBLIC_SHARES) - 1)
    assert plan_time(JOB.changed(own_loss=True), A100).error == pytest.approx(max(PUBLIC_SHARES) - 1)
    experts = plan_time(JOB.changed(config=load_config("qwen1.5-moe-a2.7b")), A100)  # of which none were published
    assert "–" in speed_of(experts) and time_lines(experts)[0].endswith("; uncalibrated (docs/plan.md)")


@pytest.mark.parametrize(
    ("flags", "fused"),
    [
        ("--model_name_or_path llama-7b", True),
        ("--model_name_or_path llama-7b --use_fused_rms_norm off", False),
        ("--model_name_or_path llama-7b --device cpu", False),
        ("--model_name_or_path opt-6.7b", False),
    ],
)
def test_a_plan_counts_a_fused_norm_on_cards_whether_fused_ln_is_built_or_not(flags, fused):
    job = Job.from_flags("launch/run_pretrain.py", parse_flags(flags.split()), 1, None if "cpu" in flags else A100)
    assert job.fused_rms_norm is fused


def test_seconds_are_the_same_to_the_last_digit_in_every_python(monkeypatch):
    jobs = [JOB.changed(layout=Layout(1, 1, tensor, pipeline, "")) for tensor in (1, 2, 4, 8) for pipeline in (1, 4)]
    names = ("qwen2-7b", "mixtral-8x7b-v0.1", "opt-6.7b")
    jobs += [job.changed(config=load_config(name)) for job in jobs for name in names]
    here = [plan_time(job, card) for job in jobs for card in CARDS.values()]
    plain = sum

    def compensated(values, start=0):  # as since Python 3.12
        values = [start, *values]
        return fsum(values) if any(isinstance(value, float) for value in values) else plain(values)

    monkeypatch.setattr(builtins, "sum", compensated)
    there = [plan_time(job, card) for job in jobs for card in CARDS.values()]
    for first, second in zip(here, there, strict=True):
        assert (first.parts, first.step_seconds) == (second.parts, second.step_seconds), first.job


def test_durations():
    texts = {0.9: "0.90 s", 1500: "25 minutes", 27000: "7.5 hours", 10 * 86400: "10.0 days", 50.2 * 86400: "50 days"}
    assert {seconds: duration(seconds) for seconds in texts} == texts


def test_adapters_keep_the_host_busy_and_hopper_reaches_less_of_its_rate():
    small = JOB.changed(micro_batch=1, accumulation=1, sequence_length=64, adapter=Lora(8, ("q_proj", "v_proj")))
    assert Work(small, Pace(A100, small.compute, small.item)).host_layers == pytest.approx(1.16)
    started = sum(plan_time(small, A100).parts.values()) - plan_time(small, A100).parts["optimizer"]
    assert started == pytest.approx(32 * 1.16 * 2.2e-3, rel=0.01)
    for work, reach in ((lambda pace: pace.multiply(8192, 8192, 8192), 0.93), (lambda pace: pace.attend(1e15), 0.55)):
        usual, hopper = (work(Pace(CARDS[name], BFLOAT16, 2)) * CARDS[name].half_flops for name in ("A100-80G", "H100"))
        assert usual / hopper == pytest.approx(reach)
