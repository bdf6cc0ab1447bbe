"""Rollouts: groups of answers to prompts, sampled by the weights before the steps that learn from them, and rewarded.

A rollout depends on weights, data, seed and step alone, so that the same run has the same ones, whatever ended it in
between. It is a part of a checkpoint where steps are left that learn from it.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from data_tools.dialogues.encoding import IGNORED
from data_tools.dialogues.prompts import Prompt
from data_tools.formats.atomic import written_aside
from launch.adapters.dora import lengths_fixed
from launch.checkpoint.ranks import gather, rank
from launch.generation.sampler import SampledAnswer, Sampler, Sampling
from launch.generation.text import decode
from launch.methods.reinforcement import ANSWERS, LENGTH, Algorithm
from launch.reporting.throughput import TimedLoader, TrainingClock
from launch.training.batches import pad_id
from launch.training.data import evaluation_batches
from launch.training.finetune import DialogueData
from launch.training.rewarding import Completion, RewardProcesses, Worth

FOLDER = "rollouts"
EPSILON = 1e-4  # added to a standard deviation, as in TRL


@dataclass
class AnswerGroup:
    """The answers to a prompt.

    Attributes:
        step, place: The first step that learns from it, and its place among the step's samples.
        sample: Of the data.
        prompt: As ids.
        answers, worth: Of each answer.
    """

    step: int
    place: int
    sample: int
    prompt: list[int]
    answers: list[SampledAnswer]
    worth: list[Worth] = field(default_factory=list)

    @property
    def totals(self) -> np.ndarray:
        """The rewards, float64 [answers]."""
        return np.array([one.total for one in self.worth])

    @property
    def silent(self) -> bool:
        """Whether all answers are worth the same, so that there is nothing to learn."""
        return bool(np.ptp(self.totals) == 0)

    @property
    def tokens(self) -> int:
        """Tokens that a step reads: of the prompt with each answer."""
        return sum(len(self.prompt) + len(answer.ids) - 1 for answer in self.answers)

    @classmethod
    def from_json(cls, value: dict) -> "AnswerGroup":
        """Return the group of a dict, as asdict() made it."""
        answers = [SampledAnswer(**one) for one in value["answers"]]
        return cls(**value | {"answers": answers, "worth": [Worth(**one) for one in value["worth"]]})


@dataclass
class Rollout:
    """The groups of several steps, in the order of training.

    Attributes:
        first, stop: The steps, first to stop - 1. Those behind the last group's learn from the groups again.
    """

    first: int
    stop: int
    groups: list[AnswerGroup]

    def of_step(self, step: int) -> list[AnswerGroup]:
        """Return the groups that a step learns from."""
        learned = self.first + (step - self.first) % (self.groups[-1].step + 1 - self.first)
        return [group for group in self.groups if group.step == learned]


def advantages(totals: np.ndarray, algorithm: Algorithm) -> np.ndarray:
    """Return what the answers of a group are worth beside each other, float64 [answers].

    The standard deviation is that of a sample, with one degree of freedom less.
    """
    above = totals - totals.mean()
    if algorithm.others:
        return above * len(totals) / (len(totals) - 1)
    return above / (totals.std(ddof=1) + EPSILON) if algorithm.scaled else above


def token_weights(groups: list[AnswerGroup], algorithm: Algorithm, masked: bool, longest: int) -> list[list[float]]:
    """Return how much each token of each answer counts in the mean over a step.

    Args:
        groups: All of the step.
        masked: Answers that were cut off count for nothing, as in TRL; their places in the mean are kept.
        longest: Tokens of an answer, at most.
        algorithm: Says over what the mean is.
    """
    lengths = [[len(answer.ids) if answer.ended or not masked else 0 for answer in group.answers] for group in groups]
    answers, tokens = sum(map(len, lengths)), sum(map(sum, lengths))
    if algorithm.average == ANSWERS:
        return [[1 / (length * answers) if length else 0.0 for length in row] for row in lengths]
    whole = answers * longest if algorithm.average == LENGTH else max(tokens, 1)
    return [[1 / whole if length else 0.0 for length in row] for row in lengths]


class Rollouts:
    """The batches of a run, each group of which is sampled when its first step begins.

    Attributes:
        sampler, sampling, rewards: That make them.
        algorithm: Of the loss.
        group_size, steps, passes: Answers to a prompt; steps that a rollout is for, and how often they are made.
        redraws: Rounds of other prompts for those whose answers are all worth the same, at most.
        masked: Whether truncated answers count for nothing.
        sample_steps: The answers of each so many rollouts are written; 0: none.
        kept_marks: Special tokens of an answer that its text has (launch/generation/text.py).
        trainer: Set before the first batch.
        seen: The groups of steps since the last record.
        position: Of the stream, behind the prompts of all rollouts.
    """

    trainer: Any = None
    position = 0

    def __init__(
        self,
        sampler: Sampler,
        sampling: Sampling,
        rewards: RewardProcesses,
        algorithm: Algorithm,
        data: "PromptData",
        tokenizer,
        args,
        *,
        group_size: int,
        steps: int,
        passes: int,
        redraws: int,
        masked: bool,
        sample_steps: int,
        multiple: int,
        kept_marks: dict[int, str],
    ):
        self.sampler, self.sampling, self.rewards, self.algorithm = sampler, sampling, rewards, algorithm
        self.data, self.tokenizer, self.args = data, tokenizer, args
        self.group_size, self.steps, self.passes, self.redraws = group_size, steps, passes, redraws
        self.masked, self.sample_steps = masked, sample_steps
        self.multiple, self.kept_marks = multiple, kept_marks
        self.rollout: Rollout | None = None
        self.seen: list[AnswerGroup] = []
        self.sampled_tokens, self.seconds, self.redrawn = 0, 0.0, 0  # since the last record

    def __len__(self) -> int:
        return len(self.data.stream)

    def __iter__(self) -> Iterator[dict]:
        stream = self.data.stream
        self.position = stream.start
        for step in range(stream.first_step, stream.steps):
            if self.rollout is None or not self.rollout.first <= step < self.rollout.stop:
                self.rollout = self._make(step)
            stream.positions[step + 1] = self.position
            yield from self._batches(self.rollout, step)

    # ---- sampling

    def _make(self, first: int) -> Rollout:
        """Sample and reward the groups of the steps from `first` on. All ranks call it together."""
        started, stream = time.monotonic(), self.data.stream
        length, origin = self.steps * self.passes, self.data.ledger.last.first_step
        number = (first - origin) // length
        stop = min(origin + (number + 1) * length, stream.steps)
        steps = range(first, first + -(-(stop - first) // self.passes))
        places, groups = [(step, place) for step in steps for place in range(stream.global_batch)], []
        for attempt in range(self.redraws + 1):
            found = self._draw(places, attempt)
            places = sorted((one.step, one.place) for one in found if one.silent and attempt < self.redraws)
            groups += [one for one in found if (one.step, one.place) not in places]
            self.redrawn += len(places)
            if not places:
                break
        self.seconds += time.monotonic() - started
        rollout = Rollout(first, stop, sorted(groups, key=lambda one: (one.step, one.place)))
        if self.sample_steps and number % self.sample_steps == 0 and rank() == 0:
            self._write(rollout)
        return rollout

    def _draw(self, places: list[tuple[int, int]], attempt: int) -> list[AnswerGroup]:
        """Return groups for these steps and places, of the next prompts of the stream. All ranks call it together."""
        stream, args, train = self.data.stream, self.args, self.data.train
        if self.redraws or self.position >= stream.end:  # prompts were replaced, or --rollout_passes was another
            stream.end = max(stream.end, self.position + len(places))
        samples = [stream.sample_at(self.position + i) for i in range(len(places))]
        drawn = [(*place, i) for place, i in zip(places, samples, strict=True) if i is not None]
        self.position += len(drawn)
        share = drawn[args.dataset_rank :: args.dataset_world_size]
        mine = [AnswerGroup(step, place, i, train[i].ids, []) for step, place, i in share]
        prompts = [group.prompt for group in mine for _ in range(self.group_size)]
        randoms = [
            np.random.default_rng([args.seed, group.step, group.place, number, *([attempt] if attempt else [])])
            for group in mine
            for number in range(self.group_size)
        ]
        answers = iter(self._answers(prompts, self.sampling, randoms))
        for group in mine:
            group.answers = [next(answers) for _ in range(self.group_size)]
            group.worth = self.worth(train[group.sample], group.answers)
        found = [one for some in gather(mine) for one in some]
        self.sampled_tokens += sum(len(answer.ids) for group in found for answer in group.answers)
        return found

    def _answers(self, prompts: list[list[int]], sampling: Sampling, randoms) -> list[SampledAnswer]:
        moved = self.trainer.watches.hang_timer.moved
        with self.trainer.autocast_smart_context_manager(), lengths_fixed(self.trainer.model):
            return self.sampler.answer(prompts, sampling, randoms, moved)

    def greedy(self, prompts: list[Prompt]) -> list[tuple[SampledAnswer, Worth]]:
        """Return the most likely answer to each prompt, and what it is worth."""
        sampling = Sampling(0.0, 0, 1.0, self.sampling.longest, self.sampling.at_once)
        answers = self._answers([prompt.ids for prompt in prompts], sampling, [None] * len(prompts))
        return [(answer, self.worth(one, [answer])[0]) for one, answer in zip(prompts, answers, strict=True)]

    def worth(self, prompt: Prompt, answers: list[SampledAnswer]) -> list[Worth]:
        """Return what answers to a prompt are worth."""
        asked = prompt.asked
        dialogue = [message.as_json() for message in asked.dialogue.messages]
        found = self.rewards.of(
            [Completion(dialogue, self.text(answer), asked.row, asked.answer, len(answer.ids)) for answer in answers]
        )
        self.trainer.watches.hang_timer.moved()
        return found

    def text(self, answer: SampledAnswer) -> str:
        """Return the text of an answer, without its end."""
        return decode(self.tokenizer, answer.ids[:-1] if answer.ended else answer.ids, self.kept_marks)

    def _write(self, rollout: Rollout) -> None:
        """Write what was sampled, for people: OUTPUT/rollouts/step-N.jsonl, N the first step that learns from it."""
        rows = [
            {
                "prompt": decode(self.tokenizer, group.prompt),
                "right": self.data.train[group.sample].asked.answer,
                "answer": self.text(answer),
                "reward": worth.total,
                "parts": worth.parts,
                "tokens": len(answer.ids),
                "truncated": not answer.ended,
            }
            for group in rollout.groups
            for answer, worth in zip(group.answers, group.worth, strict=True)
        ]
        with written_aside(Path(self.args.output_dir) / FOLDER / f"step-{rollout.first + 1}.jsonl") as file:
            file.writelines((json.dumps(row, ensure_ascii=False) + "\n").encode("utf-8", "replace") for row in rows)

    # ---- batches

    def _batches(self, rollout: Rollout, step: int) -> Iterator[dict]:
        """Yield this rank's micro batches of a step."""
        groups, args = rollout.of_step(step), self.args
        self.seen += groups
        self.data.note_tokens(step, sum(group.tokens for group in groups))
        weights = token_weights(groups, self.algorithm, self.masked, self.sampling.longest)
        share = args.gradient_accumulation_steps * args.dataset_world_size  # the Trainer takes the mean over these
        rows = {group.place: self._rows(group, row, share) for group, row in zip(groups, weights, strict=True)}
        size = args.per_device_train_batch_size
        for number in range(args.gradient_accumulation_steps):
            first = (number * args.dataset_world_size + args.dataset_rank) * size
            mine = [row for place in range(first, first + size) for row in rows.get(place, [])]
            batch = collated(mine, pad_id(self.tokenizer), self.multiple, size * self.group_size)
            batch = {name: paddle.to_tensor(array) for name, array in batch.items()}
            yield batch | {"is_first": step == rollout.first}

    def _rows(self, group: AnswerGroup, weights: list[float], share: int) -> list[dict]:
        worth = advantages(group.totals, self.algorithm)
        return [
            {
                "prompt": group.prompt,
                "answer": answer,
                "advantage": advantage,
                "weight": weight * share,
            }
            for answer, advantage, weight in zip(group.answers, worth, weights, strict=True)
        ]

    # ---- checkpoints

    def state(self, global_step: int) -> dict | None:
        """Return the rollout as JSON, where steps after global_step learn from it."""
        if self.rollout is None or not self.rollout.first < global_step < self.rollout.stop:
            return None
        return asdict(self.rollout)

    def restore(self, value: dict | None) -> None:
        """Take over the rollout of a checkpoint."""
        if value is not None:
            self.rollout = Rollout(
                value["first"], value["stop"], [AnswerGroup.from_json(one) for one in value["groups"]]
            )


class PromptData(DialogueData):
    """Prompts, the answers to which are sampled when a step begins.

    Attributes:
        rollouts: The batches of training, set by ReinforcementTuning.make_loss.
        pad: The id to fill batches with.
    """

    rollouts: Rollouts
    pad: int

    def note_tokens(self, step: int, tokens: int) -> None:
        """Note the tokens of a step, 0 the first: they are known when it begins."""
        known, number = self._tokens_until, step - self.stream.first_step
        del known[number + 1 :]
        known.append(known[number] + tokens)

    def tokens_until(self, step: int) -> int:
        """Return the tokens read before a step."""
        return self._tokens_until[step - self.stream.first_step]

    def step_text(self, global_batch: int) -> str:
        """Return the size of a step, for the line at the start."""
        return f"{global_batch} prompts x {self.rollouts.group_size} answers"

    def train_loader(self, workers: int, clock: TrainingClock) -> TimedLoader:
        """Return batches of this rank, in the order of training. Sampling is what they are waited for."""
        return TimedLoader(self.rollouts, clock)

    def evaluation_loader(self, dataset, args) -> Iterator[dict]:
        """Yield the prompts of this data rank's share."""
        for indices in evaluation_batches(dataset, args):
            yield {"prompts": [dataset[index] for index in indices if index is not None]}

    def first_batch(self, samples: int) -> dict:
        """Return the first prompts, as arrays."""
        rows = [
            {"prompt": ids[:1], "answer": SampledAnswer(ids[1:], [0.0] * (len(ids) - 1)), "advantage": 0, "weight": 0}
            for ids in (self.train[i].ids for i in range(min(samples, len(self.train))))
        ]
        return collated(rows, self.pad, 1, len(rows))


def collated(rows: list[dict], pad: int, multiple: int, size: int) -> dict[str, np.ndarray]:
    """Return a batch of `size` rows, padded on the right; those that are missing count for nothing.

    "input_ids", "labels" int64 [rows, length], labels shifted by one position, IGNORED outside of answers; "logps",
    "weights" float32 [rows, length], 0 there; "advantages" float32 [rows, 1]; "kept" int64 [rows, length, most], the
    ids that a token was drawn from, then -1, where any were kept.
    """
    longest = max((len(row["prompt"]) + len(row["answer"].ids) - 1 for row in rows), default=1)
    length = -(-longest // multiple) * multiple
    batch = {
        "input_ids": np.full([size, length], pad, dtype=np.int64),
        "labels": np.full([size, length], IGNORED, dtype=np.int64),
        "logps": np.zeros([size, length], dtype=np.float32),
        "weights": np.zeros([size, length], dtype=np.float32),
        "advantages": np.zeros([size, 1], dtype=np.float32),
    }
    most = max((len(kept) for row in rows for kept in row["answer"].kept), default=0)
    if most:
        batch["kept"] = np.full([size, length, most], -1, dtype=np.int64)
    for number, row in enumerate(rows):
        answer, begin = row["answer"], len(row["prompt"]) - 1
        ids, places = [*row["prompt"], *answer.ids], slice(begin, begin + len(answer.ids))
        batch["input_ids"][number, : len(ids) - 1] = ids[:-1]
        batch["labels"][number, places] = answer.ids
        batch["logps"][number, places] = answer.logps
        batch["weights"][number, places] = row["weight"]
        batch["advantages"][number] = row["advantage"]
        for place, kept in enumerate(answer.kept, start=begin):
            batch["kept"][number, place, : len(kept)] = kept
    return batch
