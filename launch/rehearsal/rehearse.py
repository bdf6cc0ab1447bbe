"""Run a recipe on this machine's CPU: the same flags, as many processes, a tiny model of the same family.

A table says what changes, and why. What is not in it stays as the recipe has it, above all the layout: sharding,
parallel degrees, recompute, schedule. A flag is changed only where the recipe requests more than the
table's value.
"""

import hashlib
import importlib
import json
import math
import os
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from data_tools.formats.atomic import written_aside
from data_tools.formats.plural import plural
from data_tools.language import localized
from launch.checkpoint.output_directory import lock_start
from launch.config.flag_values import Flags, flag_arguments
from launch.config.layout import ACCUMULATION, EVALUATION_BATCH, MICRO_BATCH
from launch.cpu.settings import prepare
from launch.families.named_configs import find_config, load_config
from launch.families.parameters import HEADS, KEY_VALUE_HEADS, key_value_heads
from launch.families.registry import family_of_config
from launch.methods.method import Method
from launch.methods.registry import METHODS, method_of
from launch.processes.command import COMMAND, LaunchCommand
from launch.processes.fork import run_ranks
from launch.processes.logs import print_failure
from launch.reporting.quiet import import_paddle_quietly
from launch.upstream import correct

DIRECTORY = Path(__file__).resolve().parents[2] / "build" / "rehearsal"

STEPS = 20
SEQUENCE = 128
SAMPLES = 4  # of a micro batch
MICRO_BATCHES = 2  # of a step; in a pipeline: for each stage

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
SWITCHES = ("use_flash_attention", "use_fused_rms_norm", "use_fused_rope", "tensor_parallel_overlap")
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
    """One flag of the recipe that a rehearsal changes.

    Attributes:
        before: None where the recipe does not state it.
    """

    flag: str
    before: str | None
    after: str
    reason: str


def scale_down(method: Method, flags: Flags, materials: Path, output: Path) -> tuple[Flags, list[Change]]:
    """Return the flags of the rehearsal, and the changes.

    Args:
        method: Of the recipe.
        flags: Of the recipe.
        materials: The model and data used in place of the recipe's (launch/rehearsal/materials.py).
        output: Where the rehearsal writes.
    """
    model, own = str(materials / "model"), method.rehearsal_data(flags, materials)
    changes = [
        _always(flags, "device", "cpu", "no card is used"),
        # A card has stock layers, not those of launch/cpu.
        *([] if "cpu_fast" in flags else [_always(flags, "cpu_fast", "off", "stock layers, as a card has them")]),
        _always(flags, "model_name_or_path", model, "a tiny model of the same family"),
        _always(flags, "tokenizer_name_or_path", model, "its tokenizer"),
        *(_always(flags, flag, *change) for flag, change in own.items()),
        *_samples(flags),
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
        if flag not in own and (stated := _stated(flags, flag)) is not None and int(stated) > limit
    ]
    if "num_train_epochs" in flags and "max_steps" not in flags:
        changes.append(_always(flags, "max_steps", str(STEPS), "instead of epochs"))
    return flags | {change.flag: [change.after] for change in changes}, changes


def _samples(flags: Flags) -> list[Change]:
    """Return the changes to fewer samples a step.

    In a pipeline the accumulated micro batches are the work that runs side by side, and evaluation takes as many.
    """
    stages = int(_stated(flags, "pipeline_parallel_degree") or 1)
    size, steps = (int(_stated(flags, name) or 1) for name in (MICRO_BATCH, ACCUMULATION))
    small, few = min(size, SAMPLES), min(steps, stages * MICRO_BATCHES)
    changes = [
        _always(flags, name, str(limited), "a minute or so")
        for name, stated, limited in ((MICRO_BATCH, size, small), (ACCUMULATION, steps, few))
        if limited < stated
    ]
    if changes and stages > 1:
        changes.append(_always(flags, EVALUATION_BATCH, str(small * few), "as micro batch x accumulation"))
    return changes


def _always(flags: Flags, flag: str, value: str, reason: str) -> Change:
    return Change(flag, _stated(flags, flag), value, reason)


def _stated(flags: Flags, flag: str) -> str | None:
    """Return the value of a flag, None where it is not given; `--fp16` alone means 1."""
    return " ".join(flags[flag]) or "1" if flag in flags else None


def describe(changes: list[Change]) -> str:
    """Return one line a change: the flag, the recipe's value and the rehearsal's, the reason."""
    return "\n".join(
        f"  --{change.flag} {_short(change.before)}{' -> ' if change.before else ''}{_short(change.after)}"
        f"  ({change.reason})"
        for change in changes
    )


def _short(value: str | None) -> str:
    """Return the value with paths relative to the current folder."""
    if value and Path(value).is_absolute() and Path(value).is_relative_to(Path.cwd()):
        return str(Path(value).relative_to(Path.cwd()))
    return value or ""


def rehearse(target: str, command: LaunchCommand, real: str, directory: Path | None = None) -> int:
    """Rehearse a recipe's command; the exit code. Must be called before Paddle is imported.

    real: the command of the real run, for the last line. directory: for output/ and log/; default:
    build/rehearsal/<target>
    """
    directory = directory or DIRECTORY / target
    lock_start(directory)
    family = family_of_config(load_config(command.flags["model_name_or_path"][0]))
    ranks = int(_stated(command.flags, "tensor_parallel_degree") or 1)
    configuration = tiny_configuration(family.rehearsal_config, ranks)
    materials_directory = find_materials(configuration)
    method = method_of(*command.method or [str(command.script)])
    flags, changes = scale_down(method, command.flags, materials_directory, directory / "output")
    os.environ[COMMAND] = f"make rehearse-{target}"  # what ranks print where they are stopped
    processes = plural(command.processes, "process")
    print(localized(f"rehearsing {target}: {processes} on the CPU, all as in the recipe except"))
    print(describe(changes))
    print(import_paddle(command.flags, command.processes), flush=True)

    from launch.rehearsal.materials import make_materials  # imports NumPy: not before the settings are made

    make_materials(materials_directory, configuration)
    train = partial(train_rank, method.name, flag_arguments(flags), command.processes)
    log_dir = directory / "log"
    outcome = run_ranks(command.processes, train, log_dir, tee=True)
    if outcome.failed_rank is not None:
        print_failure(outcome.failed_rank, outcome.exit_code, log_dir, shown=outcome.failed_rank == 0)
    if outcome.exit_code == 0:
        print(localized(f"rehearsed. Logs of all ranks: {os.path.relpath(log_dir)}; the real run: {real}"))
    return outcome.exit_code


def tiny_configuration(name: str, ranks: int) -> str:
    """Return the configuration of this name, or the file of one whose heads can be dealt to the tensor parallel ranks.

    The file has a multiple of the key/value heads, each smaller. The published models have more heads than the tiny.
    """
    config = load_config(name)
    times = ranks // math.gcd(ranks, key_value_heads(config))
    if times == 1:
        return name
    changed = {key: times * config[key] for key in (*HEADS, *KEY_VALUE_HEADS) if config.get(key)}
    file = DIRECTORY / "configs" / f"{name}-{ranks}-ranks.json"
    with written_aside(file) as aside:
        aside.write(json.dumps(config | changed, indent=2).encode())
    return str(file)


def find_materials(configuration: str) -> Path:
    """Return the folder of a configuration's materials, which is another once their sources have changed."""
    made_from = [find_config(configuration), Path(__file__).with_name("materials.py")]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in made_from)).hexdigest()
    return DIRECTORY / "materials" / f"{Path(configuration).stem}-{digest[:8]}"


def import_paddle(flags: Flags, processes: int) -> str:
    """Import what every rank needs, once, after the settings that count only before; the line about them.

    With Paddle's GPU build this process must see no card: its import looks for devices through CUDA, and what is forked
    afterwards, to make the tiny model and to train it, could not use CUDA ("initialization error").
    """
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    line = prepare(flags.get("cpu_fast", ["auto"])[0], processes)
    import_paddle_quietly()
    correct()  # before the modules that use what is corrected
    for method in METHODS:
        method.load_training()
    return line


def train_rank(script: str, argv: list[str], processes: int, rank: int) -> None:
    """Train on a rank, as the launcher would start it."""
    from launch.guard import guarded

    train_method = importlib.import_module("launch.train").train_method  # a command, which no room imports
    exit_code = guarded(partial(train_method, script), argv)
    if exit_code:
        sys.exit(exit_code)
    import paddle.distributed as dist

    if processes > 1 and not dist.is_initialized() or dist.get_world_size() != processes:
        raise RuntimeError(f"expected {processes} ranks that train together, found {dist.get_world_size()}")
