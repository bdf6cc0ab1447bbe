"""Numbers in sentences of the English pages that follow from stored measurements, from tables and from lists."""

import json
import math
from collections.abc import Callable

import pytest
from packaging.markers import Marker

from benchmarks import plan_speed, serving
from benchmarks.plan_published import ROWS as PUBLISHED
from benchmarks.published import ROWS as SPEEDS
from docs.tools.pages import ROOT, read
from docs.tools.recipe_table import plan_of
from launch.environment.pins import REQUIREMENTS, read_lock
from launch.families.arithmetic import ModelShape
from launch.families.named_configs import load_config
from launch.families.registry import FAMILIES
from launch.plan.hardware import GIB
from launch.plan.time_plan import ALL_SHARES, LARGE_SHARES
from tests.distributed.layouts import LAYOUTS
from tests.distributed.test_docs import rows as parity_rows
from tests.golden.curves import read_golden

LINUX = {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64", "os_name": "posix"}
NUMERALS = {8: "eight", 9: "nine", 10: "ten", 11: "eleven", 12: "twelve", 20: "twenty"}


def page(name: str) -> str:
    """As one line."""
    return " ".join(read(ROOT / "README.md" if name == "README" else ROOT / "docs" / f"{name}.md").split())


def results(name: str) -> dict:
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8"))


def planned_memory() -> list[str]:
    cells = results("plan_accuracy")["cells"]
    error = max(abs(cell["planned"] / cell["measured"] - 1) for cell in cells)
    published = max(abs(one) for row in PUBLISHED if row.published for one in row.errors)
    return [
        f"within {100 * error:.1f} % of the peak of {len(cells)} small trainings measured on CPUs",
        f"within {math.ceil(100 * published)} % of published A100 runs",
    ]


def planned_time() -> list[str]:
    worst = {kind: max(abs(plan_speed.error(row)) for row in SPEEDS if row.source in kind) for kind in ("AB", "C")}
    return [
        f"step times of those within {math.ceil(100 * worst['AB'])} %",
        f"of small fine-tuning batches up to {math.ceil(100 * worst['C'])} % off",
    ]


def planned_range() -> list[str]:
    ends = ["{} to {}".format(*shares) for shares in (LARGE_SHARES, ALL_SHARES)]
    errors = [f"`± {max(abs(share - 1) for share in shares):.0%}`" for shares in (LARGE_SHARES, ALL_SHARES)]
    return [*ends, *errors]


def parity() -> list[str]:
    worst = [max(float(row[column]) for row in parity_rows()) for column in (2, 3, 4)]
    loss, norm, weights = (f"{value:.1e}".replace("e-0", "e-") for value in worst)
    return [f"losses within {loss}, gradient norms within {norm}, tensors within {weights}"]


def rehearsal() -> list[str]:
    """Steps 1, 2 and 20 of the run that the page shows are those of the stored curve."""
    curve = read_golden("pretrain-llama7b")
    shown = [f"loss {curve.losses[step]:.4f}" for step in (0, 1, -1)]
    return [*shown, *(f"|g| {curve.grad_norms[step]:.2f}" for step in (0, 1, -1))]


def families() -> list[str]:
    number = NUMERALS[len(FAMILIES)]
    return [f"prefix tuning of {number} model families", f"`MODEL=` takes any of the {number} families"]


def layouts() -> list[str]:
    return [f"{NUMERALS[len(LAYOUTS)].capitalize()} layouts are tested"]


def one_card() -> list[str]:
    recipe, words = ROOT / "recipes" / "llama-7b" / "pretrain.sh", "--continue_training 0 --use_fused_rms_norm off"
    peaks = [
        plan_of(recipe, GPUS="1", GPU_MEMORY_GB=size, MODEL="tinyllama-1.1b", ARGS=words)["peak_bytes"] / GIB
        for size in ("24", "32")
    ]
    return ["{:.1f} GiB at the peak by the plan on a card of 24 GB, {:.1f} GiB on a V100".format(*peaks)]


def packages() -> list[str]:
    """What the page's Python needs of the lock."""
    python = {"python_version": "3.11", "python_full_version": "3.11.7"}
    pins = read_lock(REQUIREMENTS / "cpu.lock")
    needed = [pin for pin in pins if not pin.marker or Marker(pin.marker).evaluate(LINUX | python)]
    return [f"all {len(needed)} as in requirements/cpu.lock"]


def tokenizing_memory() -> list[str]:
    peaks = results("tokenizing_memory")["peak_bytes"]
    small, large = (round(peaks[size] / 1e6) for size in ("100", "4000"))
    return [f"{small} MB with 100 MB, {large} MB with 4 GB"]


def loader() -> list[str]:
    hundred, thousand = results("loader")["corpora"][-2:]
    assert (hundred["documents"], thousand["documents"]) == (150_000, 1_430_000)
    each = thousand["index_bytes"] / thousand["documents"]
    return [
        f"{hundred['seconds']['built']:.2f} s for 100 M tokens in 150,000 documents",
        f"{thousand['seconds']['built']:.1f} s for 1,000 M in 1,430,000",
        f"{each:.0f} bytes each document",
        f"{1000 * thousand['seconds']['batch']:.1f} ms to read",
    ]


def seeking() -> list[str]:
    rows = results("seeking")["seconds"]
    ours = [row["ours"] for row in rows]
    [again] = [row["read_again"] for row in rows if row["consumed"] == 100_000]
    return [
        f"{min(ours):.1f} to {max(ours):.1f} s to the first batch after {rows[0]['consumed']:,} to a million samples",
        f"takes {again // 1:.0f} s for each hundred thousand",
    ]


def stall() -> list[str]:
    measured = results("checkpoint_stall")
    return [
        f"trains {measured['parameters'] / 1e6:.0f} M parameters on a CPU and prints how long training waits for a "
        f"checkpoint of {measured['bytes']['at once'] / 1e9:.1f} GB"
    ]


def served() -> list[str]:
    model = ModelShape.from_config(load_config("llama-rehearsal") | serving.SIZES | serving.ALL)
    measured = results("serving")
    [rounds] = {len(seconds) for seconds in measured["seconds"].values()}
    return [
        f"({model.parameters / 1e6:.0f} M parameters; medians of rounds: {rounds})",
        f"with {measured['answers']} clients that ask at once",
    ]


@pytest.mark.parametrize(
    ("name", "sentences"),
    [
        ("README", planned_memory),
        ("recipes", planned_memory),
        ("recipes", planned_time),
        ("plan", planned_range),
        ("rehearsal", parity),
        ("rehearsal", rehearsal),
        ("README", families),
        ("rehearsal", layouts),
        ("setup", packages),
        ("ai-studio", one_card),
        ("data", tokenizing_memory),
        ("data", loader),
        ("resume", seeking),
        ("resume", stall),
        ("serve", served),
    ],
    ids=lambda one: one.__name__ if isinstance(one, Callable) else one,
)
def test_sentences_tell_what_was_measured(name, sentences):
    text = page(name)
    assert [sentence for sentence in sentences() if sentence not in text] == []
