"""How a tokenizer and a chat template make ids of dialogues: the same in training, evaluation and use."""

from data_tools.formats.chat_template import ChatTemplate, load_template
from data_tools.formats.encoding import Encoding
from launch.models.chat import template_file


def encoding_of(data_args, tokenizer, config: dict, chat: bool) -> Encoding:
    """data_args: has chat_template, src_length, max_length. config: the model's. chat: whether the rows are chats,
    which take the template of the model's family where no flag names one.

    Raises UserError or DataError where the template cannot be read.
    """

    def encode(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False)["input_ids"]

    return Encoding(
        template=_template(data_args.chat_template, config, chat),
        encode=encode,
        begin=_begin(tokenizer, encode),
        eos=tokenizer.eos_token_id,
        src_length=data_args.src_length,
        max_length=data_args.max_length,
    )


def _template(named: str | None, config: dict, chat: bool) -> ChatTemplate | None:
    if named is None and not chat:
        return None
    return load_template(template_file(named, config))


def _begin(tokenizer, encode) -> tuple[int, ...]:
    """The special tokens that the tokenizer puts before a text."""
    plain, full = encode("a"), tokenizer.encode("a")["input_ids"]
    return tuple(full[: -len(plain)]) if full[-len(plain) :] == plain else ()
