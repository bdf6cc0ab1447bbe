"""From dialogues to ids, of which only the answers count."""

from collections.abc import Callable
from dataclasses import dataclass

from data_tools.formats.dialogues.chat_template import ChatTemplate
from data_tools.formats.dialogues.dialogue import Dialogue

IGNORED = -100  # the label of a position that counts for nothing


@dataclass(frozen=True)
class Encoding:
    """How text becomes ids.

    template:   around the turns; None: the bare texts, `eos` after each answer
    encode:     the ids of a text; special tokens are made only where the text names them
    begin:      ids before the first question, such as bos, which a template may say itself
    eos:        the id that ends a sample
    src_length: ids of a question, at most. max_length: of a sample, at most
    marks:      ids between a question and its answer, in families whose questions are seen in both directions. Each
                answer is then a sample of its own, with all before it as its question
    """

    template: ChatTemplate | None
    encode: Callable[[str], list[int]]
    begin: tuple[int, ...]
    eos: int
    src_length: int
    max_length: int
    marks: tuple[int, ...] = ()

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


def encode_dialogue(dialogue: Dialogue, encoding: Encoding) -> list[Encoded]:
    """The samples of a dialogue, each of at most max_length ids: one, or one for each answer where there are marks.

    A question longer than src_length keeps its end. The first answer is cut where it does not fit, and then has no
    end that could be learnt; a later turn that does not fit is dropped, and all after it.
    """
    texts = encoding.texts(dialogue)
    if not encoding.marks:
        return [_encode(texts, encoding)]
    told = ["".join(before + after for before, after in texts[:number]) for number in range(len(texts))]
    return [_encode([(said + before, after)], encoding) for said, (before, after) in zip(told, texts, strict=True)]


def _encode(texts: list[tuple[str, str]], encoding: Encoding) -> Encoded:
    ids = list(encoding.begin)
    labels = [IGNORED] * len(ids)
    cut_prompts = 0
    for number, (before, after) in enumerate(texts):
        prompt, answer = encoding.encode(before), encoding.answer(after, last=number == len(texts) - 1)
        room = encoding.src_length - (len(ids) if number == 0 else 0) - len(encoding.marks)
        kept = prompt[max(len(prompt) - room, 0) :]
        cut_prompts += len(kept) < len(prompt)
        kept += encoding.marks
        room = encoding.max_length - len(ids) - len(kept)
        if number > 0 and len(answer) > room:
            return Encoded(ids, labels, cut_prompts, dropped_turns=len(texts) - number)
        ids += kept + answer[:room]
        labels += [IGNORED] * len(kept) + answer[:room]
        if len(answer) > room:
            return Encoded(ids, labels, cut_prompts, cut_answers=1, dropped_turns=len(texts) - 1)
    return Encoded(ids, labels, cut_prompts)
