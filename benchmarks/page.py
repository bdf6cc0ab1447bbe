"""What benchmarks with stored results share: their flags, and the pages benchmarks/results/NAME.md of --markdown."""

import argparse
from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "results"


def stored_parser(description: str | None) -> argparse.ArgumentParser:
    """Return the parser of a benchmark whose results are stored, with its flags --output and --markdown."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="also write everything measured to this JSON file")
    parser.add_argument("--markdown", action="store_true", help="only write the page of the stored results")
    return parser


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
