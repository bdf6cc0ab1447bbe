"""May the run use what its flags ask for: bfloat16, flash attention, fused RMSNorm? Asked before ranks start."""

from launch.config.flag_values import FlagValues
from launch.config.run_config import RunConfig
from launch.devices import fused_ln, kernel_choices, precision
from launch.devices.cards import Card, list_cards
from launch.devices.flash_attention import case_of, mask_of, obstacle
from launch.devices.precision import attention_dtype
from launch.errors import UserError
from launch.families.named_configs import load_config
from launch.preflight.report import Finding


def check_gates(run: RunConfig) -> list[Finding]:
    """Nothing where it is not known which cards will be used: started by hand, each rank asks its own."""
    flags = run.flags
    if str(flags.device).startswith("cpu"):
        capabilities = [None]
    else:
        capabilities = sorted({card.compute_capability for card in _chosen(run.devices)})
    if not capabilities:
        return []
    try:
        asked = precision.stated(flags.precision, flags.bf16 or "off", bool(flags.fp16))
        bf16, fp16 = precision.resolve(*asked, capabilities[0])
        line = precision.describe(bf16, fp16, flags.scale_loss, capabilities[0])
        if flags.precision == "auto":
            line = precision.describe_choice(bf16, flags.scale_loss, capabilities[0])
        findings = [Finding(True, "precision", line.removeprefix("precision: "))]
    except UserError:
        found = f"found {flags.precision or flags.bf16}, but {precision.bf16_obstacle(capabilities[0])}"
        flag, fix = "--bf16", precision.instead_of_bf16(capabilities[0])
        if flags.precision:
            flag, fix = "--precision", "--precision auto"
        findings = [Finding(False, flag, found, fix)]
        bf16, fp16 = True, False
    dtype = attention_dtype(bf16, fp16, flags.fp16_opt_level)
    return [
        *findings,
        *_check_flash_attention(flags, capabilities, dtype),
        *_check_fused_rms_norm(flags, capabilities),
    ]


def _check_flash_attention(flags: FlagValues, capabilities: list, dtype: str) -> list[Finding]:
    """For every kind of card that is used; the start-up check of the run itself may still refuse it."""
    try:
        config = load_config(flags.model_name_or_path or "")
        mask, level = mask_of(flags), flags.fp16_opt_level
        cases = [case_of(config, capability, dtype, mask, level=level) for capability in capabilities]
    except UserError:
        return []  # the check of the model tells it
    reason = next(filter(None, map(obstacle, cases)), "")
    switch = flags.use_flash_attention or "off"
    if switch == "required" and reason:
        fix = "--use_flash_attention auto for exact attention"
        return [Finding(False, "--use_flash_attention", f"found required, not possible here: {reason}", fix)]
    return [Finding(True, "attention", kernel_choices.flash_attention(switch, reason, cases[0].kernel).reason)]


def _check_fused_rms_norm(flags: FlagValues, capabilities: list) -> list[Finding]:
    """By the record of what is built, for every kind of card; whether it loads is tried at the start of training."""
    try:
        model_type = load_config(flags.model_name_or_path or "")["model_type"]
    except UserError:
        return []  # the check of the model tells it
    build = fused_ln.find_build()
    reason = next(filter(None, (fused_ln.obstacle(build, model_type, one) for one in capabilities)), "")
    switch = flags.use_fused_rms_norm or "off"
    if switch == "required" and reason:
        fix = f"{fused_ln.BUILD}; or --use_fused_rms_norm auto for the framework's own RMSNorm"
        return [Finding(False, "--use_fused_rms_norm", f"found required, not possible here: {reason}", fix)]
    if reason and switch != "off" and all(fused_ln.paddle_has_its_own(model_type, one) for one in capabilities):
        found = f"fused RMSNorm: {fused_ln.PADDLES_OWN}, if the start finds it right ({reason})"
        return [Finding(True, "RMSNorm", found)]
    return [Finding(True, "RMSNorm", kernel_choices.fused_rms_norm(switch, reason).reason)]


def _chosen(devices: tuple[str, ...]) -> list[Card]:
    cards = list_cards() if devices else []
    return [card for card in cards if str(card.index) in devices or card.uuid in devices]
