"""Plans of several nodes: the catalogue of networks, what crosses them and for how long, and published runs."""

import random
import statistics
from dataclasses import replace

import pytest

from benchmarks.page import shown
from benchmarks.plan_published import nodes_markdown
from benchmarks.published_nodes import FITTED, RUNS, SEED
from launch.config.flag_values import parse_flags
from launch.config.layout import Layout
from launch.config.run_config import Nodes, RunConfig
from launch.errors import UserError
from launch.families.named_configs import load_config
from launch.plan.hardware import CARDS
from launch.plan.interconnect import NETWORKS, Group, Network, network_named, network_of
from launch.plan.job import ACTIVATIONS, FLOAT16, GRADIENTS, PARAMETERS, Engine, Job
from launch.plan.plan_report import report
from launch.plan.time_plan import ARITHMETIC, BUBBLE, GATHER, LARGE_SHARES, PIPELINE, REDUCE, SHARING, TENSOR, plan_time

A100, HDR = CARDS["A100-80G"], NETWORKS["ib-hdr"]
NVLINK, WIRE = 300e9 * 0.65, 25e9 * 0.8  # of a card, bytes a second
START, HOP = 20e-6, 14e-6
SIZE = 6738415616  # elements of LLaMA-7B
JOB = Job(
    config=load_config("llama-7b"),
    layout=Layout(1, 16, 1, 1, "stage1"),
    micro_batch=4,
    accumulation=8,
    sequence_length=2048,
    compute=FLOAT16,
    amp="O2",
    master_weights=True,
    flash_attention=True,
    nodes=2,
    network=HDR,
)


def part(name: str, **changes) -> float:
    return plan_time(JOB.changed(**changes), A100).parts.get(name, 0.0)


def test_a_network_is_named_or_written():
    assert network_named("ib-hdr") is HDR
    written = network_named("12.5x4:30")
    assert (written.rate, written.links, written.latency) == (12.5e9, 4, 30e-6)
    assert (network_named("3").links, network_named("3").latency) == (1, 14e-6)
    assert str(written) == "12.5x4:30 (4 x 12.5 GB/s, 30 µs)"
    assert all(network.source for network in NETWORKS.values())


@pytest.mark.parametrize("name", ["ib", "0x8", "25x0", "25x", "25:", "-1", "1e9"])
def test_anything_else_is_refused_with_what_is_known(name):
    with pytest.raises(UserError, match=f"NETWORK: found '{name}', known: ib-ndr, .*NETWORK=25x8:14"):
        network_named(name)


@pytest.mark.parametrize(
    ("card", "name"),
    [("A100-80G", "ib-hdr"), ("H200", "ib-ndr"), ("V100-32G", "ib-edr"), ("4090", "eth-25"), (None, "eth-25")],
)
def test_without_a_name_it_is_the_usual_one_of_the_cards(card, name):
    network = network_of("", CARDS[card] if card else None)
    assert (network.name, network.assumed) == (name, True)
    assert not network_of("eth-10", A100).assumed


@pytest.mark.parametrize(
    ("ranks", "stride", "nodes"),
    [(8, 1, 1), (16, 1, 2), (4, 2, 1), (8, 2, 2), (4, 8, 4), (2, 16, 2), (1, 8, 1), (12, 1, 2), (3, 4, 2)],
)
def test_where_a_group_lies_follows_from_its_stride(ranks, stride, nodes):
    assert Group.of(ranks, stride, cards=8).nodes == nodes


def test_groups_of_ranks_and_what_their_rings_send():
    """16 ranks on 2 nodes: of 15/16 of the tensor 7/8 within a node, and half of the eighth between."""
    share = Group.of(16, 1, 8).share_between
    assert share * 15 / 16 == pytest.approx(1 / 2 / 8) and (1 - share) * 15 / 16 == pytest.approx(7 / 8)
    assert Group.of(8, 1, 8).share_between == 0 and Group.of(4, 8, 8).share_between == 1
    job = JOB.changed(layout=Layout(2, 2, 4, 2, "stage1"), nodes=4)
    assert {name: group.nodes for name, group in job.groups.items()} == {
        "tensor parallel": 1,
        "sharding": 1,
        "pipeline parallel": 2,
        "data parallel": 2,
    }
    assert job.crossing == "pipeline parallel over 2 nodes, data parallel over 2 nodes"
    assert job.changed(sharding_first=True).crossing == "sharding over 2 nodes, data parallel over 2 nodes"


def test_sums_of_gradients_between_nodes_share_links_and_go_no_faster_than_pcie():
    size = 2 * 15 / 16 * 2 * SIZE  # of an all-reduce of fp16 gradients
    seconds = size * 14 / 15 / NVLINK + START + size / 15 / WIRE + HOP
    assert part(REDUCE, layout=Layout(16, 1, 1, 1, "")) == pytest.approx(seconds)
    job = {"layout": Layout(1, 4, 8, 1, "stage1"), "nodes": 4}
    seconds = 2 * (2 * SIZE / 8 / WIRE + START + 2 * HOP)  # parameters and gradients, all of it between nodes
    assert part(REDUCE, **job) == pytest.approx(seconds)
    one_link = Network("one", 25e9, 1, 0.0, "")
    assert part(REDUCE, network=one_link, **job) == pytest.approx(2 * (2 * SIZE / 8 / (WIRE / 8) + START))
    seconds = 2 * (2 * SIZE / (31.5e9 * 0.8) + START + HOP)
    assert part(REDUCE, layout=Layout(1, 2, 1, 1, "stage1")) == pytest.approx(seconds)


def test_tensor_parallel_and_stage_3_over_the_network():
    size = 4 * 2048 * 4096 * 2 * 2 * 15 / 16
    each = size * 14 / 15 / NVLINK + START + size / 15 / WIRE + HOP
    assert part(TENSOR, layout=Layout(1, 1, 16, 1, "")) == pytest.approx(8 * 32 * 7 * each)
    within = part(GATHER, layout=Layout(1, 16, 1, 1, "stage3"), nodes=1, network=None)
    added = 8 * (2 * 2 * SIZE * 15 / 16 / 15 * (1 / WIRE - 1 / NVLINK) + 2 * 224 * HOP)
    assert part(GATHER, layout=Layout(1, 16, 1, 1, "stage3")) - within == pytest.approx(added)


def test_ranks_of_two_nodes_that_share_a_sample_send_half_of_it_over_the_network():
    size = 4 * 2048 / 16 * 4 * 4096 * 2  # queries, keys, values and outputs of a rank
    each = size * (15 / 16 - 1 / 2) / NVLINK + 4 * START + size / 2 / WIRE + 4 * HOP + 4 * size / (2039e9 * 0.8)
    assert part(SHARING, layout=Layout(1, 16, 1, 1, "stage1", 16)) == pytest.approx(8 * 32 * 2 * each)


def test_what_stages_send_over_the_network():
    layout, size = Layout(1, 1, 8, 2, ""), 4 * 2048 * 4096 * 2
    once = 2 * size / NVLINK + 2 * START  # the parts are put together within the node
    assert part(PIPELINE, layout=layout) == pytest.approx(8 * (once + 2 * size / 8 / WIRE + 2 * HOP))
    assert part(PIPELINE, layout=layout, sequence_parallel=True) == pytest.approx(8 * (2 * size / 8 / WIRE + 2 * HOP))
    assert part(PIPELINE, layout=layout, whole_sends=True) == pytest.approx(8 * (2 * size / WIRE + 2 * HOP))
    assert part(PIPELINE, layout=Layout(1, 1, 2, 2, ""), nodes=1, network=None) == pytest.approx(8 * once)
    job = JOB.changed(layout=Layout(1, 1, 8, 2, ""), sequence_parallel=True)
    plain, interleaved = (plan_time(job.changed(engine=Engine(virtual_stages=count)), A100).parts for count in (1, 4))
    assert interleaved[PIPELINE] == pytest.approx(4 * plain[PIPELINE])
    micro_batch = (sum(plain.values()) - plain[BUBBLE] - plain["optimizer"] - plain.get("waiting for the host", 0)) / 8
    added = (interleaved[PIPELINE] - plain[PIPELINE]) / 8
    assert plain[BUBBLE] == pytest.approx(micro_batch, rel=1e-3)
    assert interleaved[BUBBLE] == pytest.approx((micro_batch + added) / 4, rel=1e-3)


def test_what_an_engine_overlaps_is_hidden_between_nodes_alone_and_behind_no_more_than_the_arithmetic():
    every = Engine(overlapped=frozenset({GRADIENTS, PARAMETERS, ACTIVATIONS}))
    within = {"nodes": 1, "network": None, "layout": Layout(1, 8, 1, 1, "stage1")}
    assert part(REDUCE, engine=every, **within) == part(REDUCE, **within)
    inside = 2 * (2 * SIZE * 14 / 15 / NVLINK + START)
    assert part(REDUCE, engine=every) == pytest.approx(inside)
    assert part(REDUCE, engine=Engine(overlapped=frozenset({GRADIENTS}))) == pytest.approx((inside + part(REDUCE)) / 2)
    slow = Network("slow", 1e9, 1, 0.0, "")
    arithmetic = sum(part(name) for name in ARITHMETIC) / 8
    hidden = part(REDUCE, network=slow) - part(REDUCE, network=slow, engine=every)
    assert hidden == pytest.approx(2 * arithmetic)


@pytest.mark.parametrize(
    ("flags", "overlapped"),
    [
        ("--sharding stage1", set()),
        ("--sharding stage1 --sharding_parallel_config enable_stage1_overlap", {GRADIENTS}),
        ("--sharding stage2 --sharding_parallel_config enable_stage2_overlap", {GRADIENTS}),
        ("--sharding stage2 --sharding_parallel_config enable_stage1_overlap", set()),
        ("--sharding stage1 --pipeline_parallel_degree 2 --sharding_parallel_config enable_stage1_overlap", set()),
        (
            "--sharding stage1 --pipeline_parallel_degree 2 --pipeline_parallel_config enable_sharding_comm_overlap",
            {GRADIENTS},
        ),
    ],
)
def test_paddlenlp_overlaps_by_flags_alone(flags, overlapped):
    words = parse_flags(f"--model_name_or_path llama-7b {flags}".split())
    run = RunConfig("launch/run_pretrain.py", words, processes=16, nodes=Nodes(2), network="eth-25")
    job = Job.from_run(run, A100)
    assert job.engine.overlapped == overlapped and job.network is NETWORKS["eth-25"] and job.nodes == 2
    alone = Job.from_run(RunConfig("launch/run_pretrain.py", words, processes=16, network="mainnet"), A100)
    assert alone.network is None and alone.crossing == ""


def test_the_report_names_the_network_and_what_crosses_it_and_gives_a_range(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    job = JOB.changed(network=replace(HDR, assumed=True))
    text = " ".join(report(job, A100).split())
    assert (
        "2 nodes x 8, network ib-hdr (8 x 25 GB/s, 14 µs), assumed for these cards: NETWORK=... names another; "
        "between nodes: sharding over 2 nodes"
    ) in text
    assert "uncalibrated (docs/plan.md)" in text
    assert "assumed" not in report(JOB, A100) and "nodes" not in report(JOB.changed(nodes=1, network=None), A100)
    assert '"network": "ib-hdr (8 x 25 GB/s, 14 \\u00b5s)"' in report(JOB, A100, "json")
    assert not plan_time(JOB, A100).calibrated
    assert plan_time(JOB.changed(nodes=1, network=None), A100).shares == LARGE_SHARES


def test_published_runs_are_met_as_the_page_says():
    """No constant was fitted to either half."""
    assert frozenset(random.Random(SEED).sample(range(len(RUNS)), len(RUNS) // 2)) == FITTED
    for half in (FITTED, set(range(len(RUNS))) - FITTED):
        errors = [abs(RUNS[number].error) for number in half]
        assert statistics.median(errors) < 0.10 and max(errors) < 0.20
    assert f"\n\n{nodes_markdown()}" in shown("plan_published")
