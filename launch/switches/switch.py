"""A feature that depends on the device of a run, with a table of reasons against it. No Paddle at import.

    case = case_of(run.flags, config, (8, 0), "bfloat16")
    FUSED_ROPE.expected(run.flags, [case])    # by the table: the checks before a start
    FUSED_ROPE.planned(run.flags, case)       # whether the plan counts on it
    FUSED_ROPE.start(args, case)              # in a run: by the table, then tried on the device

A switch is auto, on, off or required: auto and on use a feature where it is possible and say why not elsewhere,
required makes that an error, off never uses it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from launch.config.flag_values import split_words
from launch.devices.cuda import paddle_build
from launch.devices.fused_ln import Build, find_build, paddle_version
from launch.errors import UserError
from launch.families.family import Family
from launch.families.parameters import ALIBI_COLUMNS, head_size
from launch.families.registry import family_of_config


@dataclass(frozen=True)
class SwitchCase:
    """A training run on one kind of card, as far as switches depend on it.

    Attributes:
        compute_capability: (major, minor) of the card, None without one.
        build: The CUDA version that Paddle was built for, "12.6", or "cpu"; None where unknown.
        fused_ln: The module that is built here, if any.
        dtype: In which attention is computed.
        level: --fp16_opt_level, "O0" in float32: under O1 the weights are float32.
        float32_norms: Norms compute in float32 (--fp32_norms_and_head).
        head_size: Elements of a head, those that ALiBi adds included.
        mask: "causal" where none is needed, "dense": [queries, keys] of each sample.
        packed: Samples are packed into rows.
        dropout: Of attention's weights.
        frozen: What is trained in place of the model's weights, "" where these are.
        past_keys: What has keys and values from before the sample, "" where nothing has.
        prefix: Tokens of prefix tuning.
        shared: Ranks that share a sample (--sep_parallel_degree).
        tensor_parallel_degree: Ranks that share a layer; words: of --tensor_parallel_config.
        config: The model's.
    """

    family: Family
    compute_capability: tuple[int, int] | None = None
    build: str | None = None
    fused_ln: Build | None = None
    dtype: str = "bfloat16"
    level: str = "O2"
    float32_norms: bool = False
    head_size: int = 128
    mask: str = "causal"
    packed: bool = False
    dropout: float = 0.0
    frozen: str = ""
    past_keys: str = ""
    prefix: int = 0
    tensor_parallel_degree: int = 1
    sequence_parallel: bool = False
    pipeline: bool = False
    words: tuple[str, ...] = ()
    shared: int = 1
    config: dict = field(default_factory=dict, compare=False, repr=False)

    @property
    def capability(self) -> tuple[int, int]:
        """The compute capability of the card, where there is one."""
        assert self.compute_capability is not None
        return self.compute_capability

    @property
    def card(self) -> str:
        """The card in words."""
        return "compute capability {}.{}".format(*self.capability)

    @property
    def built(self) -> Build:
        """The module fused_ln, where there is one."""
        assert self.fused_ln is not None
        return self.fused_ln

    @property
    def paddle(self) -> str:
        """The version of Paddle that is installed."""
        return paddle_version()

    @property
    def masked(self) -> bool:
        """Whether attention reads a mask."""
        return self.mask == "dense" or self.family.always_masked

    @property
    def cuda(self) -> tuple[int, ...] | None:
        """The CUDA version of the build, None where it is unknown."""
        return tuple(map(int, self.build.split("."))) if self.build else None


def case_of(
    values: Any, config: dict, capability: tuple[int, int] | None, dtype: str, build: str | None = None
) -> SwitchCase:
    """Return the case of training a model.

    Args:
        values: has the flags of all methods
        config: the model's, as config.json has it
        capability: of the card, None without one
        dtype: in which attention is computed
        build: of Paddle and of fused_ln; None: those that are installed

    Raises:
        UserError: the family is not in launch/families
    """
    family = family_of_config(config)

    def first_given(**names: str) -> str:
        return next((title for name, title in names.items() if getattr(values, name, None)), "")

    dropouts = ("attention_dropout", "attention_probs_dropout_prob", "attention_dropout_prob")
    return SwitchCase(
        family,
        capability,
        build or paddle_build(),
        None if build else find_build(),
        dtype,
        values.fp16_opt_level if dtype != "float32" else "O0",
        bool(values.fp32_norms_and_head),
        head_size(config) + (ALIBI_COLUMNS if family.alibi else 0),
        "dense" if first_given(zero_padding="packed", eval_with_do_generation="left-padded") else "causal",
        bool(getattr(values, "zero_padding", None)),
        next((config[name] for name in dropouts if config.get(name)), 0.0),
        first_given(lora="LoRA", prefix_tuning="prefix tuning"),
        first_given(prefix_tuning="prefix tuning", eval_with_do_generation="evaluation by answers"),
        (values.num_prefix_tokens or 0) if values.prefix_tuning else 0,
        max(values.tensor_parallel_degree, 1),
        bool(values.sequence_parallel),
        values.pipeline_parallel_degree > 1,
        tuple(split_words("tensor_parallel_config", values.tensor_parallel_config or "")),
        max(values.sep_parallel_degree, getattr(values, "sequence_ranks", 1)),  # the flag's name, or the run's
        config,
    )


@dataclass(frozen=True)
class Obstacle:
    """A reason against a feature.

    Attributes:
        when: Whether it applies; {case.X} in the text stands for a value of the case.
    """

    when: Callable[[SwitchCase], bool]
    text: str
    source: str


NO_CARD = (
    Obstacle(lambda case: case.compute_capability is None, "no GPU", "paddle.device.get_device"),
    Obstacle(lambda case: case.build == "cpu", "Paddle is the CPU build", "paddle.version.cuda"),
)


@dataclass(frozen=True)
class Decision:
    """The outcome of a switch: whether the feature is used, and why in one line."""

    enabled: bool
    reason: str


def first_of_ranks(found: str) -> str:
    """Return what the first rank found that found something, the same on all ranks, which call it together."""
    from launch.checkpoint import ranks

    return ranks.first_of_ranks(found)


class Switch:
    """A feature that depends on the device. A subclass names it, lists the reasons against it, and tries it.

    flag:    of the switch
    subject: of the line of the checks, "" where they say nothing of it
    feature, instead: of the line about the decision
    cases:   the reasons against it, in the order in which they are checked
    remedy:  what makes it possible, for the fix of a finding
    needs:   a switch without which there is nothing to decide
    """

    flag = subject = feature = instead = remedy = ""
    cases: tuple[Obstacle, ...] = ()
    needs: "Switch | None" = None

    def concerns(self, case: SwitchCase) -> bool:
        """Return True if there is anything to decide, and a line about it."""
        return True

    def setting(self, values: Any) -> str:
        """Return auto, on, off or required.

        Args:
            values: Has the flags.
        """
        return getattr(values, self.flag) or "off"

    def obstacle(self, case: SwitchCase) -> str:
        """Return the first reason against it, or ""."""
        return next((reason.text.format(case=case) for reason in self.cases if reason.when(case)), "")

    def first_obstacle(self, cases: list[SwitchCase]) -> str:
        """Return the first reason against it on one of several kinds of cards, or ""."""
        return next(filter(None, map(self.obstacle, cases)), "")

    def expected(self, values: Any, cases: list[SwitchCase]) -> Decision:
        """Return the decision by the table, on several kinds of cards.

        Raises:
            UserError: As `decide` does.
        """
        return self.decide(self.setting(values), self.first_obstacle(cases), cases[0])

    def planned(self, values: Any, case: SwitchCase) -> bool:
        """Return True if a plan counts on it."""
        return self.setting(values) != "off" and self.concerns(case) and not self.obstacle(case)

    def start(self, values: Any, case: SwitchCase) -> Decision:
        """Return the decision of all ranks, which call it together: by the table, then by trying the feature.

        Raises:
            UserError: on all ranks, where it is required and the device of one of them cannot
        """
        setting = self.setting(values)
        found = first_of_ranks(self.obstacle(case))
        if not found and setting != "off":
            found = first_of_ranks(self.trial(case))
        return self.decide(setting, found, case)

    def trial(self, case: SwitchCase) -> str:
        """Return what is wrong with it on this device, in words; "" where nothing is."""
        raise NotImplementedError

    def decide(self, setting: str, obstacle: str, case: SwitchCase) -> Decision:
        """Return whether it is used. obstacle: why it cannot be, or "".

        Raises:
            UserError: it is required and meets an obstacle
        """
        if setting == "required" and obstacle:
            raise UserError(
                f"--{self.flag} required: not possible here: {obstacle}. Use --{self.flag} auto for {self.instead}."
            )
        if setting == "off":
            return Decision(False, f"{self.feature}: off by --{self.flag} off, {self.instead}")
        if obstacle:
            return Decision(False, f"{self.feature}: off ({obstacle}), {self.instead}")
        return Decision(True, f"{self.feature}: on")
