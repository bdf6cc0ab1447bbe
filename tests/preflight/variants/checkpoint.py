"""Checkpoints, data and output."""

from tests.preflight.variants.variant import PRETRAIN, wrong

VARIANTS = [
    wrong(PRETRAIN, "--metric_for_best_model accuracy", ("--metric_for_best_model", "accuracy: an evaluation of this")),
    wrong(
        "llama-7b/finetune",
        "--metric_for_best_model eval_bleu",
        ("--metric_for_best_model", "eval_bleu: an evaluation of this run does not measure it"),
    ),
    wrong(
        PRETRAIN,
        '--unified_checkpoint_config "skip_save_model_weight ignore_merge_optimizer"',
        ("--unified_checkpoint_config", "exclude each other"),
    ),
    wrong(
        PRETRAIN,
        "--load_best_model_at_end 1 --evaluation_strategy epoch",
        ("--load_best_model_at_end", "1 with --evaluation_strategy epoch --save_strategy steps"),
    ),
    wrong(
        PRETRAIN,
        "--ignore_load_lr_and_optim 1 --ignore_data_skip 1",
        ("--ignore_data_skip", "would see again what it has seen"),
        told=[("--ignore_load_lr_and_optim", "only the weights")],
    ),
    wrong(PRETRAIN, "--save_sharded_model 1", ("--save_sharded_model", "each rank always saves its own part")),
    wrong(
        PRETRAIN,
        '--unified_checkpoint_config "enable_all_options remove_master_weight"',
        ("--unified_checkpoint_config", "drops every other word"),
    ),
    wrong(
        PRETRAIN,
        "--unified_checkpoint_config remove_master_weight",
        told=[("--unified_checkpoint_config", "async_save alone means something")],
    ),
    wrong(
        PRETRAIN,
        "--load_best_model_at_end 1 --save_steps 150",
        ("--save_steps", "150 with --eval_steps 100"),
    ),
    wrong(PRETRAIN, "--resume_from_checkpoint True", ("resume", "True is no checkpoint")),
    wrong(
        PRETRAIN,
        "--resume_from_checkpoint ckpt",
        ("resume", "PaddleNLP's own"),
        files={"ckpt/trainer_state.json": "{}"},
    ),
    wrong(
        PRETRAIN,
        "--overwrite_output_dir 1 --resume_from_checkpoint auto",
        ("resume", "one continues a run, the other starts at step 0"),
    ),
    wrong(PRETRAIN, "--input_dir nowhere", ("data", "no data at nowhere")),
    wrong(
        PRETRAIN,
        "",
        ("output", "holds an earlier run"),
        files={
            "checkpoints/llama-7b-pretrain/train_log.jsonl": "{}",
            "checkpoints/llama-7b-pretrain/run_summary.json": "{}",
        },
    ),
    wrong(
        PRETRAIN,
        "--resume_from_checkpoint none",
        ("output", "holds an earlier run"),
        files={"checkpoints/llama-7b-pretrain/train_log.jsonl": "{}"},
    ),
]
