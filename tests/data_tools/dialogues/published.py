"""Chat templates of 42 kinds, rebuilt from what the published ones write: a row each of published.json.

Source: the renderings that llama.cpp's tests/test-chat-template.cpp and src/llama-chat.cpp have for these models.
"""

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Kind:
    """What a template writes, % for the text of a message.

    Attributes:
        model: Whose template it is.
        user, answer: Around a question; behind `asks`, around an answer.
        asks: What stands before an answer, and is the prompt for one.
        end: The token that ends an answer, "" for none.
        system: Around a system text; "": it is left out; "!": it is refused.
        merged: Around a system text that stands within the first question.
        default: What stands there where a dialogue has no system text.
        start, closing: Before all, and behind a dialogue that is not to be answered.
        stripped: Roles whose texts are stripped.
    """

    model: str
    user: str
    answer: str
    asks: str = ""
    end: str = ""
    system: str = ""
    merged: str = ""
    default: str = ""
    start: str = ""
    closing: str = ""
    stripped: str = ""

    @property
    def source(self) -> str:
        """The template."""
        how = {role: "trim" if role in self.stripped else "" for role in ("system", "user", "assistant")}
        merged = _put(self.merged, how["system"], "messages[0]") if self.merged else ""
        merged = "{% if loop.index0 == 1 %}" + merged + "{% endif %}"
        head, _, tail = self.user.partition("%")
        branches = {
            "user": _text(head) + merged + _put("%", how["user"]) + _text(tail),
            "assistant": _text(self.asks) + _put(self.answer, how["assistant"]),
            "system": _put(self.system, how["system"]) if self.system else "",
        }
        branches["system"] = "{{ raise_exception('no system') }}" if self.system == "!" else branches["system"]
        none = "{% if messages[0].role != 'system' %}" + _text(self.default) + "{% endif %}" if self.default else ""
        roles = "".join(f"{{% if m.role == '{role}' %}}{text}{{% endif %}}" for role, text in branches.items())
        ends = f"{{% if add_generation_prompt %}}{_text(self.asks)}{{% else %}}{_text(self.closing)}{{% endif %}}"
        return f"{_text(self.start)}{none}{{% for m in messages %}}{roles}{{% endfor %}}{ends}"

    def turns(self, system: str | None, said: list[str]) -> list[tuple[str, str]]:
        """Return (text before an answer, the answer with its end) of questions and answers in turn, without Jinja."""
        shown = lambda role, text: text.strip() if role in self.stripped else text  # noqa: E731
        rest, found = self.start + self.default * (system is None), []
        rest += self.system.replace("%", shown("system", system)) if system is not None else ""
        within = self.merged.replace("%", shown("system", system)) if system is not None else ""
        for question, answer in zip(said[0::2], said[1::2], strict=True):
            before = rest + self.user.replace("%", within + shown("user", question)) + self.asks
            text, within, rest = self.answer.replace("%", shown("assistant", answer)), "", ""
            if self.closing and self.end:  # the end of the answer is found by its token
                place = text.index(self.end) + len(self.end)
                text, rest = text[:place], text[place:]
            found.append((before, text))
        return found


def _text(text: str) -> str:
    return f'{{{{ "{text}" }}}}'.replace("\n", "\\n") if text else ""


def _put(form: str, how: str, message: str = "m") -> str:
    before, _, behind = form.partition("%")
    return f"{_text(before)}{{{{ {message}.content{' | ' * bool(how)}{how} }}}}{_text(behind)}"


ROWS = json.loads(Path(__file__).with_name("published.json").read_text(encoding="utf-8"))
KINDS = {row.pop("name"): Kind(**row) for row in ROWS}
# What mistral_common's tokenizers write (tokens/tokenizers/instruct.py); ~: the space that sentencepiece puts before.
MISTRAL = """{{ bos_token }}{% set last = namespace(asked=0) %}
{%- for m in messages %}{% if m.role == 'user' %}{% set last.asked = loop.index0 %}{% endif %}{% endfor %}
{%- for m in messages %}{% set is_last = loop.index0 == last.asked %}
{%- if m.role == 'system' %}<system>
{%- elif m.role == 'user' %}
    {%- if is_last and tools %}[AVAILABLE_TOOLS]~{{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}
    {{- '[INST]~' }}<before>{{ m.content }}[/INST]
{%- elif m.role == 'tool' %}[TOOL_RESULTS]~<result>[/TOOL_RESULTS]
{%- elif m.tool_calls %}[TOOL_CALLS]~[
    {%- for c in m.tool_calls %}{{ ', ' if not loop.first }}{"name": "{{ c.function.name }}", "arguments":{{ ' ' }}
    {{- c.function.arguments | tojson }}, "id": "{{ c.id }}"}{% endfor %}]{{ eos_token }}
{%- else %}{{ '~' + m.content + eos_token }}{% endif %}{% endfor %}"""
V3 = {
    "~": " ",
    "<system>": "",
    "<before>": "{{ messages[0].content + '\n\n' if is_last and messages[0].role == 'system' }}",
    "<result>": '{"content": {{ m.content }}, "call_id": "{{ m.tool_call_id }}"}',
}
V7 = {
    "~": " ",
    "<system>": "[SYSTEM_PROMPT]~{{ m.content }}[/SYSTEM_PROMPT]",
    "<before>": "",
    "<result>": "{{ m.tool_call_id }}[TOOL_CONTENT]~{{ m.content }}",
}


def filled(parts: dict[str, str]) -> str:
    """Return MISTRAL with its parts."""
    source = MISTRAL
    for part in ("<system>", "<before>", "<result>", "~"):
        source = source.replace(part, parts[part])
    return source


MISTRAL_TOOLS = {"mistral-v3": filled(V3), "mistral-v7-tools": filled(V7), "mistral-tekken": filled(V3 | {"~": ""})}
