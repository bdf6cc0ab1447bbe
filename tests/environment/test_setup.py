"""make setup, with a pretended uv that only writes down how it is called."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from launch.environment import setup
from tests.store import ROOT

UV = f"""#!{shutil.which("sh")}
echo "$*" >> "$CALLS"
[ "$1" = venv ] && {{ mkdir -p .venv/bin; ln -s {sys.executable} .venv/bin/python; }}
sleep "${{UV_SECONDS:-0}}"
[ -n "$PIP_PRINTS" ] && printf "$PIP_PRINTS"
case "$*" in *"${{UV_FAILS_AT:-nothing}}"*) echo "no space left on device" >&2; exit 28;; esac
"""


class Repository:
    """A copy of what make setup needs."""

    def __init__(self, root, bin_folder):
        self.root = root
        self.calls_file = root / "calls"
        for room in ("config", "cpu", "devices", "environment"):
            shutil.copytree(ROOT / "launch" / room, root / "launch" / room)
        shutil.copytree(ROOT / "data_tools", root / "data_tools")
        for name in ("__init__.py", "errors.py", "guard.py"):
            shutil.copy(ROOT / "launch" / name, root / "launch" / name)
        (root / "requirements").mkdir()
        for name in ("cpu.lock", "gpu.lock"):
            shutil.copy(ROOT / "requirements" / name, root / "requirements" / name)
        self.environment = {"PATH": f"{bin_folder}:{os.environ['PATH']}", "CALLS": str(self.calls_file)}

    def start(self, *arguments, python=sys.executable, **environment):
        return subprocess.Popen(
            [python, "launch/environment/setup.py", *arguments],
            cwd=self.root,
            env={**self.environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def setup(self, *arguments, **keywords):
        process = self.start(*arguments, **keywords)
        out, err = process.communicate()
        return process.returncode, out, err

    def calls(self):
        """How uv was called since the last time this was asked."""
        calls = self.calls_file.read_text().splitlines() if self.calls_file.exists() else []
        self.calls_file.unlink(missing_ok=True)
        return calls


@pytest.fixture
def repository(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "uv").write_text(UV)
    (tmp_path / "bin" / "uv").chmod(0o755)
    (tmp_path / "repository").mkdir()
    return Repository(tmp_path / "repository", tmp_path / "bin")


def base_python():
    return os.path.realpath(sys._base_executable)


def test_makes_the_environment_once(repository):
    code, out, err = repository.setup()
    assert (code, err) == (0, "")
    assert out.startswith("setup: making .venv with Python 3.") and "1.8 GB" in out and "setup: done in" in out
    assert [line for line in out.splitlines() if " of 3, " in line] == [
        "setup: 1 of 3, making an empty environment",
        "setup: 2 of 3, installing the packages of requirements/cpu.lock, which takes longest",
        "setup: 3 of 3, installing this repository",
    ]
    venv, lock, editable = repository.calls()
    assert venv == f"venv --quiet --python {base_python()} {repository.root}/.venv"
    assert lock.endswith(f"--no-deps --require-hashes -r {repository.root}/requirements/cpu.lock")
    assert editable.endswith(f"--no-build-isolation --no-deps --editable {repository.root}")
    shutil.rmtree(repository.root / "build")
    assert repository.setup() == (0, "", "") and repository.calls() == []
    assert not (repository.root / "build").exists()  # nothing is written: good for a checkout that is read-only


PIP = (
    "Collecting numpy==1.26.4 (from -r cpu.lock)\nProcessing /a/scipy-1.13.1-py3.whl (from x)\n"
    "Installing collected packages: numpy\n"
)


def test_progress_of_pip_in_a_log_and_on_a_terminal(repository, capsys):
    out = repository.setup(PIP_PRINTS=PIP.replace("\n", "\\n"))[1]
    assert out.splitlines().count("       installing 2 packages") == 3
    assert PIP in (repository.root / "build" / "setup.log").read_text()
    shown = setup.PipProgress(142)
    shown.is_terminal = True
    for line in PIP.splitlines():
        shown.line(line)
    shown.end()
    setup.PipProgress(142).line("Installing collected packages: paddle-llm-recipes\n")  # nothing was fetched before
    assert capsys.readouterr().out.split("\r\033[K") == [
        "",
        "       downloading 1 of 142 packages: numpy==1.26.4",
        "       downloading 2 of 142 packages: scipy-1.13.1-py3.whl",
        "       installing 2 packages",
        "",
    ]


def test_makes_it_anew_for_another_lock_interpreter_or_folder(repository):
    repository.setup()
    repository.calls()
    with open(repository.root / "requirements" / "cpu.lock", "a") as lock:
        lock.write("# changed\n")
    code, out, _ = repository.setup()
    assert code == 0 and "anew (changed: lock)" in out and len(repository.calls()) == 3
    stamp = repository.root / ".venv" / "setup.json"
    found = json.loads(stamp.read_text())
    stamp.write_text(json.dumps({**found, "python": "3.10.1 /usr/bin/python3.10", "root": "/somewhere/else"}))
    assert "anew (changed: root, python)" in repository.setup()[1]
    assert json.loads(stamp.read_text()) == found


def test_one_that_broke_off_is_made_anew(repository):
    code, out, err = repository.setup(UV_FAILS_AT="--require-hashes")
    assert code == 2 and "done" not in out
    assert "set-up failed (exit code 28)" in err and "| no space left on device" in err and "build/setup.log" in err
    assert (repository.root / ".venv" / "bin" / "python").exists()  # half of it is there
    repository.calls()
    leftover = repository.root / ".venv" / "leftover"
    leftover.touch()
    code, out, _ = repository.setup()
    assert code == 0 and "anew (it was not finished)" in out and not leftover.exists()
    assert len(repository.calls()) == 3


def test_two_at_once_make_it_once(repository):
    first = repository.start(UV_SECONDS="0.5")
    while not repository.calls_file.exists():
        assert first.poll() is None
    second = repository.start()
    outputs = [process.communicate()[0] for process in (first, second)]
    assert (first.returncode, second.returncode) == (0, 0)
    assert len(repository.calls()) == 3
    assert "making" in outputs[0] and outputs[1] == "setup: another make is making .venv; waiting for it\n"


def test_a_gpu_build_comes_from_paddles_index_alone_and_stays(repository):
    code, out, _ = repository.setup("--device", "gpu", "--cuda", "12.6")
    assert code == 0 and "Paddle for CUDA (cu126)" in out
    _, lock, paddle, _ = repository.calls()
    assert lock.endswith("requirements/gpu.lock")
    assert paddle.endswith("--index-url https://www.paddlepaddle.org.cn/packages/stable/cu126/ paddlepaddle-gpu==3.3.1")
    assert repository.setup() == (0, "", "")  # make demo after make setup-gpu
    assert repository.setup("--device", "gpu") == (0, "", "")
    assert "anew (changed: paddle, lock)" in repository.setup("--device", "cpu")[1]


def test_without_uv_pip_does_the_same(repository):
    bin_folder = repository.root.parent / "bin"
    (bin_folder / "uv").unlink()
    code, out, _ = repository.setup("--device", "cpu", "--print", PATH=str(bin_folder))
    create, lock, editable = out.splitlines()
    assert repository.calls() == [] and not (repository.root / ".venv").exists(), "--print runs nothing"
    assert create == f"{base_python()} -m venv {repository.root}/.venv"
    pip = f"{repository.root}/.venv/bin/python -m pip install --disable-pip-version-check"
    assert lock == f"{pip} --no-deps --require-hashes -r {repository.root}/requirements/cpu.lock"
    assert editable == f"{pip} --no-build-isolation --no-deps --editable {repository.root}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--device", "gpu"],
            "error: no NVIDIA driver with a card found here: name the build, make setup-gpu CUDA=12.6",
        ),
        (["--cuda", "12.4"], "error: CUDA=12.4: Paddle's GPU builds are for CUDA 13.0, 12.9, 12.6"),
    ],
)
def test_what_cannot_be_chosen(repository, arguments, message):
    no_nvml = {"LD_LIBRARY_PATH": ""}
    code, _, err = repository.setup(*arguments, **no_nvml)
    assert (code, err) == (2, message + "\n") and repository.calls() == []
