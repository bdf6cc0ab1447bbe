"""A row of the compatibility matrix, and what its condition looks at."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from data_tools.cli import DIGITS, whole_number
from launch.config.flag_values import FlagValues
from launch.config.layout import Layout
from launch.config.run_config import RunConfig
from launch.errors import UserError
from launch.families.named_configs import load_config
from launch.families.parameters import HEADS, INNER, LAYERS, POSITIONS, stated
from launch.families.registry import Family, family_of_config, parameters
from launch.methods.preference_flags import KTO, reference_of_flags
from launch.preflight.report import Finding
from launch.switches.precision import stated as stated_precision
from launch.tape.quantized import HEAD_WEIGHT

REFUSE, WARN, ANNOUNCE = "refuse", "warn", "announce"

# Of --lr_scheduler_type, those that end at --min_learning_rate (launch/training/trainer.py, create_scheduler).
SCHEDULES_WITH_FLOOR = ("cosine", "linear")
# Words of --sharding_parallel_config that fuse tensors into one buffer.
FUSION = ("enable_stage1_overlap", "enable_stage1_tensor_fusion", "split_param")


@dataclass(frozen=True)
class Request:
    """A requested run.

    Attributes:
        run: The run.
        layout: How its processes are arranged.
        stage: The requested sharding stage; layout.sharding is empty where the sharding degree is 1.
        model: config.json of the model, empty where it is unknown.
    """

    run: RunConfig
    layout: Layout
    stage: str = ""
    model: dict = field(default_factory=dict)

    @property
    def flags(self) -> FlagValues:
        """The flags of the run."""
        return self.run.flags

    @property
    def tensor(self) -> int:
        """The tensor parallel degree."""
        return self.layout.tensor_parallel_degree

    @property
    def pipeline(self) -> int:
        """The pipeline parallel degree."""
        return self.layout.pipeline_parallel_degree

    @property
    def shared(self) -> int:
        """The number of ranks that share a sample."""
        return self.layout.sep_parallel_degree

    @property
    def samples_a_step(self) -> int:
        """The samples of a step."""
        return self.layout.data_ranks * self.samples_a_data_rank

    @property
    def samples_a_data_rank(self) -> int:
        """The samples of a step on a data rank."""
        return self.run.samples_a_data_rank

    @property
    def heads(self) -> int | None:
        """The heads of the model."""
        return self.size(*HEADS)

    @property
    def head_divisors(self) -> str:
        """The degrees that divide the heads."""
        heads = self.heads or 0
        return ", ".join(str(degree) for degree in range(1, heads + 1) if heads % degree == 0)

    @property
    def layers(self) -> int | None:
        """The layers of the model."""
        return self.size(*LAYERS)

    @property
    def inner(self) -> int | None:
        """The inner size of the model's MLP."""
        return self.size(*INNER)

    @property
    def positions(self) -> int | None:
        """Tokens of the longest sample that the model's configuration allows; None where it states none."""
        return self.size(*POSITIONS)

    @property
    def window(self) -> float:
        """The attention window of the model's configuration, which no model class of paddlenlp applies."""
        used = self.model.get("use_sliding_window", self.family.window_by_default if self.family else True)
        return (self.model.get("sliding_window") if used else None) or math.inf

    @property
    def longer_than_positions(self) -> bool:
        """Whether a sample is longer than the positions that the model's configuration states."""
        return bool(self.positions and self.flags.max_seq_length and self.flags.max_seq_length > self.positions)

    @property
    def may_use_float16(self) -> bool:
        """Whether the run is in float16 on some cards: auto chooses it on cards without bfloat16."""
        bf16, fp16 = stated_precision(self.flags.precision, self.flags.bf16 or "off", bool(self.flags.fp16))
        return fp16 or (bf16 == "auto" and not self.run.on_cpu)

    @property
    def in_16_bits(self) -> bool:
        """Whether the run is in float16 or bfloat16."""
        bf16 = self.flags.precision == "bf16" or self.flags.bf16 in ("on", "required")
        return self.may_use_float16 or (bf16 and not self.run.on_cpu)

    @property
    def has_loss_chunk(self) -> bool:
        """Whether --loss_chunk_tokens has one of its values."""
        return _is_count(self.flags.loss_chunk_tokens)

    @property
    def has_slices(self) -> bool:
        """Whether --sequence_slices has one of its values."""
        return _is_count(self.flags.sequence_slices)

    @property
    def slices(self) -> bool:
        """Whether MLPs and norms are to be computed in slices."""
        return self.flags.sequence_slices != "off"

    @property
    def starts_below_its_floor(self) -> bool:
        """Whether the learning rate of a schedule would rise to its end."""
        flags = self.flags
        has_floor = bool(flags.do_train) and flags.lr_scheduler_type in SCHEDULES_WITH_FLOOR
        return has_floor and flags.min_learning_rate > flags.learning_rate

    @property
    def bubble(self) -> float:
        """Fraction of a step in which a pipeline stage waits, 0 to 1."""
        return (self.pipeline - 1) / (self.flags.gradient_accumulation_steps + self.pipeline - 1)

    @property
    def fusion_words(self) -> str:
        """The words of --sharding_parallel_config that fuse."""
        return ", ".join(word for word in FUSION if self.has_word("sharding_parallel_config", word))

    @property
    def reference(self) -> str:
        """The reference of preference tuning, one of REFERENCES; NONE in other runs."""
        return reference_of_flags(self.flags)

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics of each evaluation of the run.

        It has no scores of answers that are not made, and no distance from a missing reference. Of KTO's it has the
        ones of data with one kind of response, too.
        """
        flags, names = self.flags, self.run.method.metrics
        if not flags.eval_with_do_generation:
            names = tuple(name for name in names if not name.startswith(("bleu", "rouge")))
        if not self.reference:
            return tuple(name for name in names if name != "kl")
        return tuple(name for name in names if flags.loss_type != KTO or not name.startswith("rewards"))

    @property
    def metric_names(self) -> str:
        """The names of the metrics."""
        return ", ".join(self.metrics)

    @property
    def family(self) -> Family | None:
        """The model's family; None for an unknown one, which the check of the model reports."""
        try:
            return family_of_config(self.model) if self.model else None
        except UserError:
            return None

    @property
    def has_head(self) -> bool:
        """Whether the model has an output layer that can be quantized; True for an unknown one."""
        try:
            names = {parameter.name for parameter in parameters(self.model)}
        except UserError:
            return True
        return HEAD_WEIGHT in names and not self.run.method.reward_model

    @property
    def teacher_has_head(self) -> bool:
        """Whether a teacher has such a layer, too; True without one, or for an unknown one."""
        try:
            return not self.flags.teacher or replace(self, model=load_config(self.flags.teacher)).has_head
        except UserError:
            return True

    @property
    def lacking(self) -> dict[str, str]:
        """Feature of launch.families.registry.FEATURES -> why the model's family lacks it."""
        return self.family.lacking if self.family else {}

    def refuses(self, word: str) -> bool:
        """Return whether the model's family cannot be used with this feature (Family.refused)."""
        return bool(self.family) and word in self.family.refused

    def has_word(self, flag: str, *words: str) -> bool:
        """Return whether a flag of several words, such as --pipeline_parallel_config, has one of these."""
        return bool(set(words) & set(self.flags.words(flag)))

    def divides(self, degree: int, *names: str) -> bool:
        """Return whether a degree divides a size of the model, which has one of these names.

        True for an unknown size.
        """
        return (self.size(*names) or 0) % degree == 0

    def size(self, *names: str) -> int | None:
        """Return the first of these keys of the model's configuration that it has."""
        return stated(self.model, names)


def _is_count(value: str) -> bool:
    return value in ("auto", "off") or whole_number(value, 1, 10**DIGITS) is not None


@dataclass(frozen=True)
class Rule:
    """A row: where `when` is true, the run is refused, or a warning or an announcement is made.

    Attributes:
        flag: The one to change, without dashes.
        found, reason, fix: Texts for the user; {run.X} stands for a value of the request.
        source: File and function of the pinned packages in which it is seen, or how it was measured.
    """

    flag: str
    when: Callable[[Request], bool]
    found: str
    reason: str
    source: str
    fix: str = ""
    action: str = REFUSE

    def finding(self, run: Request) -> Finding:
        """Return the finding of a run that meets the rule."""
        found = f"{self.found}: {self.reason}".format(run=run)
        return Finding(
            self.action != REFUSE, f"--{self.flag}", found, self.fix.format(run=run), warns=self.action == WARN
        )
