"""The numbered lines in which checks are shown."""

import io

from launch.preflight.report import Finding, print_findings

GOOD = Finding(True, "Python", "3.11.7")
SMALL = "/dev/shm has 0.1 GiB: " + "too small for the workers " * 3
BAD = Finding(False, "shared memory", SMALL, "docker run --shm-size=8g")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def printed(findings, file):
    print_findings(findings, file)
    return file.getvalue()


def test_lines_are_numbered_and_a_fault_has_its_fix_below():
    assert printed([GOOD, BAD], io.StringIO()).splitlines() == [
        "  1 ✓ Python         3.11.7",
        "  2 ✗ shared memory  /dev/shm has 0.1 GiB: too small for the workers too small",
        "                     for the workers too small for the workers",
        "                     fix: docker run --shm-size=8g",
    ]
    long = Finding(False, "driver", "a driver that is told about in very many words " * 5, "some cure or other " * 9)
    assert max(len(line) for line in printed([long] * 12, io.StringIO()).splitlines()) <= 80


def test_colours_only_on_a_terminal_and_not_with_no_color(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\033" not in printed([GOOD, BAD], io.StringIO())
    assert "\033[32m✓\033[0m Python" in printed([GOOD], Terminal())
    assert "\033[31m✗\033[0m shared" in printed([BAD], Terminal())
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\033" not in printed([GOOD, BAD], Terminal())


def test_letters_where_the_encoding_lacks_the_signs():
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding="ascii")
    print_findings([GOOD, BAD], file)
    file.flush()
    assert raw.getvalue().decode("ascii").splitlines()[0] == "  1 ok Python         3.11.7"


def test_commands_and_samples_in_a_finding_stay_whole_lines():
    command = "    make " + "x " * 80 + "end"
    lines = printed([Finding(False, "model", f"is none:\n{command}\nThen it is.")], io.StringIO()).splitlines()
    assert [line.strip() for line in lines] == ["1 ✗ model  is none:", command.strip(), "Then it is."]
