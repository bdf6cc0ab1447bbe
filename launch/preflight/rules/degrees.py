"""Layouts and CPU offload: degrees and stages that exclude each other or do nothing, and what is not supported."""

from launch.preflight.rules.rule import ANNOUNCE, Request, Rule

ARGUMENTS = "paddlenlp/trainer/training_args.py, TrainingArguments.__post_init__"
WRAP_MODEL = "paddlenlp/trainer/trainer.py, Trainer._wrap_model"
OFFLOAD = "launch/offload"
AUTOMATIC = "for upstream's automatic parallelism only, which this repository does not use"
NOT_HERE = "not supported in this repository"
WHOLE_EXPERTS = "each rank of a data group has all experts, and no tokens go between ranks"

RULES = (
    Rule(
        flag="sharding",
        when=lambda run: run.pipeline > 1 and run.stage in ("stage2", "stage3"),
        found="{run.stage} with --pipeline_parallel_degree {run.pipeline}",
        reason="pipeline parallel goes with stage1 only, upstream raises ValueError",
        source=ARGUMENTS,
        fix="--sharding stage1",
    ),
    Rule(
        flag="sharding",
        when=lambda run: run.tensor > 1 and run.stage == "stage3",
        found="stage3 with --tensor_parallel_degree {run.tensor}",
        reason="tensor parallel goes with stage1 and stage2, upstream asserts it",
        source=WRAP_MODEL,
        fix="--sharding stage2, or --tensor_parallel_degree 1",
    ),
    Rule(
        flag="sharding",
        when=lambda run: run.stage == "stage3" and run.refuses("stage3"),
        found="stage3 with GLM",
        reason="its logits read the embedding outside of the layer that stage 3 puts it together for",
        source="paddlenlp/transformers/glm/modeling.py, parallel_matmul; measured on 2 ranks: Tensor holds no memory",
        fix="--sharding stage2",
    ),
    Rule(
        flag="sharding",
        when=lambda run: sum(word != "offload" for word in run.flags.words("sharding")) > 1,
        found="{run.flags.sharding}",
        reason="one stage at a time",
        source=ARGUMENTS,
        fix="--sharding stage1, stage2 or stage3",
    ),
    Rule(
        flag="sharding",
        when=lambda run: bool(run.stage) and run.layout.sharding_parallel_degree == 1,
        found="{run.stage} does nothing on {run.layout}",
        reason="the sharding degree is 1, so every rank keeps all optimizer states of its part",
        source=f"{ARGUMENTS}: sharding is emptied",
        action=ANNOUNCE,
    ),
    Rule(
        flag="sharding_parallel_degree",
        when=lambda run: not run.stage and run.layout.sharding_parallel_degree > 1,
        found="{run.layout.sharding_parallel_degree} without --sharding",
        reason="the ranks of a sharding group would train apart",
        source=f"{ARGUMENTS} warns only; measured on 2 ranks: losses 1.5e-2 off",
        fix="--sharding stage1, or leave --sharding_parallel_degree out",
    ),
    Rule(
        flag="sequence_parallel",
        when=lambda run: bool(run.flags.sequence_parallel) and run.tensor == 1,
        found="1 without tensor parallel",
        reason="it divides the sequence over the ranks of tensor parallel",
        source="paddlenlp/transformers/llama/modeling.py, LlamaModel.forward; measured on 2 ranks: ValueError",
        fix="--tensor_parallel_degree 2 or more, or --sequence_parallel 0",
    ),
    Rule(
        flag="max_seq_length",
        when=lambda run: bool(run.flags.sequence_parallel) and (run.flags.max_seq_length or 0) % run.tensor != 0,
        found="{run.flags.max_seq_length} with --sequence_parallel over {run.tensor} ranks",
        reason="the sequence is cut into equal parts",
        source="paddle/distributed/fleet/utils/sequence_parallel_utils.py, scatter",
        fix="a multiple of {run.tensor}",
    ),
    Rule(
        flag="pipeline_parallel_config",
        when=lambda run: run.has_word(
            "pipeline_parallel_config", "best_unbalanced_scheduler", "use_dualpipev", "enable_overlap_p2p_comm"
        ),
        found="{run.flags.pipeline_parallel_config}",
        reason="best_unbalanced_scheduler, use_dualpipev and enable_overlap_p2p_comm belong to the interleaved "
        "pipeline, which is not supported here",
        source="paddle/distributed/fleet/model.py, distributed_model",
        fix="leave these words out",
    ),
    Rule(
        flag="optim",
        when=lambda run: run.flags.optim == "adamw_mini" and run.tensor > 1,
        found="adamw_mini with --tensor_parallel_degree {run.tensor}",
        reason="it does not know sliced parameters, upstream raises ValueError",
        source=ARGUMENTS,
        fix="--optim adamw",
    ),
)


def offloads(run: Request) -> bool:
    """Return whether --sharding has offload."""
    return run.has_word("sharding", "offload")


# `--sharding "stage2 offload"`
OFFLOAD_RULES = (
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
        when=lambda run: offloads(run) and bool(run.flags.amp_master_grad) and run.in_16_bits,
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
        when=lambda run: offloads(run) and run.flags.optim not in (None, "adamw", "adamw_16bit_moment"),
        found="{run.flags.optim} with --sharding {run.flags.sharding}",
        reason="its update is not made parameter by parameter",
        source=f"{OFFLOAD}/streamed_optimizer.py",
        fix="--optim adamw, or no offload",
    ),
)

# `--offload activations`
ACTIVATION_RULES = (
    Rule(
        flag="offload",
        when=lambda run: (
            bool(run.flags.offload) and not (bool(run.flags.recompute) and run.flags.recompute_granularity == "full")
        ),
        found="{run.flags.offload} without --recompute 1 --recompute_granularity full",
        reason="it keeps the inputs of layers that are computed again; other activations stay on the card",
        source=f"{OFFLOAD}/activations.py",
        fix="--recompute 1 --recompute_granularity full",
    ),
)

# Flags that upstream's arguments have and that nothing here acts on are refused instead of ignored:
# flag -> (values that ask for nothing, why another is refused)
UNSUPPORTED = {
    "context_parallel_degree": ((-1, 0, 1), NOT_HERE),
    "expert_parallel_degree": ((-1, 0, 1), WHOLE_EXPERTS),
    "expert_tensor_parallel_degree": ((-1, 0, 1), NOT_HERE),
    "use_expert_parallel": ((False,), WHOLE_EXPERTS),
    "enable_auto_parallel": ((False,), AUTOMATIC),
    "to_static": ((False,), AUTOMATIC),
    "data_parallel_config": (("",), AUTOMATIC),
    "sequence_parallel_config": (("",), AUTOMATIC),
    "auto_parallel_resume_form_hybrid_parallel": ((False,), AUTOMATIC),
    "flatten_param_grads": ((False,), "upstream has it for NPUs only"),
    "refined_recompute": (("",), "nothing passes it to the model"),
    "do_export": ((False,), NOT_HERE),
    "no_cuda": ((False,), "upstream does not read it: --device cpu"),
}

UNSUPPORTED_RULES = tuple(
    Rule(
        flag=flag,
        when=lambda run, flag=flag, nothing=nothing: getattr(run.flags, flag) not in (None, *nothing),
        found=f"{{run.flags.{flag}}}",
        reason=reason,
        source=ARGUMENTS,
        fix="leave it out",
    )
    for flag, (nothing, reason) in UNSUPPORTED.items()
)
