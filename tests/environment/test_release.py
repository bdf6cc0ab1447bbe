"""make release-check: what is refused before a tag, and that CI runs in a fresh clone with all nightly tests."""

import shutil
import subprocess

import pytest

from tests.store import ROOT

RAN = 'cd "$(dirname "$0")/.."; echo ran in $PWD, nightly $NIGHTLY; exit ${CODE:-0}\n'


def git(folder, *words: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@b.example"]
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def release(tmp_path):
    """Returns the exit code and the output of release-check in a repository of these contents."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "release-check", tmp_path / ".ci")
    (tmp_path / ".ci" / "run").write_text(RAN)
    git(tmp_path, "init", "--quiet")

    def check(version: str, section: str, commit: bool = True, **environment: str) -> tuple[int, str]:
        (tmp_path / "pyproject.toml").write_text(f'[project]\nversion = "{version}"\n')
        (tmp_path / "CHANGELOG.md").write_text(f"# Changes\n\n## {section}\n\n## 0.0.1 (2020-01-01)\n")
        if commit:
            git(tmp_path, "add", "--all")
            git(tmp_path, "commit", "--quiet", "--allow-empty", "--message", "A commit")
        command = ["env", *(f"{name}={value}" for name, value in environment.items()), "bash", ".ci/release-check"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    return check


def test_what_is_refused_before_a_tag(release, tmp_path):
    assert release("1.0.0", "0.9.0 (not released)") == (
        1,
        "release-check: pyproject.toml has version 1.0.0, CHANGELOG.md's first section is 0.9.0: write the same into "
        "both\n",
    )
    code, said = release("1.0.0", "1.0.0 (not released)", commit=False)
    assert code == 1 and said.startswith("release-check: commit or remove these first:  M CHANGELOG.md")
    code, said = release("1.0.0", "1.0.0 (not released)", CODE="1")
    assert code == 1 and said.endswith("release-check: the checks above failed\n")
    code, said = release("1.0.0", "1.0.0 (not released)")
    [ran] = [line for line in said.splitlines() if line.startswith("ran in ")]
    assert code == 0 and ran.endswith(", nightly all") and str(tmp_path) not in ran
    assert "git tag v1.0.0" in said
    git(tmp_path, "tag", "v1.0.0")
    assert release("1.0.0", "1.0.0") == (1, "release-check: tag v1.0.0 exists: raise the version\n")


def test_the_version_is_that_of_the_changes():
    first = next(line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## "))
    assert f'version = "{first.split()[1]}"' in (ROOT / "pyproject.toml").read_text()
