"""All that can be checked before the first training process starts, without importing Paddle, in under a second.

    findings = run(RunConfig("launch/run_pretrain.py", parse_flags(argv), devices=("0", "1"), processes=2))

Each check is a small function in a file of its own that returns findings (launch.preflight.report). All are
made, so that a user sees every fault at once.
"""

from launch.config.run_config import RunConfig
from launch.preflight.report import Finding


def run_on_flags(config: RunConfig) -> list[Finding]:
    """The checks that look at nothing but the flags and the model's configuration: true on every machine."""
    from launch.preflight.compatibility import check_compatibility
    from launch.preflight.flags import check_flags

    findings = check_flags(config.script, config.words)
    at_fault = {finding.subject for finding in findings if not finding.ok}
    # A value that cannot be read is told once: what would follow from it is not known.
    return findings + [finding for finding in check_compatibility(config) if finding.subject not in at_fault]


def run_on_data(config: RunConfig, shows: bool = True) -> list[Finding]:
    """The checks of the data to train on: form, lengths, chat template, ids, samples."""
    from launch.preflight.data.dialogues import check_sft_data
    from launch.preflight.data.made_with import check_made_with
    from launch.preflight.data.token_files import check_data, check_data_fit

    if config.finetunes:
        return check_sft_data(config, shows)
    return [*check_data(config.words), *check_data_fit(config), *check_made_with(config)]


def run(config: RunConfig, starts: bool = True, shows: bool = True) -> list[Finding]:
    """All checks, in the order in which they are shown.

    starts: whether the run is to start in its output directory now; False in its own ranks, and on further nodes.
    shows: whether findings without a fault are shown; where not, what costs time to find is left out.
    """
    # Imported here: the doctor prints with launch.preflight.report where nothing is installed, not even NumPy.
    from launch.preflight.machine.installed import check_installed

    installed = check_installed()
    if not all(finding.ok for finding in installed):
        return installed  # the other checks need these packages, too

    from launch.preflight.continuation import check_continuation
    from launch.preflight.machine.disk import check_disk
    from launch.preflight.machine.gates import check_gates
    from launch.preflight.machine.gpus import check_cards
    from launch.preflight.machine.memory import check_memory
    from launch.preflight.machine.output import check_output
    from launch.preflight.machine.port import check_meeting_point
    from launch.preflight.model_files import check_model, check_tokenizer, check_weights

    on_flags = run_on_flags(config)
    return [
        *installed,
        *(check_cards(config.devices, config.gpu_memory_gb) if config.devices else []),
        *on_flags,
        *check_gates(config),
        *check_model(config.words),
        *check_weights(config),
        *check_tokenizer(config),
        *run_on_data(config, shows),
        *(check_memory(config) if all(finding.ok for finding in on_flags) else []),
        *check_output(config, starts),
        *check_disk(config),
        *check_continuation(config),
        *check_meeting_point(config.nodes),
    ]
