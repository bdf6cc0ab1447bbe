"""A tokenizer does not load where PaddleNLP cannot compile its chat template.

paddlenlp/transformers/tokenizer_utils.py, ChatTemplateMixin: compiles the chat_template of tokenizer_config.json when
the tokenizer is loaded, without the tags that transformers knows ({% break %}, {% generation %}), takes neither a list
of named templates nor transformers' form of chat_template.json, and renders without limits of time and memory. It
saves a chat_template.json only where it has compiled one, and never a chat_template.jinja.
Corrected: a tokenizer keeps what its files say and remembers their directory; our own templates
(data_tools/dialogues/chat_template.py) read it from there. These files are saved with it as they are.
"""

# pyright: reportAttributeAccessIssue=false
# A mixin knows neither from_pretrained nor save_pretrained of the classes that it is mixed into.

import shutil
from pathlib import Path

from paddlenlp.transformers.tokenizer_utils import ChatTemplateMixin

from data_tools.dialogues.chat_template import BARE, JINJA_FILE, JSON_FILE, TRAINED


def correct() -> None:
    """Correct upstream; a second call changes nothing."""
    ChatTemplateMixin.from_pretrained = classmethod(_from_pretrained)
    ChatTemplateMixin.init_chat_template = _keep
    ChatTemplateMixin.save_pretrained = _save_pretrained


def _from_pretrained(cls, name, *args, **kwargs):
    """Load a tokenizer as upstream does, without compiling a template."""
    kwargs.setdefault("subfolder", "")
    tokenizer, directory = super(ChatTemplateMixin, cls).from_pretrained(
        name, *args, **kwargs | {"return_tokenizer_file_dir": True}
    )
    tokenizer.directory = Path(directory)
    return tokenizer


def _keep(self, chat_template) -> None:
    """Keep the template's text in init_kwargs, from where it is saved."""


def _save_pretrained(self, save_directory, *args, **kwargs):
    """Save a tokenizer as upstream does, with the files of the template.

    They are left out where tokenizer_config.json has the template that the model was trained with, because they would
    be read first.
    """
    saved = super(ChatTemplateMixin, self).save_pretrained(save_directory, *args, **kwargs)
    source, target = getattr(self, "directory", None), Path(save_directory)
    if source is None or self.init_kwargs.get(TRAINED, BARE) != BARE or source.resolve() == target.resolve():
        return saved
    for name in (JINJA_FILE, JSON_FILE):
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)
    return saved
