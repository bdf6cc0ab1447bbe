"""Reinforcement (launch/methods/reinforcement.py): what it cannot do."""

from launch.errors import UserError
from launch.methods.preference_flags import ADAPTER_OFF
from launch.methods.reward_flags import read_rewards
from launch.preflight.rules.rule import Request, Rule

SAMPLER = "launch/generation/sampler.py"
ROLLOUTS = "launch/training/rollouts.py"
LOSS = "launch/training/rollout_loss.py"


def _samples(run: Request) -> bool:
    """Return whether the method has --algorithm."""
    return run.flags.algorithm is not None


def _reads_rewards(run: Request) -> bool:
    """Return whether each word of --reward means something."""
    try:
        read_rewards(run.flags.explicit["reward"])
    except UserError:
        return False
    return True


RULES = (
    Rule(
        flag="reward",
        when=lambda run: _samples(run) and not run.flags.reward and not run.flags.teacher,
        found="none, and no --teacher",
        reason="nothing says which answers are better than others",
        source="launch/methods/reward_flags.py, read_rewards",
        fix="--reward number, choice, exact, tool, json or more (docs/reinforce.md), or --teacher DIRECTORY",
    ),
    Rule(
        flag="reward",
        when=lambda run: bool(run.flags.reward) and not _reads_rewards(run),
        found="{run.flags.reward}",
        reason="not a reward that there is, or not one with each weight",
        source="launch/methods/reward_flags.py, read_rewards",
        fix="number, choice, exact, tool, json, regex:PATTERN, length:TOKENS, FILE.py:FUNCTION of a file that is here, "
        "or command:COMMAND; several as 0.9 number 0.1 json",
    ),
    Rule(
        flag="tensor_parallel_degree",
        when=lambda run: _samples(run) and run.tensor > 1,
        found="{run.tensor} in reinforcement",
        reason="each rank samples the answers to its own prompts, for which it needs the whole model",
        source=SAMPLER,
        fix="--tensor_parallel_degree 1, with --sharding stage2 or --weight_quantize_algo nf4 --lora 1",
    ),
    Rule(
        flag="pipeline_parallel_degree",
        when=lambda run: _samples(run) and run.pipeline > 1,
        found="{run.pipeline} in reinforcement",
        reason="each rank samples the answers to its own prompts, for which it needs the whole model",
        source=SAMPLER,
        fix="--pipeline_parallel_degree 1, with --sharding stage2 or --weight_quantize_algo nf4 --lora 1",
    ),
    Rule(
        flag="sharding",
        when=lambda run: _samples(run) and run.stage == "stage3",
        found="stage3 in reinforcement",
        reason="each rank samples answers of other lengths, so that ranks do not gather a layer at the same time",
        source=SAMPLER,
        fix="--sharding stage2",
    ),
    Rule(
        flag="prefix_tuning",
        when=lambda run: _samples(run) and bool(run.flags.prefix_tuning),
        found="1 in reinforcement",
        reason="answers are sampled by the model with its weights alone, not behind a prefix",
        source=SAMPLER,
        fix="--lora 1, or --prefix_tuning 0",
    ),
    Rule(
        flag="lora_dropout",
        when=lambda run: _samples(run) and bool(run.flags.lora_dropout),
        found="{run.flags.lora_dropout:g} in reinforcement",
        reason="the model that learns would not be the one that has answered",
        source=ROLLOUTS,
        fix="--lora_dropout 0",
    ),
    Rule(
        flag="pissa",
        when=lambda run: _samples(run) and bool(run.flags.pissa) and run.reference == ADAPTER_OFF,
        found="1 with --kl_weight {run.flags.kl_weight:g}",
        reason="without its adapter the model is not the one from before training, which is the reference",
        source="launch/adapters/pissa.py",
        fix="--pissa 0, or --kl_weight 0",
    ),
    Rule(
        flag="kl_weight",
        when=lambda run: bool(run.flags.teacher and run.flags.kl_weight),
        found="{run.flags.kl_weight:g} with --teacher",
        reason="the teacher is in the place of the model before training",
        source=LOSS,
        fix="--kl_weight 0",
    ),
    Rule(
        flag="redraw_rounds",
        when=lambda run: bool(run.flags.teacher and run.flags.redraw_rounds),
        found="{run.flags.redraw_rounds} with --teacher",
        reason="answers that are worth the same teach as much as others, as rewards are measured alone",
        source=LOSS,
        fix="--redraw_rounds 0",
    ),
    Rule(
        flag="do_eval",
        when=lambda run: bool(run.flags.teacher and run.flags.do_eval) and not run.flags.reward,
        found="1 with --teacher and no --reward",
        reason="an evaluation is the reward of answers",
        source=LOSS,
        fix="--do_eval 0 --evaluation_strategy no, or --reward, which is measured and not learned from",
    ),
    Rule(
        flag="fp16_opt_level",
        when=lambda run: _samples(run) and run.in_16_bits and run.flags.fp16_opt_level != "O2",
        found="{run.flags.fp16_opt_level} in reinforcement",
        reason="keys and values of answers are stored in the dtype of the weights, which O1 keeps in float32",
        source="launch/generation/packed.py",
        fix="--fp16_opt_level O2",
    ),
    Rule(
        flag="model_name_or_path",
        when=lambda run: _samples(run) and bool(run.family and run.family.answer_marks),
        found="a {run.family.title}",
        reason="it reads a prompt in both directions, answers are sampled from models that read from left to right",
        source="launch/generation/packed_attention.py, TAKE_OVER",
        fix="--model_name_or_path names a model of another family, such as Qwen3 or LLaMA",
    ),
)
