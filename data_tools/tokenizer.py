r"""Train a sentencepiece tokenizer with LLaMA's special tokens, or add pieces to one.

    python -m data_tools.tokenizer --input texts --output tokenizer \
        --vocab_size 4096
    python -m data_tools.tokenizer --input chinese --output tokenizer-zh \
        --extend tokenizer --vocab_size 6000

writes sentencepiece.bpe.model and tokenizer_config.json: the folder is what
`paddlenlp.transformers.LlamaTokenizer.from_pretrained` and `--tokenizer_name_or_path` read. Any text, in any script,
survives encoding and decoding unchanged (unknown characters become bytes, spaces and line ends are kept), except the
character U+2581, which sentencepiece uses for the space. The same input gives the same file; another tokenizer in that
folder is refused, not overwritten.

--extend keeps the ids of the tokenizer it names and puts what these texts need behind them, up to --vocab_size in all;
one document in 20 is left out of the training and tells how many tokens a character takes before and after. A model
made for the old tokenizer needs as many more rows in its embedding and its output layer.

Training holds the lines in memory, some ten times their size: --max_lines draws as many from a large input.
"""

import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import sentencepiece

from data_tools.cli import BEGINS_ANEW, Parser, above_zero, not_negative, run
from data_tools.formats.atomic import written_aside
from data_tools.formats.errors import DataError
from data_tools.formats.json_files import read_object
from data_tools.formats.plural import plural
from data_tools.progress import progress
from data_tools.text.encoders import CONFIG_NAME, JSON_NAME, SENTENCEPIECE_NAMES, SentencePieceEncoder, load_encoder
from data_tools.text.sources import find_files, read_documents, total_bytes
from data_tools.text.vocabulary import extend_model, model_type, new_pieces, tokens_per_character

HELD_OUT = 20
MODEL_NAME = SENTENCEPIECE_NAMES[0]
CONFIG = {
    "tokenizer_class": "LlamaTokenizer",
    "unk_token": "<unk>",
    "bos_token": "<s>",
    "eos_token": "</s>",
    "add_bos_token": True,
    "add_eos_token": False,
}


def train_tokenizer(
    texts: Iterable[str],
    vocab_size: int,
    model_type: str = "bpe",
    max_lines: int | None = None,
    symbols: tuple[str, ...] = (),
) -> bytes:
    """Return a sentencepiece model (bpe or unigram) of `vocab_size` ids.

    The ids are 0 <unk>, 1 <s>, 2 </s>, line end, symbols, 256 bytes, pieces. max_lines: train on at most this many
    lines, drawn from all. symbols: texts that are one piece each.

    Raises:
        DataError: If the text is too little, or too varied, for that many pieces.
    """
    model = io.BytesIO()
    broken: list[DataError] = []
    try:
        sentencepiece.SentencePieceTrainer.train(
            # The trainer drops line ends and works line by line: "\n" is given as a piece of its own.
            sentence_iterator=_lines(texts, broken),
            user_defined_symbols=["\n", *symbols],
            input_sentence_size=max_lines or 0,
            shuffle_input_sentence=max_lines is not None,
            model_writer=model,
            vocab_size=vocab_size,
            model_type=model_type,
            unk_id=0,
            bos_id=1,
            eos_id=2,
            pad_id=-1,
            # As LLaMA's: nothing normalized, bytes for what is unknown, digits apart, no piece across words,
            # and runs of spaces (indentation) as pieces. Unlike LLaMA's no space is put before the text: a
            # source begins as each of its lines does.
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            add_dummy_prefix=False,
            byte_fallback=True,
            split_digits=True,
            allow_whitespace_only_pieces=True,
            max_sentence_length=1 << 16,  # bytes; longer lines are left out of the statistics, not of encoding
            num_threads=1,  # with more, unigram's sums, and so its pieces, depend on the run
            minloglevel=2,
        )
    except (RuntimeError, ValueError) as error:
        if broken:
            raise broken[0] from None
        raise DataError(_explain(str(error), vocab_size)) from None
    return model.getvalue()


def _lines(texts: Iterable[str], broken: list[DataError]) -> Iterator[str]:
    """Yield the lines of all texts. An error of reading them is kept: the trainer turns it into another one."""
    try:
        for text in texts:
            yield from text.split("\n")
    except DataError as error:
        broken.append(error)
        raise


def extend_tokenizer(
    base_dir: str | Path, texts: Iterable[str], vocab_size: int, max_lines: int | None = None
) -> tuple[bytes, float, float]:
    """Return (the sentencepiece model of `base_dir` with new pieces, tokens a character before, and after).

    The model has up to `vocab_size` ids; the rates are of held-out texts.

    Raises:
        DataError: If the base cannot grow, or the texts have too little new.
    """
    encoder = load_encoder(base_dir)
    if not isinstance(encoder, SentencePieceEncoder) or Path(base_dir, "added_tokens.json").exists():
        raise DataError(
            f"{base_dir} cannot be extended: expected a sentencepiece model, and no added_tokens.json, whose tokens "
            "have the ids behind it."
        )
    if vocab_size <= encoder.vocab_size:
        raise DataError(f"--vocab_size {vocab_size}: {base_dir} has {encoder.vocab_size} ids already. Take more.")
    base = encoder.path.read_bytes()
    held_out: list[str] = []
    # So many ids that enough are new, even if the base has all others.
    trained = train_tokenizer(_without_some(texts, held_out), vocab_size + 8, model_type(base), max_lines)
    if not held_out:
        raise DataError("one document is too little to extend a tokenizer: give at least two.")
    model = extend_model(base, new_pieces(base, trained)[: vocab_size - encoder.vocab_size])
    return model, tokens_per_character(base, held_out), tokens_per_character(model, held_out)


def _without_some(texts: Iterable[str], held_out: list[str]) -> Iterator[str]:
    for number, text in enumerate(texts):
        if number % HELD_OUT == 1:
            held_out.append(text)
        else:
            yield text


def save_tokenizer(directory: str | Path, model: bytes, config: dict = CONFIG) -> None:
    """Write the files of a tokenizer directory, both or none; the configuration takes its name last."""
    with written_aside(Path(directory, CONFIG_NAME)) as config_file, written_aside(Path(directory, MODEL_NAME)) as file:
        config_file.write(json.dumps(config, indent=2).encode() + b"\n")
        file.write(model)


def refuse_another(directory: str | Path, model: bytes) -> None:
    """Raise DataError where the directory has a tokenizer that is not this one."""
    for path in (Path(directory, name) for name in (*SENTENCEPIECE_NAMES, JSON_NAME)):
        if path.is_file() and (path.name != MODEL_NAME or path.read_bytes() != model):
            raise DataError(
                f"{directory} has another tokenizer, {path.name}, which token files may have been made with. "
                f"Name another --output, or remove {directory} first."
            )


def _explain(message: str, vocab_size: int) -> str:
    """Return sentencepiece's message in the user's words."""
    too_high = re.search(r"Vocabulary size too high.*<= (\d+)", message)
    if too_high:
        return f"--vocab_size {vocab_size} is too high for so little text: take {too_high[1]} or less."
    too_small = re.search(r"Vocabulary size is smaller than required_chars\. \d+ vs (\d+)", message)
    if too_small:
        return f"--vocab_size {vocab_size} is too small: these texts need at least {too_small[1]}."
    return f"sentencepiece cannot train on these texts with --vocab_size {vocab_size}: {message.splitlines()[0]}"


def main() -> None:
    """Run the command."""
    parser = Parser("python -m data_tools.tokenizer", __doc__)
    parser.add_argument("--input", required=True, nargs="+", metavar="FILE", help="files, folders, patterns; -: stdin")
    parser.add_argument("--output", required=True, metavar="DIR", help="the tokenizer directory to write")
    parser.add_argument("--vocab_size", required=True, type=above_zero, help="ids in all, such as 4096 or 32000")
    parser.add_argument(
        "--model_type", choices=("bpe", "unigram"), help="default: bpe; unigram is some 20 times slower"
    )
    parser.add_argument("--extend", metavar="DIR", help="a tokenizer directory to add pieces to")
    parser.add_argument("--max_lines", type=above_zero, metavar="N", help="train on N lines, drawn from all")
    parser.add_argument("--text_key", default="text", help="the key, or column, that holds the text (default: text)")
    parser.add_argument(
        "--max_bad_lines", type=not_negative, default=0, metavar="N", help="drop up to N lines that are no documents"
    )
    args = parser.parse_args()
    if args.extend and args.model_type:
        parser.error("--model_type is that of the tokenizer to extend: leave it out")
    files = find_files(args.input)
    with progress("reading", total_bytes(files)) as advance:
        texts = _texts(files, args.text_key, args.max_bad_lines, advance)
        if args.extend:
            model, before, after = extend_tokenizer(args.extend, texts, args.vocab_size, args.max_lines)
            refuse_another(args.output, model)
            save_tokenizer(args.output, model, read_object(Path(args.extend, CONFIG_NAME)) or CONFIG)
            print(
                f"{args.output}: {args.extend} with more pieces, {args.vocab_size} ids; tokens a character of held-out "
                f"documents: {before:.3f} before, {after:.3f} after ({1 - after / before:.0%} fewer)"
            )
            return
        kind = args.model_type or "bpe"
        model = train_tokenizer(texts, args.vocab_size, kind, args.max_lines)
        refuse_another(args.output, model)
        save_tokenizer(args.output, model)
    print(f"{args.output}: {kind} tokenizer, {args.vocab_size} ids")


def _texts(files: list[str], text_key: str, max_bad_lines: int, advance: Callable[[int, int], None]) -> Iterator[str]:
    count = 0
    for document in read_documents(files, text_key, max_bad_lines):
        yield document.text
        count += 1
        advance(document.size, 1)
    if not count:
        raise DataError(f"{', '.join(files)}: no text in them. Give files with text.")
    print(f"training on {plural(count, 'document')} ...", file=sys.stderr, flush=True)


if __name__ == "__main__":
    run(main, BEGINS_ANEW)
