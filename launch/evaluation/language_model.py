"""lm-eval's model of a predictor: log-likelihoods and written answers, computed once, whatever was stopped before.

Texts become ids as lm-eval's models of transformers make them: text before and continuation are tokenized together
and cut where the tokens of the text before end. Where both are longer than the model's positions, the beginning is
left out; a continuation that is longer alone is refused.
Source: https://github.com/EleutherAI/lm-evaluation-harness, lm_eval/api/model.py and lm_eval/models/huggingface.py.
"""

# pyright: reportMissingImports=false

import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from lm_eval.api.model import TemplateLM
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from data_tools.dialogues.encoding import Encoding
from data_tools.dialogues.messages import Dialogue, Message
from data_tools.formats.benchmarks.files import PLACE
from data_tools.formats.errors import DataError
from data_tools.formats.json_files import shown
from data_tools.formats.plural import plural
from data_tools.progress import counted
from launch.checkpoint.ranks import broadcast, rank
from launch.errors import UserError
from launch.evaluation.likelihood import Scorer
from launch.evaluation.shared_prefixes import ScoredText
from launch.evaluation.task_results import Collected
from launch.generation.generate import Decoding
from launch.prediction.predictor import Predictor

LONGEST = 256  # tokens of a written answer, where neither the flag nor the task says it, as lm-eval has it
LIMITS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")  # names of that in tasks


class EvaluatedModel(TemplateLM):
    """A model as lm-eval sees it.

    Attributes:
        positions: Of the model.
        collected: The computed results, open on rank 0.
        tokens: Read at once, about.
        batch_size: Answers that are generated at once.
        longest: Tokens of an answer; None: the task's.
    """

    def __init__(
        self,
        predictor: Predictor,
        encoding: Encoding,
        positions: int,
        collected: Collected,
        tokens: int,
        batch_size: int,
        longest: int | None,
    ):
        super().__init__()
        self.predictor, self.encoding, self.positions, self.collected = predictor, encoding, positions, collected
        self.tokens, self.batch_size, self.longest = tokens, batch_size, longest
        self._encode = lru_cache(maxsize=64)(encoding.encode)  # of most questions, one text is before all choices

    @property
    def eot_token_id(self) -> int:
        """The id that ends a text."""
        return self.predictor.tokenizer.eos_token_id

    @property
    def prefix_token_id(self) -> int:
        """The id that begins a text."""
        begin = self.predictor.tokenizer.bos_token_id
        return self.eot_token_id if begin is None else begin

    @property
    def tokenizer_name(self) -> str:
        """The name of the tokenizer, for caches, which are not used."""
        return ""  # of caches, which are not used

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_) -> list[int]:
        """Return the ids of a text."""
        return [*(() if add_special_tokens is False else self.encoding.begin), *self._encode(string)]

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """Return the text before an answer.

        Without add_generation_prompt the answer begins as the last message does.
        """
        messages: list[Message] = []
        for message in chat_history:
            role, text = message["role"], message["content"]
            if messages and messages[-1].role == role:  # lm-eval joins what is said twice in a row
                text = messages.pop().text + text
            messages.append(Message(role, text))
        prefix = "" if add_generation_prompt else messages.pop().text
        return self.encoding.prompt_text(Dialogue(tuple(messages))) + prefix

    # ---- what lm-eval asks for

    def loglikelihood(self, requests: list, disable_tqdm: bool = True) -> list[tuple[float, bool]]:
        """Return the log-likelihood of each answer, and whether it is the most likely one."""
        asked = [self._request(each) for each in self._tokenizing(requests)]
        self._report_cut([request.cut for request in asked])
        return [(value, bool(greedy)) for value, greedy in self._read("loglikelihood", asked, alike=True)]

    def loglikelihood_rolling(self, requests: list, disable_tqdm: bool = True) -> list[float]:
        """Return the log-likelihood of each text."""
        asked, owners = [], []
        for number, each in enumerate(self._tokenizing(requests)):
            windows = get_rolling_token_windows(self.tok_encode(each.args[0]), self.prefix_token_id, self.positions, 1)
            for given, scored in map(make_disjoint_window, windows):
                asked.append(ScoredText((*given, *scored), len(given)))
                owners.append(number)
        sums = [0.0] * len(requests)
        for owner, (value, _) in zip(owners, self._read("loglikelihood_rolling", asked, alike=False), strict=True):
            sums[owner] += value
        return sums

    def generate_until(self, requests: list, disable_tqdm: bool = True) -> list[str]:
        """Return the answer to each prompt."""
        asked = [self._prompt(each) for each in self._tokenizing(requests)]
        self._report_cut([cut for *_, cut in asked])
        prompts = [(ids, until, longest) for ids, until, longest, _ in asked]
        order = sorted(range(len(prompts)), key=lambda number: (prompts[number][1:], -len(prompts[number][0])))
        batches: list[list[int]] = []
        for number in order:
            last = batches[-1] if batches else []
            if not last or len(last) == self.batch_size or prompts[last[0]][1:] != prompts[number][1:]:
                batches.append([])
            batches[-1].append(number)

        def write(batch: list[int]) -> list[tuple[int, Any]]:
            _, until, longest = prompts[batch[0]]
            ids = [list(prompts[number][0]) for number in batch]
            [answers] = self.predictor.answer(ids, Decoding(longest), len(ids), until)
            return [(batch[index], text) for index, text in answers]

        steps = ((batch, len(batch), lambda batch=batch: write(batch)) for batch in batches)
        return self._collect("generate_until", prompts, steps, len(prompts), "answering")

    def _loglikelihood_tokens(self, requests, **_):
        raise NotImplementedError  # loglikelihood() above reads its own

    # ---- requests

    def _tokenizing(self, requests: list) -> Iterator:
        """Yield requests with a line of progress.

        With many examples before many questions, tokenizing takes minutes.
        """
        with counted("tokenizing", len(requests), shown=rank() == 0) as reach:
            for number, request in enumerate(requests, start=1):
                yield request
                reach(number)

    def _request(self, asked) -> ScoredText:
        context, continuation = asked.args[:2]
        if context:
            given, scored = self._encode_pair(context, continuation)
        else:
            given, scored = [self.prefix_token_id], self.tok_encode(continuation, add_special_tokens=False)
            if scored[:1] == given:
                given, scored = scored[:1], scored[1:]
        place = asked.doc.get(PLACE) if isinstance(asked.doc, dict) else None
        if not scored:
            raise DataError(f"{place}: the choice {shown(continuation)!r} has no tokens of its own.")
        if len(scored) > self.positions:
            raise DataError(
                f"{place}: the choice {shown(continuation)!r} has {len(scored):,} tokens, the model "
                f"{self.positions:,} positions. Leave the row out."
            )
        whole = [*given, *scored]
        cut = max(len(whole) - 1 - self.positions, 0)  # the last id is predicted, and has no position
        return ScoredText(tuple(whole[cut:]), len(given) - cut, cut > 0)

    def _prompt(self, asked) -> tuple[tuple[int, ...], tuple[str, ...], int, bool]:
        """Return (ids, texts that end the answer, its longest, whether the beginning of the prompt was left out)."""
        context, settings = asked.args[:2]
        if settings.get("do_sample") and settings.get("temperature") != 0:
            raise UserError(
                f"--tasks: {asked.task_name} draws its answers at random (do_sample), which is not done here. Name "
                "a task that takes the most likely one."
            )
        until = settings.get("until") or []
        until = tuple(end for end in ([until] if isinstance(until, str) else until) if end)
        longest = self.longest or next((int(settings[key]) for key in LIMITS if settings.get(key)), LONGEST)
        ids = self.tok_encode(context)
        room = self.positions - longest - len(self.encoding.marks)
        if room < 1:
            raise UserError(
                f"--max_new_tokens: found {longest}, the model has {self.positions} positions for question and "
                f"answer. --max_new_tokens {self.positions // 2}, or less."
            )
        cut = max(len(ids) - room, 0)
        return (*ids[cut:], *self.encoding.marks), until, longest, cut > 0

    def _report_cut(self, cut: list[bool]) -> None:
        if any(cut) and rank() == 0:
            print(
                f"{sum(cut):,} of {plural(len(cut), 'text')} longer than the model's {self.positions:,} positions: the "
                "beginning is left out",
                file=sys.stderr,
            )

    # ---- what is computed

    def _read(self, kind: str, requests: list[ScoredText], alike: bool) -> list:
        """Return [log-likelihood, 1 where the scored ids are the most likely ones] of each request."""
        scorer = Scorer(self.predictor, self.tokens)
        share = scorer.shares and alike
        total = sum(len(row.ids) for batch in scorer.batches(requests, share) for row in batch)
        steps = (
            (
                [number for row in batch for number in row.requests],
                sum(len(row.ids) for row in batch),
                lambda batch=batch: scorer.read(batch, requests, share),
            )
            for batch in scorer.batches(requests, share)
        )
        return self._collect(kind, [(each.ids, each.start) for each in requests], steps, total, "evaluating, tokens")

    def _collect(
        self,
        kind: str,
        requests: list,
        steps: Iterator[tuple[list[int], int, Callable[[], list[tuple[int, Any]]]]],
        total: int,
        verb: str,
    ) -> list:
        """Compute each request, batch by batch: (numbers of the requests, cost, function that computes them).

        A batch of which all is there is not computed again. The others are the same batches as without a stop, so
        that numbers are the same to the bit.
        """
        digest = hashlib.sha256()
        for request in requests:
            digest.update(json.dumps(request).encode())
        found = broadcast(self.collected.begin(kind, digest.hexdigest()) if rank() == 0 else None)
        done = 0
        with counted(verb, total, shown=rank() == 0) as reach:
            for numbers, cost, compute in steps:
                done += cost
                if all(number in found for number in numbers):
                    continue
                values = [(number, value) for number, value in compute() if number not in found]
                found.update(values)
                if rank() == 0:
                    self.collected.add(kind, values)
                reach(done)
        return [found[number] for number in range(len(requests))]
