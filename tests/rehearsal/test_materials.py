"""What a rehearsal trains on: there as a whole or not at all, whoever else is making it, and the same everywhere."""

import hashlib

import pytest

from data_tools.formats.tokens.indexed import IndexedDataset
from launch.rehearsal import materials
from launch.rehearsal.materials import documents
from tests.recipes.machine import Machine

# Stands for Paddle: its GPU build asks CUDA for the devices at import.
PADDLE = """
import os, sys
sys.exit("CUDA_VISIBLE_DEVICES=" + repr(os.environ.get("CUDA_VISIBLE_DEVICES")))
"""


@pytest.fixture
def without_model(monkeypatch):
    """The model, which needs Paddle, is left out; tests/recipes/test_rehearsal.py loads a real one."""
    monkeypatch.setattr(materials, "_make_model", lambda directory, configuration: None)


def contents(directory) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_same_data_every_time_within_the_models_vocabulary(tmp_path, without_model):
    for name in ("a", "b"):
        materials.make_materials(tmp_path / name, "llama-rehearsal")
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    tokens = IndexedDataset(tmp_path / "a" / "data" / "corpus").tokens
    assert tokens.size > 100_000 and tokens.max() < 1024
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_failure_leaves_nothing(tmp_path, monkeypatch):
    def fail(directory, configuration):
        raise OSError("disk full")

    monkeypatch.setattr(materials, "_make_model", fail)
    with pytest.raises(OSError, match="disk full"):
        materials.make_materials(tmp_path / "a", "llama-rehearsal")
    assert list(tmp_path.iterdir()) == []


def test_what_another_rehearsal_made_meanwhile_is_kept(tmp_path, monkeypatch):
    def be_slower(directory, configuration):
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "theirs").touch()

    monkeypatch.setattr(materials, "_make_model", be_slower)
    materials.make_materials(tmp_path / "a", "llama-rehearsal")
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")] == ["a", "a/theirs"]


def test_paddle_is_imported_where_no_card_is_seen(tmp_path):
    """A process that has asked CUDA for its devices cannot fork others that use it: materials, ranks."""
    machine = Machine(tmp_path, cards=2)
    (machine.stubs / "paddle" / "__init__.py").write_text(PADDLE)
    done = machine.run("llama-7b/lora", ACTION="rehearse", CUDA_VISIBLE_DEVICES="0,1")
    assert done.returncode == 1 and done.stderr.endswith("CUDA_VISIBLE_DEVICES=''\n"), done.stdout + done.stderr


SHA256 = "fa55373910fa00072252a34755f5c593ecd6c8d3f3812f97e1446d7accee988e"


def test_text_is_what_it_was():
    """Another text is another set of curves: python -m tests.golden for every recipe, with the reason."""
    assert hashlib.sha256("".join(documents()).encode()).hexdigest() == SHA256
