"""Renders the dialogues of one Jinja chat template, in a process of its own (chat_template.py starts it).

The template comes with a model that somebody else made. Jinja's sandbox keeps it from Python; it does not keep it from
endless loops and from texts that fill the memory. So the process limits itself: the kernel ends it after some seconds
of processor time for a dialogue, and refuses it memory beyond a limit.

The first line of the standard input is {"source", "tokens", "ends", "seconds", "bytes"}, each further one
{"dialogues": [{"messages", "tools", "chat_template_kwargs", "trained"}, ...], "task", "today"}. Each dialogue is
answered by one line, {"error": reason} or what the task asks for:

    prompt      {"text": what the model reads before it answers}
    all, last   {"samples": [[[text before an answer, answer with what ends it], ...], ...], "counts": {...}}

Samples are as served: the text before an answer is the prompt that serving renders for it, and each answer that is
trained on is in one sample. Answers share a sample as long as the template leaves them, and what is before them,
as they are in later prompts. With "last" the last answer alone is trained on.

The environment is that of transformers (utils/chat_template_utils.py, _compile_jinja_template), so that a template
means the same here.
"""

import datetime
import json
import resource
import secrets
import signal
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

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
OPEN, CLOSE = "<think>", "</think>"
OF_DICT = frozenset(dir(dict))


class TemplateFault(Exception):
    """Why a template cannot render a dialogue."""


class Generation(Extension):
    """{% generation %}...{% endgeneration %} encloses an answer, as in transformers."""

    tags = {"generation"}

    def parse(self, parser) -> nodes.Node:
        """Parse a {% generation %} block."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_marked"), [], [], body).set_lineno(line)

    def _marked(self, caller: Callable[[], str]) -> str:
        return f"{MARK}{caller()}{MARK}"


class Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's sandbox, which reads a key of a message in half the time: it would look for an attribute first."""

    def getattr(self, obj, attribute):
        """Return what the sandbox returns."""
        if type(obj) is dict and attribute in obj and attribute not in OF_DICT:
            return obj[attribute]
        return super().getattr(obj, attribute)


class Renderer:
    """A chat template that renders dialogues.

    Attributes:
        ends: The texts that end an answer.
    """

    def __init__(self, source: str, tokens: dict[str, str], ends: list[str]):
        environment = Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
        environment.filters["tojson"] = _tojson
        environment.globals |= {"raise_exception": _raise, "strftime_now": lambda form: self.day().strftime(form)}
        self.template = environment.from_string(source)
        self.template.globals = dict(self.template.globals)  # copied at each rendering, which takes a ChainMap longer
        self.source, self.tokens, self.ends = source, tokens, ends
        self.encloses = "endgeneration" in source
        self.today = False

    def day(self) -> datetime.datetime:
        """Return the date that strftime_now shows: today where a user asks the model, else a fixed one."""
        return datetime.datetime.now() if self.today else TRAINING_DAY

    def prompt(self, dialogue: dict) -> str:
        """Render the messages up to the next answer."""
        text = self._render(dialogue, dialogue["messages"], prompts=True).replace(MARK, "")
        self._check_context(dialogue, dialogue["messages"], text)
        return text

    def samples(self, dialogue: dict, last: bool) -> dict:
        """Return samples and counts of what a user should know."""
        messages, counts = dialogue["messages"], Counter()
        answers = [number for number, message in enumerate(messages) if message["role"] == "assistant"]
        trained = [number for number in answers if dialogue["trained"][number]]
        counts["switched_off"] = len(answers) - len(trained)
        if not trained:
            return {"samples": [], "counts": +counts}
        wanted = trained[-1:] if last else trained
        counts["not_last"] = len(trained) - len(wanted)
        turns = self._marked_turns(dialogue, answers, trained) if self.encloses else None
        if isinstance(turns, list):  # several blocks an answer
            if wanted != answers:
                blocks = f"{{% generation %}} encloses {len(turns)} texts of a dialogue with {len(answers)} answers"
                raise TemplateFault(f"{blocks}, so that some alone cannot be trained on")
            return {"samples": [_apart(turns)], "counts": +counts}
        if turns is None:
            turns = {number: self._turn(dialogue, number, counts) for number in wanted}
        self._check_context(dialogue, messages[: wanted[-1]], turns[wanted[-1]][0])
        return {"samples": self._shared([turns[number] for number in wanted]), "counts": +counts}

    def _shared(self, turns: list[tuple[str, str]]) -> list[list[tuple[str, str]]]:
        """Return as few samples as possible that keep each prompt and its answer unchanged."""
        samples = []
        while turns:
            *earlier, (prompt, answer) = turns
            limit, parts, turns = len(prompt), [], []
            for before, said in reversed(earlier):
                end = _common(before + said, prompt[:limit])
                if end > len(before) and self._is_whole(said, end - len(before)):
                    parts.insert(0, (len(before), end))
                    limit = len(before)
                else:
                    turns.insert(0, (before, said))
            samples.insert(
                0, _apart([*((prompt[:start], prompt[start:end]) for start, end in parts), (prompt, answer)])
            )
        return samples

    def _is_whole(self, answer: str, length: int) -> bool:
        """Return True if the first `length` characters are the answer, as the last one, and its end token."""
        has_end = any(end in answer[:length] for end in self.ends) or not any(end in answer for end in self.ends)
        rest = answer[length:]
        for end in self.ends:
            rest = rest.replace(end, "")
        return has_end and not rest.strip()

    def _marked_turns(self, dialogue: dict, answers: list[int], trained: list[int]) -> dict | list | None:
        """Return each answer that {% generation %} encloses, by its number, with all text before it.

        Return all enclosed texts where they are more than the answers, and None where the template changes an answer,
        which is then rendered by itself.
        """
        parts = self._render(dialogue, dialogue["messages"]).split(
            MARK
        )  # before, answer, before, answer, ..., the rest
        spans = [("".join(parts[:place]), parts[place]) for place in range(1, len(parts), 2)]
        if len(spans) != len(answers):
            if len(spans) < len(answers):
                raise TemplateFault(
                    f"{{% generation %}} encloses {len(spans)} texts of a dialogue with {len(answers)} answers"
                )
            for number in trained:
                if lost := _missing(dialogue["messages"][number], "".join(said for _, said in spans)):
                    raise _left_out("assistant", lost)
            return spans
        turns = {}
        for number, turn in zip(answers, spans, strict=True):
            turns[number] = turn
            if number in trained:
                if _missing(dialogue["messages"][number], turns[number][1]):
                    return None
                _check_block(dialogue["messages"][number], turns[number][0])
        return turns

    def _turn(self, dialogue: dict, number: int, counts: Counter) -> tuple[str, str]:
        """Return (the prompt that serving renders for an answer, the answer with what ends it)."""
        message = dialogue["messages"][number]
        prompt, answer, is_closed = self._answered(dialogue, number, message)
        lost = _missing(message, answer)
        if lost and message.get("reasoning_content") and CLOSE in self.source:  # a template without that key
            inline = {key: value for key, value in message.items() if key != "reasoning_content"}
            block = f"{OPEN}\n{message['reasoning_content']}\n{CLOSE}\n\n"
            inline["content"] = block + (message["content"] or "")
            prompt, answer, is_closed = self._answered(dialogue, number, inline)
            lost = _missing(message, answer)
        if lost and lost == message.get("reasoning_content"):
            raise TemplateFault(f"it has no place for reasoning_content, such as {lost[:40]!r}")
        if lost:
            raise _left_out("assistant", lost)
        counts["empty_reasoning"] += is_closed
        return prompt, answer

    def _answered(self, dialogue: dict, number: int, message: dict) -> tuple[str, str, bool]:
        """Return (prompt, answer, whether the answer closes a reasoning block that the prompt opened).

        The message leaves such a block empty.
        """
        before = dialogue["messages"][:number]
        if self.encloses:
            *earlier, answer, _ = self._render(dialogue, [*before, message]).split(MARK)
            _check_block(message, "".join(earlier))
            return "".join(earlier), answer, False
        prompt = self._render(dialogue, before, prompts=True)
        _check_block(message, prompt)
        whole = self._render(dialogue, [*before, message])
        common = _common(prompt, whole)
        opened, answer = prompt[common:].strip(), whole[common:]
        is_closed = False
        if opened == OPEN:
            thought, _, text = _reasoning(message)
            kept = text.strip() or answer
            answer = f"{thought}\n{CLOSE}\n\n{answer[max(answer.find(kept), 0) :]}"
            is_closed = not thought
        elif opened or (common < len(prompt) and not prompt[:common].rstrip().endswith(OPEN)):
            raise TemplateFault(
                f"message {number + 1}, an answer, cannot be told from the text around it: without it, the template "
                "writes another text before it. A template that encloses answers in {% generation %} and "
                "{% endgeneration %} can be trained with"
            )
        return prompt, self._unasked(dialogue, before, message, prompt, self._ended(answer, message)), is_closed

    def _unasked(self, dialogue: dict, before: list[dict], message: dict, prompt: str, answer: str) -> str:
        """Return an answer without the prompt for another one, which some templates write behind each dialogue."""
        question = next((one for one in reversed(before) if one["role"] == "user"), {"content": ""})
        asked = (question["content"] or "").strip()
        asks = prompt.rpartition(asked)[2].strip() if asked else ""
        if not asks or not answer.endswith(asks):
            return answer
        later = self._render(dialogue, [*before, message, question])
        return answer if later.startswith(prompt + answer) else answer.removesuffix(asks)

    def _ended(self, answer: str, message: dict) -> str:
        """Return an answer up to its end, without what a template writes behind that, as some do the next turn."""
        text = (message["content"] or "").strip()
        start = answer.rfind(text) + len(text) if text else 0
        places = [place + len(end) for end in self.ends if (place := answer.find(end, start)) >= 0]
        return answer[: min(places)] if places and answer[min(places) :].strip() else answer

    def _check_context(self, dialogue: dict, messages: list[dict], text: str) -> None:
        """Raise TemplateFault where a text that the model should read is left out."""
        for message in messages:
            if message["role"] in ("system", "developer", "user") and not _is_in(message["content"], text):
                raise _left_out(message["role"], message["content"])
        for tool in dialogue.get("tools") or ():
            if tool["function"]["name"] not in text:
                raise TemplateFault(f"it leaves out the tools of the dialogue, such as {tool['function']['name']!r}")

    def _known(self, message: dict) -> dict:
        """Return a message with the role and the key of reasoning that the template knows."""
        if message["role"] == "developer" and "developer" not in self.source:
            message = message | {"role": "system"}
        if message.get("reasoning_content") and "reasoning_content" not in self.source:
            keys = [key for key in ("reasoning", "thinking") if f"message.{key}" in self.source]
            message = message | dict.fromkeys(keys, message["reasoning_content"])
        return message

    def _render(self, dialogue: dict, messages: list[dict], prompts: bool = False) -> str:
        if "tool" not in self.source and any(one["role"] == "tool" or one.get("tool_calls") for one in messages):
            raise TemplateFault("it has no place for calls of tools and their results")
        messages = [self._known(message) for message in messages]
        values = {"messages": messages, "tools": dialogue.get("tools"), "documents": None}
        values |= {"add_generation_prompt": prompts} | self.tokens | dialogue.get("chat_template_kwargs", {})
        try:
            return self.template.render(values)
        except TypeError:  # some templates write arguments as the text that a server returns, or expect no null
            for change in (_with_text_content, _with_text_arguments):
                messages = [change(one) for one in messages]
                with suppress(TypeError):
                    return self.template.render(values | {"messages": messages})
            raise


def _apart(turns: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return (text since the answer before, answer) of each (all text before an answer, answer)."""
    ends = [0, *(len(before) + len(said) for before, said in turns)]
    return [(before[end:], said) for (before, said), end in zip(turns, ends, strict=False)]


def _common(one: str, other: str) -> int:
    """Return the number of characters with which both texts begin."""
    alike, most = 0, min(len(one), len(other))
    middle = most  # mostly one is the beginning of the other
    while alike < most:
        if one[alike:middle] == other[alike:middle]:
            alike = middle
        else:
            most = middle - 1
        middle = (alike + most + 1) // 2
    return alike


def _with_text_content(message: dict) -> dict:
    return message | {"content": message["content"] or ""}


def _with_text_arguments(message: dict) -> dict:
    calls = [
        call | {"function": call["function"] | {"arguments": _tojson(call["function"]["arguments"])}}
        for call in message.get("tool_calls", ())
    ]
    return message | {"tool_calls": calls} if calls else message


def _check_block(message: dict, prompt: str) -> None:
    """Raise TemplateFault for reasoning behind a block that the prompt has closed: nothing like it is served."""
    if prompt.rstrip().endswith(CLOSE) and (message.get("reasoning_content") or CLOSE in (message["content"] or "")):
        raise TemplateFault(
            "it closes the block of reasoning before the answer, which brings reasoning of its own. --chat_template "
            "qwen3_thinking, or the model's own template, leaves the block to the answer; or leave such rows out"
        )


def _reasoning(message: dict) -> tuple[str, str, str]:
    """Return (reasoning of a message, "" or what closes it, the text behind it)."""
    content = message["content"] or ""
    if message.get("reasoning_content"):
        return message["reasoning_content"].strip("\n"), CLOSE, content
    thought, closes, text = content.rpartition(CLOSE)
    return thought.partition(OPEN)[2].strip("\n") if OPEN in thought else thought.strip("\n"), closes, text


def _missing(message: dict, answer: str) -> str:
    """Return the first text or name of a call that an answer should have and has not, but for space; else ""."""
    content = (message["content"] or "").replace(CLOSE, OPEN).split(OPEN)
    names = [call["function"]["name"] for call in message.get("tool_calls", ())]
    wanted = [message.get("reasoning_content", ""), *content, *names]
    missing = next((text for text in wanted if not _is_in(text, answer)), "")
    return message["content"] if missing and missing in content else missing


def _is_in(text: str | None, whole: str) -> bool:
    """Return True if a text has another, but for space."""
    return not text or text in whole or "".join(text.split()) in "".join(whole.split())


def _left_out(role: str, text: str) -> TemplateFault:
    return TemplateFault(f"it leaves out or changes the {role} text {text[:40]!r}")


def _raise(message: str) -> None:
    raise TemplateFault(f"it says: {message}")


def _tojson(value, ensure_ascii: bool = False, indent=None, separators=None, sort_keys: bool = False) -> str:
    """Return JSON without Jinja's escapes of HTML."""
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
    """Read the template, then answer requests from stdin until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches this process, too; the one that started it ends it
    first = json.loads(sys.stdin.buffer.readline())
    resource.setrlimit(resource.RLIMIT_AS, (first["bytes"], first["bytes"]))
    renderer, fault = None, None
    signal.setitimer(signal.ITIMER_PROF, first["seconds"])
    try:
        renderer = Renderer(first["source"], first["tokens"], first["ends"])
    except Exception as error:  # an error of a template is reported, never raised
        fault = _reason(error)
    for line in sys.stdin.buffer:
        signal.setitimer(signal.ITIMER_PROF, first["seconds"])  # SIGPROF ends the process
        try:
            request = json.loads(line)
        except MemoryError:
            sys.exit(NO_MEMORY)
        task = request["task"]
        for dialogue in request["dialogues"]:
            signal.setitimer(signal.ITIMER_PROF, first["seconds"])
            try:
                if renderer:
                    renderer.today = request["today"]
                    is_prompt = task == "prompt"
                    found = renderer.prompt(dialogue) if is_prompt else renderer.samples(dialogue, task == "last")
                    text = json.dumps({"text": found} if is_prompt else found)
                else:
                    text = json.dumps({"error": fault})
            except Exception as error:
                text = json.dumps({"error": _reason(error)})
            signal.setitimer(signal.ITIMER_PROF, 0)
            sys.stdout.write(text + "\n")
            sys.stdout.flush()  # a later dialogue may end the process


if __name__ == "__main__":
    main()
