"""What a run says before its first step: the layout, the decisions, and what the data and steps amount to."""

from launch.reporting.summary import topology


def announce(lines: list[str], decisions, trainer) -> None:
    """Print the start of a run on rank 0."""
    if trainer.args.process_index != 0:
        return
    lines = [*lines, describe_layout(trainer), *decisions.lines]
    if trainer.args.do_train:
        lines.append(describe_steps(trainer))
    if trainer.throughput.note:
        lines.append(trainer.throughput.note)
    print("\n".join(lines), flush=True)


def describe_layout(trainer) -> str:
    args = trainer.args
    shape = trainer.throughput.shape
    layout = topology(args)
    sharding = "+".join(option.value for option in args.sharding)
    parts = [
        f"{name} {degree}"
        for name, degree in [
            ("data parallel", layout["data_parallel_degree"]),
            (f"sharding {sharding}", layout["sharding_parallel_degree"]),
            (f"tensor{' and sequence' if args.sequence_parallel else ''} parallel", layout["tensor_parallel_degree"]),
            ("pipeline parallel", layout["pipeline_parallel_degree"]),
        ]
        if degree > 1
    ]
    processes = "1 process" if layout["processes"] == 1 else f"{layout['processes']} processes ({', '.join(parts)})"
    dtype = str(trainer.model.config.dtype)
    return f"model: {trainer.model.config.model_type}, {shape.parameters:,} parameters, {dtype}, {processes}"


def describe_steps(trainer) -> str:
    """What a step is, steps an epoch, epochs of this run; a warning where the data repeats unasked."""
    args, stream = trainer.args, trainer.stream
    epochs = stream.end / stream.samples
    line = (
        f"steps: {args.max_steps:,} of {trainer.step_text}, {stream.samples / args.global_batch:,.1f} steps an epoch,"
        f" {epochs:.2f} epochs"
    )
    if hasattr(trainer.train_dataset, "samples_used"):
        line += f"\n{describe_blend(trainer.train_dataset)}"
    if epochs > max(trainer.epochs_asked, 1):
        line += f"\nwarning: --max_steps {args.max_steps} reads each sample {epochs:.1f} times"
    return line


def describe_blend(blend) -> str:
    """How much of each corpus an epoch of a blend uses; the next goes on with the rest."""
    parts = [f"{used:,} of {len(corpus):,}" for used, corpus in zip(blend.samples_used, blend.datasets, strict=True)]
    return f"blend: an epoch uses {', '.join(parts)} samples of its corpora"
