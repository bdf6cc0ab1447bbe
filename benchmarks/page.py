"""The pages benchmarks/results/NAME.md, which benchmarks write with --markdown."""

from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "results"


def conditions(report: dict) -> str:
    """Return where it was measured, from what machine_facts() found and the "versions"."""
    machine = report["machine"]
    versions = ", ".join(f"{name} {number}" for name, number in report["versions"].items())
    return f"{machine['processor']}, {machine['cores']} cores, {machine['system']}; {versions}."


def put(name: str, document: str, text: str) -> None:
    """Write the results of benchmarks/NAME.py, which docs/DOCUMENT.md explains, to their page."""
    about = f"Written by `python benchmarks/{name}.py --markdown`; [docs/{document}.md](../../docs/{document}.md)"
    page = f"# Results of {name}\n\n{about} explains them.\n\n{text.strip()}\n"
    (RESULTS / f"{name}.md").write_text(page, encoding="utf-8")


def shown(name: str) -> str:
    """Return what `put` was given for a page, without blank lines at its ends."""
    return (RESULTS / f"{name}.md").read_text(encoding="utf-8").split("\n\n", 2)[2].strip()
