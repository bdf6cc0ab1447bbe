"""The interpreter that make setup takes, among pretended ones."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "launch" / "environment" / "find_python.sh"
SUITABLE = f'exec {sys.executable} "$@"'
PRETEND = "import sys; sys.version_info = (3, 13, 0, 'final', 0); exec(sys.argv[1])"
TOO_NEW = f'[ "$1" = --version ] && echo "Python 3.13.0" && exit; exec {sys.executable} -c "{PRETEND}" "$2"'
SHIM = 'echo "pyenv: command not found" >&2; exit 127'  # exists and refuses to start


@pytest.fixture
def find(tmp_path):
    """find(python3=SCRIPT_BODY, ..., PYTHON="..."): runs the search with these programs alone on PATH."""
    script = tmp_path / "repository" / "launch" / "environment" / "find_python.sh"
    script.parent.mkdir(parents=True)
    shutil.copy(SCRIPT, script)
    (tmp_path / "bin").mkdir()
    for tool in ("dirname", "head", "cat"):
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool))

    def find(PYTHON="", **programs):
        for name, body in programs.items():
            make_program(tmp_path / "bin" / name, body)
        environment = {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path), "PYTHON": PYTHON}
        return subprocess.run([shutil.which("sh"), str(script)], env=environment, capture_output=True, text=True)

    return find


def make_program(path, body):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{shutil.which('sh')}\n{body}\n")
    path.chmod(0o755)


def test_a_candidate_must_run_and_be_of_a_right_version(find, tmp_path):
    result = find(**{"python3": TOO_NEW, "python3.12": SHIM, "python3.11": SUITABLE})
    assert (result.returncode, result.stdout) == (0, f"{tmp_path}/bin/python3.11\n")


def test_the_users_python3_comes_first_but_for_the_environment_that_is_there(find, tmp_path):
    assert find(**{"python3": SUITABLE, "python3.12": SUITABLE}).stdout == f"{tmp_path}/bin/python3\n"
    venv_python = tmp_path / "repository" / ".venv" / "bin" / "python"
    make_program(venv_python, SUITABLE)
    assert find().stdout == f"{venv_python}\n"
    make_program(venv_python, SHIM)  # its interpreter was uninstalled
    assert find().stdout == f"{tmp_path}/bin/python3\n"


def test_version_managers_are_searched(find, tmp_path):
    python = tmp_path / ".pyenv" / "versions" / "3.11.7" / "bin" / "python"
    make_program(python, SUITABLE)
    assert find(python3=TOO_NEW).stdout == f"{python}\n"


def test_without_uv_the_interpreter_must_be_able_to_make_environments(find, tmp_path):
    no_ensurepip = f'case "$2" in *ensurepip*) exit 1;; *) exec {sys.executable} "$@";; esac'
    assert find(python3=no_ensurepip).returncode == 2
    assert find(uv="true").stdout == f"{tmp_path}/bin/python3\n"


def test_none_found_is_an_error_with_the_fix_and_the_named_one_is_taken_or_refused(find, tmp_path):
    result = find(python3=TOO_NEW)
    assert (result.returncode, result.stdout) == (2, "")
    assert "error: no Python 3.10, 3.11 or 3.12 found" in result.stderr
    assert "make setup PYTHON=/path/to/python3.11" in result.stderr
    find(**{"python3": SUITABLE, "other": SUITABLE, "new": TOO_NEW})
    assert find(PYTHON=f"{tmp_path}/bin/other").stdout == f"{tmp_path}/bin/other\n"
    result = find(PYTHON=f"{tmp_path}/bin/new")
    assert (result.returncode, result.stdout) == (2, "")
    assert "found: Python 3.13.0" in result.stderr
    assert find(PYTHON="/no/such/python").returncode == 2
