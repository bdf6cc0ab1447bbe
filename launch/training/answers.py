"""Evaluation by answering: the model is asked the questions of the evaluation data; what it says is scored and kept.

--eval_with_do_generation. Greedy, on the ranks that share the data; a pipeline cannot generate (preflight refuses it).
"""

import json
from pathlib import Path

from data_tools.formats.atomic import written_aside
from data_tools.formats.dialogues.questions import last_answer
from launch.checkpoint.ranks import broadcast, gather, rank
from launch.families.registry import family_of_config
from launch.generation.generate import Decoding, generate, known_ids_of
from launch.generation.stream import decode
from launch.training.batches import PaddedShard
from launch.training.data import end_id

PREDICTIONS = "predictions"


class Answers:
    """max_new_tokens: of an answer, at most: what training leaves room for."""

    def __init__(self, tokenizer, model_config: dict, max_new_tokens: int):
        self.tokenizer = tokenizer
        self.family = family_of_config(model_config)
        self.end = end_id(tokenizer, self.family)
        self.known_ids = known_ids_of(tokenizer)
        self.decoding = Decoding(max_new_tokens)

    def evaluate(self, model, dataset, args, global_step: int) -> dict[str, float]:
        """BLEU and ROUGE of the last answers of all samples; predictions/step-N.jsonl. Called by all ranks together."""
        own = {}
        for numbers in PaddedShard(
            len(dataset), args.per_device_eval_batch_size, args.dataset_rank, args.dataset_world_size
        ):
            samples = [dataset[number or 0] for number in numbers]  # None pads the shards: asked, and not looked at
            answers = generate(
                model,
                self.family,
                [_question(sample) for sample in samples],
                self.decoding,
                self.end,
                self.known_ids,
                synced_gpus="stage3" in args.sharding and args.sharding_parallel_degree > 1,
            )
            own |= {number: ids for number, ids in zip(numbers, answers, strict=True) if number is not None}
        everybodys = {number: ids for of_rank in gather(own) for number, ids in of_rank.items()}
        return broadcast(self._scored(everybodys, dataset, args, global_step) if rank() == 0 else None)

    def _scored(self, answers: dict[int, list[int]], dataset, args, global_step: int) -> dict[str, float]:
        from launch.generation.scores import scores  # half a second of imports, for those who ask for it

        rows = [self._row(dataset[number], answers[number]) for number in range(len(dataset))]
        with written_aside(Path(args.output_dir) / PREDICTIONS / f"step-{global_step}.jsonl") as file:
            file.writelines((json.dumps(row, ensure_ascii=False) + "\n").encode("utf-8") for row in rows)
        return scores([row["prediction"] for row in rows], [row["reference"] for row in rows])

    def _row(self, sample: dict, answer: list[int]) -> dict[str, str]:
        start, end = last_answer(sample["labels"].tolist())
        reference = sample["labels"][start:end].tolist()
        return {
            "question": decode(self.tokenizer, _question(sample)),
            "reference": decode(self.tokenizer, [one for one in reference if one != self.end]),
            "prediction": decode(self.tokenizer, answer),
        }


def _question(sample: dict) -> list[int]:
    """All ids before the last answer; labels are those of the next position."""
    start, _ = last_answer(sample["labels"].tolist())
    return sample["input_ids"][: start + 1].tolist()
