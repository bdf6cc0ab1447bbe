"""From dialogues to ids, of which only the answers count."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from data_tools.dialogues.chat_template import ChatTemplate
from data_tools.dialogues.dialogue import Dialogue
from data_tools.formats.errors import DataError

IGNORED = -100  # the label of a position that counts for nothing
BATCH, BATCH_CHARACTERS = 16, 1 << 20  # dialogues that are rendered in one round trip, at most
END_IDS = 4  # among which an answer's eos is looked for: some templates have a line's end behind it


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

    def texts(self, dialogues: list[Dialogue]) -> list[list[tuple[str, str]] | DataError]:
        """(all text before an answer, the answer with what ends it) of each turn, or why the template has none."""
        return self.template.render_all(dialogues) if self.template else [*map(_bare, dialogues)]

    def answer(self, text: str, last: bool) -> list[int]:
        """The ids of an answer. The last one ends with eos, each one does where no template says how it ends."""
        ids = self.encode(text)
        if (last or not self.template) and self.eos not in ids[-END_IDS if self.template else -1 :]:
            ids.append(self.eos)
        return ids


def check_lengths(src_length: int, max_length: int) -> None:
    """Raises DataError where a question may be as long as a sample: nothing would be left of its answer."""
    if src_length >= max_length:
        raise DataError(
            f"--src_length: found {src_length}, allowed: less than --max_length {max_length}, for an answer to have "
            f"room. --max_length {2 * src_length}, or a shorter --src_length."
        )


@dataclass(frozen=True)
class Encoded:
    """A dialogue as ids, and what had to be cut.

    labels: the ids of answers and their ends, IGNORED elsewhere; as long as ids, not shifted. not_learnt: answers that
    count for nothing because the chat template changes them.
    """

    ids: list[int]
    labels: list[int]
    cut_prompts: int = 0
    cut_answers: int = 0
    dropped_turns: int = 0
    not_learnt: int = 0


def encode_dialogue(dialogue: Dialogue, encoding: Encoding) -> list[Encoded]:
    """The samples of a dialogue, each of at most max_length ids: one, or one for each answer where there are marks.

    A question longer than src_length keeps its end. The first answer is cut where it does not fit, and then has no
    end that could be learnt; a later turn that does not fit is dropped, and all after it.
    Raises DataError where the template does not render it.
    """
    [found] = encode_dialogues([dialogue], encoding)
    if isinstance(found, DataError):
        raise found
    return found


def encode_dialogues(dialogues: Iterable[Dialogue], encoding: Encoding) -> Iterator[list[Encoded] | DataError]:
    """`encode_dialogue` of each, or what it raises."""
    for dialogue, texts in rendered(dialogues, encoding):
        if isinstance(texts, DataError):
            yield texts
            continue
        first, *others = _samples(texts, encoding)
        yield [replace(first, not_learnt=len(dialogue.turns) - len(texts)), *others]


def rendered(
    dialogues: Iterable[Dialogue], encoding: Encoding
) -> Iterator[tuple[Dialogue, list[tuple[str, str]] | DataError]]:
    """Each dialogue with what Encoding.texts makes of it, some dialogues in each round trip."""
    for batch in _batches(dialogues):
        yield from zip(batch, encoding.texts(batch), strict=True)


def _batches(dialogues: Iterable[Dialogue]) -> Iterator[list[Dialogue]]:
    batch, size = [], 0
    for dialogue in dialogues:
        batch.append(dialogue)
        size += sum(len(turn.prompt) + len(turn.answer) for turn in dialogue.turns)
        if len(batch) == BATCH or size > BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _bare(dialogue: Dialogue) -> list[tuple[str, str]]:
    texts = [(turn.prompt, turn.answer) for turn in dialogue.turns]
    if dialogue.system:
        texts[0] = (f"{dialogue.system}\n\n{texts[0][0]}", texts[0][1])
    return texts


def _samples(texts: list[tuple[str, str]], encoding: Encoding) -> list[Encoded]:
    if not encoding.marks:
        return [_encode(texts, encoding)]
    before_answer = ["".join(before + after for before, after in texts[:number]) for number in range(len(texts))]
    return [
        _encode([(said + before, after)], encoding) for said, (before, after) in zip(before_answer, texts, strict=True)
    ]


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
