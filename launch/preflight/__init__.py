"""All that can be checked before the first training process starts, without importing Paddle, in under a second.

    findings = run(Situation("launch/run_pretrain.py", parse_flags(argv), devices=("0", "1"), processes=2))

Each check is a small function in a file of its own that returns findings (launch.preflight.report). All are
made, so that a user sees every fault at once.
"""

from launch.preflight.report import Finding
from launch.preflight.situation import Situation

# Set by a recipe that has shown the checks, for the ranks it starts.
SHOWN = "LAUNCH_PREFLIGHT_SHOWN"


def run_on_flags(situation: Situation) -> list[Finding]:
    """The checks that look at nothing but the flags and the model's configuration: true on every machine."""
    from launch.preflight.compatibility import check_compatibility
    from launch.preflight.flags import check_flags

    findings = check_flags(situation.script, situation.flags)
    at_fault = {finding.subject for finding in findings if not finding.ok}
    # A value that cannot be read is told once: what would follow from it is not known.
    return findings + [finding for finding in check_compatibility(situation) if finding.subject not in at_fault]


def run_on_data(situation: Situation) -> list[Finding]:
    """The checks of the data to train on: form, lengths, chat template, ids, samples."""
    from launch.preflight.data.dialogues import check_sft_data
    from launch.preflight.data.fit import check_data_fit
    from launch.preflight.data.made_with import check_made_with
    from launch.preflight.data.token_files import check_data

    if situation.finetunes:
        return check_sft_data(situation)
    return [*check_data(situation.flags), *check_data_fit(situation), *check_made_with(situation)]


def run(situation: Situation) -> list[Finding]:
    """All checks, in the order in which they are shown."""
    # Imported here: the doctor prints with launch.preflight.report where nothing is installed, not even NumPy.
    from launch.preflight.machine.installed import check_installed

    installed = check_installed()
    if not all(finding.ok for finding in installed):
        return installed  # the other checks need these packages, too

    from launch.preflight.continuation import check_continuation
    from launch.preflight.machine.cards import check_cards
    from launch.preflight.machine.disk import check_disk
    from launch.preflight.machine.gates import check_gates
    from launch.preflight.machine.memory import check_memory
    from launch.preflight.machine.output import check_output
    from launch.preflight.machine.port import check_meeting_point
    from launch.preflight.model.directory import check_model
    from launch.preflight.model.tokenizer import check_tokenizer
    from launch.preflight.model.weights import check_weights

    flags = situation.flags
    on_flags = run_on_flags(situation)
    return [
        *installed,
        *(check_cards(situation.devices, situation.gpu_memory_gb) if situation.devices else []),
        *on_flags,
        *check_gates(situation),
        *check_model(flags),
        *check_weights(situation),
        *check_tokenizer(situation),
        *run_on_data(situation),
        *(check_memory(situation) if all(finding.ok for finding in on_flags) else []),
        *check_output(situation),
        *check_disk(situation),
        *check_continuation(situation),
        *check_meeting_point(situation.nodes),
    ]
