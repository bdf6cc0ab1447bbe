"""All that can be checked before the first training process starts, without importing Paddle, in under a
second.

    findings = run("launch/run_pretrain.py", ["--input_dir", "./data", ...], devices=("0", "1"))

Each check is a small function in a file of its own that returns findings (launch.preflight.report). All are
made, so that a user sees every fault at once.
"""

from launch.errors import UserError
from launch.preflight.report import Finding


def run(
    script: str,
    argv: list[str],
    *,
    devices: tuple[str, ...] = (),
    gpu_memory_gb: int = 0,
    master: str | None = None,
) -> list[Finding]:
    """Check a run of a shared module with these flags.

    devices: numbers of the cards it shall use, empty for a CPU; gpu_memory_gb: memory it needs on each, 0
    where unknown; master: "host:port" where ranks of several machines meet.
    """
    from launch.preflight.cards import check_cards
    from launch.preflight.data import check_data
    from launch.preflight.flags import check_flags
    from launch.preflight.installed import check_installed
    from launch.preflight.model import check_model, check_resume
    from launch.preflight.output import check_output
    from launch.preflight.port import check_port
    from launch.processes.flags import parse_flags

    try:
        flags = parse_flags(argv)
    except UserError as error:
        return [Finding(False, "flags", str(error), "see --help")]
    return [
        *check_installed(),
        *(check_cards(devices, gpu_memory_gb) if devices else []),
        *check_flags(script, flags),
        *check_model(flags),
        *check_data(flags),
        *check_output(flags),
        *check_resume(flags),
        *(check_port(master) if master else []),
    ]
