"""The three-state switches, decided for the devices of all ranks: one rank's obstacle counts for all."""

from dataclasses import dataclass, field
from types import SimpleNamespace

from launch.checkpoint.ranks import first_of_ranks, gather
from launch.devices import fused_ln, precision, switches
from launch.devices.flash_attention import case_of, mask_of, obstacle, packs, row_ends_obstacle
from launch.devices.fused_kernels import FUSED_ROPE, KERNELS, OVERLAP
from launch.devices.fused_kernels import case_of as case_of_kernels
from launch.devices.switches import Decision
from launch.errors import UserError
from launch.families.named_configs import load_config
from launch.families.parameters import attention_heads, head_size, key_value_heads
from launch.families.registry import family_of_config, parameters
from launch.training.device import compute_capability
from launch.training.kernel_checks import (
    HEAD_ROWS,
    ROWS,
    Heads,
    RMSNorm,
    attention_fault,
    flash_attention_of,
    fused_ln_rms_norm,
    kernel_missing,
    packed_shapes,
    paddle_rms_norm,
    rms_norm_fault,
    shapes,
    use_paddle_rms_norm,
)
from launch.training.kernel_trials import overlap, overlap_fault, rope_fault
from launch.training.model import compute_dtype


@dataclass(frozen=True)
class Decisions:
    flash_attention: Decision
    fused_rms_norm: Decision
    precision: str
    flash_mask: Decision
    kernels: dict[str, Decision] = field(default_factory=dict)  # by flag; of launch/devices/fused_kernels.py

    def uses(self, flag: str) -> bool:
        return flag in self.kernels and self.kernels[flag].enabled

    @property
    def lines(self) -> list[str]:
        decisions = (self.flash_attention, self.flash_mask, self.fused_rms_norm, *self.kernels.values())
        return [self.precision, *(decision.reason for decision in decisions if decision.reason)]


def decide(model_args, adapter_args, data_args, training_args) -> Decisions:
    """Called by all ranks together.

    Raises UserError on all ranks where a switch says required and a device of one of them cannot.
    """
    capability = compute_capability()
    prefix = adapter_args.num_prefix_tokens if adapter_args.prefix_tuning else 0
    flash_attention = _flash_attention(model_args, training_args, capability, mask_of(data_args), prefix)
    tried = packs(data_args) and flash_attention.enabled
    return Decisions(
        flash_attention=flash_attention,
        flash_mask=_flash_mask(model_args, training_args, capability) if tried else Decision(False, ""),
        fused_rms_norm=_fused_rms_norm(model_args, training_args, capability),
        precision=_precision(training_args, capability),
        kernels=_kernels(model_args, adapter_args, data_args, training_args, capability),
    )


def _flash_attention(model_args, training_args, capability, mask: str, prefix: int) -> Decision:
    """By the table, then by trying it. capability: (major, minor), None on a CPU."""
    switch = model_args.use_flash_attention
    config = load_config(model_args.model_name_or_path)
    level = training_args.fp16_opt_level
    dtype = precision.attention_dtype(training_args.bf16, training_args.fp16, level)
    case = case_of(config, capability, dtype, mask, level=level)
    found = first_of_ranks(obstacle(case))
    if not found and switch != "off":
        attend = flash_attention_of(family_of_config(config))
        heads = _heads(config, training_args.tensor_parallel_degree, family_of_config(config).alibi)
        tried = shapes(case.masked, prefix)
        found = first_of_ranks(kernel_missing(capability) or attention_fault(attend, heads, dtype, tried))
    return switches.flash_attention(switch, found, case.kernel)


def _flash_mask(model_args, training_args, capability) -> Decision:
    """As flash attention itself, which is on."""
    config = load_config(model_args.model_name_or_path)
    family, level = family_of_config(config), training_args.fp16_opt_level
    dtype = precision.attention_dtype(training_args.bf16, training_args.fp16, level)
    pipeline = training_args.pipeline_parallel_degree > 1
    found = first_of_ranks(row_ends_obstacle(case_of(config, capability, dtype, level=level), family, pipeline))
    if not found:
        heads = _heads(config, training_args.tensor_parallel_degree, family.alibi)
        found = first_of_ranks(attention_fault(flash_attention_of(family), heads, dtype, packed_shapes()))
    return switches.flash_mask(found)


def _fused_rms_norm(model_args, training_args, capability: tuple[int, int] | None) -> Decision:
    """fused_ln, by the record of what is built, then by trying it; where it cannot be used, Paddle's own operator."""
    switch = model_args.use_fused_rms_norm
    config = load_config(model_args.model_name_or_path)
    found = first_of_ranks(fused_ln.obstacle(fused_ln.find_build(), config["model_type"], capability))

    def tried(name: str, rms_norm: RMSNorm) -> str:
        dtypes, sizes = _norm_dtypes(model_args, training_args), [(config["hidden_size"], ROWS)]
        if any(parameter.module == "q_norm" for parameter in parameters(config)):
            sizes.append((head_size(config), HEAD_ROWS))
        faults = (rms_norm_fault(name, rms_norm, size, dtypes, rows) for size, rows in sizes)
        return first_of_ranks(next(filter(None, faults), ""))

    if not found and switch != "off":
        found = tried("the module fused_ln", fused_ln_rms_norm)
    of_paddle = None
    if found and switch in ("auto", "on") and fused_ln.paddle_has_its_own(config["model_type"], capability):
        of_paddle = tried(fused_ln.PADDLES_OWN, paddle_rms_norm)
        if not of_paddle:
            use_paddle_rms_norm()
    return switches.fused_rms_norm(switch, found, of_paddle)


def _kernels(model_args, adapter_args, data_args, training_args, capability) -> dict[str, Decision]:
    """By their tables, then by trying them; what a run uses is switched on."""
    config = load_config(model_args.model_name_or_path)
    level, degree = training_args.fp16_opt_level, training_args.tensor_parallel_degree
    sequence_parallel = training_args.sequence_parallel
    dtype = precision.attention_dtype(training_args.bf16, training_args.fp16, level)
    run = {"fp16_opt_level": level, "tensor_parallel_config": training_args.tensor_parallel_config}
    values = SimpleNamespace(**vars(adapter_args) | vars(data_args) | run)
    case = case_of_kernels(values, config, capability, degree, dtype != "float32")
    trials = {
        FUSED_ROPE: lambda: rope_fault(_heads(config, degree, False), dtype),
        OVERLAP: lambda: overlap_fault(dtype, sequence_parallel),
    }
    decisions = {}
    for kernel in KERNELS:
        if kernel.concerns(case):
            switch = getattr(model_args, kernel.flag)
            found = first_of_ranks(kernel.obstacle(case))
            if not found and switch != "off":
                found = first_of_ranks(trials[kernel]())
            decisions[kernel.flag] = kernel.decide(switch, found)
    if OVERLAP.flag in decisions and decisions[OVERLAP.flag].enabled:
        overlap(sequence_parallel)
    return decisions


def _norm_dtypes(model_args, training_args) -> tuple[str, str]:
    """(dtype of a norm's input, dtype of its weight): under O1 weights are float32, outputs of layers are not."""
    if model_args.fp32_norms_and_head:
        return "float32", "float32"
    level = training_args.fp16_opt_level
    given = precision.attention_dtype(training_args.bf16, training_args.fp16, level)
    return given, compute_dtype(training_args)


def _heads(config: dict, tensor_parallel_degree: int, alibi: bool) -> Heads:
    """Those of one rank; keys and values that are fewer than ranks are kept whole on each."""
    degree = max(tensor_parallel_degree, 1)
    query, key_value = attention_heads(config), key_value_heads(config)
    own = key_value // degree if key_value % degree == 0 else key_value
    return Heads(query // degree, own, head_size(config), alibi)


def _precision(training_args, capability: tuple[int, int] | None) -> str:
    """One line. Raises UserError where --bf16 auto came to different ends, as cards of several kinds make it."""
    bf16, fp16 = training_args.bf16, training_args.fp16
    if len(set(gather((bf16, fp16)))) > 1:
        raise UserError(
            "--bf16: found auto, and some ranks have cards with bfloat16, some without. Use --bf16 0 --fp16 1, or "
            "cards of one kind."
        )
    if training_args.precision == "auto":
        return precision.describe_choice(bf16, training_args.scale_loss, capability)
    return precision.describe(bf16, fp16, training_args.scale_loss, capability)
