"""Reinforcement with rewards that can be checked: the model answers prompts, and learns from how good its answers are.

Each prompt has a group of answers. What an answer is worth above the others of its group is its advantage, by which
its tokens become likelier or less likely (--algorithm).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launch.methods.bounds import AT_LEAST_ONE, NOT_NEGATIVE, POSITIVE, SAMPLE, STEPS
from launch.methods.method import Fit, Flags, Method, RowArguments, RowKind, flag
from launch.methods.preference_flags import AUTO

TOKEN, MEAN, SUM = "token", "mean", "sum"
ANSWERS, TOKENS, LENGTH = "answers", "tokens", "length"
SPARE_TEXTS = 8  # texts of the largest size beside --sampled_at_once: room for what prompts have in common


@dataclass(frozen=True)
class Algorithm:
    """A loss of reinforcement: the mean of -min(ratio A, clipped ratio A).

    Attributes:
        scaled: Advantages are divided by their group's standard deviation.
        others: An answer is compared with the others of its group; else with the whole group, itself among them.
        ratio: Of the probabilities now and when the answer was sampled: a TOKEN's; of an answer's tokens the geometric
            MEAN, or the product, their SUM in logarithms.
        average: Over what the mean is: ANSWERS, each of which is the mean over its tokens; TOKENS of all answers
            alike; or LENGTH, the longest answer that there could be, times answers.
        clip: How far a ratio may fall below 1, and rise above it.
        masks_truncated: Answers that reached the largest length count for nothing.
    """

    scaled: bool
    ratio: str = TOKEN
    average: str = ANSWERS
    clip: tuple[float, float] = (0.2, 0.2)
    others: bool = False
    masks_truncated: bool = False


ALGORITHMS = {
    "grpo": Algorithm(scaled=True),  # DeepSeekMath, arXiv 2402.03300, equation 3
    "dr_grpo": Algorithm(scaled=False, average=LENGTH),  # arXiv 2503.20783, section 3.2
    "dapo": Algorithm(True, TOKEN, TOKENS, (0.2, 0.28), masks_truncated=True),  # arXiv 2503.14476, sections 3.1 to 3.4
    "gspo": Algorithm(True, MEAN, clip=(3e-4, 4e-4)),  # arXiv 2507.18071, equation 5; section 5.1 has the clip
    "rloo": Algorithm(False, SUM, others=True),  # arXiv 2402.14740, equation 9
}


@dataclass(frozen=True)
class PromptArguments(RowArguments):
    """The flags of prompts."""

    prompt_column: str | None = flag(None, help="Key of the prompt in each row. Default: found in the first rows.")
    answer_column: str | None = flag(
        None, help="Key of the right answer. Default: answer, solution, ground_truth, target, else the last answer."
    )
    src_length: int = flag(512, bounds=AT_LEAST_ONE, help="Tokens of a prompt, at most: its end is kept.")
    max_length: int = flag(
        1024, bounds=SAMPLE, help="Tokens of a prompt with an answer: an answer has the rest beside src_length."
    )


@dataclass(frozen=True)
class ReinforcementArguments:
    """The flags of sampling, rewards and loss."""

    reward: list[str] | None = flag(
        None,
        help="What an answer is worth: number, choice, exact, tool, json, regex:PATTERN, length:TOKENS, "
        "FILE.py:FUNCTION or command:COMMAND; several with weights: 0.9 number 0.1 json.",
    )
    teacher: str | None = flag(
        None,
        help="Directory of a model with the same tokenizer: each token becomes likelier by how much likelier it is to "
        "this model (on-policy distillation). --reward is measured then, if given, and teaches nothing.",
    )
    reward_seconds: float = flag(
        10.0, bounds=POSITIVE, help="Time for the reward of one answer; what takes longer is worth 0."
    )
    reward_gigabytes: float = flag(4.0, bounds=POSITIVE, help="Memory of a process that rewards.")
    reward_sandbox: bool = flag(True, help="command: has no network. Stops where the kernel allows no such sandbox.")
    algorithm: str = flag(
        "grpo",
        help="grpo; dr_grpo: without standard deviation and length in the divisor; dapo: mean over tokens, a higher "
        "upper clip, truncated answers masked; gspo: the ratio of whole answers; rloo: compared with the others.",
        choices=list(ALGORITHMS),
    )
    group_size: int = flag(
        8, bounds={"least": 2, "most": 4096}, help="Answers to each prompt, which are compared with each other."
    )
    rollout_steps: int = flag(
        1, bounds=AT_LEAST_ONE, help="Steps that learn from answers sampled together, before the first of them."
    )
    rollout_passes: int = flag(
        1, bounds=AT_LEAST_ONE, help="Times that these steps are made with the same answers; 2: two updates by each."
    )
    redraw_rounds: int = flag(
        0,
        bounds=STEPS,
        help="Rounds that replace prompts whose answers are all worth the same by the next ones, at most.",
    )
    temperature: float = flag(
        1.0, bounds=POSITIVE, help="By which logits are divided, in sampling and in the loss alike."
    )
    top_k: int = flag(0, bounds=STEPS, help="Sample among so many of the most likely tokens; 0: among all.")
    top_p: float = flag(
        1.0, bounds={"above": 0, "most": 1}, help="Sample among the fewest tokens whose probabilities add up to it."
    )
    sampled_at_once: int = flag(
        64, bounds={"least": 1, "most": 65_536}, help="Answers that are sampled at the same time, at most."
    )
    clip_low: float | None = flag(
        None, bounds={"above": 0, "below": 1}, help="How far a ratio may fall below 1. Default: 0.2, of gspo 0.0003."
    )
    clip_high: float | None = flag(
        None,
        bounds={"above": 0, "most": 1000},
        help="How far a ratio may rise above 1. Default: 0.2, of dapo 0.28, of gspo 0.0004.",
    )
    mask_truncated: bool | None = flag(
        None, help="Answers that reach the largest length count for nothing. Default: 0, of dapo 1."
    )
    kl_weight: float = flag(
        0.0, bounds=NOT_NEGATIVE, help="Weight of the divergence from the model before training; 0: not computed."
    )
    reference: str = flag(
        AUTO,
        help="That model, with --kl_weight. adapter_off: the model without its LoRA; copy: a second copy of it; auto: "
        "adapter_off with --lora 1, else copy.",
        choices=[AUTO, "adapter_off", "copy"],
    )
    max_log_ratio: float | None = flag(
        None,
        bounds=POSITIVE,
        help="Stop where sampler and trainer disagree by more than this in the logarithm of a probability, before "
        "the first update of a rollout. Default: 0.001 in float32, 1 in half precision.",
    )
    sample_steps: int = flag(
        10, bounds=STEPS, help="Write the answers of every so many rollouts to OUTPUT/rollouts; 0: none."
    )


def _prompts(values: Any) -> RowKind:
    from data_tools.dialogues.prompts import PromptColumns, encode_prompt_rows, prompt_lines

    columns = PromptColumns(values.prompt_column, values.answer_column)
    return RowKind("prompt", "prompt", columns, encode_prompt_rows, prompt_lines)


def _rehearsal_data(flags: Flags, materials: Path) -> dict[str, tuple[str, str]]:
    return {
        "dataset_name_or_path": (str(materials / "chats"), "made-up dialogues"),
        "reward": ("regex:mi", "what some answers of random weights have"),
        "group_size": ("4", "few answers"),
        "max_length": ("80", "short answers"),
    } | ({"teacher": (str(materials / "model"), "of the same tokenizer")} if "teacher" in flags else {})


REINFORCEMENT = Method(
    name="reinforcement",
    title="reinforcement",
    training="launch.training.reinforcement_tuning:ReinforcementTuning",
    arguments=(PromptArguments, ReinforcementArguments),
    metrics=("loss", "reward", "truncated", "tokens"),
    rehearsal_data=_rehearsal_data,
    row_kind=_prompts,
    rows_per_sample=lambda values: values.group_size,
    token_loss=False,
    fits={
        "grpo": Fit("qwen2.5-0.5b/grpo.sh", smaller=("grpo-lora", "grpo-qlora")),
        "grpo-lora": Fit("qwen3-0.6b/grpo-lora.sh", smaller=("grpo-qlora",)),
        "grpo-qlora": Fit("qwen3-4b/grpo-qlora.sh"),
    },
)
