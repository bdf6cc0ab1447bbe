"""What the planner's time model says of published speeds, and of a run that took 50 days.

    .venv/bin/python benchmarks/plan_speed.py
    .venv/bin/python benchmarks/plan_speed.py --markdown    # writes benchmarks/results/plan_speed.md

Nothing is measured here: the formulas of launch/plan/time_plan.py against the rows of benchmarks/published.py.
"""

import argparse
import statistics
import sys
from pathlib import Path
from unittest.mock import patch

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)  # the repository, not benchmarks/

from benchmarks.page import put
from benchmarks.published import ROWS, Published
from benchmarks.published_runs import runs
from launch.config.layout import Layout
from launch.families.gated_decoder import LINEAR_LAYERS
from launch.families.named_configs import load_config
from launch.guard import guarded
from launch.plan.hardware import CARDS
from launch.plan.job import BFLOAT16, Job, Lora, Offload
from launch.plan.time_plan import TimePlan, plan_time, with_pcie

PUBLISHED_RATES = {"MATMUL": 1.0, "HALF_SIDE": 0, "ATTENTION": 1.0, "MEMORY": 1.0}
PEER = """\
LoRA of Llama-3.1-8B on one RTX 4090, 2 samples of 2,048 tokens a step, all layers computed again, by part: what the
plan counts for this engine, the same work at the card's published rates with no loss (165 TFLOP/s, 1,008 GB/s), and
torchtune's run with torch.compile, whose parts are not published. torchtune needs 1.0 s less than the plan. 0.76 s of
that the plan gives up to rates below the published ones, most of them in products: it takes 0.85 of a card's rate,
and less for short sides, from A100s. The published step is even shorter than all of this engine's work at the
published rates: a compiler fuses element-wise work, forward and where it is computed again, which moves most of its
bytes."""
SLOTS = ((3, 8), (3, 16), (4, 8), (4, 16))
MICRO_BATCHES, SHOWN = (1, 2, 4, 8), 4
ROWS_OF_THE_CASE = 3_070_000
ABOUT = """\
A is FlagPerf's report of 2023 (llama1_7B-paddle, 8 x A100, samples of 2048 tokens), B is PaddleNLP's pretraining
documentation of 2023 (8 x A100-80G, samples of 4096), C is its fine-tuning benchmark of 2023 (A100-80G):
`benchmarks/published.py`. Rows of A and B count all tokens of one card; rows of C count the tokens of all cards
without padding. Two constants (how the rate of a matrix product falls with its sides, and what collectives reach
over NVLink) were fitted to rows A and B, none to C. Three properties of C are not published, so we chose them: the
mean length of a sample (90 tokens), the padding (lengths follow an exponential distribution), and the same length
for Chinese samples. Baichuan2-13B from B's source (1354.99 tokens/s) is left out: its flash attention read ALiBi as
a mask of all scores, ours needs none.

The last table is a LoRA run of Baichuan-13B on two RTX 4090, with 3.07 million samples of 1024 tokens and stage 3
with offload, which was reported to need 50 days, without its micro batch and slots. No computation is assumed to
hide copies, and every sample is padded to 1024. Upstream's stage 3 also copies each slice back when it releases it,
and is a fifth to a third slower."""


def main(argv: list[str]) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--markdown", action="store_true", help="also write the page of the results")
    arguments = parser.parse_args(argv)
    print(text := page())
    if arguments.markdown:
        put("plan_speed", "plan", text)


def page() -> str:
    """Return the page of the results."""
    return "\n".join([ABOUT, "", *error_table(), "", *case_table(), "", PEER, "", *peer_table()])


def estimate(row: Published) -> float:
    """Return tokens a second as the row counts them."""
    plan = plan_time(row.job, CARDS[row.card])
    return row.effective_tokens / plan.step_seconds if row.effective_tokens else plan.tokens_per_second_per_card


def error(row: Published) -> float:
    """Return the relative error of the estimate."""
    return estimate(row) / row.tokens_per_second - 1


def error_table() -> list[str]:
    """Return the table of errors."""
    lines = ["| source | run | published tokens/s | estimate | error |", "|---|---|---|---|---|"]
    lines += [
        f"| {row.source} | {row.name} | {row.tokens_per_second:,.0f} | {estimate(row):,.0f} | {error(row):+.1%} |"
        for row in ROWS
    ]
    for sources in ("AB", "C"):
        sizes = [abs(error(row)) for row in ROWS if row.source in sources]
        within = sum(size <= 0.15 for size in sizes)
        lines.append(
            f"| {' and '.join(sources)} | median, largest error | | | {statistics.median(sizes):.1%}, "
            f"{max(sizes):.1%}; {within} of {len(sizes)} within 15 % |"
        )
    return lines


def peer_table() -> list[str]:
    """Return the table of seconds by part beside torchtune's compiled run of Llama-3.1-8B on a 4090."""
    (run,) = (run for run in runs() if run.row["card"] == "4090" and run.row.get("speed") == 3083)
    plan = plan_time(run.job, run.card)
    with patch.multiple("launch.plan.work", **PUBLISHED_RATES):
        least = plan_time(run.job, run.card)
    tokens = run.job.micro_batch * run.job.sequence_length
    peer = f"{tokens / run.row['speed']:.2f} s, {run.row['speed']:,} tokens/s"
    lines = ["| part | plan | at the published rates | torchtune |", "|---|---|---|---|"]
    lines += [f"| {part} | {seconds:.2f} s | {least.parts[part]:.2f} s | |" for part, seconds in plan.parts.items()]
    planned = [f"{one.step_seconds:.2f} s, {one.tokens_per_second_per_card:,.0f} tokens/s" for one in (plan, least)]
    return [*lines, f"| a step | {planned[0]} | {planned[1]} | {peer} |"]


def case(pcie: tuple[int, int], micro_batch: int) -> TimePlan:
    """Return the plan of Baichuan-13B, LoRA on all linear layers, two RTX 4090, stage 3 with offload.

    Parameters and optimizer are in host memory.
    """
    job = Job(
        config=load_config("baichuan-13b"),
        layout=Layout(1, 2, 1, 1, "stage3"),
        micro_batch=micro_batch,
        accumulation=1,
        sequence_length=1024,
        compute=BFLOAT16,
        amp="O2",
        master_weights=True,
        recompute="full",
        adapter=Lora(8, LINEAR_LAYERS),
        offload=Offload(optimizer=True, gradients=True, parameters=True),
        own_loss=True,
    )
    return plan_time(job, with_pcie(CARDS["4090"], *pcie))


def case_table() -> list[str]:
    """Return the table of days by slot and micro batch, and of the parts of a step's time."""
    heads = " | ".join(f"days, micro batch {size}" for size in MICRO_BATCHES)
    lines = [
        f"| slot of each 4090 | {heads} | a step at micro batch {SHOWN} |",
        f"|---{'|---' * len(MICRO_BATCHES)}|---|",
    ]
    for generation, lanes in SLOTS:
        days = [f"{case((generation, lanes), size).days(ROWS_OF_THE_CASE):.0f}" for size in MICRO_BATCHES]
        plan = case((generation, lanes), SHOWN)
        parts = sorted(plan.parts.items(), key=lambda part: -part[1])[:4]
        shown = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in parts)
        lines.append(f"| PCIe {generation} x{lanes} | {' | '.join(days)} | {plan.step_seconds:.1f} s: {shown}, ... |")
    return lines


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))
