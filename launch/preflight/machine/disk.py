"""Is there room on the disk for the checkpoints to come?"""

import shutil
from pathlib import Path

from launch.checkpoint.state.manifest import checkpoint_step
from launch.checkpoint.state.verify import left_by_a_kill
from launch.config.flag_values import FlagValues
from launch.config.run_config import RunConfig
from launch.errors import UserError
from launch.families.arithmetic import ModelShape
from launch.families.named_configs import load_config
from launch.plan.job import checkpoints_at_once
from launch.plan.states import MASTER, MOMENTS
from launch.preflight.continuation import checkpoints_so_far
from launch.preflight.report import Finding

GB = 1e9


def check_disk(run: RunConfig) -> list[Finding]:
    """The model and all checkpoints that will be there at once, against the free space; of a run that goes on those to
    come, and what a kill left of a save is free space.

    Nothing for adapters, which are small, and for what another check tells: no model, no output directory.
    """
    values = run.flags
    if not values.do_train or not values.output_dir or values.lora or values.prefix_tuning:
        return []
    try:
        parameters = ModelShape.from_config(load_config(values.model_name_or_path or "")).parameters
    except UserError:
        return []
    half = values.fp16_opt_level == "O2" and (values.fp16 or values.bf16 or values.precision not in (None, "fp32"))
    model, checkpoint = parameters * (2 if half else 4), parameters * bytes_each(values, half)
    kept, so_far = checkpoints_at_once(values), checkpoints_so_far(run)
    if so_far:
        kept = _to_come(values, kept, so_far)
    needed = model + kept * checkpoint
    free = free_bytes(values.output_dir) + sum(map(_size, left_by_a_kill(Path(values.output_dir).expanduser())))
    there = f"; {len(so_far)} more are there" if so_far else ""
    parts = f"{kept} x {checkpoint / GB:,.1f} GB of checkpoints + {model / GB:,.1f} GB model{there}"
    found = f"{needed / GB:,.1f} GB needed ({parts}), {free / GB:,.0f} GB free at {values.output_dir}"
    if needed <= free:
        return [Finding(True, "disk", found)]
    each = f"a checkpoint is {parameters / GB:,.2f} billion parameters x {bytes_each(values, half)} bytes"
    return [Finding(False, "disk", f"{found}; {each} ({_parts(values, half)})", _fix(values, kept, bool(so_far)))]


def _to_come(values: FlagValues, kept: int, so_far: list[Path]) -> int:
    """How many checkpoints more than now will be there at once. kept: of the whole run. so_far: newest first."""
    left = kept
    if values.save_strategy not in ("no", "epoch") and values.max_steps > 0:
        each = max(1, values.save_steps)
        left = max(0, values.max_steps // each - checkpoint_step(so_far[0]) // each)
    limited = values.save_total_limit and values.save_total_limit > 0
    return min(left, max(1, kept - len(so_far))) if limited else left


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() and not path.is_symlink() else [path]
    return sum(file.lstat().st_size for file in files)


def bytes_each(values: FlagValues, half: bool) -> int:
    """Of a parameter in a checkpoint. half: weights in half precision."""
    state = 0 if values.ignore_save_lr_and_optim else MOMENTS + (MASTER if half else 0)
    return (2 if half else 4) + state


def _parts(values: FlagValues, half: bool) -> str:
    if values.ignore_save_lr_and_optim:
        return "weights alone"
    return "2 weight + 4 float32 copy + 8 AdamW" if half else "4 weight + 8 AdamW"


def _fix(values: FlagValues, kept: int, goes_on: bool) -> str:
    if goes_on:
        place = values.output_dir
        fewer = "; --save_total_limit 1 removes older ones as new ones are whole" if kept > 1 else ""
        return f"free space on the disk of {place}, or move {place} to a larger one and name it there by OUTPUT={fewer}"
    fewer = "--save_total_limit 1 keeps one beside the one being written; " if kept > 2 else ""
    return f"OUTPUT=FOLDER on a larger disk; {fewer}--ignore_save_lr_and_optim 1 saves what cannot be resumed"


def free_bytes(directory: str) -> int:
    """On the disk of a directory that need not be there yet."""
    wanted = Path(directory).expanduser()
    return shutil.disk_usage(next(path for path in [wanted, *wanted.absolute().parents] if path.exists())).free
