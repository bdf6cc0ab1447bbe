"""All that can be checked before the first training process starts, without importing Paddle, in under a second.

    findings = run(RunConfig("launch/run_pretrain.py", parse_flags(argv), devices=("0", "1"), processes=2))

Each check is a small function that returns findings (launch.preflight.report). All are made, so that a user sees every
fault at once. What a check needs is imported when it is made: the doctor prints with launch.preflight.report where
nothing is installed, not even NumPy.
"""

import importlib.util
import sys

from launch.checkpoint.continuation import Continuation
from launch.config.run_config import RunConfig
from launch.preflight.report import Finding

# Import names of what training needs and of what the checks themselves use.
PACKAGES = ("paddle", "paddlenlp", "numpy", "psutil", "tool_helpers", "sentencepiece", "safetensors")


def check_installed() -> list[Finding]:
    """Check that the needed packages are installed in this Python. They are not imported."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        return [Finding(False, "python", f"{sys.executable} has no {', '.join(missing)}", "make setup")]
    return [Finding(True, "python", sys.executable)]


def run_on_flags(config: RunConfig) -> list[Finding]:
    """Return the checks of flags and of the model's configuration, whose result does not depend on the machine."""
    from launch.preflight.flag_check import check_flags
    from launch.preflight.rules import check_compatibility

    findings = check_flags(config.script, config.explicit)
    at_fault = {finding.subject for finding in findings if not finding.ok}
    # A value that cannot be read is reported once: its consequences are unknown.
    return findings + [finding for finding in check_compatibility(config) if finding.subject not in at_fault]


def is_legal(config: RunConfig) -> bool:
    """Return whether `run_on_flags` finds no fault."""
    return all(finding.ok for finding in run_on_flags(config))


def run_on_data(config: RunConfig, shows: bool = True) -> list[Finding]:
    """Return the checks of the training data: format, lengths, chat template, ids, samples."""
    from launch.preflight.dialogues import check_rows
    from launch.preflight.token_files import check_data, check_data_fit, check_made_with

    if config.method.reads_rows:
        return check_rows(config, shows)
    return [*check_data(config.explicit), *check_data_fit(config), *check_made_with(config)]


def run(
    config: RunConfig, starts: bool = True, shows: bool = True, continuation: Continuation | None = None
) -> list[Finding]:
    """Return all checks, in the order in which they are shown.

    Args:
        config: Of the run.
        starts: Whether the run starts in its output directory now; False in its own ranks and on further nodes.
        shows: Whether findings without a fault are shown. If not, facts that take time to find are left out.
        continuation: Of the run, where it is known already.
    """
    installed = check_installed()
    if not all(finding.ok for finding in installed):
        return installed  # the other checks need these packages, too

    from launch.preflight.gpus import check_cards, check_gates
    from launch.preflight.host import check_disk, check_meeting_point, check_output
    from launch.preflight.memory import check_memory
    from launch.preflight.model_files import check_model, check_tokenizer, check_weights
    from launch.preflight.resume import check_continuation

    continuation = continuation or Continuation.of(config.flags)
    on_flags = run_on_flags(config)
    return [
        *installed,
        *(check_cards(config.devices, config.gpu_memory_gb) if config.devices else []),
        *on_flags,
        *check_gates(config),
        *check_model(config.explicit),
        *check_weights(config),
        *check_tokenizer(config),
        *run_on_data(config, shows),
        *(check_memory(config) if all(finding.ok for finding in on_flags) else []),
        *check_output(config, starts),
        *check_disk(config, continuation),
        *check_continuation(config, continuation),
        *check_meeting_point(config.nodes),
    ]
