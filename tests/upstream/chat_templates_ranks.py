"""A tokenizer with a chat template, for test_chat_templates_compiled.py."""

import os

from paddlenlp.transformers import AutoTokenizer

from data_tools.formats.dialogues.chat_template import ChatTemplate, trained_with
from launch.training.model import open_tokenizer
from launch.upstream import correct


def loaded(directory: str, corrected: bool) -> dict | str:
    """Where it says that it is from, and the template that it would save; or how loading it fails."""
    if corrected:
        correct(["chat_templates_compiled"])
        correct(["chat_templates_compiled"])
    try:
        tokenizer = AutoTokenizer.from_pretrained(directory)
    except Exception as error:
        return repr(error)
    return {"directory": str(tokenizer.directory), "template": tokenizer.init_kwargs["chat_template"]}


def saved(directory: str, target: str, corrected: bool, trained: bool = False) -> list[str]:
    """The names of the files that a tokenizer leaves, as one of a recipe, or as upstream has it. trained: it says with
    which template the model was trained."""
    if not corrected:
        AutoTokenizer.from_pretrained(directory).save_pretrained(target)
        return sorted(os.listdir(target))
    correct(["chat_templates_compiled"])
    correct(["chat_templates_compiled"])
    tokenizer = open_tokenizer(directory, directory)
    if trained:
        tokenizer.init_kwargs = trained_with(ChatTemplate("T"), tokenizer.init_kwargs)
    tokenizer.save_pretrained(target)
    return sorted(os.listdir(target))
