"""Words of --sharding_parallel_config and its like: communication that overlaps with computation."""

from launch.preflight.rules.rule import ANNOUNCE, FUSION, Rule

ARGUMENTS = "paddlenlp/trainer/training_args.py, TrainingArguments.__post_init__"
SHARDING = "paddle/distributed/fleet/meta_parallel/sharding"
NEXT_FORWARD = ("enable_stage1_broadcast_overlap", "enable_stage1_allgather_overlap")

RULES = (
    Rule(
        flag="sharding_parallel_config",
        when=lambda run: run.has_word("sharding_parallel_config", *NEXT_FORWARD),
        found="{run.flags.sharding_parallel_config}",
        reason="enable_stage1_broadcast_overlap and enable_stage1_allgather_overlap need a model that never waits "
        "for the host (USE_CASUAL_MASK=True), which upstream's assertion lets pass unseen",
        source=f"{ARGUMENTS}: the assertion is on a text that is never empty",
        fix="leave these words out",
    ),
    Rule(
        flag="sharding_parallel_config",
        when=lambda run: run.has_word("sharding_parallel_config", "enable_stage1_overlap") and bool(run.flags.lora),
        found="enable_stage1_overlap with --lora 1",
        reason="upstream's fine-tuning script asserts that they are not used together",
        source="PaddleNLP 3.0.0b4, llm/run_finetune.py (not part of the wheel)",
        fix="leave enable_stage1_overlap out",
    ),
    Rule(
        flag="sharding_parallel_config",
        when=lambda run: run.has_word("sharding_parallel_config", *FUSION) and run.flags.device == "cpu",
        found="{run.flags.sharding_parallel_config} with --device cpu",
        reason="Paddle fuses tensors on accelerators only",
        source="paddle/distributed/fleet/utils/tensor_fusion_helper.py, get_current_device_type; measured: "
        "AssertionError",
        fix="leave {run.fusion_words} out",
    ),
    Rule(
        flag="sharding_parallel_config",
        when=lambda run: run.has_word("sharding_parallel_config", *FUSION) and run.stage in ("stage2", "stage3"),
        found="{run.flags.sharding_parallel_config} with {run.stage}",
        reason="{run.fusion_words} is of stage1",
        source=ARGUMENTS,
        fix="--sharding stage1, or leave it out",
    ),
    Rule(
        flag="sharding_parallel_config",
        when=lambda run: (
            run.has_word("sharding_parallel_config", *FUSION)
            and run.stage == "stage1"
            and (run.pipeline == 1 or run.has_word("sharding_parallel_config", "split_param"))
            and run.flags.device != "cpu"
            and run.flags.save_strategy != "no"
        ),
        found="{run.fusion_words}",
        reason="the optimizer's states then lie in fused buffers, which checkpoints do not take apart: a run that is "
        "continued would begin without them",
        source="paddle/distributed/fleet/meta_optimizers/dygraph_optimizer/dygraph_sharding_optimizer.py; "
        "launch/checkpoint/local_tensors.py",
        fix="leave {run.fusion_words} out, or --save_strategy no",
    ),
    Rule(
        flag="sharding_parallel_config",
        when=lambda run: run.has_word("sharding_parallel_config", "split_param") and not run.flags.amp_master_grad,
        found="split_param without --amp_master_grad 1",
        reason="upstream asserts it",
        source=ARGUMENTS,
        fix="--amp_master_grad 1, with --fp16 1 or --bf16 1",
    ),
    Rule(
        flag="sharding_parallel_config",
        when=lambda run: (
            run.has_word("sharding_parallel_config", "enable_stage2_overlap")
            and (run.stage != "stage2" or (run.flags.logging_steps or 0) < 2)
        ),
        found="enable_stage2_overlap with --sharding {run.flags.sharding} --logging_steps {run.flags.logging_steps}",
        reason="it needs stage2, and steps without logging",
        source=ARGUMENTS,
        fix="--sharding stage2 and --logging_steps 2 or more, or leave it out",
    ),
    Rule(
        flag="sharding_parallel_config",
        when=lambda run: run.has_word("sharding_parallel_config", "enable_stage2_overlap") and run.may_use_float16,
        found="enable_stage2_overlap in float16, which --precision auto takes on cards before A100",
        reason="gradients would be divided by the loss scale while they are still being summed over the ranks",
        source=f"{SHARDING}/group_sharded_utils.py, GroupShardedScaler; group_sharded_stage2.py, _redefine_opt_step, "
        "which waits for the sums only afterwards",
        fix="--precision bf16, or leave enable_stage2_overlap out",
    ),
    Rule(
        flag="sharding_parallel_config",
        when=lambda run: (
            run.has_word("sharding_parallel_config", "enable_stage2_overlap")
            and run.flags.gradient_accumulation_steps > 1
        ),
        found="enable_stage2_overlap with --gradient_accumulation_steps {run.flags.gradient_accumulation_steps}",
        reason="a micro batch would add to gradients of the one before while they are still being summed over the "
        "ranks",
        source=f"{SHARDING}/group_sharded_stage2.py, _get_reduce_fn: no micro batch waits",
        fix="--gradient_accumulation_steps 1, or leave enable_stage2_overlap out",
    ),
    Rule(
        flag="sharding_parallel_config",
        when=lambda run: (
            run.has_word("sharding_parallel_config", "enable_stage2_overlap")
            and bool(run.flags.lora)
            and (run.flags.lora_dropout or 0) > 0
        ),
        found="enable_stage2_overlap with --lora_dropout {run.flags.lora_dropout}",
        reason="layers without sublayers alone wait for the weights of the step before, and dropout is a sublayer",
        source=f"{SHARDING}/group_sharded_optimizer_stage2.py, _broadcast_params_overlap_forward",
        fix="--lora_dropout 0, or leave enable_stage2_overlap out",
    ),
    Rule(
        flag="sharding_parallel_config",
        when=lambda run: (
            run.pipeline > 1
            and run.has_word("sharding_parallel_config", "enable_stage1_overlap", "enable_stage1_tensor_fusion")
        ),
        found="{run.flags.sharding_parallel_config}",
        reason="upstream ignores enable_stage1_overlap and enable_stage1_tensor_fusion under pipeline parallel",
        source=ARGUMENTS,
        action=ANNOUNCE,
    ),
    Rule(
        flag="pipeline_parallel_config",
        when=lambda run: run.has_word("pipeline_parallel_config", "enable_dp_comm_overlap"),
        found="enable_dp_comm_overlap",
        reason='documented, and refused by upstream itself ("overlap has accuracy issue")',
        source=ARGUMENTS,
        fix="leave it out",
    ),
    Rule(
        flag="pipeline_parallel_config",
        when=lambda run: (
            run.has_word("pipeline_parallel_config", "enable_sharding_comm_overlap")
            and run.pipeline > 1
            and run.layout.data_parallel_degree > 1
        ),
        found="enable_sharding_comm_overlap with data parallel {run.layout.data_parallel_degree}",
        reason="upstream takes it for enable_dp_comm_overlap, which it refuses",
        source=ARGUMENTS,
        fix="leave it out, or one sharding group over all data ranks",
    ),
    Rule(
        flag="pipeline_parallel_config",
        when=lambda run: (
            run.has_word("pipeline_parallel_config", "enable_sharding_comm_overlap")
            and run.pipeline > 1
            and run.layout.sharding_parallel_degree > 1
            and not run.flags.amp_master_grad
        ),
        found="enable_sharding_comm_overlap without --amp_master_grad 1",
        reason="upstream raises ValueError",
        source=ARGUMENTS,
        fix="--amp_master_grad 1, with --fp16 1 or --bf16 1",
    ),
    Rule(
        flag="tensor_parallel_config",
        when=lambda run: (
            run.has_word("tensor_parallel_config", "enable_mp_skip_c_identity", "enable_mp_fused_linear_param_grad_add")
            and not run.has_word("tensor_parallel_config", "enable_mp_async_allreduce")
        ),
        found="{run.flags.tensor_parallel_config}",
        reason="without enable_mp_async_allreduce the other enable_mp words do nothing",
        source=ARGUMENTS,
        fix="add enable_mp_async_allreduce, or leave them out",
    ),
    *(
        Rule(
            flag=f"{dimension}_parallel_config",
            when=lambda run, dimension=dimension: (
                bool(run.flags.words(f"{dimension}_parallel_config"))
                and getattr(run.layout, f"{dimension}_parallel_degree") == 1
            ),
            found=f"{{run.flags.{dimension}_parallel_config}} does nothing",
            reason=f"the {dimension} parallel degree is 1",
            source=ARGUMENTS,
            action=ANNOUNCE,
        )
        for dimension in ("sharding", "tensor", "pipeline")
    ),
)
