"""The compatibility matrix: which flags, layouts and models cannot be combined, one table for each subject.

Each row has a condition, the result (the run is refused, or a note is printed), the reason, its source in the pinned
paddlenlp 3.0.0b4 and Paddle 3.3.1, and the fix. A row does not apply to a method that lacks its flag.
"""

from launch.checkpoint.model_identity import run_config
from launch.config.flag_values import Flags, FlagValues
from launch.config.layout import Layout, LayoutError, degree, sharding_stage
from launch.config.run_config import RunConfig
from launch.errors import UserError
from launch.families.lora_targets import ALL, FLAG, lora_targets
from launch.preflight.report import Finding
from launch.preflight.rules import (
    adapters,
    batch,
    checkpoint,
    degrees,
    model_limits,
    overlap,
    pair_losses,
    reward_models,
    sampling,
    shared_samples,
    updates,
)
from launch.preflight.rules.rule import Request, Rule

RULES: tuple[Rule, ...] = (
    *degrees.RULES,
    *model_limits.RULES,
    *model_limits.FAMILY_RULES,
    *batch.RULES,
    *overlap.RULES,
    *degrees.OFFLOAD_RULES,
    *degrees.ACTIVATION_RULES,
    *checkpoint.RULES,
    *adapters.RULES,
    *pair_losses.RULES,
    *reward_models.RULES,
    *sampling.RULES,
    *shared_samples.RULES,
    *updates.RULES,
    *degrees.UNSUPPORTED_RULES,
)


def check_compatibility(run: RunConfig) -> list[Finding]:
    """Return one line about the layout, then refusals and announcements."""
    try:
        layout = run.layout
        impossible = []
    except LayoutError as error:
        layout = _smallest(run.explicit)
        impossible = [Finding(False, f"--{error.flag}", error.found, error.fix)]
    request = Request(run, layout, sharding_stage(run.explicit), _model(run.flags))
    findings = [*_targets(request), *(rule.finding(request) for rule in RULES if rule.when(request))]
    return impossible + findings if impossible else [_described(request), *findings]


def _targets(run: Request) -> list[Finding]:
    """Check that every word of --lora_target_modules names layers of the model."""
    words = (run.flags.lora_target_modules or "").split()
    if not (run.flags.lora and words and run.family):
        return []
    try:
        lora_targets(run.model, words)
    except UserError as error:
        fix = f"names of those, separated by spaces, or {ALL[0]}"
        return [Finding(False, FLAG, str(error).removeprefix(f"{FLAG}: "), fix)]
    return []


def _described(run: Request) -> Finding:
    return Finding(
        True,
        "layout",
        f"{run.layout}; {run.samples_a_step} samples a step (data ranks {run.layout.data_ranks} x micro batch "
        f"{run.flags.per_device_train_batch_size} x accumulation {run.flags.gradient_accumulation_steps})",
    )


def _smallest(flags: Flags) -> Layout:
    """Return the requested degrees on as few processes as they need.

    It is for the rows, where the layout itself is impossible.
    """
    return Layout(
        data_parallel_degree=1,
        sharding_parallel_degree=2 if sharding_stage(flags) else 1,
        tensor_parallel_degree=degree(flags, "tensor_parallel_degree"),
        pipeline_parallel_degree=degree(flags, "pipeline_parallel_degree"),
        sharding=sharding_stage(flags),
    )


def _model(values: FlagValues) -> dict:
    """Return the model's configuration; {} where there is none, which the check of the model reports."""
    try:
        return run_config(values)
    except UserError:
        return {}
