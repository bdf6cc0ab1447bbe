"""From a recipe's flags to those of its rehearsal: a table of what changes, and why.

What is not in the table stays as the recipe has it, above all the layout: sharding, parallel degrees, micro
batch, recompute, schedule. A flag is changed only where the recipe requests more than the table's value.
"""

from dataclasses import dataclass
from pathlib import Path

from launch.config.flag_values import Flags

STEPS = 20
SEQUENCE = 128
ACCUMULATION = 4

# flag -> (value in a rehearsal, why). Applied where the recipe states the flag with another value.
REPLACED = {
    "fp16_opt_level": ("O1", "fp32, but for fp16's loss scale: the CPU has no kernels in half precision"),
    "bf16": ("0", "fp32: the CPU has no kernels in half precision"),
    "precision": ("auto", "fp32: the CPU has no kernels in half precision"),
    "dataloader_num_workers": ("0", "the ranks share the cores of one machine"),
    "loss_first": ("auto", "the tiny model has learnt nothing yet"),
    "prompt_column": ("src", "as the made-up dialogues have it"),
    "response_column": ("tgt", "as the made-up dialogues have it"),
}
# Switches that a rehearsal leaves to the device where the recipe requires them.
SWITCHES = ("use_flash_attention", "use_fused_rms_norm")
# flag -> (largest value in a rehearsal, why). Applied where the recipe states a larger value.
LIMITED = {
    "max_seq_length": (SEQUENCE, "short samples"),
    "max_length": (SEQUENCE, "short samples"),
    "src_length": (SEQUENCE // 2, "short samples"),
    "max_steps": (STEPS, "a minute or so"),
    "decay_steps": (STEPS, "as max_steps"),
    "warmup_steps": (STEPS // 10, "as max_steps"),
    "save_steps": (STEPS // 2, "a checkpoint on the way"),
    "eval_steps": (STEPS // 2, "an evaluation on the way"),
    "logging_steps": (1, "every step is seen"),
}


@dataclass(frozen=True)
class Change:
    """One flag of the recipe that a rehearsal changes. before: None where the recipe does not state it."""

    flag: str
    before: str | None
    after: str
    reason: str


def scale_down(flags: Flags, materials: Path, output: Path) -> tuple[Flags, list[Change]]:
    """The flags of the rehearsal, and what was changed.

    materials: what stands in for the recipe's own model and data (launch/rehearsal/materials.py); output: where the
    rehearsal writes.
    """
    model = str(materials / "model")
    changes = [
        _always(flags, "device", "cpu", "no card is used"),
        *_layers(flags),
        _always(flags, "model_name_or_path", model, "a tiny model of the same family"),
        _always(flags, "tokenizer_name_or_path", model, "its tokenizer"),
        *_data(flags, materials),
        *_accumulation(flags),
        _always(flags, "output_dir", str(output), "apart from the real run's"),
        _always(flags, "overwrite_output_dir", "1", "a rehearsal may be repeated"),
    ]
    changes += [
        _always(flags, flag, value, reason)
        for flag, (value, reason) in REPLACED.items()
        if flag in flags and _stated(flags, flag) != value
    ]
    changes += [
        _always(flags, flag, "auto", "as far as this machine has it")
        for flag in SWITCHES
        if _stated(flags, flag) == "required"
    ]
    changes += [
        _always(flags, flag, str(limit), reason)
        for flag, (limit, reason) in LIMITED.items()
        if flag in flags and int(_stated(flags, flag)) > limit
    ]
    if "num_train_epochs" in flags and "max_steps" not in flags:
        changes.append(_always(flags, "max_steps", str(STEPS), "instead of epochs"))
    return flags | {change.flag: [change.after] for change in changes}, changes


def _layers(flags: Flags) -> list[Change]:
    """A card runs stock layers, not those of launch/cpu, so a rehearsal does the same unless the switch is given."""
    return [] if "cpu_fast" in flags else [_always(flags, "cpu_fast", "off", "stock layers, as a card has them")]


def _data(flags: Flags, materials: Path) -> list[Change]:
    if "dataset_name_or_path" in flags:
        dialogues = "chats" if "chat_template" in flags else "pairs"
        return [_always(flags, "dataset_name_or_path", str(materials / dialogues), "made-up dialogues")]
    return [
        _always(flags, "input_dir", str(materials / "data"), "made-up text"),
        _always(flags, "max_eval_samples", "32", "a short evaluation"),
    ]


def _accumulation(flags: Flags) -> list[Change]:
    """In a pipeline the accumulated micro batches are what runs side by side: there they stay as they are."""
    stated = int(_stated(flags, "gradient_accumulation_steps") or 1)
    if stated <= ACCUMULATION or int(_stated(flags, "pipeline_parallel_degree") or 1) > 1:
        return []
    return [_always(flags, "gradient_accumulation_steps", str(ACCUMULATION), "a minute or so")]


def _always(flags: Flags, flag: str, value: str, reason: str) -> Change:
    return Change(flag, _stated(flags, flag), value, reason)


def _stated(flags: Flags, flag: str) -> str | None:
    """The value a flag has, None where it is not stated; `--fp16` alone means 1."""
    return " ".join(flags[flag]) or "1" if flag in flags else None


def describe(changes: list[Change]) -> str:
    """One line a change: the flag, the recipe's value and the rehearsal's, the reason."""
    return "\n".join(
        f"  --{change.flag} {_short(change.before)}{' -> ' if change.before else ''}{_short(change.after)}"
        f"  ({change.reason})"
        for change in changes
    )


def _short(value: str | None) -> str:
    """Paths relative to the current folder."""
    if value and Path(value).is_absolute() and Path(value).is_relative_to(Path.cwd()):
        return str(Path(value).relative_to(Path.cwd()))
    return value or ""
