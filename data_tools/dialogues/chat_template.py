"""Chat templates: the text around the turns of a dialogue.

A template is Jinja, as transformers has it: the chat_template of tokenizer_config.json (a text, or a list of named
ones, of which "default" is taken), chat_template.jinja, or chat_template.json. PaddleNLP's form of chat_template.json
becomes the same:

    {"system": "...", "conversation": ["...{{user}}...", "...{{bot}}..."], "query": "...{{query}}..."}

Each of its texts is Jinja; system may be left out. They see `index` (0 for the first turn) and `system`, the dialogue's
own system text or nothing. `query` is not read: it is the first text of `conversation`.
"""

import contextlib
import json
import signal
import subprocess
import sys
import threading
import weakref
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from jinja2 import TemplateError
from jinja2.meta import find_undeclared_variables
from jinja2.sandbox import ImmutableSandboxedEnvironment

from data_tools.children import close_in_children, end_process
from data_tools.dialogues.messages import Dialogue
from data_tools.dialogues.template_worker import NO_MEMORY, TOO_MUCH
from data_tools.formats.errors import DataError
from data_tools.formats.json_files import quoted, read_object, require_file, shown

WORKER = Path(__file__).parent / "template_worker.py"
LIMIT_SECONDS = 3.0  # of processor time for a dialogue; a usual one takes a millisecond
LIMIT_BYTES = 1 << 29  # of address space; a usual template's process has 0.1 GB
TOKENIZER_CONFIG, SPECIAL_TOKENS = "tokenizer_config.json", "special_tokens_map.json"
JINJA_FILE, JSON_FILE = "chat_template.jinja", "chat_template.json"
# A key of tokenizer_config.json that we add: the model was trained with its chat_template, and how a text starts.
TRAINED, AFTER_START, WHOLE = "trained_with_chat_template", "after_the_start_of_every_text", "whole"
BARE = "none"  # its value where the model was trained with bare texts
# What stands before and behind the answer in the templates of as_jinja.
ANSWER, END = "{% else %}{% set bot = message['content'] %}", "{% endif %}{% endfor %}"
EXPECTED = (
    'expected {"conversation": ["...{{user}}...", "...{{bot}}..."]}, {"chat_template": "..."}, or a Jinja template in '
    "a file .jinja"
)


@dataclass(frozen=True)
class ChatTemplate:
    """A chat template of Jinja.

    Attributes:
        source: Its text.
        origin: Where it is from, for people.
        tokens: bos_token, eos_token, ... and their texts.
        today: Whether strftime_now shows today's date; in training every day must give the same samples.
        after_start: Whether the tokenizer's start of every text may stand before it (PaddleNLP's form);
            transformers' templates say themselves how a text starts.
        trained: Whether the model of the directory was trained here with it, not with bare texts; None: it was not
            trained here.
        ends: Texts of further tokens that end an answer, beside eos_token.
    """

    source: str
    origin: str = "chat template"
    tokens: dict[str, str] = field(default_factory=dict, hash=False)
    today: bool = False
    after_start: bool = False
    trained: bool | None = None
    ends: tuple[str, ...] = ()

    def prompt(self, dialogue: Dialogue) -> str:
        """Return what a model reads before it answers a dialogue.

        Raises:
            DataError: As `render`.
        """
        [found] = self.prompts([dialogue])
        if isinstance(found, DataError):
            raise found
        return found

    def prompts(self, dialogues: list[Dialogue]) -> list[str | DataError]:
        """Return `prompt` of each dialogue, or what it raises, in one round trip."""
        return [found if isinstance(found, DataError) else found["text"] for found in self._ask(dialogues, "prompt")]

    def render(self, dialogue: Dialogue, last: bool = False) -> "Rendered":
        """Return the samples of a dialogue.

        Raises:
            DataError: If the template cannot be read, is refused by the sandbox, takes more than LIMIT_SECONDS or
                LIMIT_BYTES, leaves out a text, a tool or a call, or does not tell an answer from the text around it.
        """
        [found] = self.render_all([dialogue], last)
        if isinstance(found, DataError):
            raise found
        return found

    def render_all(self, dialogues: list[Dialogue], last: bool = False) -> "list[Rendered | DataError]":
        """Return `render` of each dialogue, or what it raises, in one round trip."""
        return [
            found
            if isinstance(found, DataError)
            else Rendered([[(before, said) for before, said in one] for one in found["samples"]], found["counts"])
            for found in self._ask(dialogues, "last" if last else "all")
        ]

    def _ask(self, dialogues: list[Dialogue], task: str) -> list[dict | DataError]:
        asked = [one.as_json() | {"trained": [message.trained for message in one.messages]} for one in dialogues]
        answers = self._worker.ask(asked, {"task": task, "today": self.today})
        found: list[dict | DataError] = []
        for answer in answers:
            if "error" in answer:
                reason = answer["error"].rstrip(".")
                found.append(
                    DataError(f"{self.origin}: {reason}. Another chat template: --chat_template NAME or FILE.")
                )
            else:
                found.append(answer)
        return found

    @cached_property
    def _worker(self) -> "_RenderingWorker":
        worker = _RenderingWorker(
            {
                "source": _marked(self.source),
                "tokens": self.tokens,
                "ends": list(dict.fromkeys([*self.ends, *filter(None, [self.tokens.get("eos_token")])])),
                "seconds": LIMIT_SECONDS,
                "bytes": LIMIT_BYTES,
            }
        )
        weakref.finalize(self, worker.close)
        return worker


@dataclass(frozen=True)
class Rendered:
    """A dialogue as text.

    Attributes:
        samples: Of each, (text before an answer, the answer with what ends it) in turn.
        counts: What a user should know (template_worker.py).
    """

    samples: list[list[tuple[str, str]]]
    counts: dict[str, int] = field(default_factory=dict)


class _RenderingWorker:
    """A process that renders. A new one is started after one that had to be ended, and in a forked process."""

    def __init__(self, first: dict):
        self._first = first
        self._process: subprocess.Popen | None = None
        self._lock = threading.Lock()  # a server renders in several threads

    def ask(self, dialogues: list[dict], task: dict) -> list[dict]:
        """Return the answer to each dialogue. task: the other values of the request."""
        answers: list[dict] = []
        with self._lock:
            while len(answers) < len(dialogues):
                answers += self._ask(dialogues[len(answers) :], task)
        return answers

    def _ask(self, dialogues: list[dict], task: dict) -> list[dict]:
        """Return the answers up to a dialogue that ends the process, or all of them."""
        process = self._process
        if process is None or _is_of_parent(process):
            # The worker finds Jinja where this process does, and nothing in the current folder.
            places = [place for place in sys.path if place]
            run = f"import runpy, sys; sys.path[:] = {places!r}; runpy.run_path({str(WORKER)!r}, run_name='__main__')"
            command = [sys.executable, "-I", "-c", run]
            process = self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            close_in_children(process.stdin, process.stdout)
            _send(process, self._first)
        _send(process, {"dialogues": dialogues} | task)
        assert process.stdout
        answers: list[dict] = []
        for _ in dialogues:
            line = process.stdout.readline()
            if not line:
                return [*answers, {"error": self._end()}]
            answers.append(json.loads(line))
        return answers

    def _end(self) -> str:
        """End the process and return the reason why it ended."""
        code = self.close()
        if code == -signal.SIGPROF:
            return f"it takes more than {self._first['seconds']:g} s for one dialogue"
        return TOO_MUCH if code == NO_MEMORY else f"the process that renders it has ended with {code}"

    def close(self) -> int | None:
        """End the process; its exit code."""
        process, self._process = self._process, None
        if process is None or _is_of_parent(process):
            return None
        for pipe in (process.stdin, process.stdout):
            assert pipe
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        return end_process(process, "the process that renders chat templates")


def _is_of_parent(process: subprocess.Popen[bytes]) -> bool:
    """Return whether this process was forked from the one that started the worker, whose pipes are closed here."""
    assert process.stdout
    return process.stdout.closed


def _send(process: subprocess.Popen[bytes], message: dict) -> None:
    assert process.stdin
    with contextlib.suppress(BrokenPipeError):  # the answer says that it has ended
        process.stdin.write(json.dumps(message).encode() + b"\n")
        process.stdin.flush()


def load_template(path: str | Path, tokens: dict[str, str] | None = None) -> ChatTemplate:
    """Return the template of a file: .json in one of its two forms, else Jinja.

    tokens: the special tokens of the tokenizer.

    Raises:
        DataError: If the file holds no template.
    """
    path = Path(path)
    text = _read(path)
    if path.suffix != ".json":
        return ChatTemplate(text, str(path), tokens or {})
    try:
        content = json.loads(text)
        if isinstance(content, dict) and content.get("chat_template") is not None:
            return ChatTemplate(_default(content["chat_template"], path), str(path), tokens or {})
        question, answer = content["conversation"]
        source = as_jinja(content.get("system") or "", question, answer)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, TemplateError) as error:
        raise DataError(f"{path}: no chat template ({error}): {EXPECTED}.") from None
    return ChatTemplate(source, str(path), tokens or {}, after_start=True)


def directory_template(directory: Path) -> ChatTemplate | None:
    """Return the chat template of a tokenizer's directory; None where it has none.

    The order is chat_template.jinja, chat_template.json, tokenizer_config.json.

    Raises:
        DataError: If one of these files cannot be read.
    """
    tokens, path = special_tokens(directory), directory / TOKENIZER_CONFIG
    config = read_object(path)
    named, mark = config.get("chat_template"), config.get(TRAINED)
    trained = mark != BARE if mark else None
    for name in (JINJA_FILE, JSON_FILE):
        if (directory / name).is_file():
            return replace(load_template(directory / name, tokens), trained=trained)
    if named in (None, "", [], {}):
        return None
    return ChatTemplate(_default(named, path), str(path), tokens, after_start=mark == AFTER_START, trained=trained)


def trained_with(template: ChatTemplate | None, values: dict) -> dict:
    """Return the values of tokenizer_config.json with the template that the model was trained with, or a mark for none.

    Predict and serve then ask the model that way, and transformers and PaddleNLP read the template.
    """
    if template is None:
        return values | {TRAINED: BARE}
    return values | {"chat_template": template.source, TRAINED: AFTER_START if template.after_start else WHOLE}


def without_mark(values: dict) -> dict:
    """Return the values of tokenizer_config.json without the mark of how the model was trained."""
    return {key: value for key, value in values.items() if key != TRAINED}


def special_tokens(directory: Path) -> dict[str, str]:
    """Return the texts of bos_token, eos_token, ... by name, as the tokenizer's files have them."""
    named = read_object(directory / SPECIAL_TOKENS) | read_object(directory / TOKENIZER_CONFIG)
    texts = {key: value.get("content") if isinstance(value, dict) else value for key, value in named.items()}
    return {key: text for key, text in texts.items() if key.endswith("_token") and isinstance(text, str)}


def as_jinja(system: str, question: str, answer: str) -> str:
    """Return PaddleNLP's form of a template as one Jinja template of transformers.

    The system text of a dialogue stands before the first question where the form has no place for it.

    Raises:
        TemplateError: If one of the texts is no Jinja.
    """
    jinja = ImmutableSandboxedEnvironment()
    has_place = any("system" in find_undeclared_variables(jinja.parse(text)) for text in (system, question))
    jinja.parse(answer)
    content = "message['content']"
    if not has_place:
        content = f"(system + '\\n\\n' if system and not index else '') + {content}"
    keep = "{{ '' }}"  # Jinja drops a line's end after a block, and spaces before one
    return (
        "{% set system = messages[0]['content'] if messages[0]['role'] == 'system' else '' %}"
        f"{keep}{system}{keep}"
        "{% for message in (messages[1:] if system else messages) %}{% set index = loop.index0 // 2 %}"
        f"{{% if message['role'] == 'user' %}}{{% set user = {content} %}}{keep}{question}{keep}"
        f"{ANSWER}{keep}{answer}{keep}{END}"
    )


def _marked(source: str) -> str:
    """Return a template of `as_jinja` with its answers in {% generation %}, so that a dialogue is rendered once.

    Other templates stay as they are. The saved text lacks the marks: PaddleNLP does not know them.
    """
    before, answer, rest = source.partition(ANSWER)
    if not answer or ANSWER in rest or not rest.endswith(END) or "generation %}" in rest:
        return source
    return f"{before}{ANSWER}{{% generation %}}{rest.removesuffix(END)}{{% endgeneration %}}{END}"


def _default(named: object, path: Path) -> str:
    """Return the default template of a file.

    It may have any form of transformers': a text, {name: text}, [{"name": ..., "template": ...}].
    """
    if isinstance(named, list) and all(isinstance(template, dict) for template in named):
        named = {template.get("name"): template.get("template") for template in named}
    if isinstance(named, dict):
        if "default" not in named:
            names = ", ".join(map(shown, named)) or "none"
            raise DataError(f"{path}: chat_template has {names}, expected one named default, or --chat_template FILE.")
        named = named["default"]
    if not isinstance(named, str):
        raise DataError(f"{path}: chat_template: found {quoted(named)}, expected a text or a list of named ones.")
    return named


def _read(path: Path) -> str:
    require_file(path)
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 at byte {error.start}.") from None
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}.") from None
