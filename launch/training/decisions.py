"""The three-state switches, decided for the devices of all ranks: one rank's obstacle counts for all."""

from dataclasses import dataclass

from launch.devices import fused_ln, gates, precision
from launch.devices.flash_attention import case_of, obstacle
from launch.devices.gates import Decision
from launch.errors import UserError
from launch.models.named_configs import load_config
from launch.models.parameters import attention_heads, head_size, key_value_heads
from launch.training.checks import rms_norm_check
from launch.training.checks.attention_check import Heads, as_paddlenlp_calls_it, disagreement
from launch.training.device import compute_capability
from launch.training.ranks import gather


@dataclass(frozen=True)
class Decisions:
    flash_attention: Decision
    fused_rms_norm: Decision
    precision: str

    @property
    def lines(self) -> list[str]:
        return [self.precision, self.flash_attention.reason, self.fused_rms_norm.reason]


def decide(model_args, training_args, mask: str = "causal") -> Decisions:
    """Called by all ranks together. mask: "dense" where samples are padded, "flashmask" where they are packed.

    Raises UserError on all ranks where a switch says required and a device of one of them cannot.
    """
    capability = compute_capability()
    return Decisions(
        flash_attention=_flash_attention(model_args, training_args, capability, mask),
        fused_rms_norm=_fused_rms_norm(model_args, capability),
        precision=_precision(training_args, capability),
    )


def _flash_attention(model_args, training_args, capability: tuple[int, int] | None, mask: str) -> Decision:
    """By the table, then by trying it."""
    switch = model_args.use_flash_attention
    config = load_config(model_args.model_name_or_path)
    dtype = precision.attention_dtype(training_args.bf16, training_args.fp16, training_args.fp16_opt_level)
    found = first_of_ranks(obstacle(case_of(config, capability, dtype, mask)))
    if not found and switch != "off":
        heads = _heads(config, training_args.tensor_parallel_degree)
        found = first_of_ranks(disagreement(as_paddlenlp_calls_it(config["model_type"]), heads, dtype, mask))
    return gates.flash_attention(switch, found)


def _fused_rms_norm(model_args, capability: tuple[int, int] | None) -> Decision:
    """By the record of what is built, then by trying it."""
    switch = model_args.use_fused_rms_norm
    model_type = load_config(model_args.model_name_or_path)["model_type"]
    found = first_of_ranks(fused_ln.obstacle(fused_ln.find_build(), model_type, capability))
    if not found and switch != "off":
        found = first_of_ranks(rms_norm_check.disagreement())
    return gates.fused_rms_norm(switch, found)


def first_of_ranks(found: str) -> str:
    """What the first rank found that found something, "" where none did: the same on all ranks."""
    of_ranks = gather(found)
    for rank, one in enumerate(of_ranks):
        if one:
            return one if set(of_ranks) == {one} else f"on rank {rank}: {one}"
    return ""


def _heads(config: dict, tensor_parallel_degree: int) -> Heads:
    """Those of one rank; keys and values that are fewer than ranks are kept whole on each."""
    degree = max(tensor_parallel_degree, 1)
    query, key_value = attention_heads(config), key_value_heads(config)
    return Heads(query // degree, key_value // degree if key_value % degree == 0 else key_value, head_size(config))


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
