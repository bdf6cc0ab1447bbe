"""Ways of dividing a run that exclude each other, or that do less than they say."""

from launch.preflight.rules.rule import ANNOUNCE, Rule

ARGUMENTS = "paddlenlp/trainer/training_args.py, TrainingArguments.__post_init__"
WRAP_MODEL = "paddlenlp/trainer/trainer.py, Trainer._wrap_model"

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
    Rule(
        flag="optim",
        when=lambda run: run.flags.optim == "adafactor",
        found="adafactor",
        reason="upstream accepts the name and has no such optimizer",
        source="paddlenlp/trainer/trainer.py, Trainer.get_optimizer_cls_and_kwargs",
        fix="--optim adamw",
    ),
)
