"""Does a run go on where its checkpoint ended: a whole checkpoint, the same samples a step?

Upstream's Trainer writes a checkpoint's files in place, scheduler.pdparams as the last but the loss scale, and works
out the position in the data as global_step times the batch of the run that continues (paddlenlp/trainer/trainer.py,
Trainer._save_checkpoint and _inner_training_loop).
"""

import json
from pathlib import Path

from launch.models.flag_values import FlagValues
from launch.models.layout import Layout, LayoutError
from launch.preflight.report import Finding
from launch.preflight.situation import Situation

LAST_WRITTEN = "scheduler.pdparams"


def check_continuation(situation: Situation) -> list[Finding]:
    """Looks into --resume_from_checkpoint; nothing where none is asked for, or it is no checkpoint at all."""
    flags = FlagValues(situation.script, situation.flags)
    checkpoint = Path(flags.resume_from_checkpoint or "")
    state_file = checkpoint / "trainer_state.json"
    if not flags.resume_from_checkpoint or not state_file.is_file() or flags.ignore_load_lr_and_optim:
        return []
    if not (checkpoint / LAST_WRITTEN).is_file():
        found = f"{checkpoint} is half written: no {LAST_WRITTEN}, which comes last"
        fix = "an earlier checkpoint; or its weights alone: --ignore_load_lr_and_optim 1"
        return [Finding(False, "resume", found, fix)]
    return [*_check_batch(situation, flags, state_file), *_check_random_state(checkpoint, situation.processes)]


def _check_batch(situation: Situation, flags: FlagValues, state_file: Path) -> list[Finding]:
    state = json.loads(state_file.read_text(encoding="utf-8"))
    try:
        data_ranks = Layout.from_flags(situation.flags, situation.processes).data_ranks
    except LayoutError:
        return []  # the check of the layout tells it
    step, consumed = state["global_step"], state.get("consumed_samples") or 0
    samples = data_ranks * flags.per_device_train_batch_size * flags.gradient_accumulation_steps
    if not step or not consumed or consumed == step * samples:
        return [Finding(True, "resume", f"after step {step:,} and {step * samples:,} samples")]
    before = f"{consumed / step:g}"
    found = f"{samples} samples a step, the {step:,} steps before took {before} each: data would be skipped or repeated"
    return [Finding(False, "resume", found, f"micro batch and accumulation for {before} samples a step")]


def _check_random_state(checkpoint: Path, processes: int) -> list[Finding]:
    expected = "rng_state.pth" if processes == 1 else f"rng_state_{processes}.pth"
    there = sorted(path.name for path in checkpoint.glob("rng_state*.pth"))
    if expected in there:
        return []
    found = f"random numbers (dropout) begin anew: no {expected} in the checkpoint"
    return [Finding(True, "resume", found + (f", which has {', '.join(there)}" if there else ""))]
