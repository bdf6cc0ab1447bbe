"""From dialogues to ids, of which only the answers count."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from operator import gt
from os.path import commonprefix

from data_tools.dialogues.chat_template import ChatTemplate, Rendered
from data_tools.dialogues.messages import Dialogue
from data_tools.formats.errors import DataError

IGNORED = -100  # the label of a position that counts for nothing
BATCH, BATCH_CHARACTERS = 16, 1 << 20  # dialogues that are rendered in one round trip, at most
END_IDS = 4  # among which an answer's eos is looked for: some templates have a line's end behind it


@dataclass(frozen=True)
class Encoding:
    """The rules by which text becomes ids.

    Attributes:
        template: Around the turns; None: the bare texts, `eos` after each answer.
        encode: The ids of a text; special tokens are made only where the text names them.
        begin: Ids before the first question, such as bos, which a template may write itself.
        eos: The id that ends a sample.
        src_length: Ids of a question, at most.
        max_length: Ids of a sample, at most.
        marks: Ids between a question and its answer, in families whose questions are seen in both directions.
        locate: The ids of a text, how many begin before each of these borders in it, and how many end by it; None where
            the tokenizer cannot tell.
        apart: Each answer is a sample of its own, encoded apart from all before it, as with marks.
        last: The last answer of a dialogue alone is trained on.
        ends: Further ids that end an answer.
    """

    template: ChatTemplate | None
    encode: Callable[[str], list[int]]
    begin: tuple[int, ...]
    eos: int
    src_length: int
    max_length: int
    marks: tuple[int, ...] = ()
    locate: Callable[[str, list[int]], tuple[list[int], list[int], list[int]]] | None = None
    apart: bool = False
    last: bool = False
    ends: tuple[int, ...] = ()

    def texts(self, dialogues: list[Dialogue]) -> list[Rendered | DataError]:
        """Return the samples of each dialogue as text, or why the template has none."""
        return self.template.render_all(dialogues, self.last) if self.template else [*map(_bare, dialogues)]

    def prompt_text(self, dialogue: Dialogue) -> str:
        """Return what a model reads before it answers.

        Raises:
            DataError: As the template.
        """
        if self.template:
            return self.template.prompt(dialogue)
        return "".join(text for turn in _bare_turns(dialogue) for text in turn)

    def prompt(self, dialogue: Dialogue) -> list[int]:
        """Return the ids of `prompt_text`, uncut."""
        if self.template:
            return [*self.begin, *self.encode(self.template.prompt(dialogue)), *self.marks]
        ids = list(self.begin)
        for question, answer in _bare_turns(dialogue):
            ids += self.encode(question) + (self.answer(answer, last=False) if answer else [])
        return [*ids, *self.marks]

    def answer(self, text: str, last: bool) -> list[int]:
        """Return the ids of an answer. The last one ends with eos, each one does where no template says how it ends."""
        return self.ended(self.encode(text), last)

    def ended(self, ids: list[int], last: bool) -> list[int]:
        """Return the ids of an answer, with eos where they need one."""
        tail = ids[-END_IDS if self.template else -1 :]
        needs_end = (last or not self.template) and not {self.eos, *self.ends} & set(tail)
        return [*ids, self.eos] if needs_end else ids

    def parts(self, turns: list[tuple[str, str]]) -> tuple[list[tuple[list[int], list[int]]], int]:
        """Return (ids before an answer, its ids) in turn, and how many borders of answers lie within a token.

        The ids are those of the whole text. A token that holds a part of the question does not belong to the answer.
        """
        if not self.template or self.apart or self.marks:
            return [(self.encode(before), self.encode(said)) for before, said in turns], 0
        text = "".join(before + said for before, said in turns)
        borders = list(accumulate(len(part) for turn in turns for part in turn))
        ids, cuts, crossed = self._cut(text, borders[:-1])
        ends = [0, *cuts, len(ids)]
        pieces = [ids[start:end] for start, end in pairwise(ends)]
        return list(zip(pieces[0::2], pieces[1::2], strict=True)), crossed

    def _cut(self, text: str, borders: list[int]) -> tuple[list[int], list[int], int]:
        """Return the ids of a text, how many precede each border, and how many borders lie within a token.

        Borders are the ends of questions and answers in turn.
        """
        if self.locate:
            ids, begun, ended = self.locate(text, borders)
            cuts = [(ended if number % 2 else begun)[number] for number in range(len(borders))]
            return ids, cuts, sum(map(gt, begun, ended))
        cuts, crossed = [], 0
        ids = self.encode(text)
        for number, border in enumerate(borders):
            alone = self.encode(text[:border])
            before = len(commonprefix([alone, ids]))
            crossed += before < len(alone)
            cuts.append(before if number % 2 else len(alone))
        return ids, cuts, crossed


def check_lengths(src_length: int, max_length: int) -> None:
    """Raise DataError where a question may be as long as a sample, which would leave no room for its answer."""
    if src_length >= max_length:
        raise DataError(
            f"--src_length: found {src_length}, allowed: less than --max_length {max_length}, for an answer to have "
            f"room. --max_length {2 * src_length}, or a shorter --src_length."
        )


@dataclass(frozen=True)
class Encoded:
    """A sample as ids, and what had to be cut.

    Attributes:
        labels: The ids of answers and their ends, IGNORED elsewhere; as long as ids, not shifted.
        crossed: Borders of answers that lie within a token.
        counts: As in Rendered; of a dialogue with several samples only the first one has them.
    """

    ids: list[int]
    labels: list[int]
    cut_prompts: int = 0
    cut_answers: int = 0
    dropped_turns: int = 0
    crossed: int = 0
    counts: dict[str, int] = field(default_factory=dict)


def encode_dialogue(dialogue: Dialogue, encoding: Encoding) -> list[Encoded]:
    """Return the samples of a dialogue, each of at most max_length ids.

    There is one, or more where the template changes what is before an answer, or answers are encoded apart; none where
    no answer is trained on.

    A question longer than src_length keeps its end. The first answer is cut where it does not fit, and then has no end
    token to train on; a later turn that does not fit is dropped, and all after it.

    Raises:
        DataError: If the template does not render it.
    """
    [found] = encode_dialogues([dialogue], encoding)
    if isinstance(found, DataError):
        raise found
    return found


def encode_dialogues(dialogues: Iterable[Dialogue], encoding: Encoding) -> Iterator[list[Encoded] | DataError]:
    """Yield `encode_dialogue` of each, or what it raises."""
    for _, found in rendered(dialogues, encoding):
        if isinstance(found, DataError):
            yield found
            continue
        samples = [encoded for turns in found.samples for encoded in _samples(turns, encoding)]
        yield [replace(samples[0], counts=found.counts), *samples[1:]] if samples and found.counts else samples


def rendered(dialogues: Iterable[Dialogue], encoding: Encoding) -> Iterator[tuple[Dialogue, Rendered | DataError]]:
    """Yield each dialogue with what Encoding.texts makes of it, some dialogues in each round trip."""
    for batch in _batches(dialogues):
        yield from zip(batch, encoding.texts(batch), strict=True)


def _batches(dialogues: Iterable[Dialogue]) -> Iterator[list[Dialogue]]:
    batch, size = [], 0
    for dialogue in dialogues:
        batch.append(dialogue)
        size += dialogue.size
        if len(batch) == BATCH or size > BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _bare(dialogue: Dialogue) -> Rendered | DataError:
    if dialogue.has_tools or any(message.reasoning for message in dialogue.messages):
        return DataError("the bare texts: tools and reasoning need a chat template. --chat_template NAME or FILE.")
    trained = [message.trained for message in dialogue.messages if message.role == "assistant"]
    if not all(trained):
        return DataError("the bare texts: answers that are not trained on need a chat template.")
    return Rendered([_bare_turns(dialogue)])


def _bare_turns(dialogue: Dialogue) -> list[tuple[str, str]]:
    """Return questions and answers in turn; the last answer may be missing, and is "" then."""
    texts = [(message.role, message.text) for message in dialogue.messages]
    system = texts.pop(0)[1] if texts[0][0] in ("system", "developer") else ""
    said = [text for _, text in texts] + [""] * (len(texts) % 2)
    said[0] = f"{system}\n\n{said[0]}" if system else said[0]
    return list(zip(said[0::2], said[1::2], strict=True))


def _samples(turns: list[tuple[str, str]], encoding: Encoding) -> list[Encoded]:
    if not encoding.marks and not (encoding.apart and encoding.template):
        return [_encode(turns, encoding)]
    before_answer = ["".join(before + after for before, after in turns[:number]) for number in range(len(turns))]
    return [
        _encode([(said + before, after)], encoding) for said, (before, after) in zip(before_answer, turns, strict=True)
    ]


def _encode(turns: list[tuple[str, str]], encoding: Encoding) -> Encoded:
    ids = list(encoding.begin)
    labels = [IGNORED] * len(ids)
    cut_prompts = 0
    parts, crossed = encoding.parts(turns)
    for number, (prompt, answer) in enumerate(parts):
        answer = encoding.ended(answer, last=number == len(parts) - 1)
        room = encoding.src_length - (len(ids) if number == 0 else 0) - len(encoding.marks)
        kept = prompt[max(len(prompt) - room, 0) :]
        cut_prompts += len(kept) < len(prompt)
        kept += encoding.marks
        room = encoding.max_length - len(ids) - len(kept)
        if number > 0 and len(answer) > room:
            return Encoded(ids, labels, cut_prompts, dropped_turns=len(parts) - number, crossed=crossed)
        ids += kept + answer[:room]
        labels += [IGNORED] * len(kept) + answer[:room]
        if len(answer) > room:
            return Encoded(ids, labels, cut_prompts, 1, len(parts) - 1, crossed)
    return Encoded(ids, labels, cut_prompts, crossed=crossed)
