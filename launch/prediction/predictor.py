"""A model that answers: a base, base + LoRA, base + prefix or a merged model; alone or sharded over several processes.

predictor = load_predictor("models/llama-7b", "checkpoints/llama-7b-lora", dtype=None)
answers = predictor.answer([[1, 529, 29871]], Decoding(max_new_tokens=64))
"""

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import paddle
import paddlenlp.transformers as transformers
from paddle.distributed import fleet

from data_tools.dialogues.chat_template import ChatTemplate
from data_tools.dialogues.encoding import Encoding
from data_tools.dialogues.messages import schemas_of
from data_tools.dialogues.questions import Question, encode_question, text_question
from data_tools.formats.atomic import written_aside
from data_tools.formats.json_files import read_object
from data_tools.formats.plural import plural
from data_tools.language import localized
from data_tools.progress import counted
from launch.adapters.adapter_files import load_adapter
from launch.adapters.dora import fix_lengths
from launch.adapters.quantization import Format
from launch.adapters.quantized_layers import quantize_filled
from launch.checkpoint.model_loader import GENERATION_CONFIG, load_model
from launch.checkpoint.ranks import broadcast, gather, rank, world_size
from launch.checkpoint.stored_tensor import FLOATS
from launch.checkpoint.weight_files import find_weights
from launch.cpu.bfloat16 import answer_in_bfloat16
from launch.devices.cpu_operators import compiled_operators
from launch.errors import UserError
from launch.families.arithmetic import require_divisible
from launch.families.encoding import encoding_of, end_ids, template_line
from launch.families.named_configs import load_config
from launch.families.parameters import POSITIONS
from launch.families.registry import Family, family_of_config
from launch.generation.answer_parts import CLOSE, OPEN, Reading, find_form, read_whole
from launch.generation.generate import Decoding, generate, known_ids_of
from launch.generation.text import NOTHING, TextStream, before_first, decode, kept_marks
from launch.reporting.quiet import known_lines_left_out
from launch.switches.precision import inference_dtype
from launch.training.device import compute_capability
from launch.training.model import family_config, open_tokenizer, weights_directory

PROMPT_END = 16  # ids in which the block of reasoning is that a prompt ends with, if it does
LONGEST_CHARACTER = 4  # bytes: a token may be one of them


@dataclass
class Predictor:
    """A model that answers, with its tokenizer."""

    model: Any
    family: Family
    tokenizer: Any
    config: Any

    @cached_property
    def ends(self) -> tuple[int, ...]:
        """The ids that end an answer."""
        return end_ids(self.tokenizer, self.family, self.config.eos_token_id)

    @cached_property
    def known_ids(self) -> int:
        """One more than the largest id that the tokenizer can decode."""
        return known_ids_of(self.tokenizer)

    def reading(self, template: ChatTemplate | None, prompt: list[int], schemas: Mapping[str, dict]) -> Reading:
        """Return how an answer to a prompt is read. schemas: see Reading."""
        source, kept = template.source if template else "", kept_marks(self.tokenizer, (OPEN, CLOSE))
        before = decode(self.tokenizer, prompt[-PROMPT_END:], kept).rstrip()
        reasons = CLOSE in source and not before.endswith(CLOSE)
        form = find_form(source) if schemas else None
        return Reading(form, schemas, reasons=reasons, opened=reasons and before.endswith(OPEN))

    def answer(
        self,
        prompts: list[list[int]],
        decoding: Decoding,
        batch_size: int,
        until: tuple[str, ...] = (),
        kept: Mapping[int, str] = NOTHING,
    ) -> Iterator[list[tuple[int, str]]]:
        """Yield (index of the prompt, its answer), batch by batch. Prompts of about the same length share a batch.

        Args:
            prompts: Ids.
            decoding: How tokens are chosen.
            batch_size: Prompts at once.
            until: Texts that end an answer and are no part of it.
            kept: See decode().
        """
        self.require_room(prompts, decoding)
        tail = max((len(end.encode()) for end in until), default=0) + LONGEST_CHARACTER

        def over(ids: list[int]) -> bool:
            text = decode(self.tokenizer, ids[-tail:])
            return any(end in text for end in until)

        order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
        for start in range(0, len(order), batch_size):
            indices = order[start : start + batch_size]
            batch = [prompts[index] for index in indices]
            answers = generate(
                self.model, self.family, batch, decoding, self.ends, self.known_ids, over=over if until else None
            )
            texts = (before_first(decode(self.tokenizer, ids, kept), until) for ids in answers)
            yield list(zip(indices, texts, strict=True))

    def stream(self, prompt: list[int], decoding: Decoding) -> None:
        """Print the answer to one prompt while it is made."""
        self.require_room([prompt], decoding)
        streamer = TextStream(self.tokenizer, self.ends)
        generate(self.model, self.family, [prompt], decoding, self.ends, self.known_ids, streamer=streamer)

    @property
    def positions(self) -> float:
        """The largest number of tokens of prompt and answer together; infinity where the model does not count them."""
        prefix = getattr(self.model, "prefix_config", None)
        positions = next((getattr(self.config, name) for name in POSITIONS if hasattr(self.config, name)), math.inf)
        return positions - (prefix.num_prefix_tokens if prefix else 0)

    def require_room(self, prompts: list[list[int]], decoding: Decoding) -> None:
        """Raise UserError where a prompt and its answer exceed the model's positions, or the model lacks an id."""
        largest, ids = max(map(max, filter(None, prompts)), default=0), self.config.vocab_size
        if largest >= ids:
            raise UserError(
                f"the tokenizer makes id {largest}, but the model has {ids} ids, 0 to {ids - 1}: its files are of "
                "another model, or tokens were added to it. Copy both again, from one model."
            )
        prompt_length = max(map(len, prompts))
        if prompt_length + decoding.max_new_tokens > self.positions:
            raise UserError(
                f"--max_new_tokens: found {decoding.max_new_tokens} after a prompt of {prompt_length}, but the model "
                f"has {self.positions} positions. Ask for fewer, or shorten the prompts: --src_length."
            )


def load_predictor(name: str, adapter: Path | None, dtype: str | None, base: Format | None = None) -> Predictor:
    """Return a model with its tokenizer. All ranks call it together; the model is sharded over them.

    Args:
        name: Of a model directory, or one that PaddleNLP downloads.
        adapter: Its directory, if any.
        dtype: None for the weights' own on a card that has it, float16 on one without bfloat16, float32 on a CPU. On a
            CPU bfloat16 is that of products with weights.
        base: The format that the linear layers' weights get as they are read, for use_quantized() once all adapters
            are in place.

    Raises:
        UserError: If model and adapter do not fit, there is no tokenizer, or no such dtype.
    """
    compiled = compiled_operators() if dtype == "bfloat16" and paddle.get_device() == "cpu" else None
    if compiled and (obstacle := compiled.products_obstacle()):
        raise UserError(f"--dtype: found bfloat16, which is not to be had: {obstacle}. Use --dtype float32.")
    config = family_config(load_config(name))
    family = family_of_config(config.to_dict())
    ranks = world_size()
    require_divisible(config.to_dict(), ranks)
    if ranks > 1:
        _start_tensor_parallel(ranks)
    config.tensor_parallel_degree, config.tensor_parallel_rank = ranks, rank()
    config.tensor_parallel_output = False
    model_class = getattr(transformers, family.model_class)
    directory = weights_directory(name, model_class, config)
    tokenizer = load_tokenizer(adapter, directory, name)
    filled = quantize_filled(family, base) if base else None
    model = load_model(model_class, config, _dtype(dtype, directory), directory, filled)
    config.eos_token_id = read_object(directory / GENERATION_CONFIG).get("eos_token_id") or config.eos_token_id
    if adapter:
        model = load_adapter(model, adapter)
        fix_lengths(model)
    if compiled:
        answer_in_bfloat16(model, compiled)
    model.eval()
    return Predictor(model, family, tokenizer, config)


def _start_tensor_parallel(ranks: int) -> None:
    strategy = fleet.DistributedStrategy()
    strategy.hybrid_configs = {"dp_degree": 1, "mp_degree": ranks, "pp_degree": 1, "sharding_degree": 1}
    with known_lines_left_out():
        fleet.init(is_collective=True, strategy=strategy)


def _dtype(requested: str | None, directory: Path) -> str:
    stored = next((stored.dtype for stored in find_weights(directory).values() if stored.dtype in FLOATS), "float32")
    capability = compute_capability()
    dtype, line = inference_dtype(requested, stored, capability and min(gather(capability)))
    if line and rank() == 0:
        print(line, file=sys.stderr)
    return dtype


def load_tokenizer(adapter: Path | None, directory: Path, name: str):
    """Return the adapter's tokenizer, which it was trained with, or else the model's."""
    for place in (adapter, directory):
        if place and (Path(place) / "tokenizer_config.json").is_file():
            return open_tokenizer("adapter_path" if place is adapter else "model_name_or_path", str(place))
    if Path(name).is_dir():
        raise UserError(f"{name}: no tokenizer_config.json, neither here nor with the adapter. Add the tokenizer.")
    return open_tokenizer("model_name_or_path", name)


def continuations(model_directory: Path, prompts: list[str], max_new_tokens: int, batch_size: int = 1) -> list[str]:
    """Return the text that follows each prompt."""
    predictor = load_predictor(str(model_directory), None, "float32")
    ids = [predictor.tokenizer(prompt)["input_ids"] for prompt in prompts]
    batches = predictor.answer(ids, Decoding(max_new_tokens), batch_size)
    answers = dict(answer for batch in batches for answer in batch)
    return [answers[index] for index in range(len(prompts))]


# ---- questions of a file, or one after another from a terminal or a pipe


def answer_rows(predictor: Predictor, questions: list[Question], args, decoding: Decoding) -> None:
    """Write all rows with their predictions to args.output_file, or print them."""
    encodings = _encodings(predictor, args)
    prompts = [_encode(question, encodings) for question in questions]
    cut = sum(was_cut for _, was_cut in prompts)
    if cut and rank() == 0:
        print(f"cut to their last {args.src_length} tokens (--src_length): {plural(cut, 'question')}", file=sys.stderr)
    answers: dict[int, str] = {}
    readings = [
        predictor.reading(encodings(question.chat).template, ids, schemas_of(question.dialogue))
        for question, (ids, _) in zip(questions, prompts, strict=True)
    ]
    kept = kept_marks(predictor.tokenizer, {mark for reading in readings for mark in reading.marks})
    with counted("answering", len(questions), shown=rank() == 0) as reach:
        for batch in predictor.answer([ids for ids, _ in prompts], decoding, args.batch_size, kept=kept):
            answers |= batch
            reach(len(answers))
    if rank() == 0:
        both = enumerate(zip(questions, readings, strict=True))
        rows = [question.row | predicted(reading, answers[index]) for index, (question, reading) in both]
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
        _write(lines, args.output_file)


def predicted(reading: Reading, answer: str) -> dict:
    """Return the keys that an answer adds to its row: its text, and where they are its reasoning and calls."""
    said, reasoning, calls = read_whole(reading, answer)
    found: dict = {"prediction": said} | ({"prediction_reasoning": reasoning} if reasoning else {})
    return found | ({"prediction_tool_calls": [call.as_json()["function"] for call in calls]} if calls else {})


def answer_one_by_one(predictor: Predictor, texts: list[str], args, decoding: Decoding) -> None:
    """Show the answers to texts, or where there are none to the lines of the standard input, while they are made."""
    encodings = _encodings(predictor, args)
    for text in texts or _lines():
        ids, _ = _encode(text_question(text, args.system), encodings)
        predictor.stream(ids, decoding)


def _encodings(predictor: Predictor, args) -> Callable[[bool], Encoding]:
    """Return a function from whether a question is a chat to its encoding, which is made and reported once."""

    @cache
    def encoding(chat: bool) -> Encoding:
        made = encoding_of(args, predictor.tokenizer, predictor.config.to_dict(), chat, use=True)
        if rank() == 0:
            print(localized(template_line(made.template)), file=sys.stderr)
        return made

    return encoding


def _encode(question: Question, encodings: Callable[[bool], Encoding]) -> tuple[list[int], bool]:
    ids, was_cut = encode_question(question.dialogue, encodings(question.chat))
    if not ids:
        raise UserError(f"no token to begin with: {question.row}. Ask something.")
    return ids, was_cut


def _lines() -> Iterator[str]:
    """Yield the lines of rank 0's standard input that are not blank, on every rank."""
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
