"""Questions of a file, or one after another from a terminal or a pipe, to answers."""

import json
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from data_tools.formats.atomic import written_aside
from data_tools.formats.dialogues.encoding import Encoding
from data_tools.formats.dialogues.questions import Question, encode_question, text_question
from data_tools.formats.plural import plural
from data_tools.progress import counted
from launch.checkpoint.ranks import broadcast, rank
from launch.errors import UserError
from launch.families.chat import template_line
from launch.families.encoding import encoding_of
from launch.generation.generate import Decoding
from launch.prediction.predictor import Predictor


def answer_rows(predictor: Predictor, questions: list[Question], args, decoding: Decoding) -> None:
    """Write all rows with their predictions to args.output_file, or print them."""
    encodings = _encodings(predictor, args)
    prompts = [_encode(question, encodings) for question in questions]
    cut = sum(was_cut for _, was_cut in prompts)
    if cut and rank() == 0:
        print(f"cut to their last {args.src_length} tokens (--src_length): {plural(cut, 'question')}", file=sys.stderr)
    answers: dict[int, str] = {}
    with counted("answering", len(questions), shown=rank() == 0) as reach:
        for batch in predictor.answer([ids for ids, _ in prompts], decoding, args.batch_size):
            answers |= batch
            reach(len(answers))
    if rank() == 0:
        rows = [question.row | {"prediction": answers[number]} for number, question in enumerate(questions)]
        _write([json.dumps(row, ensure_ascii=False) + "\n" for row in rows], args.output_file)


def answer_one_by_one(predictor: Predictor, texts: list[str], args, decoding: Decoding) -> None:
    """Show the answers to texts, or where there are none to the lines of the standard input, while they are made."""
    encodings = _encodings(predictor, args)
    for text in texts or _lines():
        ids, _ = _encode(text_question(text), encodings)
        predictor.stream(ids, decoding)


def _encodings(predictor: Predictor, args) -> Callable[[bool], Encoding]:
    """From whether a question is a chat to its encoding, which is made and reported once."""

    @cache
    def encoding(chat: bool) -> Encoding:
        made = encoding_of(args, predictor.tokenizer, predictor.config.to_dict(), chat, use=True)
        if rank() == 0:
            print(template_line(made.template), file=sys.stderr)
        return made

    return encoding


def _encode(question: Question, encodings: Callable[[bool], Encoding]) -> tuple[list[int], bool]:
    ids, was_cut = encode_question(question.dialogue, encodings(question.chat))
    if not ids:
        raise UserError(f"no token to begin with: {question.row}. Ask something.")
    return ids, was_cut


def _lines() -> Iterator[str]:
    """The lines of rank 0's standard input that are not blank, on every rank."""
    while True:
        if rank() == 0 and sys.stdin.isatty():
            print("> ", end="", flush=True)
        line = broadcast(sys.stdin.readline() if rank() == 0 else None)
        if not line:
            return
        if line.strip():
            yield line.rstrip("\n")


def _write(lines: list[str], path: Path | None) -> None:
    if path is None:
        sys.stdout.writelines(lines)
        return
    with written_aside(path) as file:
        file.writelines(line.encode("utf-8") for line in lines)
    print(f"{path}: {len(lines)} answers", file=sys.stderr)
