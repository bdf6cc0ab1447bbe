"""Run the checks one after the other, each in its own process with a time limit, and keep their results.

After every check the results are written to a JSON file and a Markdown page. A further run continues: results that
passed or could not be shown are kept, the others are checked again.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from data_tools.formats.atomic import written_aside
from launch.certify.bench import Bench, CheckFailed, without_paths
from launch.certify.checks import Check
from launch.certify.results import FAIL, Result, Row, mark_of, read_results, read_rows, write_results
from launch.devices.cards import driver, list_cards
from launch.environment.doctor_checks import check_cpu
from launch.errors import UserError
from launch.preflight.gpus import describe
from launch.processes.fork import TIMED_OUT, Outcome, run_ranks
from launch.processes.logs import last_lines, log_path
from launch.processes.orphans import ASK_TO_END
from launch.reporting.markdown import markdown
from launch.reporting.records import git_revision, package_versions

# For what a check has left, before the next one gets the cards: Paddle's launcher gives its ranks 30 s after SIGTERM.
SECONDS_TO_END = 45.0
SECONDS_AFTER_KILL = 5.0
POLL_SECONDS = 0.1
PRETENDED_CARDS = 2  # processes that stand for cards


@dataclass(frozen=True)
class Session:
    """One run of the command.

    directory: of the report and of a folder for each check. of: machine, versions and mode; results of another one are
    not kept. cards: their number, or that of the processes used instead. materials: the tiny model and its data.
    """

    directory: Path
    of: dict
    cards: int
    pretend: bool
    materials: Path

    @property
    def file(self) -> Path:
        return self.directory / "certify.json"

    @property
    def page(self) -> Path:
        return self.directory / "certify.md"


def describe_machine(pretend: bool) -> dict:
    """Machine, versions and mode, in values that JSON keeps unchanged."""
    found, cards = driver(), list_cards()
    return {
        "pretended": pretend,
        "cards_text": f"a pretended run on {PRETENDED_CARDS} processes" if pretend else describe(cards),
        "cards": [[card.name, card.memory_bytes, list(card.compute_capability)] for card in cards],
        "driver": f"{found.version}, CUDA {found.cuda[0]}.{found.cuda[1]}" if found else None,
        "processor": check_cpu().found,
        "versions": package_versions(),
        "git_revision": git_revision(),
    }


def run_checks(session: Session, checks: Sequence[Check], chosen: Sequence[Check]) -> tuple[dict[str, Result], bool]:
    """Run the chosen checks; (all results so far by name, whether it was interrupted).

    Those of an earlier run on the same machine that did not fail are kept where `chosen` is all of `checks`.
    """
    results = _earlier_results(session)
    waiting = [check for check in chosen if list(chosen) != list(checks) or _is_open(results.get(check.name))]
    for check in waiting:
        results.pop(check.name, None)
    for number, check in enumerate(waiting):
        left = sum(other.seconds_for(session.pretend, session.cards) for other in waiting[number:])
        print(
            f"[{checks.index(check) + 1}/{len(checks)}] {check.title}: {check.expected} "
            f"(all that is left: {duration(left)})",
            flush=True,
        )
        result, interrupted = run_check(session, check)
        if interrupted:
            return results, True
        results[check.name] = result
        _write(session, checks, results)
        print(f"    {result.mark} {result.found} ({result.seconds:.0f} s)", flush=True)
    _write(session, checks, results)
    return results, False


def run_check(session: Session, check: Check) -> tuple[Result, bool]:
    """One check in its own process; (its result, whether Ctrl-C or SIGTERM ended it).

    Returns once nothing that the check has started is left: a process that has called adopt_orphans sees all of it.
    """
    directory = _fresh(session.directory / check.name)
    bench = Bench(directory, session.materials, session.cards, session.pretend)
    before = dict(os.environ)

    def run_alone(rank: int) -> None:
        # What run_ranks sets says that this is one rank of a training, which it is not.
        os.environ.clear()
        os.environ.update(before)
        try:
            check.function()(bench)
        except (CheckFailed, UserError) as error:
            print(f"{type(error).__name__}: {error}", flush=True)
            sys.exit(3)

    others = psutil.Process().children(recursive=True)
    started = time.monotonic()
    limit = check.limit_for(session.pretend)
    outcome = run_ranks(1, run_alone, directory / "log", time_limit=limit)
    seconds = time.monotonic() - started
    _end_the_rest(others)
    failure = _failure(outcome, directory / "log", limit)
    rows = read_rows(directory / "rows.json")
    result = Result(check.name, mark_of(rows, failure, session.pretend), round(seconds, 1), rows, failure)
    return result, _ended_from_outside(outcome)


def _end_the_rest(others: Sequence[psutil.Process]) -> None:
    """Wait for all descendants except these, then kill those that are left."""
    deadline = time.monotonic() + SECONDS_TO_END
    while (left := _descendants_but(others)) and time.monotonic() < deadline:
        psutil.wait_procs(left, timeout=POLL_SECONDS)
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(left, timeout=SECONDS_AFTER_KILL)  # no longer: a driver that hangs may hold one for ever


def _descendants_but(others: Sequence[psutil.Process]) -> list[psutil.Process]:
    return [process for process in psutil.Process().children(recursive=True) if process not in others]


def duration(seconds: float) -> str:
    """about 12 min"""
    return f"about {seconds:.0f} s" if seconds < 90 else f"about {seconds / 60:.0f} min"


def _failure(outcome: Outcome, log_dir: Path, limit: float) -> str:
    """Why a check did not finish, or ""."""
    if outcome.exit_code == 0:
        return ""
    if outcome.exit_code == TIMED_OUT:
        return f"not finished within {limit:.0f} s"
    text = without_paths(last_lines(log_path(log_dir, 0)), log_dir.parents[1])
    lines = [line for line in text.splitlines() if line.strip()]
    last = lines[-1].removeprefix("CheckFailed: ")[:300] if lines else "it said nothing"
    if outcome.exit_code > 128:
        return f"ended by {signal.Signals(outcome.exit_code - 128).name}: {last}"
    return last


def _ended_from_outside(outcome: Outcome) -> bool:
    """Whether a signal to this process, such as Ctrl-C, ended the check."""
    return outcome.failed_rank is None and outcome.exit_code in [128 + number for number in ASK_TO_END]


def _is_open(result: Result | None) -> bool:
    return result is None or result.mark == FAIL


def _earlier_results(session: Session) -> dict[str, Result]:
    """The results of the file if it is of the same machine and versions. Otherwise the file is renamed."""
    of, results = read_results(session.file)
    if of in ({}, session.of):
        return results
    for path in (session.file, session.page):
        if path.exists():
            path.rename(_free_name(path))
    print("The results here are of another machine, version or mode: kept under another name.", flush=True)
    return {}


def _write(session: Session, checks: Sequence[Check], results: dict[str, Result]) -> None:
    """Both files, each whole."""
    ordered = [results[check.name] for check in checks if check.name in results]
    write_results(session.file, session.of, ordered)
    with written_aside(session.page) as file:
        file.write(page(session.of, checks, {result.name: result for result in ordered}).encode())


def _fresh(directory: Path) -> Path:
    """An empty folder. That of an earlier run is renamed."""
    if directory.exists():
        directory.rename(_free_name(directory))
    directory.mkdir(parents=True)
    return directory


def _free_name(path: Path) -> Path:
    number = 1
    while path.with_name(f"{path.stem}.{number}{path.suffix}").exists():
        number += 1
    return path.with_name(f"{path.stem}.{number}{path.suffix}")


# ---- the Markdown page to send back

PRETENDED = (
    "**A pretended run: processes on a CPU stood for cards. It shows that the checks run, and nothing about any card.**"
)


def page(machine: dict, checks: Sequence[Check], results: dict[str, Result]) -> str:
    """machine: what `describe_machine` returns; results: by the name of their check, those that are there."""
    parts = [
        _head(machine),
        _overview(checks, results),
        *_faults(checks, results),
        _measured(results),
        _published(results),
    ]
    parts += [_details(number, check, results[check.name]) for number, check in _done(checks, results)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(machine: dict) -> str:
    lines = [f"# Certificate: {machine['cards_text']}", ""]
    if machine["pretended"]:
        lines += [PRETENDED, ""]
    lines += [
        f"- driver: {machine['driver'] or 'none'}",
        f"- processor: {machine['processor']}",
        f"- versions: {', '.join(f'{name} {version}' for name, version in machine['versions'].items())}",
        f"- repository: {machine['git_revision'] or 'no checkout'}",
        "",
        "✓ as expected, ✗ not as expected, – not shown: this machine or this run cannot show it.",
    ]
    return "\n".join(lines)


def _overview(checks: Sequence[Check], results: dict[str, Result]) -> str:
    rows = []
    for number, check in enumerate(checks, start=1):
        result = results.get(check.name)
        found = (result.mark, result.found, f"{result.seconds:.0f}") if result else ("", "not run yet", "")
        rows.append([str(number), found[0], check.title, check.expected, found[1], found[2]])
    return "## Checks\n\n" + _table(["", "", "check", "expected", "found", "seconds"], rows)


def _faults(checks: Sequence[Check], results: dict[str, Result]) -> list[str]:
    failed = [(number, check) for number, check in _done(checks, results) if results[check.name].mark == FAIL]
    if not failed:
        return []
    return ["## What each ✗ means\n\n" + "\n".join(f"- {n} {check.title}: {check.at_fault}." for n, check in failed)]


def _measured(results: dict[str, Result]) -> str:
    """The table of rows that have a plan."""
    rows = [_measured_row(row.what, row.numbers) for row in _rows_with("measured", results) if row.numbers["measured"]]
    if not rows:
        return ""
    return "## Planned and measured\n\n" + _table(["what", "unit", "planned", "measured", "plan is off by"], rows)


def _measured_row(what: str, numbers: dict) -> list[str]:
    planned, measured = numbers["planned"], numbers["measured"]
    return [what, numbers["unit"], f"{planned:,.2f}", f"{measured:,.2f}", f"{planned / measured - 1:+.1%}"]


def _rows_with(number: str, results: dict[str, Result]) -> list[Row]:
    return [row for result in results.values() for row in result.rows if number in row.numbers]


def _published(results: dict[str, Result]) -> str:
    lines = [row.numbers["published"] for row in _rows_with("published", results)]
    if not lines:
        return ""
    return "## Lines for benchmarks/published.py\n\n```\n" + "\n".join(lines) + "\n```"


def _details(number: int, check: Check, result: Result) -> str:
    lines = [f"## {number} {check.title} {result.mark}"]
    if result.failure:
        lines.append(f"It did not come to its end: {_cell(result.failure)}")
    if result.mark == FAIL:
        lines.append(f"Its log: `{check.name}/log/workerlog.0` beside this page.")
    if result.rows:
        rows = [[row.mark, row.what, row.expected, row.found] for row in result.rows]
        lines.append(_table(["", "what", "expected", "found"], rows))
    return "\n\n".join(lines)


def _done(checks: Sequence[Check], results: dict[str, Result]) -> list[tuple[int, Check]]:
    return [(number, check) for number, check in enumerate(checks, start=1) if check.name in results]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return markdown(head, [[_cell(cell) for cell in row] for row in rows])


def _cell(text: str) -> str:
    """In one line, with no character that breaks a table."""
    return " ".join(text.split()).replace("|", "\\|")
