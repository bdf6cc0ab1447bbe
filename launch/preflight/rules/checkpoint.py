"""What is saved, and how a run goes on from it."""

from launch.preflight.rules.rule import ANNOUNCE, Rule

ARGUMENTS = "paddlenlp/trainer/training_args.py, TrainingArguments.__post_init__"
TRAINER = "paddlenlp/trainer/trainer.py"
IN_ALL_OPTIONS = {"enable_all_options", "skip_save_model_weight", "master_weight_compatible"}

RULES = (
    Rule(
        flag="unified_checkpoint",
        when=lambda run: bool(run.flags.unified_checkpoint) and run.stage == "stage3",
        found="1 does nothing under stage3",
        reason="checkpoints can be continued at the same sharding degree only, and to save one every rank gathers all "
        "parameters in host memory",
        source=f"{ARGUMENTS}; {TRAINER}, Trainer.save_model: get_all_parameters(convert2cpu=True)",
        action=ANNOUNCE,
    ),
    Rule(
        flag="unified_checkpoint_config",
        when=lambda run: (
            run.has_word("unified_checkpoint_config", "enable_all_options")
            and bool(set(run.flags.words("unified_checkpoint_config")) - IN_ALL_OPTIONS)
        ),
        found="{run.flags.unified_checkpoint_config}",
        reason="enable_all_options means skip_save_model_weight and master_weight_compatible, and drops every other "
        "word beside it",
        source=ARGUMENTS,
        fix="the words one by one, without enable_all_options",
    ),
    Rule(
        flag="unified_checkpoint_config",
        when=lambda run: (
            {"skip_save_model_weight", "ignore_merge_optimizer"} <= set(run.flags.words("unified_checkpoint_config"))
        ),
        found="{run.flags.unified_checkpoint_config}",
        reason="skip_save_model_weight and ignore_merge_optimizer exclude each other, upstream raises ValueError",
        source=ARGUMENTS,
        fix="one of them",
    ),
    Rule(
        flag="unified_checkpoint_config",
        when=lambda run: bool(run.flags.words("unified_checkpoint_config")) and not run.flags.unified_checkpoint,
        found="{run.flags.unified_checkpoint_config} does nothing",
        reason="--unified_checkpoint is 0",
        source=ARGUMENTS,
        action=ANNOUNCE,
    ),
    Rule(
        flag="ignore_load_lr_and_optim",
        when=lambda run: bool(run.flags.ignore_load_lr_and_optim and run.flags.resume_from_checkpoint),
        found="1",
        reason="only the weights are taken from the checkpoint: step, schedule and data begin anew",
        source=f"{TRAINER}, Trainer._inner_training_loop",
        action=ANNOUNCE,
    ),
    Rule(
        flag="ignore_data_skip",
        when=lambda run: bool(run.flags.ignore_data_skip and run.flags.resume_from_checkpoint),
        found="1",
        reason="the data begin anew: samples seen before the checkpoint are seen again",
        source=f"{TRAINER}, Trainer._inner_training_loop",
        action=ANNOUNCE,
    ),
    Rule(
        flag="load_best_model_at_end",
        when=lambda run: (
            bool(run.flags.load_best_model_at_end) and run.flags.evaluation_strategy != run.flags.save_strategy
        ),
        found="1 with --evaluation_strategy {run.flags.evaluation_strategy} --save_strategy {run.flags.save_strategy}",
        reason="the best model is one that was both evaluated and saved",
        source=ARGUMENTS,
        fix="the same strategy for both",
    ),
    Rule(
        flag="save_steps",
        when=lambda run: (
            bool(run.flags.load_best_model_at_end)
            and run.flags.evaluation_strategy == run.flags.save_strategy == "steps"
            and run.flags.save_steps % (run.flags.eval_steps or run.flags.logging_steps or 1) != 0
        ),
        found="{run.flags.save_steps} with --eval_steps {run.flags.eval_steps}",
        reason="with --load_best_model_at_end each saved model must be an evaluated one",
        source=ARGUMENTS,
        fix="a multiple of --eval_steps",
    ),
)
