"""Kernels that a run takes where they are right: each is a switch, with a table of reasons against it. No Paddle here.

    reason = FUSED_ROPE.obstacle(Case("llama", compute_capability=(8, 0)))

What the table allows is tried on the device when a run starts (launch/training/kernel_trials.py). Flash attention and
RMSNorm, which have more than one kernel each, have files of their own beside this one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from launch.config.flag_values import split_words
from launch.devices.cuda import paddle_build
from launch.devices.switches import Decision, decide
from launch.families.registry import family_of_config


@dataclass(frozen=True)
class Case:
    """One use of the kernels, in training.

    Attributes:
        model_type: As in config.json.
        rotates: Whether paddlenlp's code of the model calls the fused rotary embedding.
        compute_capability: (major, minor) of the card, None without one.
        build: The CUDA version that Paddle was built for, "12.6", or "cpu"; None where unknown.
        frozen: What is trained in place of the model's weights, "" where these are.
        past_keys: What has keys and values from before the sample, "" where nothing has.
        level: --fp16_opt_level, "O0" in float32.
        tensor_parallel_degree: Ranks that share a layer.
        words: Of --tensor_parallel_config.
    """

    model_type: str
    rotates: bool = True
    compute_capability: tuple[int, int] | None = None
    build: str | None = None
    frozen: str = ""
    past_keys: str = ""
    level: str = "O2"
    tensor_parallel_degree: int = 1
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """An obstacle to a kernel.

    Attributes:
        when: Whether it cannot be used; {case.X} in the reason is replaced by a value of the case.
    """

    when: Callable[[Case], bool]
    reason: str
    source: str


@dataclass(frozen=True)
class Kernel:
    """A fused kernel with a switch.

    Attributes:
        flag: Of the switch.
        subject: Of the line of the checks.
        feature, instead: Of the line about the decision.
        rows: In the order in which they are checked.
        concerns: Whether there is anything to decide, and a line about it.
    """

    flag: str
    subject: str
    feature: str
    instead: str
    rows: tuple[Row, ...]
    concerns: Callable[[Case], bool] = lambda case: True

    def obstacle(self, case: Case) -> str:
        """Return the first reason against the kernel, or ""."""
        return next((row.reason.format(case=case) for row in self.rows if row.when(case)), "")

    def decide(self, switch: str, obstacle: str) -> Decision:
        """Return whether the kernel is used.

        Raises:
            UserError: If `required` meets an obstacle.
        """
        return decide(self.flag, self.feature, switch, obstacle, self.instead)

    def planned(self, values: Any, case: Case) -> bool:
        """Return whether a plan counts on the kernel. values: has the flags."""
        return bool(getattr(values, self.flag)) and self.concerns(case) and not self.obstacle(case)


NO_CARD = (
    Row(lambda case: case.compute_capability is None, "no GPU", "paddle.device.get_device"),
    Row(lambda case: case.build == "cpu", "Paddle is the CPU build", "paddle.version.cuda"),
)

FUSED_ROPE = Kernel(
    flag="use_fused_rope",
    subject="rotary embedding",
    feature="fused rotary embedding",
    instead="separate operators",
    rows=(
        Row(
            lambda case: not case.rotates,
            "paddlenlp's code of this model never calls it",
            "launch/families, the family's module: fused_rope",
        ),
        Row(
            lambda case: bool(case.past_keys),
            "{case.past_keys}: paddlenlp's code refuses keys from before the sample",
            "paddlenlp/transformers/llama/fusion_ops.py, fusion_rope; qwen2/modeling.py, Qwen2Attention.forward",
        ),
        *NO_CARD,
    ),
)

# Words of --tensor_parallel_config for the same; without sequence parallel, and with it.
ALL_REDUCE, SHARED_INPUT = "enable_mp_async_allreduce", "enable_mp_skip_c_identity"
REDUCE_SCATTER = "enable_sp_async_reduce_scatter"

OVERLAP = Kernel(
    flag="tensor_parallel_overlap",
    subject="tensor parallel",
    feature="tensor parallel beside products",
    instead="one after the other",
    concerns=lambda case: case.tensor_parallel_degree > 1 and not overlaps_by_words(case),
    rows=(
        Row(
            lambda case: bool(case.frozen),
            "{case.frozen}: no product of a weight's gradient is there to hide the sum over the ranks",
            "paddle/distributed/fleet/layers/mpu/mp_layers.py, InnerOverlapLinear.backward; "
            "paddlenlp/peft/lora/lora_layers.py, ColumnParallelLoRALinear.forward",
        ),
        Row(
            lambda case: case.level == "O1",
            "under --fp16_opt_level O1 inputs and gradients have different dtypes; O2 has it",
            "paddle/distributed/fleet/layers/mpu/mp_layers.py, InnerOverlapLinear.backward",
        ),
        *NO_CARD,
    ),
)

KERNELS = (FUSED_ROPE, OVERLAP)


def overlaps_by_words(case: Case) -> bool:
    """Return whether --tensor_parallel_config requests the overlap by itself."""
    return bool({ALL_REDUCE, REDUCE_SCATTER} & set(case.words))


def case_of(
    values: Any,
    config: dict,
    compute_capability: tuple[int, int] | None,
    tensor_parallel_degree: int,
    half: bool,
    build: str | None = None,
) -> Case:
    """Return the case of training a model, by its config.json.

    Args:
        values: Has the flags of all methods.
        config: Of the model.
        compute_capability: Of the card, None without one.
        tensor_parallel_degree: Of the run.
        half: Whether it computes in half precision.
        build: None for the installed Paddle's.

    Raises:
        UserError: For a family that is not in launch/families.
    """
    adapters = {"lora": "LoRA", "prefix_tuning": "prefix tuning"}
    past_keys = {"prefix_tuning": "prefix tuning", "eval_with_do_generation": "evaluation by answers"}
    return Case(
        model_type=config["model_type"],
        rotates=family_of_config(config).fused_rope,
        compute_capability=compute_capability,
        build=build or paddle_build(),
        frozen=_first_stated(values, adapters),
        past_keys=_first_stated(values, past_keys),
        level=values.fp16_opt_level if half else "O0",
        tensor_parallel_degree=tensor_parallel_degree,
        words=tuple(split_words("tensor_parallel_config", values.tensor_parallel_config or "")),
    )


def _first_stated(values: Any, names: dict[str, str]) -> str:
    return next((words for name, words in names.items() if getattr(values, name, None)), "")
