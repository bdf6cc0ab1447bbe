"""Evaluation of a model while it is trained: its loss, its answers, and the best of it kept."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import paddle

from data_tools.dialogues.questions import last_answer
from data_tools.formats.atomic import written_aside
from launch.checkpoint.ranks import barrier, broadcast, gather, rank
from launch.families.encoding import end_ids
from launch.families.registry import family_of_config
from launch.generation.generate import Decoding, generate, known_ids_of
from launch.generation.text import decode, scores
from launch.training.batches import PaddedShard
from launch.training.watches import require_finite

PREDICTIONS = "predictions"
BEST, RECORD = "best", "best.json"


class Evaluator:
    """The part of the trainer that evaluates.

    Attributes:
        answers: None where the loss is enough.
        save: Writes the model into a directory, None where none is kept.
        last: The metrics of the last evaluation, None before the first.
    """

    def __init__(self, trainer, answers: "Answers | None", save: Callable[[Path], None] | None):
        self.trainer, self.answers = trainer, answers
        self.best = BestKeeper(trainer.args.output_dir, save, trainer.measured) if save else None
        self.last: dict | None = None

    def metrics(self, dataset, prefix: str) -> dict:
        """Evaluate the weights as they are now. Called by all ranks together."""
        trainer = self.trainer
        require_finite(trainer.model)
        metrics = trainer.loss.metrics(self._sums(dataset))
        if self.answers:
            trainer.model.eval()
            metrics |= self.answers.evaluate(trainer.model, dataset, trainer.args, trainer.state.global_step)
            trainer.model.train()
        self.last = {f"{prefix}_{name}": value for name, value in metrics.items()}
        self.last["global_step"] = trainer.checkpointer.weights_step
        return self.last

    def keep_best(self, metrics: dict) -> None:
        """Keep the model of an evaluation that is the best so far."""
        trainer = self.trainer
        if self.best and trainer.args.do_train:
            continued = trainer.checkpointer.restorer is not None
            self.best.consider(trainer.state.global_step, metrics["eval_loss"], continued)

    def _sums(self, dataset) -> list[float]:
        """Return the sums of the loss over all batches of all data ranks."""
        trainer, args = self.trainer, self.trainer.args
        model = trainer.model_wrapped if args.pipeline_parallel_degree > 1 else trainer.model
        model.eval()
        trainer.loss.prepare_evaluation(trainer, dataset)
        sums = []
        for inputs in trainer.data.evaluation_loader(dataset, args):
            sums.append(trainer.loss.batch_sums(trainer, model, inputs))
            trainer.watches.hang_timer.moved()
        totals = paddle.to_tensor(np.sum(sums, axis=0), "float64")
        model.train()
        if args.world_size > 1:
            paddle.distributed.all_reduce(totals)
        # Ranks that share a data rank (tensor and pipeline parallel) have counted the same tokens.
        copies = args.world_size // args.dataset_world_size if args.world_size > 1 else 1
        return [float(total) / copies for total in totals]


class Answers:
    """Evaluation by answers, --eval_with_do_generation.

    The model answers the questions of the evaluation data, by greedy search, and its answers are scored and stored. A
    pipeline cannot generate: preflight refuses it.

    Attributes:
        max_new_tokens: The longest answer that training leaves room for.
    """

    def __init__(self, tokenizer, model_config: dict, max_new_tokens: int):
        self.tokenizer = tokenizer
        self.family = family_of_config(model_config)
        self.ends = end_ids(tokenizer, self.family, model_config.get("eos_token_id"))
        self.known_ids = known_ids_of(tokenizer)
        self.decoding = Decoding(max_new_tokens)

    def evaluate(self, model, dataset, args, global_step: int) -> dict[str, float]:
        """Return BLEU and ROUGE of the last answers of all samples, and write predictions/step-N.jsonl.

        All ranks call it together.
        """
        mine: dict[int, list[int]] = {}
        for indices in PaddedShard(
            len(dataset), args.per_device_eval_batch_size, args.dataset_rank, args.dataset_world_size
        ):
            samples = [dataset[index or 0] for index in indices]  # None is padding: answered, and the answer is dropped
            answers = generate(
                model,
                self.family,
                [_question(sample) for sample in samples],
                self.decoding,
                self.ends,
                self.known_ids,
                synced_gpus="stage3" in args.sharding and args.sharding_parallel_degree > 1,
            )
            mine |= {index: ids for index, ids in zip(indices, answers, strict=True) if index is not None}
        of_all_ranks = {index: ids for answers in gather(mine) for index, ids in answers.items()}
        return broadcast(self._scored(of_all_ranks, dataset, args, global_step) if rank() == 0 else None)

    def _scored(self, answers: dict[int, list[int]], dataset, args, global_step: int) -> dict[str, float]:
        rows = [self._row(dataset[index], answers[index]) for index in range(len(dataset))]
        with written_aside(Path(args.output_dir) / PREDICTIONS / f"step-{global_step}.jsonl") as file:
            file.writelines((json.dumps(row, ensure_ascii=False) + "\n").encode("utf-8") for row in rows)
        return scores([row["prediction"] for row in rows], [row["reference"] for row in rows])

    def _row(self, sample: dict, answer: list[int]) -> dict[str, str]:
        start, end = last_answer(sample["labels"].tolist())
        reference = sample["labels"][start:end].tolist()
        return {
            "question": decode(self.tokenizer, _question(sample)),
            "reference": decode(self.tokenizer, [token for token in reference if token not in self.ends]),
            "prediction": decode(self.tokenizer, answer),
        }


def _question(sample: dict) -> list[int]:
    """Return all ids before the last answer; labels are shifted by one position."""
    start, _ = last_answer(sample["labels"].tolist())
    return sample["input_ids"][: start + 1].tolist()


class BestKeeper:
    """Keeps the model of the lowest evaluation loss in OUTPUT/best, for use, not to continue from.

    The directory has what a run saves at its end, an adapter or a model with its tokenizer, and best.json: the step,
    the loss and what measured it. predict, merge and --model_name_or_path take it.

    Attributes:
        output_dir: Of the run.
        write: Called by all ranks together with the directory to write to.
        measured: Identifies evaluation data and loss; a model that others measured is replaced.
    """

    def __init__(self, output_dir: str | Path, write: Callable[[Path], None], measured: str):
        self.final = Path(output_dir) / BEST
        self.write, self.measured = write, measured
        self.loss: float | None = None

    def consider(self, global_step: int, loss: float, continued: bool) -> None:
        """Keep the weights as they are now if no evaluation of the run was better. Called by all ranks together.

        continued: whether the run continues a checkpoint; otherwise a model that an earlier run left there is replaced.
        """
        best = self.loss
        if best is None:
            best = broadcast(self._earlier_loss() if rank() == 0 else None) if continued else math.inf
        self.loss = best
        if not loss < best:
            return
        self.loss = loss
        aside, old = (self.final.with_name(f".{BEST}.{word}") for word in ("partial", "old"))
        if rank() == 0:
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir(parents=True)
        barrier()
        self.write(aside)
        barrier()
        if rank() == 0:
            record = {"global_step": global_step, "eval_loss": loss, "measured": self.measured}
            (aside / RECORD).write_text(json.dumps(record) + "\n")
            shutil.rmtree(old, ignore_errors=True)
            if self.final.exists():
                self.final.rename(old)
            aside.rename(self.final)
            shutil.rmtree(old, ignore_errors=True)
        barrier()

    def _earlier_loss(self) -> float:
        """Return the loss of the best model so far of a continued run."""
        old = self.final.with_name(f".{BEST}.old")
        if old.exists() and not self.final.exists():  # a kill between the two renames
            old.rename(self.final)
        try:
            record = json.loads((self.final / RECORD).read_text())
            same = record.get("measured", self.measured) == self.measured  # earlier versions did not keep it
            return record["eval_loss"] if same else math.inf
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return math.inf
