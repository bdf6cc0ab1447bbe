"""The doctor as a command."""

import json
import subprocess
import sys

from launch.commands import doctor
from launch.preflight.report import Finding
from tests.store import ROOT


def run_doctor(*arguments, python=sys.executable, folder=ROOT):
    return subprocess.run(
        [python, str(ROOT / "launch" / "commands" / "doctor.py"), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
    )


def test_lines_and_json_tell_the_same_from_any_folder(tmp_path):
    text, listed = run_doctor(folder=tmp_path), json.loads(run_doctor("--format", "json").stdout)
    subjects = [finding["subject"] for finding in listed["findings"]]
    assert subjects[:2] == ["Python", "packages"]
    assert {"CPU", "cards", "driver", "disk", "shared memory", "ports", "proxy", "ccache"} < set(subjects)
    for number, finding in enumerate(listed["findings"], start=1):
        mark = "✓" if finding["ok"] else "✗"
        assert f"{number:3d} {mark} {finding['subject']} " in text.stdout
    assert text.returncode == (0 if listed["ok"] else 1)


def test_a_fault_is_exit_code_1_with_its_fix(monkeypatch, capsys):
    findings = [Finding(True, "Python", "3.11.7"), Finding(False, "ports", "none", "allow them")]
    monkeypatch.setattr(doctor, "examine", lambda: findings)
    assert doctor.main([]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "  1 ✓ Python  3.11.7",
        "  2 ✗ ports   none",
        "              fix: allow them",
        "",
        "2 checks, 1 to mend: see the fixes above",
    ]
    assert doctor.main(["--format", "json"]) == 1
    assert json.loads(capsys.readouterr().out)["ok"] is False


def test_a_bare_python_is_told_what_to_do(tmp_path):
    """An environment with nothing in it, not even pip."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    result = run_doctor(python=str(tmp_path / "bare" / "bin" / "python"))
    assert result.returncode == 1
    assert "✗ packages" in result.stdout and "not installed here" in result.stdout
    assert "nvidia-ml-py is not installed" in result.stdout


def test_too_old_a_python_is_told_so_and_paddle_is_not_imported():
    pretend = "import runpy, sys; sys.version_info = (3, 8, 18); "
    pretend += "runpy.run_path('launch/commands/doctor.py', None, '__main__')"
    result = subprocess.run([sys.executable, "-c", pretend], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stderr.startswith("error: Python 3.10, 3.11 or 3.12 is needed, this is 3.8.18")
    code = "import sys; from launch.commands import doctor; doctor.examine(); print('paddle' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert result.stdout.splitlines()[-1] == "False"
