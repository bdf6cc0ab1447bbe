"""CPU offload, `--sharding "stage2 offload"`: with what it cannot be combined."""

from launch.preflight.rules.rule import Request, Rule

OFFLOAD = "launch/offload"


def offloads(run: Request) -> bool:
    return run.has_word("sharding", "offload")


RULES = (
    Rule(
        flag="sharding",
        when=lambda run: offloads(run) and run.stage not in ("stage2", "stage3"),
        found="{run.flags.sharding}",
        reason="offload is of stage2 and stage3",
        source=OFFLOAD,
        fix='--sharding "stage2 offload"; --offload_optim 1 keeps the states of stage1\'s optimizer in host memory',
    ),
    Rule(
        flag="sharding",
        when=lambda run: (
            offloads(run) and run.stage in ("stage2", "stage3") and run.layout.sharding_parallel_degree == 1
        ),
        found="{run.flags.sharding} on {run.layout}",
        reason="the sharding degree is 1, where upstream switches sharding off and offload with it",
        source="paddlenlp/trainer/training_args.py, TrainingArguments.__post_init__: sharding is emptied",
        fix="two processes or more; on one card --offload_optim 1",
    ),
    Rule(
        flag="offload_optim",
        when=lambda run: offloads(run) and bool(run.flags.offload_optim),
        found="1 with --sharding {run.flags.sharding}",
        reason="it would bring all of the optimizer's states to the card at once, in each step",
        source="paddlenlp/trainer/trainer.py, Trainer._offload_optimizer",
        fix="--offload_optim 0: offload keeps them in host memory",
    ),
    Rule(
        flag="amp_master_grad",
        when=lambda run: offloads(run) and bool(run.flags.amp_master_grad) and bool(run.flags.fp16 or run.flags.bf16),
        found="1 with --sharding {run.flags.sharding}",
        reason="gradients that are summed in float32 are kept beside the parameters, where offload does not look",
        source=f"{OFFLOAD}; upstream asserts it for stage2",
        fix="--amp_master_grad 0, or no offload",
    ),
    Rule(
        flag="sharding_parallel_config",
        when=lambda run: offloads(run) and run.has_word("sharding_parallel_config", "enable_stage2_overlap"),
        found="enable_stage2_overlap with --sharding {run.flags.sharding}",
        reason="a gradient would leave for the host before its sum over the ranks is there",
        source="paddle/distributed/fleet/meta_parallel/sharding/group_sharded_stage2.py, _get_reduce_fn",
        fix="leave enable_stage2_overlap out, or no offload",
    ),
    Rule(
        flag="optim",
        when=lambda run: offloads(run) and run.flags.optim not in (None, "adamw"),
        found="{run.flags.optim} with --sharding {run.flags.sharding}",
        reason="its update is not made parameter by parameter",
        source=f"{OFFLOAD}/streamed_optimizer.py",
        fix="--optim adamw, or no offload",
    ),
)
