"""What is saved, and how a run continues from it."""

from launch.preflight.rules.rule import ANNOUNCE, Request, Rule

ARGUMENTS = "paddlenlp/trainer/training_args.py, TrainingArguments.__post_init__"
TRAINER = "paddlenlp/trainer/trainer.py"
MEANT = {"async_save"}  # words of PaddleNLP's checkpoints that have a meaning for those of this program
EXCLUSIVE = {"skip_save_model_weight", "ignore_merge_optimizer"}
IN_ALL_OPTIONS = {"enable_all_options", "skip_save_model_weight", "master_weight_compatible"}


def config_words(run: Request) -> set[str]:
    """Return the words of unified_checkpoint_config."""
    return set(run.flags.words("unified_checkpoint_config"))


def drops_words(run: Request) -> bool:
    """Return whether words beside enable_all_options have no effect."""
    return "enable_all_options" in config_words(run) and bool(config_words(run) - IN_ALL_OPTIONS)


def is_not_measured(run: Request) -> bool:
    """Return whether no evaluation measures the metric of the best model."""
    name = run.flags.metric_for_best_model or ""
    return bool(name and run.flags.do_eval and run.metrics) and name.removeprefix("eval_") not in run.metrics


RULES = (
    Rule(
        flag="unified_checkpoint_config",
        when=drops_words,
        found="{run.flags.unified_checkpoint_config}",
        reason="enable_all_options means skip_save_model_weight and master_weight_compatible, and drops every other "
        "word beside it",
        source=ARGUMENTS,
        fix="the words one by one, without enable_all_options",
    ),
    Rule(
        flag="unified_checkpoint_config",
        when=lambda run: config_words(run) >= EXCLUSIVE,
        found="{run.flags.unified_checkpoint_config}",
        reason="skip_save_model_weight and ignore_merge_optimizer exclude each other, upstream raises ValueError",
        source=ARGUMENTS,
        fix="one of them",
    ),
    Rule(
        flag="unified_checkpoint_config",
        when=lambda run: (
            bool(config_words(run) - MEANT) and not drops_words(run) and not config_words(run) >= EXCLUSIVE
        ),
        found="{run.flags.unified_checkpoint_config}",
        reason="checkpoints are this program's own; of PaddleNLP's words async_save alone means something, the same as "
        "--use_async_save 1",
        source="launch/training/trainer.py",
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
        when=lambda run: bool(run.flags.ignore_data_skip),
        found="1",
        reason="a run that is continued would see again what it has seen; its position in the data is part of it",
        source="launch/training/batches.py, SampleStream",
        fix="leave it out; --overwrite_output_dir 1 starts at step 0",
    ),
    Rule(
        flag="save_sharded_model",
        when=lambda run: bool(run.flags.save_sharded_model or run.flags.load_sharded_model),
        found="--save_sharded_model {run.flags.save_sharded_model} --load_sharded_model {run.flags.load_sharded_model}",
        reason="each rank always saves its own part of a checkpoint, and upstream's way of it is not used",
        source="launch/training/trainer.py",
        fix="leave both out",
    ),
    Rule(
        flag="metric_for_best_model",
        when=is_not_measured,
        found="{run.flags.metric_for_best_model}",
        reason="an evaluation of this run does not measure it",
        source="launch/training/evaluation.py, Evaluator.metrics",
        fix="one of {run.metric_names}; in fine-tuning bleu and rougel, too, with --eval_with_do_generation 1",
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
