"""How a dialogue becomes ids for a model: its chat template, the marks of its family, begin and end tokens."""

from dataclasses import replace
from pathlib import Path

from data_tools.formats.dialogues.encoding import Encoding
from launch.errors import UserError
from launch.families.chat import family_chat_template, find_template
from launch.families.registry import Family, family_of_config


def encoding_of(
    data_args, tokenizer, config: dict, chat: bool, use: bool = False, family_template: bool = False
) -> Encoding:
    """data_args: has chat_template, src_length, max_length. config: the model's. chat: whether the rows are chats,
    which take the tokenizer's own template, or that of the model's family, where no flag names one; other rows are
    bare texts then. use: the model is asked, not trained: what it was trained with serves rows of every kind.
    family_template: chats take that of the model's family, even where the tokenizer has its own.

    Raises UserError or DataError where the template cannot be read, or the tokenizer lacks tokens of the family.
    """
    family = family_of_config(config)

    def encode(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False)["input_ids"]

    directory = directory_of(tokenizer)
    template = find_template(data_args.chat_template, directory, config)
    if family_template:
        template = family_chat_template(directory, config)
    if data_args.chat_template is None and not chat and not (use and template and template.trained):
        template = None
    if template and use:
        template = replace(template, today=True)
    begins = template is None or (template.after_start and family.begins_chats)
    return Encoding(
        template=template,
        encode=encode,
        begin=_begin(tokenizer, encode) if begins else (),
        eos=end_id(tokenizer, family),
        src_length=data_args.src_length,
        max_length=data_args.max_length,
        marks=_marks(tokenizer, family, config),
    )


def end_id(tokenizer, family: Family) -> int:
    """The id that ends an answer. Raises UserError where the tokenizer has no such token."""
    return _id_of(tokenizer, family, family.answer_end) if family.answer_end else tokenizer.eos_token_id


def _marks(tokenizer, family: Family, config: dict) -> tuple[int, ...]:
    """The ids of the family's answer_marks, of which the model's configuration must know the mask by the same id."""
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


def directory_of(tokenizer) -> Path | None:
    """Where a tokenizer was loaded from (launch/upstream/chat_templates_compiled.py)."""
    return getattr(tokenizer, "directory", None)


def _begin(tokenizer, encode) -> tuple[int, ...]:
    """The special tokens that the tokenizer puts before a text."""
    plain, full = encode("a"), tokenizer.encode("a")["input_ids"]
    starts = (start for start in range(len(full)) if full[start : start + len(plain)] == plain)
    return tuple(full[: next(starts, 0)])
