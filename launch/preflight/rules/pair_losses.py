"""Preference tuning (launch/run_dpo.py): what it cannot do, and flags that do nothing with its loss.

What concerns a reference is for reinforcement, too (--kl_weight).
"""

from launch.methods.preference_flags import (
    ADAPTER_OFF,
    AUTO,
    KTO,
    PRECOMPUTED,
    SECOND_COPY,
    SMOOTHED,
)
from launch.preflight.rules.rule import ANNOUNCE, Request, Rule

REFERENCE = "launch/training/reference.py"
LOSSES = "launch/training/preference_losses.py"
OF_KTO = "launch/training/kto_loss.py"


def _tunes(run: Request) -> bool:
    """Return whether the method has --loss_type."""
    return run.flags.loss_type is not None


def _copies(run: Request) -> bool:
    """Return whether there is a second model beside the one that is trained: a copy in full tuning, or a teacher."""
    return run.reference == SECOND_COPY and not (run.flags.lora and not run.flags.teacher)


def _kto(run: Request) -> bool:
    return run.flags.loss_type == KTO


def _may_precompute(run: Request) -> bool:
    """Return whether there is --reference precomputed, as KTO and reinforcement have none."""
    return _tunes(run) and not _kto(run)


RULES = (
    Rule(
        flag="pipeline_parallel_degree",
        when=lambda run: _kto(run) and run.pipeline > 1,
        found="{run.pipeline} with --loss_type kto",
        reason="the passes that z0 needs are not made over pipeline stages",
        source=OF_KTO,
        fix="--pipeline_parallel_degree 1 with --tensor_parallel_degree or --sharding",
    ),
    Rule(
        flag="reference",
        when=lambda run: run.pipeline > 1 and _may_precompute(run) and run.reference in (ADAPTER_OFF, SECOND_COPY),
        found="{run.flags.reference} with --pipeline_parallel_degree {run.pipeline}",
        reason="a micro batch goes through the stages once, without a pass of the reference",
        source="launch/training/pipeline_pairs.py",
        fix="--reference precomputed, or --pipeline_parallel_degree 1",
    ),
    Rule(
        flag="prefix_tuning",
        when=lambda run: _tunes(run) and bool(run.flags.prefix_tuning),
        found="1 in preference tuning",
        reason="a prefix cannot be switched off, as the reference needs it",
        source=REFERENCE,
        fix="--lora 1, or --prefix_tuning 0",
    ),
    Rule(
        flag="pissa",
        when=lambda run: _tunes(run) and bool(run.flags.pissa),
        found="1 in preference tuning",
        reason="without its adapter the model is not the one from before training, which is the reference",
        source="launch/adapters/pissa.py",
        fix="--pissa 0",
    ),
    Rule(
        flag="model_name_or_path",
        when=lambda run: _tunes(run) and bool(run.family and run.family.answer_marks),
        found="a {run.family.title}",
        reason="it reads a prompt in both directions, batches of pairs are for models that read from left to right",
        source="launch/training/preference_data.py, load_preferences",
        fix="--model_name_or_path names a model of another family, such as Qwen2 or LLaMA",
    ),
    Rule(
        flag="sharding",
        when=lambda run: _copies(run) and _may_precompute(run) and run.has_word("sharding", "offload"),
        found="{run.flags.sharding} with a reference that is a second copy",
        reason="the copy would stay on the device, whole",
        source=REFERENCE,
        fix="--reference precomputed or --lora 1, which need no copy, or --sharding without offload",
    ),
    Rule(
        flag="sharding",
        when=lambda run: _copies(run) and not _may_precompute(run) and run.has_word("sharding", "offload"),
        found="{run.flags.sharding} with a reference that is a second copy",
        reason="the copy would stay on the device, whole",
        source=REFERENCE,
        fix="--lora 1, which needs no copy, or --sharding without offload",
    ),
    Rule(
        flag="sharding",
        when=lambda run: _copies(run) and not _may_precompute(run) and run.stage == "stage3",
        found="stage3 with a reference that is a second copy",
        reason="the copy is whole on every rank: only tensor parallelism shards it; --lora 1 needs none",
        source=REFERENCE,
        action=ANNOUNCE,
    ),
    Rule(
        flag="sharding",
        when=lambda run: _copies(run) and _may_precompute(run) and run.stage == "stage3",
        found="stage3 with a reference that is a second copy",
        reason="the copy is whole on every rank: only tensor parallelism shards it; --reference precomputed needs none",
        source=REFERENCE,
        action=ANNOUNCE,
    ),
    Rule(
        flag="reference",
        when=lambda run: run.reference == ADAPTER_OFF and not run.flags.lora,
        found="adapter_off without --lora 1",
        reason="there is no adapter that could be switched off",
        source=REFERENCE,
        fix="--reference auto, or --lora 1",
    ),
    Rule(
        flag="reference",
        when=lambda run: run.reference == SECOND_COPY and bool(run.flags.lora) and not run.flags.teacher,
        found="copy with --lora 1",
        reason="the model without its adapter is the reference already, a copy would take memory for nothing",
        source=REFERENCE,
        fix="--reference auto",
    ),
    Rule(
        flag="reference",
        when=lambda run: run.flags.reference not in (None, AUTO) and bool(not run.reference or run.flags.teacher),
        found="{run.flags.reference} does nothing here",
        reason="no reference is compared with: --loss_type simpo and or have none, nor has --reference_free 1, nor "
        "--kl_weight 0, nor --teacher",
        source=LOSSES,
        action=ANNOUNCE,
    ),
    Rule(
        flag="zero_padding",
        when=lambda run: _kto(run) and bool(run.flags.zero_padding),
        found="1 with --loss_type kto",
        reason="single responses are not packed: each prompt is read twice, with its response and with another one",
        source=OF_KTO,
        fix="--zero_padding 0; at --per_device_train_batch_size 1 no row has padding",
    ),
    Rule(
        flag="reference",
        when=lambda run: _kto(run) and run.reference == PRECOMPUTED,
        found="precomputed with --loss_type kto",
        reason="what is kept on disk has no log-probabilities of responses to other prompts, which z0 needs",
        source=OF_KTO,
        fix="--reference auto",
    ),
    Rule(
        flag="reference_free",
        when=lambda run: _kto(run) and bool(run.flags.reference_free),
        found="1 with --loss_type kto",
        reason="KTO compares each response with the policy's distance from its reference",
        source="arXiv 2402.01306, equation 7",
        fix="--reference_free 0",
    ),
    Rule(
        flag="pref_loss_ratio",
        when=lambda run: _kto(run) and (run.flags.given("pref_loss_ratio") or run.flags.given("sft_loss_ratio")),
        found="this and --sft_loss_ratio do nothing with --loss_type kto",
        reason="its weights are --desirable_weight and --undesirable_weight",
        source=OF_KTO,
        action=ANNOUNCE,
    ),
    Rule(
        flag="desirable_weight",
        when=lambda run: (
            _tunes(run)
            and not _kto(run)
            and (run.flags.given("desirable_weight") or run.flags.given("undesirable_weight"))
        ),
        found="this and --undesirable_weight do nothing with --loss_type {run.flags.loss_type}",
        reason="they are for kto",
        source=OF_KTO,
        action=ANNOUNCE,
    ),
    Rule(
        flag="label_smoothing",
        when=lambda run: bool(run.flags.label_smoothing) and run.flags.loss_type not in SMOOTHED,
        found="{run.flags.label_smoothing:g} does nothing with --loss_type {run.flags.loss_type}",
        reason="it is for sigmoid and simpo",
        source=LOSSES,
        action=ANNOUNCE,
    ),
    Rule(
        flag="simpo_gamma",
        when=lambda run: run.flags.given("simpo_gamma") and _tunes(run) and run.flags.loss_type != "simpo",
        found="{run.flags.simpo_gamma:g} does nothing with --loss_type {run.flags.loss_type}",
        reason="it is for simpo",
        source=LOSSES,
        action=ANNOUNCE,
    ),
    Rule(
        flag="loss_spike",
        when=lambda run: (
            not run.run.method.token_loss and (run.flags.given("loss_spike") or run.flags.given("loss_collapse"))
        ),
        found="this and --loss_collapse do nothing here",
        reason="they are for the mean -ln p of tokens, whose usual course is known",
        source="launch/training/watches.py",
        action=ANNOUNCE,
    ),
)
