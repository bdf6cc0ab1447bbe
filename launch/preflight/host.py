"""This machine beside its cards: a writable output directory, room for checkpoints, a free meeting point."""

import errno
import shutil
import socket
import tempfile
from pathlib import Path

from launch.checkpoint.continuation import Continuation
from launch.checkpoint.manifest import checkpoint_step
from launch.checkpoint.output_directory import active_run, left_by_a_kill
from launch.config.flag_values import FlagValues
from launch.config.run_config import Nodes, RunConfig
from launch.errors import UserError
from launch.families.arithmetic import ModelShape
from launch.families.named_configs import load_config
from launch.nodes.network import own_addresses, resolve, split_address
from launch.plan.job import checkpoints_at_once, moment_item
from launch.plan.states import MASTER
from launch.preflight.report import Finding
from launch.preflight.resume import checkpoints_so_far

GB = 1e9


def check_disk(run: RunConfig, continuation: Continuation) -> list[Finding]:
    """Compare the final model and all checkpoints that exist at once with the free space.

    A run that continues needs space for further checkpoints alone; what a killed save left counts as free. No finding
    for adapters, which are small, and where another check reports the fault: no model, no output directory.
    """
    values = run.flags
    if not values.do_train or not values.output_dir or values.lora or values.prefix_tuning:
        return []
    try:
        parameters = ModelShape.from_config(load_config(values.model_name_or_path or "")).parameters
    except UserError:
        return []
    in_half = values.fp16 or bool(values.bf16) or values.precision not in (None, "fp32")
    half = values.fp16_opt_level == "O2" and in_half and not run.on_cpu
    model, checkpoint = parameters * (2 if half else 4), parameters * bytes_each(values, half)
    kept, so_far = checkpoints_at_once(values), checkpoints_so_far(run, continuation)
    if so_far:
        kept = _to_come(values, kept, so_far)
    needed = model + kept * checkpoint
    free = free_bytes(values.output_dir) + sum(map(_size, left_by_a_kill(Path(values.output_dir).expanduser())))
    there = f"; {len(so_far)} more are there" if so_far else ""
    digits = 1 if model > GB / 10 else 4  # 0.0 GB would say nothing of a tiny model
    parts = f"{kept} x {checkpoint / GB:,.{digits}f} GB of checkpoints + {model / GB:,.{digits}f} GB model{there}"
    rest = 0 if free > GB else digits
    found = f"{needed / GB:,.{digits}f} GB needed ({parts}), {free / GB:,.{rest}f} GB free at {values.output_dir}"
    if needed <= free:
        return [Finding(True, "disk", found)]
    each = f"a checkpoint is {parameters / GB:,.2f} billion parameters x {bytes_each(values, half)} bytes"
    return [Finding(False, "disk", f"{found}; {each} ({_parts(values, half)})", _fix(values, kept, bool(so_far)))]


def _to_come(values: FlagValues, kept: int, so_far: list[Path]) -> int:
    """Return how many more checkpoints than now will exist at once. kept: in the whole run. so_far: newest first."""
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
    """Return the bytes of one parameter in a checkpoint. half: weights in half precision."""
    state = 0 if values.ignore_save_lr_and_optim else 2 * moment_item(values) + (MASTER if _copied(values, half) else 0)
    return (2 if half else 4) + state


def _copied(values: FlagValues, half: bool) -> bool:
    """Return whether weights in half precision have a float32 copy."""
    return half and moment_item(values) > 1


def _parts(values: FlagValues, half: bool) -> str:
    if values.ignore_save_lr_and_optim:
        return "weights alone"
    moments = f"{2 * moment_item(values)} AdamW" if moment_item(values) else "moments of rows and columns"
    copy = " + 4 float32 copy" if _copied(values, half) else ""
    return f"{2 if half else 4} weight{copy} + {moments}"


def _fix(values: FlagValues, kept: int, goes_on: bool) -> str:
    if goes_on:
        place = values.output_dir
        fewer = "; --save_total_limit 1 removes older ones as new ones are whole" if kept > 1 else ""
        return f"free space on the disk of {place}, or move {place} to a larger one and name it there by OUTPUT={fewer}"
    fewer = "--save_total_limit 1 keeps one beside the one being written; " if kept > 2 else ""
    return f"OUTPUT=FOLDER on a larger disk; {fewer}--ignore_save_lr_and_optim 1 saves what cannot be resumed"


def free_bytes(directory: str) -> int:
    """Free bytes on the disk of a directory, which need not exist yet."""
    wanted = Path(directory).expanduser()
    return shutil.disk_usage(next(path for path in [wanted, *wanted.absolute().parents] if path.exists())).free


def check_output(run: RunConfig, starts: bool = True) -> list[Finding]:
    """Check that the output directory can be written and no other run is in it.

    starts: whether the run starts there now.
    """
    flags = run.explicit
    if not flags.get("output_dir"):
        return [Finding(False, "output", "no --output_dir", "--output_dir FOLDER, or OUTPUT=FOLDER")]
    output = Path(flags["output_dir"][0]).expanduser()
    nearest = next(path for path in [output, *output.absolute().parents] if path.exists())
    try:
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        found = f"{output} cannot be written: {nearest}: {error.strerror}"
        return [Finding(False, "output", found, "OUTPUT=FOLDER or --output_dir names another")]
    user = active_run(output) if starts and output.is_dir() else None
    if user:
        fix = "end that run, or OUTPUT=FOLDER (--output_dir) names another; nothing of it was touched"
        return [Finding(False, "output", f"{output} is in use by another run ({user})", fix)]
    free = shutil.disk_usage(nearest).free / 1e9
    return [Finding(True, "output", f"{output}, {free:,.0f} GB free")]


def check_meeting_point(nodes: Nodes) -> list[Finding]:
    """Return which node this is; on node 0, that the meeting point is a free port of this machine. [] on one node."""
    if nodes.count == 1:
        return []
    assert nodes.master is not None  # several nodes have one
    try:
        host, port = split_address(nodes.master)
        address = resolve(host)
    except UserError as error:
        return [Finding(False, "nodes", str(error), "MASTER=HOST:PORT of the node with RANK=0")]
    fault = _port_fault(host, (address, port)) if nodes.rank == 0 else None
    return [fault or Finding(True, "nodes", nodes.describe())]


def _port_fault(host: str, address: tuple[str, int]) -> Finding | None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port just left is free
        try:
            probe.bind(address)
        except PermissionError as error:
            return Finding(False, "nodes", f"port {address[1]} on {host}: {error.strerror}", "a port above 1023")
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                found = f"{host} is not an address of this machine, which has {', '.join(own_addresses()) or 'none'}"
                return Finding(False, "nodes", found, "MASTER= names the node with RANK=0, or RANK= is another")
            found = f"port {address[1]} on {host} is used by another process"
            with socket.socket() as other:
                other.bind((address[0], 0))  # the kernel names a free one
                free = other.getsockname()[1]
            return Finding(False, "nodes", found, f"another port: MASTER={host}:{free}, on all nodes")
    return None
