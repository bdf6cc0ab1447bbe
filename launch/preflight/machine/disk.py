"""Is there room on the disk for the checkpoints to come?"""

import shutil
from pathlib import Path

from launch.errors import UserError
from launch.models.arithmetic import ModelShape
from launch.models.flag_values import FlagValues
from launch.models.named_configs import load_config
from launch.plan.job import checkpoints_at_once
from launch.plan.memory.states import MASTER, MOMENTS
from launch.preflight.report import Finding
from launch.preflight.situation import Situation

GB = 1e9


def check_disk(situation: Situation) -> list[Finding]:
    """The model and all checkpoints that will be there at once, against the free space.

    Nothing for adapters, which are small, and for what another check tells: no model, no output directory.
    """
    values = FlagValues(situation.script, situation.flags)
    if not values.do_train or not values.output_dir or values.lora or values.prefix_tuning:
        return []
    try:
        parameters = ModelShape.from_config(load_config(values.model_name_or_path or "")).parameters
    except UserError:
        return []
    half = values.fp16_opt_level == "O2" and (values.fp16 or values.bf16 or values.precision not in (None, "fp32"))
    model, checkpoint = parameters * (2 if half else 4), parameters * bytes_each(values, half)
    kept = checkpoints_at_once(values)
    needed = model + kept * checkpoint
    free = free_bytes(values.output_dir)
    parts = f"{kept} x {checkpoint / GB:,.1f} GB of checkpoints + {model / GB:,.1f} GB model"
    found = f"{needed / GB:,.1f} GB needed ({parts}), {free / GB:,.0f} GB free at {values.output_dir}"
    if needed <= free:
        return [Finding(True, "disk", found)]
    each = f"a checkpoint is {parameters / GB:,.2f} billion parameters x {bytes_each(values, half)} bytes"
    return [Finding(False, "disk", f"{found}; {each} ({_parts(values, half)})", _fix(kept))]


def bytes_each(values: FlagValues, half: bool) -> int:
    """Of a parameter in a checkpoint. half: weights in half precision."""
    state = 0 if values.ignore_save_lr_and_optim else MOMENTS + (MASTER if half else 0)
    return (2 if half else 4) + state


def _parts(values: FlagValues, half: bool) -> str:
    if values.ignore_save_lr_and_optim:
        return "weights alone"
    return "2 weight + 4 float32 copy + 8 AdamW" if half else "4 weight + 8 AdamW"


def _fix(kept: int) -> str:
    fewer = "--save_total_limit 1 keeps one beside the one being written; " if kept > 2 else ""
    return f"OUTPUT=FOLDER on a larger disk; {fewer}--ignore_save_lr_and_optim 1 saves what cannot be resumed"


def free_bytes(directory: str) -> int:
    """On the disk of a directory that need not be there yet."""
    wanted = Path(directory).expanduser()
    return shutil.disk_usage(next(path for path in [wanted, *wanted.absolute().parents] if path.exists())).free
