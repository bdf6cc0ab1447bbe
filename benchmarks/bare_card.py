"""A card without Paddle: our CUDA kernels, the planner's rates, and a LLaMA-7B layer in torch beside its plan.

    python3 benchmarks/bare_card.py --output benchmarks/results/bare_card_NAME.json
    python3 benchmarks/bare_card.py --device cpu          # tiny sizes, to try the script
    .venv/bin/python benchmarks/bare_card.py --markdown    # writes benchmarks/results/bare_card.md

Needs torch for CUDA and nvcc; takes at most 9 minutes. Each part runs in a process of its own
with a time limit (benchmarks/bare_card_worker.py), so that one that fails or hangs costs no other. Exit code 1 where a
part failed or a number is outside its tolerance.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "results" / "bare_card_h200.json"
WORKER = Path(__file__).with_name("bare_card_worker.py")
# Seconds that each part may take, in the order of worth.
PARTS = {
    "card": 60,
    "rms_norm_check": 300,
    "rms_norm_memory": 120,
    "rates": 60,
    "decoding": 30,
    "layer": 90,
    "head": 40,
    "alibi_columns": 40,
    "chunked_entropy": 40,
    "stochastic_rounding": 30,
    "rms_norm_speed": 150,
}


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: tiny sizes")
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS), help="these parts alone")
    parser.add_argument("--limit", type=float, default=540, help="seconds for all parts together")
    parser.add_argument("--output", type=Path, help="where the numbers are stored as JSON, after each part")
    parser.add_argument("--markdown", action="store_true", help="only write the page of the stored results")
    args = parser.parse_args()
    if args.markdown:
        sys.path[0] = str(Path(__file__).resolve().parent.parent)
        from benchmarks.page import put

        put("bare_card", "custom-ops", page(json.loads(RESULTS.read_text())))
        return 0
    report, end = {}, time.monotonic() + args.limit
    for part in args.only:
        report[part] = run(part, args.device, min(PARTS[part], end - time.monotonic()))
        if args.output:
            args.output.write_text(json.dumps(report, indent=1) + "\n")
    failed = [part for part, found in report.items() if not found["ok"]]
    print(
        f"\n{len(report) - len(failed)} of {len(report)} parts are right"
        + (f"; not: {', '.join(failed)}" * bool(failed))
    )
    return 1 if failed else 0


def run(part: str, device: str, limit: float) -> dict:
    """Run one part. Returns its numbers with "ok" and its seconds; of one without numbers the end of its output."""
    print(f"\n== {part}", flush=True)
    if limit <= 0:
        print("left out: no time is left")
        return {"ok": False, "error": "no time is left"}
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "numbers.json"
        command = [sys.executable, str(WORKER), part, "--device", device, "--output", str(output)]
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit)
            said, code = done.stdout, done.returncode
        except subprocess.TimeoutExpired as late:
            said, code = f"{(late.stdout or b'').decode(errors='replace')}\nnot done in {limit:.0f} s", 1
        print(said.strip()[-6000:], flush=True)
        found = json.loads(output.read_text()) if output.exists() else {"error": said[-2000:]}
    return {"ok": code == 0, "seconds": round(time.monotonic() - began, 1), **found}


def page(report: dict) -> str:
    """Return the page of a report: bandwidth of our RMSNorm and of torch's, and of torch's operators in decoding."""
    rows = ["| bfloat16 | forward, us | of a copy | torch / ours | backward, us | of a copy | torch / ours |"]
    rows.append("| --- " + "| ---: " * 6 + "|")
    speeds = report["rms_norm_speed"]
    for key, ours in speeds.items():
        if match := re.fullmatch(r"ours (\[.*\])", key):
            torch = speeds[f"torch {match[1]}"]
            cells = [
                f"{ours[way]['us']:g} | {ours[way]['of copy']:.0%} | {torch[way]['us'] / ours[way]['us']:.2f} x"
                for way in ("forward", "backward")
            ]
            rows.append(f"| {match[1]} | {' | '.join(cells)} |")
    rows += [
        "",
        "| decoding, bfloat16, a layer of Qwen3-8B | us | GB/s | of the data sheet's |",
        "| --- | ---: | ---: | ---: |",
    ]
    for key, found in report["decoding"].items():
        if isinstance(found, dict):
            rows.append(f"| {key} | {found['us a layer']:.1f} | {found['GB/s']:,.0f} | {found['share']:.0%} |")
    card = report["card"]
    versions = f"torch {card['torch']['version']}, driver {card['driver'][0]}"
    return "\n".join([*rows, "", f"{card['card 0']['name']}, {versions}."])


if __name__ == "__main__":
    sys.exit(main())
