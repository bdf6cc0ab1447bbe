"""The user's case: a model and cards, and fine-tuning it with any flags."""

from dataclasses import dataclass

from launch.config.flag_values import parse_flags
from launch.config.layout import Layout
from launch.plan.hardware import Card
from launch.plan.job import Job

SCRIPT = "launch/finetune_generation.py"
HALF = "--precision auto --fp16_opt_level O2 --use_flash_attention auto"


@dataclass(frozen=True)
class Case:
    """length: tokens of a sample. batch: samples of a step, of all cards together."""

    model: str
    gpus: int
    card: Card
    length: int = 1024
    batch: int = 16

    def job(self, flags: str) -> Job:
        """With these flags, and as many micro batches as make up the samples of a step."""
        given = parse_flags(flags.split())
        micro_batch = int(given.setdefault("per_device_train_batch_size", ["1"])[0])
        ranks = Layout.from_flags(given, self.gpus).data_ranks
        given["gradient_accumulation_steps"] = [str(max(1, self.batch // (micro_batch * ranks)))]
        given |= {"model_name_or_path": [self.model], "max_length": [str(self.length)]}
        return Job.from_flags(SCRIPT, given, self.gpus, self.card)

    @property
    def title(self) -> str:
        return f"{self.model}, {self.gpus} x {self.card.name}, {self.batch} samples of {self.length} tokens a step"
