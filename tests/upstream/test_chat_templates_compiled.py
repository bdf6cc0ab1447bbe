"""Tokenizers whose chat template PaddleNLP cannot compile."""

import json
import shutil

import pytest

from launch.families.encoding import find_template
from tests.training.finetune_material import VOCABULARY

LOADED = "tests.upstream.chat_templates_ranks:loaded"
SAVED = "tests.upstream.chat_templates_ranks:saved"
TEMPLATES = ["{% for m in messages %}{% break %}{% endfor %}", [{"name": "default", "template": "x"}]]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    from data_tools.tokenizer import save_tokenizer, train_tokenizer
    from launch.rehearsal.materials import documents

    directory = tmp_path_factory.mktemp("tokenizer")
    save_tokenizer(directory, train_tokenizer(list(documents())[:50], VOCABULARY))
    return directory


@pytest.mark.parametrize("template", TEMPLATES, ids=["loop control", "list"])
def test_are_loaded_and_remember_where_they_are_from(ranks, directory, template):
    write(directory, template)
    assert ranks(1, LOADED, str(directory), True) == [{"directory": str(directory), "template": template}]


@pytest.mark.parametrize("template", TEMPLATES, ids=["loop control", "list"])
def test_upstream_fails(ranks, directory, template):
    write(directory, template)
    [found] = ranks(1, LOADED, str(directory), False)
    assert "TemplateSyntaxError" in found or "Receive error chat_template data" in found


@pytest.fixture
def with_files(directory, tmp_path):
    """A tokenizer whose template is in two files, and none in tokenizer_config.json."""
    source = tmp_path / "source"
    shutil.copytree(directory, source)
    write(source, None)
    (source / "chat_template.jinja").write_text("{{ messages[0].content }}\n")
    (source / "chat_template.json").write_text(json.dumps({"conversation": ["Q{{user}}", "A{{bot}}"]}))
    return source


def test_files_of_templates_are_saved_with_what_is_trained(ranks, with_files, tmp_path):
    target, llama = tmp_path / "target", {"model_type": "llama"}
    ranks(1, SAVED, str(with_files), str(target), True)
    for name in ("chat_template.jinja", "chat_template.json"):
        assert (target / name).read_bytes() == (with_files / name).read_bytes()
        assert find_template(None, target, llama).source == find_template(None, with_files, llama).source
        (target / name).unlink(), (with_files / name).unlink()


def test_files_of_templates_give_way_to_the_one_that_was_trained_with(ranks, with_files, tmp_path):
    [names] = ranks(1, SAVED, str(with_files), str(tmp_path / "target"), True, True)
    assert not [name for name in names if name.startswith("chat_template")]
    assert find_template(None, tmp_path / "target", {"model_type": "llama"}).source == "T"


def test_upstream_loses_the_files(ranks, with_files, tmp_path):
    (with_files / "chat_template.json").unlink()
    [names] = ranks(1, SAVED, str(with_files), str(tmp_path / "target"), False)
    assert "chat_template.jinja" not in names and "tokenizer_config.json" in names


def write(directory, template) -> None:
    file = directory / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"chat_template": template}))
