"""How a tokenizer and a chat template make ids of dialogues: the same in training, evaluation and use."""

from data_tools.formats.dialogues.chat_template import ChatTemplate, load_template
from data_tools.formats.dialogues.encoding import Encoding
from launch.errors import UserError
from launch.models.chat import template_file
from launch.models.families import Family, family_of_config


def encoding_of(data_args, tokenizer, config: dict, chat: bool) -> Encoding:
    """data_args: has chat_template, src_length, max_length. config: the model's. chat: whether the rows are chats,
    which take the template of the model's family where no flag names one.

    Raises UserError or DataError where the template cannot be read, or the tokenizer lacks tokens of the family.
    """
    family = family_of_config(config)

    def encode(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False)["input_ids"]

    template = _template(data_args.chat_template, config, chat)
    return Encoding(
        template=template,
        encode=encode,
        begin=() if template and not family.begins_chats else _begin(tokenizer, encode),
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


def _template(named: str | None, config: dict, chat: bool) -> ChatTemplate | None:
    if named is None and not chat:
        return None
    return load_template(template_file(named, config))


def _begin(tokenizer, encode) -> tuple[int, ...]:
    """The special tokens that the tokenizer puts before a text."""
    plain, full = encode("a"), tokenizer.encode("a")["input_ids"]
    starts = (start for start in range(len(full)) if full[start : start + len(plain)] == plain)
    return tuple(full[: next(starts, 0)])
