"""The checkpoint from which a run continues: is it whole, and do model, data and samples a step agree with the run?

--overwrite_output_dir keeps files of an earlier run under other names; it excludes the auto and PATH of
--resume_from_checkpoint. Contents are verified when the run starts.
"""

from pathlib import Path
from shlex import quote

from data_tools.formats.errors import DataError
from data_tools.formats.plural import plural
from launch.checkpoint.continuation import AUTO, NONE, Continuation
from launch.checkpoint.manifest import Manifest, checkpoint_step, checkpoints, is_foreign, stray_weights
from launch.checkpoint.model_identity import differences, model_identity, run_config
from launch.checkpoint.output_directory import in_the_way
from launch.config.flag_values import FlagValues
from launch.config.layout import LayoutError
from launch.config.run_config import RunConfig
from launch.errors import UserError
from launch.preflight.report import Finding
from launch.reporting.records import RUN_SUMMARY, TRAIN_LOG, arguments_of, read_summary, read_train_log

OWN_STATE = {"adamw_8bit", "adafactor"}  # optimizers whose tensors no other has


def check_continuation(run: RunConfig, continuation: Continuation) -> list[Finding]:
    """Check where a run starts or goes on.

    [] where it does not train, or starts in a directory without an earlier run.
    """
    flags = run.flags
    output, requested = Path(flags.output_dir or "."), flags.resume_from_checkpoint or NONE
    if not flags.do_train:
        return []
    if blocked := in_the_way(output):
        kinds = {"a link": Path.is_symlink, "a directory": Path.is_dir, "a file": Path.is_file}
        kind = next((kind for kind, fits in kinds.items() if fits(blocked[0])), "a special file")
        found = f"{blocked[0]} is {kind}, in the place of what the run writes"
        return [Finding(False, "output", found, "move it elsewhere")]
    if (model := Path(flags.model_name_or_path or "")).is_dir() and output.is_dir() and output.samefile(model):
        found = f"{output} holds the model that is trained, which its result would replace"
        return [Finding(False, "output", found, "OUTPUT=FOLDER names another")]
    if flags.overwrite_output_dir:
        return _starts_anew(run, output, requested)
    if requested == AUTO:
        return _newest(run, continuation, output)
    if requested == NONE:
        fix = "OUTPUT=FOLDER names another; --resume_from_checkpoint auto continues it; --overwrite_output_dir 1"
        used = (output / TRAIN_LOG).exists() or checkpoints(output)
        return [_earlier_run(output, f"{fix} starts anew and keeps it under another name")] if used else []
    return _named(run, continuation, output)


def already_done(run: RunConfig, continuation: Continuation) -> str:
    """Return a line where the output directory holds the finished run, which the command would go back from.

    It would go back to an older checkpoint. Return "" where it has steps to make, its result is not there, or the
    newest checkpoint is of the last step.
    """
    flags, start = run.flags, None if continuation.named else continuation.checkpoint
    try:
        summary = read_summary(flags.output_dir or ".") if start else {}
        arguments = arguments_of(summary)
        done = int(summary["global_step"])
        # A run that began anew has cut the log, and left the summary of the one before.
        logged = max((record["global_step"] for record in read_train_log(flags.output_dir or ".")), default=0)
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return ""  # it has not ended, or the file is none of ours
    if flags.max_steps > 0:
        ends = done >= flags.max_steps
    else:
        ends = all(arguments.get(name) == getattr(flags, name) for name in ("max_steps", "num_train_epochs"))
    result = [path for kind in ("*.safetensors", "*.pdparams") for path in Path(flags.output_dir or ".").glob(kind)]
    if start is None or not ends or logged != done or checkpoint_step(start) >= done or not result:
        return ""
    return (
        f"{flags.output_dir}: already done at step {done:,}. --max_steps N or --num_train_epochs N makes more steps, "
        "OUTPUT=FOLDER another run, --overwrite_output_dir 1 the same one anew."
    )


def checkpoints_so_far(run: RunConfig, continuation: Continuation) -> list[Path]:
    """Return the checkpoints of the run that this command continues, newest first; [] for a new run."""
    flags, start = run.flags, continuation.checkpoint
    found = checkpoints(flags.output_dir or "")
    if flags.ignore_load_lr_and_optim or start is None or start.resolve() not in [path.resolve() for path in found]:
        return []  # a run that starts at step 0 moves them into another folder
    return [path for path in found if checkpoint_step(path) <= checkpoint_step(start)]


def _starts_anew(run: RunConfig, output: Path, requested: str) -> list[Finding]:
    if "resume_from_checkpoint" in run.explicit and requested != NONE:
        found = f"{requested} beside --overwrite_output_dir 1: one continues a run, the other starts at step 0"
        return [Finding(False, "resume", found, "leave one of them out")]
    there = checkpoints(output)
    if not there:
        return []
    return [Finding(True, "resume", f"starts at step 0; {len(there)} checkpoints are moved to {output / 'earlier'}")]


def _newest(run: RunConfig, continuation: Continuation, output: Path) -> list[Finding]:
    findings = []
    for checkpoint, fault in continuation.passed_over:
        found = f"{checkpoint} is PaddleNLP's own and is not continued"
        if fault:
            found = f"{fault}: it is kept as damaged, the checkpoint before it is taken"
        findings.append(Finding(True, "resume", found, warns=True))
    if continuation.checkpoint:
        return [*findings, *_fits(run, continuation)]
    if (output / RUN_SUMMARY).exists() and (output / TRAIN_LOG).exists():
        fix = "OUTPUT=FOLDER names another; --overwrite_output_dir 1 starts anew and keeps its log under another name"
        findings.append(_earlier_run(output, fix))
    return findings


def _named(run: RunConfig, continuation: Continuation, output: Path) -> list[Finding]:
    checkpoint, there = continuation.checkpoint, checkpoints(output)
    assert checkpoint
    fix = f"leave it out: {output} has no checkpoint"
    if there:
        fix = f"--resume_from_checkpoint {quote(str(there[0]))}, or auto"
    if is_foreign(checkpoint):
        found = f"{checkpoint} is PaddleNLP's own: its optimizer and position are not continued"
        fix = f"start from its weights: --model_name_or_path {quote(str(checkpoint))}"
        return [Finding(False, "resume", found, fix)]
    if fault := continuation.fault:
        return [Finding(False, "resume", f"{checkpoint} is no checkpoint to continue from: {fault}", fix)]
    return _fits(run, continuation)


def _fits(run: RunConfig, continuation: Continuation) -> list[Finding]:
    flags, checkpoint, manifest = run.flags, continuation.checkpoint, continuation.manifest
    assert checkpoint and manifest
    if stray := stray_weights(checkpoint, manifest):
        return [Finding(False, "resume", stray, "move it elsewhere")]
    return [
        *_check_batch(run, flags, manifest, checkpoint),
        *_check_model(flags, manifest),
        *_check_optimizer(flags, manifest),
        *_check_data(flags, manifest),
        *_check_random_state(manifest, run.processes),
    ]


def _check_data(flags: FlagValues, manifest: Manifest) -> list[Finding]:
    """Return a fault where the following samples differ from the checkpoint's.

    For dialogues only the order is compared: their tokens are counted when the run starts.
    """
    from launch.checkpoint import data_ledger  # here: a plan runs without NumPy

    before = manifest.data
    accepted = flags.ignore_load_lr_and_optim or "data" in flags.words("resume_changed")
    if "order_seed" not in before or accepted:
        return []
    changed = list(data_ledger.differences({"seed": before["order_seed"]}, {"seed": flags.seed}))
    if flags.input_dir:
        from data_tools.formats.tokens.blend import training_identities  # here: a plan runs without NumPy

        try:
            now = training_identities(flags.input_dir, flags.split or "", flags.max_seq_length or 0, flags.seed)
        except DataError:
            return []  # reported by the check of the data
        parts = before.get("parts", [before])
        if len(parts) != len(now):
            changed.append(f"{plural(len(now), 'corpus', 'corpora')}, was {len(parts)}")
        for old, new in zip(parts, now, strict=False):
            lines = data_ledger.differences({key: old.get(key) for key in new}, new)
            changed += [line for line in lines if "shuffle" not in line]
    if not changed:
        return []
    found = f"not those of the run so far: {', '.join(changed)}; they would be read from their beginning"
    fix = "the former data and --seed; --resume_changed data goes on with these; OUTPUT=FOLDER makes another run"
    return [Finding(False, "data", found, fix)]


def _check_batch(run: RunConfig, flags: FlagValues, manifest: Manifest, checkpoint: Path) -> list[Finding]:
    try:
        samples = run.global_batch
    except LayoutError:
        return []  # reported by the check of the layout
    step, consumed = manifest.global_step, manifest.consumed_samples
    before = manifest.data.get("global_batch", samples)
    if samples == before:
        return [Finding(True, "resume", f"{checkpoint}, after step {step:,} and {consumed:,} samples")]
    found = f"{samples} samples a step, the {step:,} steps before took {before} each"
    if "batch" in flags.words("resume_changed"):
        return [Finding(True, "resume", f"{checkpoint}, after step {step:,}; from here on {found}")]
    fix = f"micro batch and accumulation for {before} a step; --resume_changed batch, if a step may be another one now"
    return [Finding(False, "resume", found, fix)]


def _check_model(flags: FlagValues, manifest: Manifest) -> list[Finding]:
    """Compare config.json with the configuration of the run so far."""
    before = manifest.model.get("config", {})
    try:
        stated = model_identity(run_config(flags))["config"]
    except UserError:
        return []  # reported by the check of the model
    both = before.keys() & stated.keys()
    was, now = (
        {"config": {key: config[key] for key in both}, "adapter": {}, "base": None} for config in (before, stated)
    )
    found = differences(was, now)
    if not found:
        return []
    accepted = flags.ignore_load_lr_and_optim or "model" in flags.words("resume_changed")
    if accepted:
        return [Finding(True, "resume", f"from here on another model: {', '.join(found)}")]
    fix = "give the former model; --resume_changed model, if it may be another one now"
    return [Finding(False, "resume", f"not the model of the run so far: {', '.join(found)}", fix)]


def _check_optimizer(flags: FlagValues, manifest: Manifest) -> list[Finding]:
    before = manifest.arguments.get("optim", flags.optim)
    if flags.ignore_load_lr_and_optim or before == flags.optim or not {before, flags.optim} & OWN_STATE:
        return []
    found = f"--optim is {flags.optim}, and the checkpoint has the state of {before}, which it cannot continue"
    return [Finding(False, "resume", found, f"--optim {before}; or --ignore_load_lr_and_optim 1, from step 0")]


def _check_random_state(manifest: Manifest, processes: int) -> list[Finding]:
    before = manifest.topology["processes"]
    if before == processes:
        return []
    found = f"random numbers (dropout) begin anew: {plural(before, 'process')} saved theirs, now there are {processes}"
    return [Finding(True, "resume", found, warns=True)]


def _earlier_run(output: Path, fix: str) -> Finding:
    return Finding(False, "output", f"{output} holds an earlier run ({TRAIN_LOG})", fix)
