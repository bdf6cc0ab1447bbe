"""The models of a server: one base, and adapters by name that share its weights.

    models = load_models("llama-7b", "models/llama-7b", {"poems": Path("checkpoints/poems")})
    models["poems"].answer(rows)

A batch of rows passes through paddlenlp's generate(), each row with its own temperature, seed and length. Texts and
chats become ids as in training and in launch/commands/predict.py.
"""

import copy
import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from types import SimpleNamespace

import paddle
from paddlenlp.generation import LogitsProcessor

from data_tools.dialogues.chat_template import ChatTemplate
from data_tools.dialogues.encoding import Encoding
from data_tools.dialogues.messages import Dialogue
from data_tools.dialogues.questions import NO_LIMIT, text_question
from data_tools.formats.errors import DataError
from launch.adapters.adapter_files import load_adapter
from launch.adapters.dora import fix_lengths
from launch.adapters.quantization import Format
from launch.adapters.quantized_layers import use_quantized
from launch.checkpoint.model_loader import without_values
from launch.errors import UserError
from launch.families.encoding import NONE, OF_FAMILY, encoding_of, template_line
from launch.generation.answer_parts import Reading
from launch.generation.generate import Decoding, KnownIds, damaged, generate
from launch.generation.text import decode, kept_marks
from launch.prediction.predictor import Predictor, load_predictor, load_tokenizer
from launch.prediction.trained_rows import system_text
from launch.serving.chats import Chat
from launch.serving.likelihoods import likelihoods, longest_prompt, prompt_likelihoods
from launch.serving.request import Finish, Options, Reason, Refusal, Row, read_sampling
from launch.serving.token_names import TokenNames


def answer_rows(predictor: Predictor, rows: list[Row], longest: float = math.inf) -> None:
    """Answer rows together until all are done; a row that has tokens already continues after them.

    Rows of a model with a prefix must have one length. longest: see prompt_likelihoods().
    """
    choose = Chooser(predictor.ends, predictor.known_ids)
    _score_prompts(predictor, choose, [row for row in rows if row.wants_scores], longest)
    rows = [row for row in rows if not row.done]
    if not rows:
        return
    decoding = Decoding(max_new_tokens=max(row.max_tokens - len(row.tokens) for row in rows))
    prompts = [row.prompt + row.tokens for row in rows]
    processors = [ChosenTokens(rows, choose)]
    generate(predictor.model, predictor.family, prompts, decoding, predictor.ends, processors=processors)


def _score_prompts(predictor: Predictor, choose: "Chooser", rows: list[Row], longest: float) -> None:
    """Emit to rows the likelihoods of their prompts, and choose the first tokens of their answers.

    Rows of a model with a prefix must have one length. longest: see prompt_likelihoods().
    """
    if not rows:
        return
    top = max(row.options.scores_prompt or 0 for row in rows)
    found = prompt_likelihoods(predictor, [row.prompt for row in rows], top, longest)
    for row, (scores, logits) in zip(rows, found, strict=True):
        row.emit_scores(scores)
        if row.max_tokens:
            choose([row], logits)
        else:
            row.finish(Finish.LENGTH)


class Chooser:
    """Chooses the next tokens of rows of a model and reports them to the rows.

    Attributes:
        known_ids: See KnownIds.
    """

    def __init__(self, ends: tuple[int, ...], known_ids: int | None):
        self.ends = ends
        self.known = KnownIds(known_ids)

    def __call__(self, rows: list[Row], logits: paddle.Tensor) -> list[int]:
        """Return a token for each row; a row that is done gets an end.

        logits: [rows, vocabulary], as the model gives them.
        """
        allowed = self.known.masked(logits)
        most_likely: list[int] = paddle.argmax(allowed, axis=-1).tolist()  # pyright: ignore[reportAssignmentType]
        both = enumerate(zip(rows, most_likely, strict=True))
        tokens = [self._next(row, token, allowed, number) for number, (row, token) in both]
        self._emit_likelihoods(rows, tokens, logits)
        for row, token in zip(rows, tokens, strict=True):
            if not row.done:
                row.put(token, self.ends)
        return tokens

    def _next(self, row: Row, most_likely: int, logits: paddle.Tensor, number: int) -> int:
        if row.done:
            return self.ends[0]
        plain = row.options.most_likely and not row.grammar
        return most_likely if plain else row.choose(logits[number].astype("float32").numpy())

    def _emit_likelihoods(self, rows: list[Row], tokens: list[int], logits: paddle.Tensor) -> None:
        """Emit likelihoods to the rows that request them, before their tokens."""
        wanted = {number: row.options.logprobs for number, row in enumerate(rows) if not row.done}
        wanted = {number: top for number, top in wanted.items() if top is not None}
        if wanted:
            some = logits.index_select(paddle.to_tensor(list(wanted)))
            chosen = [tokens[number] for number in wanted]
            values = likelihoods(some, chosen, max(wanted.values()), self.known.size)
            for number, likelihood in zip(wanted, values, strict=True):
                rows[number].emit(likelihood)


def fail_damaged(rows: list[Row], logits: paddle.Tensor, known_ids: int | None) -> list[Row]:
    """End the rows whose logits are no numbers, and return them.

    Others of the batch go on. logits: [rows, vocabulary]. known_ids: see KnownIds.
    """
    found = [row for row, bad in zip(rows, damaged(logits, known_ids), strict=True) if bad]
    for row in found:
        if not row.done:
            print("a request failed: the model's logits are no numbers", file=sys.stderr, flush=True)
        row.finish(Finish.FAILED)
    return found


class ChosenTokens(LogitsProcessor):
    """Returns logits from which greedy search takes the tokens of a Chooser. generate() ends when all rows are done."""

    def __init__(self, rows: list[Row], choose: Chooser):
        self.rows = rows
        self.choose = choose

    def __call__(self, input_ids: paddle.Tensor, logits: paddle.Tensor) -> paddle.Tensor:
        """Return logits that leave only the chosen tokens. logits: [rows, vocabulary]."""
        fail_damaged(self.rows, logits, self.choose.known.size)
        return paddle.nn.functional.one_hot(paddle.to_tensor(self.choose(self.rows, logits)), logits.shape[-1])


@dataclass
class Prompts:
    """The ids of prompts.

    Attributes:
        chat_template: A name or file; None: the template of the model's family.
    """

    predictor: Predictor
    chat_template: str | None

    def of_text(self, text: str) -> list[int]:
        """Return the ids of the bare text, after the tokens that the tokenizer puts before every text."""
        self._require_size(len(text), "prompt")
        return self._encode(text_question(text).dialogue, self._for_texts, "prompt")

    def of_chat(self, chat: Chat) -> tuple[list[int], Reading]:
        """Return the ids of a chat, and how its answers are read."""
        self._require_size(chat.dialogue.size, "messages")
        ids = self._encode(chat.dialogue, self._for_chats, "messages")
        reading = self.predictor.reading(self._for_chats.template, ids, chat.schemas)
        if chat.schemas and reading.form is None:
            found = f"{template_line(self._for_chats.template)}, which writes calls in no form that is known here"
            raise Refusal(Reason.INVALID, f"tools: {found}", "tools")
        return ids, replace(reading, forced=chat.forced, several=chat.several)

    def of_ids(self, ids: list[int]) -> list[int]:
        """Return the ids of a prompt, checked."""
        self.require_known(ids, "prompt")
        return ids

    def require_known(self, ids: Iterable[int], parameter: str) -> None:
        """Raise Refusal for an id that the model or its tokenizer does not have."""
        size = min(self.predictor.config.vocab_size, self.predictor.known_ids)
        wrong = next((token for token in ids if not 0 <= token < size), None)
        if wrong is not None:
            found = f"{parameter}: found id {wrong}, the model has ids from 0 to {size - 1}"
            raise Refusal(Reason.INVALID, found, parameter)

    @property
    def template(self) -> ChatTemplate | None:
        """The template of chats; None without."""
        return self._for_chats.template

    def prepare(self) -> None:
        """Raise UserError or DataError where texts or chats cannot become ids at all: at start, before any request."""
        _ = self._for_texts, self._longest_token
        self._for_chats.prompt(text_question("?").dialogue)  # a template fails only when it renders

    def _require_size(self, characters: int, parameter: str) -> None:
        """Raise Refusal before encoding a text that is too long however it is encoded."""
        most = self.predictor.positions * self._longest_token
        if characters > most:
            room = f"{self.predictor.positions} positions for tokens of {self._longest_token} characters at most"
            found = f"{parameter}: found {characters} characters, the model has {room}"
            raise Refusal(Reason.INVALID, found, parameter)

    @cached_property
    def _longest_token(self) -> int:
        """Characters of the tokenizer's longest token."""
        return max(len(token) for token in self.predictor.tokenizer.get_vocab())

    def _encode(self, dialogue: Dialogue, encoding: Encoding, parameter: str) -> list[int]:
        try:
            ids = encoding.prompt(dialogue)
        except (UserError, DataError, UnicodeEncodeError, RecursionError) as error:
            raise Refusal(Reason.INVALID, f"{parameter}: {error}", parameter) from None
        self.require_known(ids, parameter)
        return ids

    @cached_property
    def _for_texts(self):
        return self._encoding(NONE, chat=False)

    @cached_property
    def _for_chats(self):
        return self._encoding(self.chat_template, chat=True)

    def _encoding(self, template: str | None, chat: bool) -> Encoding:
        limits = SimpleNamespace(chat_template=template, src_length=NO_LIMIT, max_length=NO_LIMIT)
        return encoding_of(limits, self.predictor.tokenizer, self.predictor.config.to_dict(), chat, use=True)


@dataclass(frozen=True)
class Served:
    """A model under its name.

    Attributes:
        description: For people.
        backend: What answers in JSON are made by, if anything.
        weights_bytes: Memory for the weights of attention where likelihoods of prompts are wanted.
        sampling: Options of requests that name none (read_sampling).
        system: The system text of its training, "" for none.
    """

    name: str
    predictor: Predictor
    prompts: Prompts
    description: str
    backend: str | None = None
    weights_bytes: float = math.inf
    sampling: dict[str, float] = field(default_factory=dict)
    system: str = ""

    def group(self, prompt: list[int]) -> tuple:
        """Return what rows must share to be in one batch: the model and, with a prefix, the length.

        A prefix admits no padding.
        """
        behind_prefix = hasattr(self.predictor.model, "prefix_config")
        return (self.name, len(prompt)) if behind_prefix else (self.name,)

    @property
    def positions(self) -> float:
        """The positions for a prompt and its answer together."""
        return self.predictor.positions

    @property
    def chats(self) -> bool:
        """Return True if the model was made for chats: its chat template is not just its family's."""
        template = self.prompts.template
        return template is not None and template.origin != OF_FAMILY

    @property
    def causal(self) -> bool:
        """Whether a token of a prompt sees only what is before it, so that it has a likelihood."""
        return self.predictor.family.attention == "causal"

    @cached_property
    def longest_scored(self) -> float:
        """Tokens of a prompt whose likelihoods there is memory for."""
        return longest_prompt(self.predictor.config.to_dict(), self.weights_bytes)

    def answer(self, rows: list[Row]) -> None:
        """Generate the answers of rows."""
        answer_rows(self.predictor, rows, self.longest_scored)

    @cached_property
    def choose(self) -> Chooser:
        """The function that chooses tokens."""
        return Chooser(self.predictor.ends, self.predictor.known_ids)

    @cached_property
    def token_name(self) -> TokenNames:
        """The names of tokens."""
        return TokenNames(self.predictor.tokenizer)

    @cached_property
    def _grammars(self):
        from launch.serving.json_grammar import Grammars  # an optional package

        tokenizer, ids = self.predictor.tokenizer, min(self.predictor.config.vocab_size, self.predictor.known_ids)
        encode = lambda text: tokenizer.encode(text, add_special_tokens=False)["input_ids"]  # noqa: E731
        return Grammars(self.token_name, ids, self.predictor.ends[0], encode)

    def grammars(self, options: Options, reading: Reading, answers: int) -> list:
        """Return a grammar for each answer, if one is requested.

        Raises:
            Refusal: For a schema that is wrong, or where the server has no grammars.
        """
        forced = reading.forced
        if not forced and options.json_schema is None:
            return []
        parameter = "tool_choice" if forced else "response_format"
        if self.backend is None:
            found = "this server is started without --grammar_backend llguidance"
            raise Refusal(Reason.INVALID, f"{parameter}: {found}", parameter)
        if options.json_schema is None:
            grammar = self._grammars.of_calls(reading)
        elif reading.form:
            raise Refusal(Reason.INVALID, "response_format: found with tools, which are called otherwise", parameter)
        else:
            grammar = self._grammars.of_schema(options.json_schema, reading)
        return [grammar.copy() for _ in range(answers)]

    def decode(self, ids: list[int]) -> str:
        """Return the text of ids."""
        return self._decode_one(ids[0]) if len(ids) == 1 else decode(self.predictor.tokenizer, ids)

    @cached_property
    def _decode_one(self) -> Callable[[int], str]:
        """A stream decodes each token by itself once more with the next one."""
        return lru_cache(1 << 16)(lambda token: decode(self.predictor.tokenizer, [token]))

    def decoder(self, reading: Reading) -> Callable[[list[int]], str]:
        """Decode, with the special tokens that are marks of an answer's parts."""
        kept = kept_marks(self.predictor.tokenizer, reading.marks)
        return partial(decode, self.predictor.tokenizer, kept=kept) if kept else self.decode


def load_models(
    name: str,
    directory: str,
    adapters: dict[str, Path],
    dtype: str | None = None,
    chat_template: str | None = None,
    format: Format | None = None,
    grammar_backend: str | None = None,
    weights_bytes: float = math.inf,
) -> dict[str, Served]:
    """Return the base under `name` and each adapter under its own.

    format: of the base's linear layers; None: as they are. grammar_backend: "llguidance", whose tables of the tokenizer
    are then made; None: no answers in JSON. weights_bytes: see Served.

    Raises:
        UserError: If an adapter does not fit, or there is no tokenizer.
    """
    base = load_predictor(directory, None, dtype, format)
    predictors = {name: base} | {adapter: _adapted(base, path, directory) for adapter, path in adapters.items()}
    quantized = {model: use_quantized(one.model, format) for model, one in predictors.items()} if format else {}
    places, sampling = {name: directory} | adapters, read_sampling(Path(directory))
    served = {}
    for model, predictor in predictors.items():
        prompts = Prompts(predictor, chat_template)
        prompts.prepare()
        description = f"{places[model]}: {_kind(predictor)}; {template_line(prompts.template)}"
        if predictor is base and format:
            description += f"; {quantized[model]}"
        system = system_text(Path(places[model]))
        served[model] = Served(model, predictor, prompts, description, grammar_backend, weights_bytes, sampling, system)
        if grammar_backend:
            _ = served[model]._grammars
    return served


def _adapted(base: Predictor, adapter: Path, directory: str) -> Predictor:
    model = load_adapter(_twin(base.model), adapter)
    fix_lengths(model)
    model.eval()
    return Predictor(model, base.family, load_tokenizer(adapter, Path(directory), directory), base.config)


def _twin(model):
    """Return another model that shares the parameters, for an adapter of its own."""
    twin = without_values(type(model), copy.deepcopy(model.config), str(model.config.dtype))
    layers = zip(twin.sublayers(include_self=True), model.sublayers(include_self=True), strict=True)
    for mine, theirs in layers:
        mine._parameters.update(theirs._parameters)
        mine._buffers.update(theirs._buffers)
    return twin


def _kind(predictor: Predictor) -> str:
    if prefix := getattr(predictor.model, "prefix_config", None):
        return f"a prefix of {prefix.num_prefix_tokens}"
    if lora := getattr(predictor.model, "lora_config", None):
        return f"LoRA r {lora.r}"
    return f"{predictor.family.title}, {predictor.config.dtype}"
