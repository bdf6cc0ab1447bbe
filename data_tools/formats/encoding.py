"""From dialogues to ids, of which only the answers count."""

from collections.abc import Callable
from dataclasses import dataclass

from data_tools.formats.chat_template import ChatTemplate
from data_tools.formats.dialogue import Dialogue

IGNORED = -100  # the label of a position that counts for nothing


@dataclass(frozen=True)
class Encoding:
    """How text becomes ids.

    template:   around the turns; None: the bare texts, `begin` before the first question, `eos` after each answer
    encode:     the ids of a text; special tokens are made only where the text names them
    begin:      ids that the tokenizer puts before a text by itself, such as its bos
    eos:        the id that ends a sample
    src_length: ids of a question, at most. max_length: of a sample, at most
    """

    template: ChatTemplate | None
    encode: Callable[[str], list[int]]
    begin: tuple[int, ...]
    eos: int
    src_length: int
    max_length: int

    def texts(self, dialogue: Dialogue) -> list[tuple[str, str]]:
        """(all text before an answer, the answer with what ends it) of each turn."""
        if self.template:
            return self.template.render(dialogue)
        texts = [(turn.prompt, turn.answer) for turn in dialogue.turns]
        if dialogue.system:
            texts[0] = (f"{dialogue.system}\n\n{texts[0][0]}", texts[0][1])
        return texts

    def answer(self, text: str, last: bool) -> list[int]:
        """The ids of an answer. The last one ends with eos, each one does where no template says how it ends."""
        ids = self.encode(text)
        if (last or not self.template) and ids[-1:] != [self.eos]:
            ids.append(self.eos)
        return ids


@dataclass(frozen=True)
class Encoded:
    """A dialogue as ids, and what had to be cut.

    labels: the ids of answers and their ends, IGNORED elsewhere; as long as ids, not shifted.
    """

    ids: list[int]
    labels: list[int]
    cut_prompts: int = 0
    cut_answers: int = 0
    dropped_turns: int = 0


def encode_dialogue(dialogue: Dialogue, encoding: Encoding) -> Encoded:
    """The dialogue as at most max_length ids.

    A question longer than src_length keeps its end. The first answer is cut where it does not fit, and then has no
    end that could be learnt; a later turn that does not fit is dropped, and all after it.
    """
    ids = [] if encoding.template else list(encoding.begin)
    labels = [IGNORED] * len(ids)
    cut_prompts = 0
    texts = encoding.texts(dialogue)
    for number, (before, after) in enumerate(texts):
        prompt, answer = encoding.encode(before), encoding.answer(after, last=number == len(texts) - 1)
        room = encoding.src_length - (len(ids) if number == 0 else 0)
        kept = prompt[max(len(prompt) - room, 0) :]
        room = encoding.max_length - len(ids) - len(kept)
        if number > 0 and len(answer) > room:
            return Encoded(ids, labels, cut_prompts, dropped_turns=len(texts) - number)
        cut_prompts += len(kept) < len(prompt)
        ids += kept + answer[:room]
        labels += [IGNORED] * len(kept) + answer[:room]
        if len(answer) > room:
            return Encoded(ids, labels, cut_prompts, cut_answers=1, dropped_turns=len(texts) - 1)
    return Encoded(ids, labels, cut_prompts)
