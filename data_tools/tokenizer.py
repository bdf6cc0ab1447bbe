"""Train a sentencepiece tokenizer with LLaMA's special tokens.

    python -m data_tools.tokenizer --input text/train.jsonl --output tokenizer --vocab_size 4096

writes sentencepiece.bpe.model and tokenizer_config.json: the folder is what
`paddlenlp.transformers.LlamaTokenizer.from_pretrained` and `--tokenizer_name_or_path` read. Any text survives
encoding and decoding unchanged (unknown characters become bytes, spaces and line ends are kept), except the
character U+2581, which sentencepiece uses for the space. The same input gives the same file.
"""

import io
import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path

import sentencepiece

from data_tools.cli import Parser, run
from data_tools.encoders import CONFIG_NAME, SENTENCEPIECE_NAMES
from data_tools.formats.atomic import written_aside
from data_tools.formats.errors import DataError
from data_tools.progress import progress
from data_tools.sources import find_files, read_documents, total_bytes

MODEL_NAME = SENTENCEPIECE_NAMES[0]
CONFIG = {
    "tokenizer_class": "LlamaTokenizer",
    "unk_token": "<unk>",
    "bos_token": "<s>",
    "eos_token": "</s>",
    "add_bos_token": True,
    "add_eos_token": False,
}


def train_tokenizer(texts: Iterable[str], vocab_size: int, model_type: str = "bpe") -> bytes:
    """A sentencepiece model (bpe or unigram) of `vocab_size` ids: 0 <unk>, 1 <s>, 2 </s>, line end, 256
    bytes, pieces.

    Raises DataError when the text is too little, or too varied, for that many pieces.
    """
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            # The trainer drops line ends and works line by line: "\n" is given as a piece of its own.
            sentence_iterator=(line for text in texts for line in text.split("\n")),
            user_defined_symbols=["\n"],
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
            max_sentence_length=1
            << 16,  # bytes; longer lines are left out of the statistics, not of encoding
            num_threads=1,  # with more, unigram's sums, and so its pieces, depend on the run
            minloglevel=2,
        )
    except (RuntimeError, ValueError) as error:
        raise DataError(_explain(str(error), vocab_size)) from None
    return model.getvalue()


def save_tokenizer(directory: str | Path, model: bytes) -> None:
    """Write the files of a tokenizer directory; the configuration last."""
    with written_aside(Path(directory, MODEL_NAME)) as file:
        file.write(model)
    with written_aside(Path(directory, CONFIG_NAME)) as file:
        file.write(json.dumps(CONFIG, indent=2).encode() + b"\n")


def _explain(message: str, vocab_size: int) -> str:
    """sentencepiece's message in the user's words."""
    too_high = re.search(r"Vocabulary size too high.*<= (\d+)", message)
    if too_high:
        return f"--vocab_size {vocab_size} is too high for so little text: take {too_high[1]} or less."
    too_small = re.search(r"Vocabulary size is smaller than required_chars\. \d+ vs (\d+)", message)
    if too_small:
        return f"--vocab_size {vocab_size} is too small: these texts need at least {too_small[1]}."
    return (
        f"sentencepiece cannot train on these texts with --vocab_size {vocab_size}: {message.splitlines()[0]}"
    )


def main() -> None:
    parser = Parser("tokenizer", __doc__)
    parser.add_argument("--input", required=True, nargs="+", metavar="FILE", help="JSONL or .txt")
    parser.add_argument("--output", required=True, metavar="DIR", help="the tokenizer directory to write")
    parser.add_argument("--vocab_size", required=True, type=int, help="ids in all, such as 4096 or 32000")
    parser.add_argument(
        "--model_type", choices=("bpe", "unigram"), default="bpe", help="unigram is some 20 times slower"
    )
    parser.add_argument(
        "--text_key", default="text", help="where the text is in a JSON object (default: text)"
    )
    args = parser.parse_args()

    files, texts = find_files(args.input), []
    with progress("reading", total_bytes(files)) as advance:
        for document in read_documents(files, args.text_key):
            texts.append(document.text)
            advance(document.size)
    print(
        f"training a {args.model_type} tokenizer on {len(texts)} documents ...", file=sys.stderr, flush=True
    )
    model = train_tokenizer(texts, args.vocab_size, args.model_type)
    save_tokenizer(args.output, model)
    print(f"{args.output}: {args.model_type} tokenizer, {args.vocab_size} ids, from {len(texts)} documents")


if __name__ == "__main__":
    run(main)
