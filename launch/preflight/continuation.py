"""Which checkpoint does a run continue from, and does it go on where that one ended: whole, the same samples a step?

    --resume_from_checkpoint auto    the newest whole one in --output_dir, if there is one
                             none    none: the run starts at step 0
                             PATH    that one
    --overwrite_output_dir 1         the run starts at step 0; what an earlier one left is kept under other names

The first two and the last two exclude each other where both are stated. Contents are verified when the run starts.
"""

from pathlib import Path

from data_tools.formats.plural import plural
from launch.checkpoint.state.manifest import Manifest, checkpoints, read_manifest
from launch.checkpoint.state.verify import first_fault, is_foreign
from launch.models.flag_values import FlagValues
from launch.models.layout import Layout, LayoutError
from launch.preflight.report import Finding
from launch.preflight.situation import Situation
from launch.reporting.records import RUN_SUMMARY, TRAIN_LOG

AUTO, NONE = "auto", "none"


def check_continuation(situation: Situation) -> list[Finding]:
    """Nothing where a run starts in a directory without an earlier one, or does not train."""
    flags = FlagValues(situation.script, situation.flags)
    output, wanted = Path(flags.output_dir or "."), flags.resume_from_checkpoint or NONE
    if not flags.do_train:
        return []
    if flags.overwrite_output_dir:
        return _starts_anew(situation, output, wanted)
    if wanted == AUTO:
        return _newest(situation, flags, output)
    if wanted == NONE:
        fix = "OUTPUT=FOLDER names another; --resume_from_checkpoint auto continues it; --overwrite_output_dir 1"
        return [_earlier_run(output, f"{fix} starts anew and keeps it under another name")] if _used(output) else []
    return _named(situation, flags, Path(wanted), output)


def goes_on_from(situation: Situation) -> Path | None:
    """The checkpoint from which the same command would continue; None where it would start anew."""
    flags = FlagValues(situation.script, situation.flags)
    if not flags.do_train or flags.overwrite_output_dir or flags.resume_from_checkpoint != AUTO:
        return None
    return next((one for one in checkpoints(flags.output_dir) if first_fault(one, hashes=False) is None), None)


def _starts_anew(situation: Situation, output: Path, wanted: str) -> list[Finding]:
    if "resume_from_checkpoint" in situation.flags and wanted != NONE:
        found = f"{wanted} beside --overwrite_output_dir 1: one continues a run, the other starts at step 0"
        return [Finding(False, "resume", found, "leave one of them out")]
    there = checkpoints(output)
    if not there:
        return []
    return [Finding(True, "resume", f"starts at step 0; {len(there)} checkpoints are moved to {output / 'earlier'}")]


def _newest(situation: Situation, flags: FlagValues, output: Path) -> list[Finding]:
    findings = []
    for checkpoint in checkpoints(output):
        if is_foreign(checkpoint):
            findings.append(Finding(True, "resume", f"{checkpoint} is PaddleNLP's own and is not continued"))
            continue
        fault = first_fault(checkpoint, hashes=False)
        if fault is None:
            return [*findings, *_fits(situation, flags, checkpoint)]
        findings.append(Finding(True, "resume", f"{fault}: it is kept as damaged, the checkpoint before it is taken"))
    if (output / RUN_SUMMARY).exists() and (output / TRAIN_LOG).exists():
        fix = "OUTPUT=FOLDER names another; --overwrite_output_dir 1 starts anew and keeps its log under another name"
        findings.append(_earlier_run(output, fix))
    return findings


def _named(situation: Situation, flags: FlagValues, checkpoint: Path, output: Path) -> list[Finding]:
    there = checkpoints(output)
    fix = f"--resume_from_checkpoint {there[0]}, or auto" if there else f"leave it out: {output} has no checkpoint"
    if is_foreign(checkpoint):
        found = f"{checkpoint} is PaddleNLP's own: its optimizer and position are not continued"
        return [Finding(False, "resume", found, f"start from its weights: --model_name_or_path {checkpoint}")]
    fault = first_fault(checkpoint, hashes=False)
    if fault:
        return [Finding(False, "resume", f"{checkpoint} is no checkpoint to continue from: {fault}", fix)]
    return _fits(situation, flags, checkpoint)


def _fits(situation: Situation, flags: FlagValues, checkpoint: Path) -> list[Finding]:
    manifest = read_manifest(checkpoint)
    return [*_check_batch(situation, flags, manifest, checkpoint), *_check_random_state(manifest, situation.processes)]


def _check_batch(situation: Situation, flags: FlagValues, manifest: Manifest, checkpoint: Path) -> list[Finding]:
    try:
        data_ranks = Layout.from_flags(situation.flags, situation.processes).data_ranks
    except LayoutError:
        return []  # the check of the layout tells it
    step, consumed = manifest.global_step, manifest.consumed_samples
    samples = data_ranks * flags.per_device_train_batch_size * flags.gradient_accumulation_steps
    before = manifest.data.get("global_batch", samples)
    if samples == before:
        return [Finding(True, "resume", f"{checkpoint}, after step {step:,} and {consumed:,} samples")]
    found = f"{samples} samples a step, the {step:,} steps before took {before} each"
    if "batch" in flags.words("resume_changed"):
        return [Finding(True, "resume", f"{checkpoint}, after step {step:,}; from here on {found}")]
    fix = f"micro batch and accumulation for {before} a step; --resume_changed batch, if a step may be another one now"
    return [Finding(False, "resume", found, fix)]


def _check_random_state(manifest: Manifest, processes: int) -> list[Finding]:
    before = manifest.topology["processes"]
    if before == processes:
        return []
    found = f"random numbers (dropout) begin anew: {plural(before, 'process')} saved theirs, now there are {processes}"
    return [Finding(True, "resume", found)]


def _used(output: Path) -> bool:
    return (output / TRAIN_LOG).exists() or bool(checkpoints(output))


def _earlier_run(output: Path, fix: str) -> Finding:
    return Finding(False, "output", f"{output} holds an earlier run ({TRAIN_LOG})", fix)
