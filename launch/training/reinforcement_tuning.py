"""Reinforcement: prompts, answers sampled by the model that is trained, rewards, and the losses of --algorithm."""

import math
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from paddlenlp.peft import LoRAModel

from data_tools.dialogues.datasets import survey
from data_tools.dialogues.prompts import PromptColumns, PromptSets, encode_prompt_survey, prompt_lines
from launch.checkpoint.continuation import Continuation
from launch.checkpoint.data_ledger import Ledger
from launch.checkpoint.ranks import first_on_rank_zero
from launch.devices.cpu_operators import compiled_operators
from launch.errors import UserError
from launch.families.encoding import check_vocabulary, encoding_of, end_ids, template_lines
from launch.families.registry import family_of_config
from launch.generation.answer_parts import Reading, find_form
from launch.generation.generate import known_ids_of
from launch.generation.key_values import whole_blocks
from launch.generation.packed import PackedModel, packs
from launch.generation.sampler import Sampler, Sampling
from launch.generation.text import kept_marks
from launch.methods.preference_flags import ADAPTER_OFF, NONE, SECOND_COPY, reference_of
from launch.methods.reinforcement import ALGORITHMS, REINFORCEMENT, SPARE_TEXTS
from launch.methods.reward_flags import read_rewards
from launch.training.batches import pad_id
from launch.training.data import TrainingData
from launch.training.model import compute_dtype, open_tokenizer
from launch.training.preference_tuning import end_dropout
from launch.training.reference import AdapterOff, SecondCopy
from launch.training.resuming import open_ledger
from launch.training.rewarding import RewardProcesses
from launch.training.rollout_loss import RolloutLoss, SampledLosses, SampledTokenLosses
from launch.training.rollouts import PromptData, Rollouts
from launch.training.run import Training

LARGEST_GAPS = {"float32": 1e-3}  # of --max_log_ratio, by the dtype of products
LARGEST_GAP = 1.0  # of the others


class ReinforcementTuning(Training):
    """--num_train_epochs or --max_steps say how long: each prompt once an epoch."""

    method = REINFORCEMENT

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.values = values = arguments[-2]
        self.algorithm = ALGORITHMS[values.algorithm]
        self.rewards = read_rewards(values.reward) if values.reward else ()
        lora = self.adapter_args.lora
        self.reference = reference_of("sigmoid", not values.kl_weight, lora, values.reference)
        self.reference_weights = self.reference != NONE
        if values.teacher:
            self.reference = SECOND_COPY
            self.copied_args = replace(self.model_args, model_name_or_path=values.teacher, continue_training=True)
        self.needs_second_copy = self.reference == SECOND_COPY
        self.loss_flags = {"reward": values.reward}

    def open_data(self, tokenizer, config, continuation: Continuation, row_ends: bool) -> PromptData:
        """Open the prompts."""
        args = self.training_args
        if self.values.teacher:
            require_tokenizer_of(self.values.teacher, tokenizer)
        sets = first_on_rank_zero(lambda: self._load(tokenizer, config))
        ledger = open_ledger(continuation, sets.train, args, uneven=True) if args.do_train else None
        steps, end, epochs = self._length(ledger, sets.train)
        samples: Any = sets.train if sets.train is not None else sets.dev
        data = PromptData(
            sets.train,
            sets.dev,
            list,
            None,
            ledger,
            args,
            steps=steps,
            mean_length=float(np.mean(samples.tokens)) + self._longest / 2,
            end=end,
            epochs_requested=epochs,
            lines=sets.lines,
            unit="prompts",
        )
        data.pad, self.tokenizer, data.passes = pad_id(tokenizer), tokenizer, self.values.rollout_passes
        return data

    def _length(self, ledger: Ledger | None, prompts: Any) -> tuple[int, int | None, float]:
        """Return (the last step, SampleStream's end, epochs requested): each prompt is learned from in some steps."""
        args, passes = self.training_args, self.values.rollout_passes
        if ledger is None:
            return args.max_steps, None, 1.0
        last = ledger.last
        if args.max_steps > 0:
            return args.max_steps, last.stop + -(-(args.max_steps - last.last_step) // passes) * args.global_batch, 1.0
        end = math.ceil(args.num_train_epochs * len(prompts))
        return last.first_step + -(-(end - last.start) // args.global_batch) * passes, end, args.num_train_epochs

    @property
    def _longest(self) -> int:
        """Tokens of an answer, at most."""
        return self.data_args.max_length - self.data_args.src_length

    def _load(self, tokenizer, config) -> PromptSets:
        data_args, args, values = self.data_args, self.training_args, config.to_dict()
        family = family_of_config(values)
        if not packs(family, values):
            raise UserError(
                f"--model_name_or_path: answers of a {family.title} cannot be sampled many at a time here; such as "
                "LLaMA, Qwen2 and Qwen3 can."
            )
        names = (("train", args.do_train), ("dev", args.do_eval))
        columns = PromptColumns(data_args.prompt_column, data_args.answer_column)
        wanted = tuple(name for name, needed in names if needed)
        found = survey(" ".join(data_args.dataset_name_or_path), wanted, columns, data_args.max_broken_rows)
        encodings = cache(partial(encoding_of, data_args, tokenizer, values))
        sets = encode_prompt_survey(found, encodings)
        check_vocabulary([part for part in (sets.train, sets.dev) if part is not None], config.vocab_size)
        self._require_answers(sets)
        used = [encodings(chat) for chat in sorted({rows.schema.chat for rows in found.files})]
        self.templates = [one.template.source for one in used if one.template]
        decode = partial(tokenizer.decode, clean_up_tokenization_spaces=False)
        shown = sets.train if sets.train is not None else sets.dev
        lines = template_lines([one.template for one in used], tokenizer, trains=sets.train is not None)
        return PromptSets(sets.train, sets.dev, [*sets.lines, *lines, *prompt_lines(shown, decode)])

    def _require_answers(self, sets: PromptSets) -> None:
        """Raise UserError where a reward needs right answers and prompts have none."""
        needing = [reward.name for reward in self.rewards if reward.needs_answer]
        for data in (sets.train, sets.dev):
            lacking = [i for i in range(len(data or ())) if data and not data[i].asked.answer]
            if needing and lacking:
                raise UserError(
                    f"--reward {needing[0]} compares with right answers, and {len(lacking):,} of {len(data or ()):,} "
                    "rows have none. --answer_column names the column."
                )

    def prepare(self, model) -> list[str]:
        """Switch dropout off: sampler and trainer would disagree."""
        return ["dropout: that of the model is off, as in its answers"] if end_dropout(model) else []

    def make_loss(self, model, data: TrainingData) -> RolloutLoss:
        """Return the loss of --algorithm, with the rollouts that it learns from."""
        assert isinstance(data, PromptData), "opened above"
        values, args, algorithm = self.values, self.training_args, self.algorithm
        base = model.model if isinstance(model, LoRAModel) else model
        config = base.config.to_dict()
        family, known_ids = family_of_config(config), min(known_ids_of(self.tokenizer), config["vocab_size"])
        source = self.templates[0] if self.templates else ""
        losses = SampledLosses(values.temperature, known_ids)
        packed = PackedModel(base, family)
        if args.device == "cpu":
            packed.compute_on_cpu(compiled_operators())
        data.rollouts = Rollouts(
            Sampler(
                packed,
                end_ids(self.tokenizer, family, config.get("eos_token_id")),
                known_ids,
                (values.sampled_at_once + SPARE_TEXTS) * whole_blocks(self.data_args.max_length),
            ),
            Sampling(values.temperature, values.top_k, values.top_p, self._longest, values.sampled_at_once),
            RewardProcesses(
                self.rewards, values.reward_seconds, values.reward_gigabytes, values.reward_sandbox, source
            ),
            algorithm,
            data,
            self.tokenizer,
            args,
            group_size=values.group_size,
            steps=values.rollout_steps,
            passes=values.rollout_passes,
            redraws=values.redraw_rounds,
            masked=algorithm.masks_truncated if values.mask_truncated is None else values.mask_truncated,
            sample_steps=values.sample_steps,
            multiple=self.data_args.pad_to_multiple_of,
            kept_marks=kept_marks(self.tokenizer, Reading(find_form(source), reasons=True).marks),
        )
        clip = [
            given if given is not None else usual
            for given, usual in zip((values.clip_low, values.clip_high), algorithm.clip, strict=True)
        ]
        token_losses = SampledTokenLosses(model, losses)
        gap = values.max_log_ratio or LARGEST_GAPS.get(compute_dtype(args), LARGEST_GAP)
        return RolloutLoss(
            data.rollouts,
            token_losses,
            self._make_reference(model, losses),
            clip,
            values.kl_weight,
            gap,
            bool(values.teacher),
        )

    def _make_reference(self, model, losses: SampledLosses) -> Any:
        if self.reference == NONE:
            return None
        reference = AdapterOff(model) if self.reference == ADAPTER_OFF else SecondCopy(self.second_copy)
        reference.token_losses = SampledTokenLosses(reference.model, losses)
        return reference


def require_tokenizer_of(teacher: str, tokenizer) -> None:
    """Raise UserError unless --teacher is a directory with a tokenizer that has the same tokens at the same ids."""
    if not Path(teacher).is_dir():
        raise UserError(f"--teacher: found {teacher}, which is no directory; expected that of a model with weights.")
    mine, others = tokenizer.get_vocab(), open_tokenizer("teacher", teacher).get_vocab()
    if mine != others:
        apart = sum(others.get(token) != number for token, number in mine.items())
        raise UserError(
            f"--teacher: {teacher} has another tokenizer: {apart:,} of the model's {len(mine):,} tokens have another "
            f"id there or none, and it has {len(others):,}. Ids of answers are read by both: name a model of the same "
            "family, or learn from rewards (--reward)."
        )
