"""Real trainings of tiny models: what is kept is planned to the byte, the peak within 5 %."""

import json

import pytest

from benchmarks.page import shown
from benchmarks.plan_accuracy import RESULTS, markdown
from docs.tools.pages import ROOT, read
from tests.distributed.layouts import Layout
from tests.families.cells import CELLS, DORA, FINETUNE, FULL, INT8, LORA, NF4, S2, S3, Cell
from tests.plan.accuracy import measure
from tests.plan.material import make_material

BOUND = 0.05
QUICK = [Cell(), Cell("chatglm2"), Cell(chunk=32)]
FEW_CARDS = [
    Cell(method=LORA, base=NF4),
    Cell("chatglm", LORA, recompute=FULL, base=INT8),
    *[Cell(layout=layout, offload=True) for layout in (S2, S3)],
    Cell("chatglm2", FINETUNE, S2, offload=True),
    Cell("baichuan", LORA, S3, recompute=FULL, offload=True),
    Cell(layout=Layout(data=2, sequence=2)),
    Cell(method=FINETUNE, layout=Layout(stage=1, sharding=4, sequence=4), packed=True),
]


FIRSTS = {cell.family: cell for cell in reversed(CELLS)}.values()  # of each family
OTHERS = [Cell(method=DORA, base=NF4), Cell("qwen3", recompute=FULL, chunk=32, moments=0, in_backward=True)]
# All cells are measured by benchmarks/plan_accuracy.py.
SAMPLE = [cell for cell in dict.fromkeys([*FEW_CARDS, *FIRSTS, *CELLS[::8], *OTHERS]) if cell not in QUICK]


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    root = tmp_path_factory.mktemp("plan")
    make_material(root)
    return root


@pytest.mark.parametrize("cell", QUICK, ids=lambda cell: cell.name)
def test_a_step_on_one_process(ranks, material, cell):
    check(measure(ranks, cell, material))


@pytest.mark.parametrize(
    "cell",
    [pytest.param(cell, marks=pytest.mark.nightly if cell in SAMPLE[3::2] else pytest.mark.long) for cell in SAMPLE],
    ids=lambda cell: cell.name,
)
def test_a_step(ranks, material, cell):
    check(measure(ranks, cell, material))


def check(measured: list) -> None:
    for one in measured:
        assert one.states_planned == one.states_measured, one.rank
        assert abs(one.error) <= BOUND, f"rank {one.rank}: planned {one.planned:,}, measured {one.measured:,}"


def test_the_stored_measurement_is_within_the_bound_and_on_its_page():
    rows = json.loads(RESULTS.read_text())["cells"]
    missing = [cell.name for cell in CELLS if cell.name not in {row["cell"] for row in rows}]
    assert not missing, "python benchmarks/plan_accuracy.py --only NAME measures them"
    assert len(rows) == len(CELLS)
    assert all(abs(row["planned"] / row["measured"] - 1) <= BOUND for row in rows)
    assert shown("plan_accuracy") == markdown(rows), "python benchmarks/plan_accuracy.py --markdown"
    worst = max(abs(row["planned"] / row["measured"] - 1) for row in rows)
    for page in ("plan", "recipes"):
        text = read(ROOT / "docs" / f"{page}.md")
        assert f"{len(rows)} small trainings" in text and f"{100 * worst:.1f} %" in text
