"""How a dialogue becomes what a model reads: its chat template, its ids, and the masks and positions of GLM.

Chat template: the one that is named, the tokenizer's own, or that of the family (launch/families/chat_templates).

GLM and ChatGLM-6B read, beside the token ids, who sees whom, and two rows of positions. A sample is prompt, then the
token that begins the answer (<sop> of ChatGLM, <|startofpiece|> of GLM), then the answer. The prompt, which ends with
the mask token that the answer replaces, is seen in both directions, the answer from left to right. The first row of
positions counts the prompt and stands still at the mask token during the answer; the second is 0 in the prompt and
counts the answer from 1. Which tokens these are: Family.answer_marks.
Sources: arXiv 2103.10360, section 2; get_position_ids and get_masks of THUDM/chatglm-6b.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from data_tools.dialogues.chat_template import (
    TOKENIZER_CONFIG,
    ChatTemplate,
    directory_template,
    load_template,
    special_tokens,
    trained_with,
    without_mark,
)
from data_tools.dialogues.encoding import Encoding
from data_tools.text.encoders import SENTENCEPIECE_NAMES, LocatingTokenizer, SentencePieceEncoder
from launch.errors import UserError
from launch.families.registry import Family, family_of_config

TEMPLATES = Path(__file__).parent / "chat_templates"
OF_FAMILY = "of the model's family"  # the origin of a template that no file of the model names
NONE = "none"  # --chat_template none: the bare texts


def template_names() -> list[str]:
    """Return the names of the chat templates of families."""
    return sorted(path.stem for path in TEMPLATES.glob("*.json"))


def find_template(named: str | None, directory: Path | None, config: dict) -> ChatTemplate | None:
    """Return the template of --chat_template, else the one of the tokenizer's directory, else the model family's.

    Args:
        named: A name of template_names(), a file, a directory, "none", or None where no flag is given.
        directory: Of the tokenizer, where it is known.
        config: Of the model. None: the bare texts.

    Raises:
        UserError: If there is none of that name.
        DataError: If one cannot be read.
    """
    if named == NONE:
        return None
    tokens = special_tokens(directory) if directory else {}
    if named is None:
        own = directory_template(directory) if directory else None
        return own or family_chat_template(directory, config)
    if named in template_names():
        return _shipped(named, "of --chat_template", tokens)
    path = Path(named)
    template = directory_template(path) if path.is_dir() else load_template(path, tokens) if path.is_file() else None
    if template is None:
        raise UserError(
            f"--chat_template: found {named!r}, allowed: {', '.join(template_names())}, {NONE}, a file's path, or a "
            "directory whose tokenizer has one."
        )
    return replace(template, tokens=tokens or template.tokens)


def family_chat_template(directory: Path | None, config: dict) -> ChatTemplate:
    """Return the template of the model's family.

    Args:
        directory: Of the tokenizer.
        config: Of the model.
    """
    tokens = special_tokens(directory) if directory else {}
    return _shipped(_family_template(directory, config), OF_FAMILY, tokens)


def template_line(template: ChatTemplate | None) -> str:
    """Return the line about the template at the start of a run."""
    return f"chat template: {template.origin if template else 'none, the bare texts'}"


def template_lines(templates: list[ChatTemplate | None], tokenizer, trains: bool) -> list[str]:
    """Return a line about each template.

    trains: note the only template, or that texts are bare, in the tokenizer, which is saved with the model.
    """
    different = list(dict.fromkeys(templates))
    if trains:
        tokenizer.init_kwargs = without_mark(tokenizer.init_kwargs)
    if trains and len(different) == 1:
        tokenizer.init_kwargs = trained_with(different[0], tokenizer.init_kwargs)
    return [template_line(template) for template in different]


def check_vocabulary(datasets: Iterable, vocab_size: int) -> None:
    """Raise UserError where a model of this vocabulary lacks a token. datasets: with largest_id, or None."""
    for dataset in datasets:
        if dataset is not None and dataset.largest_id >= vocab_size:
            raise UserError(
                f"the tokenizer makes id {dataset.largest_id}, but the model has {vocab_size} ids, 0 to "
                f"{vocab_size - 1}: --tokenizer_name_or_path names another model's."
            )


def _shipped(name: str, origin: str, tokens: dict[str, str]) -> ChatTemplate:
    return replace(load_template(TEMPLATES / f"{name}.json", tokens), origin=f"{name} ({origin})")


def _family_template(directory: Path | None, config: dict) -> str:
    family = family_of_config(config)
    if directory is None:
        return family.chat_template
    for token, template in family.chat_template_by_token:
        files = (directory / name for name in (TOKENIZER_CONFIG, "tokenizer.json"))
        if any(f'"{token}"'.encode() in file.read_bytes() for file in files if file.is_file()):
            return template
    return family.chat_template


def encoding_of(
    data_args, tokenizer, config: dict, chat: bool, use: bool = False, family_template: bool = False
) -> Encoding:
    """Return how texts become ids, by the flags, the tokenizer and the model.

    If no flag names a template, chats take the tokenizer's own or the family's, and other rows are bare texts.

    Args:
        data_args: Has chat_template, src_length, max_length.
        tokenizer: Of the model.
        config: The model's.
        chat: Whether the rows are chats.
        use: The model answers, it is not trained: its directory's template serves all rows, unless it was trained
            here with bare texts.
        family_template: Chats take the family's template, even where the tokenizer has its own.

    Raises:
        UserError, DataError: If the template cannot be read, or the tokenizer lacks tokens of the family.
    """
    family = family_of_config(config)

    directory: Path | None = getattr(tokenizer, "directory", None)  # of launch/upstream/chat_templates_compiled.py
    encode, locate = _encoders(tokenizer, directory)
    template = find_template(data_args.chat_template, directory, config)
    if family_template:
        template = family_chat_template(directory, config)
    if data_args.chat_template is None and not chat:
        own = directory_template(directory) if use and directory else None
        template = own if own and own.trained is not False else None
    end, *others = end_ids(tokenizer, family, config.get("eos_token_id"))
    if template:
        template = replace(template, today=use, ends=tuple(tokenizer.convert_ids_to_tokens(others)))
    begin: list[int] = []  # the special tokens that the tokenizer puts before a text
    if template is None or (template.after_start and family.begins_chats):
        plain, full = encode("a"), tokenizer.encode("a")["input_ids"]
        starts = (start for start in range(len(full)) if full[start : start + len(plain)] == plain)
        begin = full[: next(starts, 0)]
    return Encoding(
        template=template,
        encode=encode,
        begin=tuple(begin),
        eos=end,
        src_length=data_args.src_length,
        max_length=data_args.max_length,
        marks=_marks(tokenizer, family, config),
        locate=locate,
        apart=family.encodes_apart,
        last=getattr(data_args, "trained_answers", None) == "last",
        ends=tuple(others),
    )


def _encoders(tokenizer, directory: Path | None) -> tuple[Callable[[str], list[int]], Callable | None]:
    """Return what makes the ids of a text, and what also says where borders lie among them, if anything can."""
    if backend := getattr(tokenizer, "backend_tokenizer", None):
        found = LocatingTokenizer(backend)
        return found.encode, found.locate
    if directory and (directory / SENTENCEPIECE_NAMES[0]).is_file():
        encoder = SentencePieceEncoder(directory / SENTENCEPIECE_NAMES[0])
        return encoder.encode_chat, encoder.locate_chat
    return lambda text: tokenizer.encode(text, add_special_tokens=False)["input_ids"], None


def end_ids(tokenizer, family: Family, stated: int | list[int] | None) -> tuple[int, ...]:
    """Return the ids that end an answer, first the one that training uses.

    Args:
        stated: eos_token_id of the model's configuration; if the tokenizer's id is not among these, they belong to
            another tokenizer.
        tokenizer: Of the model.
        family: Of the model.

    Raises:
        UserError: If the tokenizer lacks the family's token.
    """
    end = _id_of(tokenizer, family, family.answer_end) if family.answer_end else tokenizer.eos_token_id
    several = stated if isinstance(stated, list) else []
    return (end, *(other for other in several if other != end)) if end in several else (end,)


def _marks(tokenizer, family: Family, config: dict) -> tuple[int, ...]:
    """Return the ids of the family's answer_marks; the model's configuration must have the mask's id, too."""
    marks = tuple(_id_of(tokenizer, family, token) for token in family.answer_marks)
    stated = config.get("gmask_token_id")
    if marks and stated not in (None, marks[0]):
        raise UserError(
            f"gmask_token_id is {stated} in the model's config.json, but {family.answer_marks[0]} is {marks[0]} in the "
            "tokenizer. --tokenizer_name_or_path names the one that the model was made with; or correct config.json."
        )
    return marks


def _id_of(tokenizer, family: Family, token: str) -> int:
    number = tokenizer.convert_tokens_to_ids(token)
    if number is None or tokenizer.convert_ids_to_tokens(number) != token:
        raise UserError(
            f"the tokenizer has no {token}, which stands between prompt and answer of {family.title} or ends the "
            "answer: --tokenizer_name_or_path names the one that the model was made with."
        )
    return number


def prefix_lm_mask(length: int, context_length: int) -> np.ndarray:
    """Return bool [1, length, length]: whether the token of a row sees the token of a column.

    Args:
        length: Tokens of the sample.
        context_length: Tokens before the one that begins the answer.
    """
    mask = np.tril(np.ones((length, length), dtype=bool))
    mask[:, :context_length] = True
    return mask[None]


def prefix_lm_positions(length: int, context_length: int, mask_position: int) -> np.ndarray:
    """Return int64 [2, length]. mask_position: place in the prompt of [MASK] or [gMASK], which the answer replaces."""
    positions = np.arange(length)
    blocks = np.maximum(positions - context_length + 1, 0)
    positions[context_length:] = mask_position
    return np.stack([positions, blocks])


def mask_position(context_length: int, marks: tuple[str, ...]) -> int:
    """Return the place of the first of the marks; the last is the token behind the context."""
    return max(context_length + 1 - len(marks), 0)
