"""As many samples a step on another number of processes: what GPUS=4 does to a recipe made for 8."""

from launch.config.flag_values import Flags
from launch.config.layout import Layout, LayoutError
from launch.errors import UserError

ACCUMULATION = "gradient_accumulation_steps"


def keep_global_batch(flags: Flags, stated: Layout, processes: int, variable: str = "GPUS") -> tuple[Flags, str]:
    """The flags for so many processes, with as many samples a step as on the stated layout, and a line that says so.

    variable: what the user has set to have so many, for messages.

    Accumulation changes, the micro batch does not. Raises UserError where the processes cannot be divided as the flags
    ask, or the micro batches of a step not be dealt to them; it names the numbers that can.
    """
    steps = _steps(flags)
    micro_batches = stated.data_ranks * steps
    data_ranks = _data_ranks(flags, processes)
    if not data_ranks or micro_batches % data_ranks:
        raise UserError(_refusal(flags, stated, processes, variable))
    changed = micro_batches // data_ranks
    accumulation = f"--{ACCUMULATION} {changed} instead of {steps}" if changed != steps else f"--{ACCUMULATION} {steps}"
    note = f"{variable}: {processes} instead of {stated.processes}, {accumulation}: as many samples a step"
    return flags | {ACCUMULATION: [str(changed)]}, note


def _steps(flags: Flags) -> int:
    [word] = (flags.get(ACCUMULATION) or ["1"])[:1]
    if not word.isdecimal() or int(word) == 0:
        raise UserError(f"--{ACCUMULATION}: found {word!r}, expected a whole number above 0.")
    return int(word)


def _data_ranks(flags: Flags, processes: int) -> int:
    """0 where the processes cannot be divided as the flags ask."""
    try:
        return Layout.from_flags(flags, processes).data_ranks
    except LayoutError:
        return 0


def _refusal(flags: Flags, stated: Layout, processes: int, variable: str) -> str:
    steps = _steps(flags)
    micro_batches = stated.data_ranks * steps
    model_ranks = stated.tensor_parallel_degree * stated.pipeline_parallel_degree
    counts = range(1, micro_batches * model_ranks + 1)
    ranks = {count: _data_ranks(flags, count) for count in counts}
    possible = [str(count) for count in counts if ranks[count] and micro_batches % ranks[count] == 0]
    return (
        f"{variable}: found {processes}, but the {micro_batches} micro batches of a step "
        f"({stated.data_ranks} data ranks x --{ACCUMULATION} {steps}) cannot be dealt to {processes} {_unit(variable)}"
        f"{_parts(model_ranks)}. Possible: {', '.join(possible)}; or another batch: "
        f'ARGS="--{ACCUMULATION} N".'
    )


def _unit(variable: str) -> str:
    return "cards" if "GPUS" in variable else "processes"


def _parts(model_ranks: int) -> str:
    return f", {model_ranks} for each copy of the model" if model_ranks > 1 else ""
