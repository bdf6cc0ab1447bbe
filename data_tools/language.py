"""Messages in the user's language: English as the code has them, or the Chinese of locale/zh.po.

    LAUNCH_LANG=zh make lora-1gpu        LAUNCH_LANG=en: English, whatever LANG says
    localized("found 3 values: 1 2 3")   # "发现 3 个值：1 2 3"

The catalog is gettext's: a message's English template, with {0}, {1} ... for what the program fills in, and its
translation. Messages are translated where they are printed, by their template, so that checks and errors, which are
compared and passed on, stay in one language. `python -m docs.tools.messages` brings the catalog up to date with the
code. The standard library alone: the doctor runs where nothing is installed.
"""

import ast
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

CATALOG = Path(__file__).resolve().parent / "locale" / "zh.po"
VARIABLES = ("LC_ALL", "LC_MESSAGES", "LANG")  # as gettext reads them: the first that is set decides
# All but tab and newline, and those that turn the direction of what follows.
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
RUN = re.compile(r"[!-.0-~]{301,}")  # no file's name is as long, and no word
PLACE = re.compile(r"\{(\d+)\}")
ONE_WORD = 10  # letters, at most: "{0} answers", in which nothing but a number is filled in
MOST_PIECES = 6  # of a line that is taken apart though none of them is known as a whole
SHORT_TERM = 20  # letters, at most, of a term with a number behind it
NUMBER = re.compile(r"(about )?\S*\d\S*|'\S+'")
LONGEST_JOINED = 400  # letters of a line that is looked through for several messages
SHORTEST_LITERAL = 3  # letters: a template of fewer says nothing, "{0}: {1}" would match almost every line
# Between messages that are printed as one.
JOINTS = {"\n": "\n", "; ": "；", ". ": "。", ", ": "，", ": ": "：", " + ": " + ", " x ": " x "}


def is_chinese(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether messages are printed in Chinese: LAUNCH_LANG decides, else the locale's language."""
    stated = [environment[name] for name in ("LAUNCH_LANG", *VARIABLES) if environment.get(name)]
    return bool(stated) and stated[0].lower().startswith("zh")


def localized(text: str) -> str:
    r"""Return the message in the user's language; unchanged in English, or where the catalog lacks it.

    A message may hold texts of foreign files: their control characters are escaped for the terminal, as \x1b, and what
    is longer than any word is cut.
    """
    text = CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
    text = RUN.sub(lambda found: f"{found[0][:80]}... ({len(found[0]):,} characters)", text)
    return translated(text) if is_chinese() else text


def translated(text: str) -> str:
    """Return the message in Chinese.

    Values that fill its places stay as they are, unless they are messages themselves.
    """
    core = text.strip()
    if not core:
        return text
    chinese = _known(core)
    if chinese is None and "\n" in core:
        # A line that is indented is a command, a sample or the output of another program.
        lines = [line if line.startswith(" ") else translated(line) for line in core.split("\n")]
        chinese = "\n".join(lines)
    elif chinese is None and len(core) <= LONGEST_JOINED:
        chinese = _by_parts(core)
    return text.replace(core, chinese, 1) if chinese else text


@lru_cache(maxsize=4096)
def _known(text: str) -> str | None:
    """Return the translation of one message; None where the catalog does not have it."""
    catalog = read_catalog()
    if text in catalog.exact:
        return catalog.exact[text]
    for template in catalog.templates:
        values = template.values(text)
        if values is not None:
            filled = dict(zip(template.places, map(_translated_value, values), strict=True))
            return PLACE.sub(lambda place, filled=filled: filled[int(place[1])], template.chinese)
    return None


def _translated_value(text: str) -> str:
    """Return the translation of a value in a message; a single word, such as a folder's name, stays as it is."""
    return translated(text) if " " in text.strip() else text


def _by_parts(text: str) -> str | None:
    """Return the translation of joined messages, cut where one of the two sides is known; None without such a cut."""
    for joint, chinese_joint in JOINTS.items():
        for cut in re.finditer(re.escape(joint), text):
            left, right = text[: cut.start()], text[cut.end() :]
            known_left, known_right = _known(left), _known(right)
            if known_left or known_right:
                return (known_left or translated(left)) + chinese_joint + (known_right or translated(right))
    pieces = text.split("; ")
    if 1 < len(pieces) <= MOST_PIECES and (chinese := [*map(translated, pieces)]) != pieces:
        return "；".join(chinese)
    head, _, inner = text.removesuffix(")").partition(" (")
    if not (text.endswith(")") and inner) or ")" in inner:
        return None
    known_head, known_inner = _known(head), _known(inner)
    if not (known_head or known_inner):
        return None
    return f"{known_head or translated(head)}（{known_inner or translated(inner)}）"


@dataclass(frozen=True)
class Template:
    """A message with places and its translation.

    Attributes:
        literals: The text before, between and behind the places.
        places: Their numbers.
        chinese: The translation.
    """

    literals: tuple[str, ...]
    places: tuple[int, ...]
    chinese: str

    @property
    def letters(self) -> int:
        """Outside of the places."""
        return sum(letter.isalpha() for literal in self.literals for letter in literal)

    def values(self, text: str) -> list[str] | None:
        """Return the values in a message made from this template; None for another message.

        Each literal is looked for once, from left to right, so that a long text takes no longer than its length.
        """
        first, *between, last = self.literals
        end = len(text) - len(last)
        if not (text.startswith(first) and text.endswith(last) and end >= len(first)):
            return None
        values, start = [], len(first)
        for literal in between:
            found = text.find(literal, start, end)
            if found < 0:
                return None
            values.append(text[start:found])
            start = found + len(literal)
        values.append(text[start:end])
        # A value that begins or ends in another message.
        if any(value.count("(") != value.count(")") or value.find(")") < value.find("(") for value in values):
            return None
        if not first and self.letters <= ONE_WORD and not NUMBER.fullmatch(values[0]):
            return None
        ends = not last and self.letters <= SHORT_TERM and not [first, *between][-1].endswith(": ")
        if ends and (", " in values[-1] or "; " in values[-1]):  # "tensor parallel {0}", in a list of terms
            return None
        return values


@dataclass(frozen=True)
class Catalog:
    """The messages with their translations.

    Attributes:
        exact: Messages without places.
        templates: The other messages; templates that begin with text come first, the longest first.
    """

    exact: dict[str, str]
    templates: tuple[Template, ...]


@lru_cache
def read_catalog(path: Path = CATALOG) -> Catalog:
    """Return the catalog of a .po file."""
    entries = {english: chinese for english, chinese in read_po(path).items() if english and chinese}
    templates = [template_of(english, chinese) for english, chinese in entries.items() if PLACE.search(english)]
    templates = [template for template in templates if template.letters >= SHORTEST_LITERAL]
    return Catalog(
        exact={english: chinese for english, chinese in entries.items() if not PLACE.search(english)},
        templates=tuple(sorted(templates, key=lambda template: (not template.literals[0], -template.letters))),
    )


def template_of(english: str, chinese: str) -> Template:
    """Return the template of a message and its translation."""
    parts = PLACE.split(english)  # text, number, text, number, ...
    return Template(tuple(parts[::2]), tuple(map(int, parts[1::2])), chinese)


def read_po(path: Path) -> dict[str, str]:
    """Return msgid -> msgstr of a gettext catalog: comments, strings over several lines, no plural forms."""
    entries: dict[str, str] = {}
    keyword, english = "", ""
    for line in path.read_text(encoding="utf-8").splitlines():
        word, _, quoted = line.partition(" ") if line.startswith("msg") else (keyword, "", line)
        if not quoted.startswith('"'):
            keyword = ""
            continue
        text = ast.literal_eval(quoted)
        if word == "msgid":
            english = text if line.startswith("msgid") else english + text
        elif word == "msgstr":
            entries[english] = text if line.startswith("msgstr") else entries[english] + text
        keyword = word
    return entries
