"""The pytest plugin of `make certify`: each test with the mark `card` in its own process, with a limit, and a report.

Checks run side by side, each on cards of its own: the first one of the order that fits on the free cards is started.

    @pytest.mark.card(seconds=20, pretended=2, limit=120, expected="...", at_fault="...")
    def test_environment(bench): ...

    seconds, pretended: about how long it takes on cards (a number or a function), and pretended; limit: it is ended
    after so many
    several: seconds more with several cards, of which it then takes two; cards: that it needs, without which it ends at
    once; alone: it takes all cards; apart: it takes more than half of them, so that no two such checks run at once
    silent: a fault shows in no error of a run; these checks come first
    quick, full: whether QUICK=1 has it, and only FULL=1
    expected: in a sentence; at_fault: what a ✗ means, and for which recipes

A test that crashes or hangs is a ✗, and the others go on. After each one a JSON file and a Markdown page are written. A
further run continues: results that passed or could not be shown are kept. No Paddle here.
"""

import contextlib
import heapq
import importlib
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import psutil
import pytest

from data_tools.cli import EXIT_INTERRUPTED
from data_tools.formats.atomic import written_aside
from launch.certify.bench import ROOT, Bench, CheckFailed, without_paths
from launch.certify.results import (
    FAIL,
    CheckResult,
    CheckRow,
    mark_of,
    read_result,
    read_results,
    read_rows,
    write_json,
)
from launch.devices.cards import driver, list_cards, visible_devices
from launch.environment.doctor_checks import check_cpu
from launch.errors import UserError
from launch.preflight.gpus import describe
from launch.processes.command import CARDS
from launch.processes.fork import TIMED_OUT, Outcome, run_ranks
from launch.processes.logs import last_lines, log_path
from launch.processes.orphans import ASK_TO_END, adopt_orphans, recorded_signals, signal_at_parents_end
from launch.reporting.markdown import markdown
from launch.reporting.records import git_revision, package_versions

TESTS = "tests.card"
MODULES = ("kernels", "tiny_model", "full_size")  # in the order in which their tests run
# For what a check has left, before the next one gets the cards: Paddle's launcher gives its ranks 30 s after SIGTERM.
SECONDS_TO_END = 45.0
SECONDS_AFTER_KILL = 5.0
POLL_SECONDS = 0.1
PRETENDED_CARDS = 2  # processes that stand for cards
RESULT = "result.json"  # in the folder of a check


@dataclass(frozen=True)
class Check:
    """A test: its name for --only, for the files and for its folder, and the arguments of its mark."""

    name: str
    expected: str
    at_fault: str
    seconds: float | Callable[[], float]
    pretended: float
    limit: float
    several: float = 0.0
    cards: int = 1
    alone: bool = False
    apart: bool = False
    silent: bool = False
    quick: bool = False
    full: bool = False

    def takes(self, pretend: bool, cards: int) -> int:
        """Return the number of cards it gets. Processes that stand for cards share cores: one check after another."""
        if pretend or self.alone or cards < self.cards:
            return cards
        return max(self.cards, 2 if self.several and cards > 1 else 1, cards // 2 + 1 if self.apart else 1)

    def seconds_for(self, pretend: bool, cards: int) -> float:
        """Return the expected seconds."""
        if pretend or cards < self.cards:
            return self.pretended if pretend else 1.0
        seconds = self.seconds() if callable(self.seconds) else self.seconds
        return seconds + (self.several if cards > 1 else 0.0)

    def limit_for(self, pretend: bool) -> float:
        """Return the limit of seconds. Pretended runs share few cores with other work of the machine."""
        return max(120.0, 12 * self.pretended) if pretend else self.limit


def checks_of(function: Callable) -> list[Check]:
    """Return the checks of a test: one, or one for each of its parameters, whose marks have more values."""
    marks = getattr(function, "pytestmark", [])
    common = next((mark.kwargs for mark in marks if mark.name == "card"), None)
    if common is None:
        return []
    for mark in marks:
        if mark.name == "parametrize":
            return [Check(str(one.id), **common | one.marks[0].kwargs) for one in mark.args[1]]
    return [Check(function.__name__.removeprefix("test_").replace("_", "-"), **common)]


def all_checks(modules: Sequence[Any] = ()) -> list[Check]:
    """Return all checks in their order: those of faults that are silent come first.

    Args:
        modules: With the tests; the ones of tests/card if there are none.
    """
    modules = modules or [importlib.import_module(f"{TESTS}.{name}") for name in MODULES]
    functions = [value for module in modules for name, value in vars(module).items() if name.startswith("test_")]
    checks = [check for function in functions for check in checks_of(function)]
    return sorted(checks, key=lambda check: not check.silent)


def first_that_fits(waiting: Sequence[Check], pretend: bool, cards: int, free: int) -> Check | None:
    """Return the first check for which enough cards are free."""
    return next((check for check in waiting if check.takes(pretend, cards) <= free), None)


def total_seconds(checks: Sequence[Check], pretend: bool, cards: int) -> float:
    """Return the expected seconds of all these checks together, as the plugin starts them."""
    now, free, waiting, running = 0.0, cards, list(checks), []  # running: a heap of (end, cards)
    while waiting or running:
        if check := first_that_fits(waiting, pretend, cards, free):
            waiting.remove(check)
            taken = check.takes(pretend, cards)
            free -= taken
            heapq.heappush(running, (now + check.seconds_for(pretend, cards), taken))
        else:
            now, taken = heapq.heappop(running)
            free += taken
    return now


def choose(only: str, checks: Sequence[Check], quick: bool = False, full: bool = False) -> list[Check]:
    """Return the checks that --only names by name or number; without it the ones of QUICK=1, of FULL=1 or of neither.

    Raises:
        UserError: For an unknown one.
    """
    if not only:
        return [check for check in checks if (check.quick or not quick) and (full or not check.full)]
    known = {check.name: check for check in checks} | {str(n): check for n, check in enumerate(checks, start=1)}
    words = [word.strip() for word in only.split(",") if word.strip()]
    unknown = [word for word in words if word not in known]
    if unknown or not words:
        names = ", ".join(f"{number} {check.name}" for number, check in enumerate(checks, start=1))
        raise UserError(f"--only: found {unknown[0] if unknown else only!r}, allowed: {names}.")
    return [check for check in checks if check in [known[word] for word in words]]


def describe_machine(pretend: bool) -> dict:
    """Return machine, versions and mode, in values that JSON keeps unchanged."""
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


class RunningCheck(NamedTuple):
    """A check that runs, its cards, and the process that waits for it."""

    check: Check
    devices: list[str]
    process: Any


@dataclass
class CertificatePlugin:
    """The plugin that runs the checks and writes the report.

    Attributes:
        directory: Of the report and of a folder for each check.
        of: Machine, versions and mode; results of another one are dropped.
        cards: Their number, or the number of processes used instead.
        materials: The tiny model and its data.
        chosen: The checks to run, without earlier passed ones if it was not `named`.
    """

    directory: Path
    of: dict
    cards: int
    materials: Path
    checks: Sequence[Check]
    chosen: Sequence[Check]
    named: bool = False
    results: dict[str, CheckResult] = field(default_factory=dict)
    interrupted: bool = False

    def __post_init__(self):
        self.file, self.page = self.directory / "certify.json", self.directory / "certify.md"
        self.pretend = self.of["pretended"]
        of, earlier = read_results(self.file)
        if of in ({}, self.of):
            self.results = earlier
        else:
            for path in (self.file, self.page):
                if path.exists():
                    path.rename(_free_name(path))
            print("The results here are of another machine, version or mode: kept under another name.", flush=True)
        self.waiting = []
        for check in self.chosen:
            result = self.results.get(check.name)
            if self.named or result is None or result.mark == FAIL:
                self.waiting.append(check)
        for check in self.waiting:
            self.results.pop(check.name, None)

    # ---- hooks of pytest

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        """Select the waiting checks."""
        waiting = {check.name for check in self.waiting}
        items[:] = [item for item in items if _name(item) in waiting]

    @pytest.fixture
    def bench(self, request) -> Bench:
        """Make the bench of a check."""
        [check] = [check for check in self.waiting if check.name == _name(request.node)]
        cards = check.takes(self.pretend, self.cards)
        return Bench(_fresh(self.directory / check.name), self.materials, cards, self.pretend)

    def pytest_runtestloop(self, session):
        """Run the checks side by side. Their results are recorded as they end."""
        items = {_name(item): item for item in session.items}
        waiting, running = [check for check in self.waiting if check.name in items], []
        free = (visible_devices() or [str(number) for number in range(self.cards)])[: self.cards]
        forking = multiprocessing.get_context("fork")
        with recorded_signals() as signals:
            while waiting or running:
                if signals:
                    signals.clear()
                    self._interrupt(waiting, running)
                if check := first_that_fits(waiting, self.pretend, self.cards, len(free)):
                    left = duration(total_seconds(waiting, self.pretend, self.cards))
                    number = f"[{list(self.checks).index(check) + 1}/{len(self.checks)}]"
                    print(f"{number} {check.name}: {check.expected} (all that is left: {left})", flush=True)
                    waiting.remove(check)
                    taken = check.takes(self.pretend, self.cards)
                    process = forking.Process(target=self._run_on, args=(items[check.name], free[:taken]))
                    process.start()
                    running.append(RunningCheck(check, free[:taken], process))
                    del free[:taken]
                    continue
                time.sleep(POLL_SECONDS)
                for one in [one for one in running if not one.process.is_alive()]:
                    running.remove(one)
                    free += one.devices
                    if one.process.exitcode == EXIT_INTERRUPTED:
                        self._interrupt(waiting, running)
                    else:
                        self._record(one)
        return True

    def pytest_pyfunc_call(self, pyfuncitem):
        """Run a check in a process and store its result. Runs in the process that waits for it."""
        [check] = [check for check in self.waiting if check.name == _name(pyfuncitem)]
        arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
        bench = arguments["bench"]
        result = self._run(check, partial(pyfuncitem.obj, **arguments), bench.directory)
        write_json(bench.directory / RESULT, asdict(result))
        return True

    def pytest_sessionfinish(self):
        """Write the report."""
        self.write()

    # ---- one check

    def _run_on(self, item, devices: list[str]) -> None:
        """Run a check with these cards, in a process that becomes the parent of all that the check leaves behind."""
        os.setpgid(0, 0)  # a terminal's Ctrl-C reaches the plugin alone, which passes it on
        signal_at_parents_end(signal.SIGTERM)
        adopt_orphans()
        if not self.pretend:
            os.environ[CARDS] = ",".join(devices)
        item.ihook.pytest_runtest_protocol(item=item, nextitem=None)
        if self.interrupted:
            sys.exit(EXIT_INTERRUPTED)

    def _interrupt(self, waiting: list[Check], running: Sequence[RunningCheck]) -> None:
        """Start no further check, and end the running ones."""
        self.interrupted = True
        waiting.clear()
        for one in running:
            one.process.terminate()

    def _record(self, ended: RunningCheck) -> None:
        """Add the result of a check that has ended, and write the report."""
        name, folder = ended.check.name, self.directory / ended.check.name
        result = read_result(folder / RESULT)
        if result is None:
            failure = f"its process ended without a result, with exit code {ended.process.exitcode}"
            result = CheckResult(name, FAIL, 0.0, read_rows(folder / "rows.json"), failure)
        self.results[name] = result
        self.write()
        print(f"    {result.mark} {name}: {result.found} ({result.seconds:.0f} s)", flush=True)

    def _run(self, check: Check, function: Callable, directory: Path) -> CheckResult:
        """Return the result of a check in a process of its own.

        It returns once none of the check's processes is left: a process that has called adopt_orphans sees all of them.
        """
        before = dict(os.environ)

        def run_alone(rank: int) -> None:
            # What run_ranks sets says that this is one rank of a training, which it is not.
            os.environ.clear()
            os.environ.update(before)
            try:
                function()
            except (CheckFailed, UserError) as error:
                print(f"{type(error).__name__}: {error}", flush=True)
                sys.exit(3)

        started, limit = time.monotonic(), check.limit_for(self.pretend)
        outcome = run_ranks(1, run_alone, directory / "log", time_limit=limit)
        seconds = time.monotonic() - started
        _end_the_rest()
        # A signal to this process, such as Ctrl-C, ended the check.
        self.interrupted = outcome.failed_rank is None and outcome.exit_code in [128 + one for one in ASK_TO_END]
        failure = _failure(outcome, directory / "log", limit)
        rows = read_rows(directory / "rows.json")
        return CheckResult(check.name, mark_of(rows, failure, self.pretend), round(seconds, 1), rows, failure)

    def write(self) -> None:
        """Write both files, each whole."""
        self.results = {check.name: self.results[check.name] for check in self.checks if check.name in self.results}
        write_json(self.file, {"of": self.of, "results": [asdict(one) for one in self.results.values()]})
        with written_aside(self.page) as file:
            file.write(self.text().encode())

    # ---- the Markdown page to send back

    def text(self) -> str:
        """Return the page of the report."""
        done = [
            (n, check, self.results[check.name]) for n, check in enumerate(self.checks, 1) if check.name in self.results
        ]
        faults = [f"- {n} {check.name}: {check.at_fault}." for n, check, result in done if result.mark == FAIL]
        published = [row.numbers["published"] for row in self._rows_with("published")]
        parts = [
            _head(self.of),
            self._overview(),
            "## What each ✗ means\n\n" + "\n".join(faults) if faults else "",
            self._measured(),
            "## Lines for benchmarks/published.py\n\n```\n" + "\n".join(published) + "\n```" if published else "",
            *(_details(number, result) for number, _, result in done),
        ]
        return "\n\n".join(part for part in parts if part) + "\n"

    def _overview(self) -> str:
        rows = []
        for number, check in enumerate(self.checks, start=1):
            result = self.results.get(check.name)
            why = "not run yet" if check in self.chosen else "left out: not chosen"
            found = (result.mark, result.found, f"{result.seconds:.0f}") if result else ("", why, "")
            rows.append([str(number), found[0], check.name, check.expected, found[1], found[2]])
        return "## Checks\n\n" + _table(["", "", "check", "expected", "found", "seconds"], rows)

    def _measured(self) -> str:
        """Return the table of rows that have a plan, and how far plan and card were apart."""
        numbers = [(row.what, row.numbers) for row in self._rows_with("measured") if row.numbers["measured"]]
        if not numbers:
            return ""
        apart: dict[str, list[float]] = {}
        for _, one in numbers:
            apart.setdefault(one["unit"], []).append(one["planned"] / one["measured"] - 1)
        lines = [f"- {unit}: {median(found):+.1%} (median of {len(found)})" for unit, found in apart.items()]
        head = ["what", "unit", "planned", "measured", "plan is off by"]
        rows = [
            [what, one["unit"], f"{one['planned']:,.2f}", f"{one['measured']:,.2f}",
             f"{one['planned'] / one['measured'] - 1:+.1%}"]
            for what, one in numbers
        ]  # fmt: skip
        return "## Planned and measured\n\nThe plan is off by\n\n" + "\n".join(lines) + "\n\n" + _table(head, rows)

    def _rows_with(self, number: str) -> list[CheckRow]:
        return [row for result in self.results.values() for row in result.rows if number in row.numbers]


def run(report: CertificatePlugin, files: Sequence[Path] = ()) -> int:
    """Run the tests of these files, or of tests/card, with the plugin. Returns pytest's exit code."""
    files = files or [ROOT / TESTS.replace(".", "/") / f"{name}.py" for name in MODULES]
    switches = ["-s", "-p", "no:terminal", "-p", "no:cacheprovider", "-p", "no:xdist", "--noconftest"]
    rules = ["--rootdir", str(ROOT), "-o", "addopts=", "-o", "timeout=0"]
    return pytest.main([*switches, *rules, *map(str, files)], plugins=[report])


def _name(item) -> str:
    """Return the name of a test, as checks_of() has it."""
    spec = getattr(item, "callspec", None)
    return spec.id if spec else item.originalname.removeprefix("test_").replace("_", "-")


def duration(seconds: float) -> str:
    """Return a duration such as "about 12 min"."""
    return f"about {seconds:.0f} s" if seconds < 90 else f"about {seconds / 60:.0f} min"


def _end_the_rest() -> None:
    """Wait for all descendants, then kill the remaining ones."""
    deadline = time.monotonic() + SECONDS_TO_END
    while True:
        left = psutil.Process().children(recursive=True)
        if not left or time.monotonic() >= deadline:
            break
        psutil.wait_procs(left, timeout=POLL_SECONDS)
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(left, timeout=SECONDS_AFTER_KILL)  # no longer: a driver that hangs may hold one for ever


def _failure(outcome: Outcome, log_dir: Path, limit: float) -> str:
    """Return why a check did not finish, or ""."""
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


def _fresh(directory: Path) -> Path:
    """Return an empty folder. An earlier run's is renamed."""
    if directory.exists():
        directory.rename(_free_name(directory))
    directory.mkdir(parents=True)
    return directory


def _free_name(path: Path) -> Path:
    number = 1
    while path.with_name(f"{path.stem}.{number}{path.suffix}").exists():
        number += 1
    return path.with_name(f"{path.stem}.{number}{path.suffix}")


PRETENDED = (
    "**A pretended run: processes on a CPU stood for cards. It shows that the checks run, and nothing about any card.**"
)


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


def _details(number: int, result: CheckResult) -> str:
    lines = [f"## {number} {result.name} {result.mark}"]
    if result.failure:
        lines.append(f"It did not come to its end: {_cell(result.failure)}")
    if result.mark == FAIL:
        lines.append(f"Its log: `{result.name}/log/workerlog.0` beside this page.")
    if result.rows:
        rows = [[row.mark, row.what, row.expected, row.found] for row in result.rows]
        lines.append(_table(["", "what", "expected", "found"], rows))
    return "\n\n".join(lines)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return markdown(head, [[_cell(cell) for cell in row] for row in rows])


def _cell(text: str) -> str:
    """Return the text in one line, without characters that break a table."""
    return " ".join(text.split()).replace("|", "\\|")
