"""What CONTRIBUTING.md says of additions: the files of each, and that it works, in a copy of the repository.

Not counted are tests, and what `make regenerate` writes: translations are written into its zh.po.
"""

import os
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

from docs.tools.pages import read
from tests.docs.pages import CODE
from tests.store import ROOT

COPIED = (
    "launch",
    "data_tools",
    "custom_ops",
    "benchmarks",
    "docs",
    "recipes",
    "requirements",
    "tests",
    "Makefile",
    "pyproject.toml",
)
ENGLISH, CHINESE = "noise is loud enough already", "噪声已经够大了"


def edited(path: str, *changes: tuple[str, str]) -> dict[str, str]:
    """Return a file of the repository with each first text, a pattern, replaced by the second; each is there."""
    text = (ROOT / path).read_text(encoding="utf-8")
    for old, new in changes:
        text, found = re.subn(old, new, text, count=1, flags=re.DOTALL)
        assert found, f"{path} has no {old!r}"
    return {path: text}


def copied(path: str, other: str, *changes: tuple[str, str]) -> dict[str, str]:
    return {other: edited(path, *changes)[path]}


def listed(path: str, name: str, beside: str) -> dict[str, str]:
    """Return a registry with a module's object before another's."""
    line = rf"(from launch\.\w+\.){beside.lower()} import {beside}\n"
    return edited(
        path, (line, rf"\1{name.lower()} import {name}\n\g<0>"), (rf"(?<=[(\s]){beside},", f"{name}, {beside},")
    )


# Addition: the files that it takes.
ADDITIONS = {
    "method": lambda: {
        **copied(
            "launch/methods/finetuning.py", "launch/methods/echoing.py",
            ("FINETUNING = ", "ECHOING = "), ('"finetuning"', '"echoing"'),
            ("FinetuningDataArguments", "EchoArguments"),
            (r"arguments=\(FinetuningDataArguments", "arguments=(EchoArguments"), (r"\n    script=[^\n]*", ""),
            (r"\n    files=[^\n]*", ""), (r"\n    fits=\{.*?\n    \},", ""), ("ArgumentFiles, Fit, ", ""),
        ),
        **listed("launch/methods/registry.py", "ECHOING", "FINETUNING"),
    },
    "family": lambda: {
        **copied(
            "launch/families/qwen2.py", "launch/families/toy.py",
            ("QWEN2 = ", "TOY = "), ('name="qwen2"', 'name="toy"'), ('"Qwen2"', '"Toy"'),
            ('model_type="qwen2"', 'model_type="toy"'), ("qwen2-rehearsal", "toy-rehearsal"),
            ('model_type="qwen2"', 'model_type="toy"'),
        ),
        **listed("launch/families/registry.py", "TOY", "QWEN2"),
        **copied(
            "launch/families/configs/qwen2-rehearsal.json", "launch/families/configs/toy-rehearsal.json",
            ('"qwen2"', '"toy"'),
        ),
    },
    "flag": lambda: {
        **edited(
            "launch/methods/finetuning.py",
            (
                "    src_length: int",
                '    louder: int = flag(0, bounds={"least": 0}, help="Say it louder.")\n    src_length: int',
            ),
        ),
        **edited("launch/config/resume_flags.py", ("lora_dropout", "louder lora_dropout")),
    },
    "rule": lambda: edited("launch/preflight/rules/batch.py", (
        r"RULES = \(",
        'RULES = (\n    Rule(flag="louder", when=lambda run: bool(run.flags.louder and run.flags.neftune), '
        f'found="louder", reason="{ENGLISH}", source="a test", fix="--louder 0"),',
    )),
    "recipe": lambda: copied(
        "recipes/tiny/lora.sh", "recipes/tiny/echo.sh",
        ("\n# Alias[^\n]*", ""), ("run launch/finetune_generation.py", "run launch/train.py echoing"),
        ("--model_name_or_path build/demo/model", "--model_name_or_path toy-rehearsal"),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> Path:
    """The repository with all additions, and the files regenerated that they need."""
    folder = tmp_path_factory.mktemp("additions")
    for name in COPIED:
        take = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        take(ROOT / name, folder / name)
    written: set[str] = set()
    for files in ADDITIONS.values():
        for path, text in files().items():
            assert path not in written, f"{path}: two additions change it, and the second would undo the first"
            written.add(path)
            (folder / path).write_text(text, encoding="utf-8")
    for generator in ("launch.training.flag_schema", "docs.tools.messages"):
        done = python(folder, "-m", generator)
        assert done.returncode == 0, done.stdout + done.stderr
    catalog = folder / "data_tools" / "locale" / "zh.po"
    entry = f'msgid "{ENGLISH}"\nmsgstr "'
    assert entry in catalog.read_text(encoding="utf-8")
    catalog.write_text(catalog.read_text(encoding="utf-8").replace(entry, entry + CHINESE), encoding="utf-8")
    return folder


def python(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder)} | environment,
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.mark.nightly
@pytest.mark.parametrize("name", ADDITIONS)
def test_contributing_names_the_files_of_an_addition(name):
    section = read(ROOT / "CONTRIBUTING.md").partition(f"## Where do I add a {name}?")[2].partition("\n## ")[0]
    named = [re.sub(r"<\w+>|\bX\b", "*", code) for code in CODE.findall(section)]
    assert [path for path in ADDITIONS[name]() if not any(fnmatch(path, f"*{one}*") for one in named)] == []


@pytest.mark.nightly
def test_a_recipe_of_the_new_method_and_family_rehearses(copy):
    done = python(copy, "launch/recipe.py", "recipes/tiny/echo.sh", ACTION="rehearse")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "/materials/toy-rehearsal-" in done.stdout and "step 20/20 100%  loss 6." in done.stdout, done.stdout


@pytest.mark.nightly
def test_the_new_rule_refuses_the_new_flag_in_chinese(copy):
    flags = ("recipes/tiny/lora.sh", "--louder", "1", "--neftune", "1")
    done = python(copy, "launch/recipe.py", *flags, ACTION="plan", LAUNCH_LANG="zh")
    assert done.returncode == 2 and f"--louder  louder：{CHINESE}" in done.stderr, done.stdout + done.stderr


@pytest.mark.nightly
def test_additions_keep_the_laws(copy):
    laws = ("tests/test_methods_law.py", "tests/test_import_law.py")
    done = python(copy, "-m", "pytest", "-q", "-n", "0", "-m", "not long and not nightly", *laws)
    assert done.returncode == 0, done.stdout[-3000:]
