"""Numbers in sentences of the English pages that follow from stored measurements, from tables and from lists."""

import json
import math
from collections.abc import Callable

import pytest

from benchmarks import plan_speed
from benchmarks.plan_published import ROWS as PUBLISHED
from benchmarks.published import ROWS as SPEEDS
from docs.tools.pages import ROOT, read
from launch.plan.time_plan import ALL_SHARES, LARGE_SHARES
from tests.distributed.test_docs import rows as parity_rows
from tests.golden.curves import read_golden


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


@pytest.mark.parametrize(
    ("name", "sentences"),
    [
        ("README", planned_memory),
        ("recipes", planned_memory),
        ("recipes", planned_time),
        ("plan", planned_range),
        ("rehearsal", parity),
        ("rehearsal", rehearsal),
    ],
    ids=lambda one: one.__name__ if isinstance(one, Callable) else one,
)
def test_sentences_tell_what_was_measured(name, sentences):
    text = page(name)
    assert [sentence for sentence in sentences() if sentence not in text] == []
