"""Renders the dialogues of one Jinja chat template, in a process of its own (chat_template.py starts it).

The template comes with a model that somebody else made. Jinja's sandbox keeps it from Python; it does not keep it from
endless loops and from texts that fill the memory. So the process limits itself: the kernel ends it after some seconds
of processor time for a dialogue, and refuses it memory beyond a limit.

The first line of the standard input is {"source", "tokens", "seconds", "bytes"}, each further one {"dialogues": [their
messages, ...], "today"}. Each dialogue is answered by one line: {"turns": [[text before an answer, answer with what
ends it], ...]} or {"error": reason}.

The environment is that of transformers (utils/chat_template_utils.py, _compile_jinja_template), so that a template
means the same here.
"""

import datetime
import json
import resource
import secrets
import signal
import sys
from collections.abc import Callable
from itertools import accumulate

from jinja2 import TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

# Samples must not change from one day to the next, or a run could not be continued: in training it is always this day,
# which is the one that LLaMA-3's templates name where they are given none.
TRAINING_DAY = datetime.datetime(2024, 7, 26)
NO_MEMORY = 3  # exit code where dialogues take more memory than the process may have
TOO_MUCH = "it takes more memory than a template may"
MARK = secrets.token_hex(16)  # stands around what {% generation %} encloses; no text of a dialogue can have it


class TemplateFault(Exception):
    """Why a template cannot render a dialogue."""


class Generation(Extension):
    """{% generation %}...{% endgeneration %} encloses an answer, as in transformers."""

    tags = {"generation"}

    def parse(self, parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_marked"), [], [], body).set_lineno(line)

    def _marked(self, caller: Callable[[], str]) -> str:
        return f"{MARK}{caller()}{MARK}"


class Renderer:
    def __init__(self, source: str, tokens: dict[str, str]):
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
        )
        environment.filters["tojson"] = _tojson
        environment.globals |= {"raise_exception": _raise, "strftime_now": lambda form: self.day().strftime(form)}
        self.template = environment.from_string(source)
        self.tokens = tokens
        self.today = False

    def day(self) -> datetime.datetime:
        return datetime.datetime.now() if self.today else TRAINING_DAY

    def turns(self, messages: list[dict[str, str]]) -> list[tuple[str, str]]:
        """An earlier answer that the template changes, as those do that drop reasoning, belongs to the text before the
        next one: the model reads it, and does not learn it. The last one must be as it is."""
        whole = self._render(messages)
        plain = whole.replace(MARK, "")
        answers = [message["content"].strip() for message in messages if message["role"] == "assistant"]
        for message in messages:
            if message["role"] != "assistant" and message["content"].strip() not in plain:
                raise _left_out(message["role"], message["content"])
        spans = _marked_spans(whole, len(answers)) if MARK in whole else self._spans_by_prefixes(messages, whole)
        turns, end, learnt = [], 0, False
        for answer, span in zip(answers, spans, strict=True):
            learnt = bool(span) and answer in plain[max(0, span[0] - len(answer) + 1) : span[1]]  # and ends in the span
            if span and learnt:
                turns.append((plain[end : span[0]], plain[slice(*span)]))
                end = span[1]
        if learnt:
            return turns
        if spans[-1] or answers[-1] not in plain:
            raise _left_out("assistant", answers[-1])
        raise TemplateFault(
            f"answer {len(answers)} cannot be told from the text around it: the dialogue up to it is rendered in "
            "another way alone than as a part of the whole. A template that encloses answers in {% generation %} and "
            "{% endgeneration %} can be trained with"
        )

    def _spans_by_prefixes(self, messages: list[dict[str, str]], whole: str) -> list[tuple[int, int] | None]:
        """Where each answer stands: behind the text up to its question, as it is rendered for a model to go on. None
        where the whole does not have that text."""
        spans, end = [], 0
        for number, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            prompt = self._render(messages[:number], with_generation_prompt=True)
            answered = self._render(messages[: number + 1])
            is_clear = whole.startswith(answered) and answered.startswith(prompt) and len(prompt) >= end
            spans.append((len(prompt), len(answered)) if is_clear else None)
            end = len(answered) if is_clear else end
        return spans

    def _render(self, messages: list[dict[str, str]], with_generation_prompt: bool = False) -> str:
        return self.template.render(messages=messages, add_generation_prompt=with_generation_prompt, **self.tokens)


def _marked_spans(whole: str, answers: int) -> list[tuple[int, int]]:
    """Where the answers stand in the text without marks."""
    parts = whole.split(MARK)  # before, answer, before, answer, ..., what follows the last answer
    if len(parts) != 2 * answers + 1:
        raise TemplateFault(f"{{% generation %}} encloses {len(parts) // 2} texts of a dialogue with {answers} answers")
    ends = list(accumulate(map(len, parts)))
    return list(zip(ends[0:-1:2], ends[1::2], strict=True))


def _left_out(role: str, text: str) -> TemplateFault:
    return TemplateFault(f"it leaves out or changes the {role} text {text[:40]!r}")


def _raise(message: str) -> None:
    raise TemplateFault(f"it says: {message}")


def _tojson(value, ensure_ascii: bool = False, indent=None, separators=None, sort_keys: bool = False) -> str:
    """Jinja's own escapes HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _reason(error: Exception) -> str:
    if isinstance(error, SecurityError):
        return f"refused by the sandbox: {error}"
    if isinstance(error, MemoryError):
        return TOO_MUCH
    if isinstance(error, RecursionError):
        return "it calls itself without end"
    line = getattr(error, "lineno", None)
    if isinstance(error, TemplateError) and line:
        return f"not a Jinja template, line {line}: {error.message}"
    return str(error) if isinstance(error, TemplateFault) else f"{type(error).__name__}: {error}"


def main() -> None:
    first = json.loads(sys.stdin.buffer.readline())
    resource.setrlimit(resource.RLIMIT_AS, (first["bytes"], first["bytes"]))
    renderer, fault = None, None
    signal.setitimer(signal.ITIMER_PROF, first["seconds"])
    try:
        renderer = Renderer(first["source"], first["tokens"])
    except Exception as error:  # an error of a template is reported, never raised
        fault = _reason(error)
    for line in sys.stdin.buffer:
        signal.setitimer(signal.ITIMER_PROF, first["seconds"])  # SIGPROF ends the process
        try:
            request = json.loads(line)
        except MemoryError:
            sys.exit(NO_MEMORY)
        for messages in request["dialogues"]:
            signal.setitimer(signal.ITIMER_PROF, first["seconds"])
            try:
                if renderer:
                    renderer.today = request["today"]
                    text = json.dumps({"turns": renderer.turns(messages)})
                else:
                    text = json.dumps({"error": fault})
            except Exception as error:
                text = json.dumps({"error": _reason(error)})
            signal.setitimer(signal.ITIMER_PROF, 0)
            sys.stdout.write(text + "\n")
            sys.stdout.flush()  # a later dialogue may end the process


if __name__ == "__main__":
    main()
