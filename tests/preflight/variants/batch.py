"""Batch, steps and precision."""

from tests.preflight.variants.variant import FOUR_D, PRETRAIN, TINY, wrong

BUBBLE = ("--gradient_accumulation_steps", "stages wait for each other")
EVALUATION = ("--per_device_eval_batch_size", "becomes")

VARIANTS = [
    wrong(PRETRAIN, "--per_device_train_batch_size 0", ("--per_device_train_batch_size", "found '0'")),
    wrong(PRETRAIN, "--per_device_eval_batch_size 0", ("--per_device_eval_batch_size", "found '0'")),
    wrong(PRETRAIN, "--warmup_ratio 2", ("--warmup_ratio", "found '2'")),
    wrong(PRETRAIN, "--logging_steps 0", ("--logging_steps", "found '0'")),
    *(
        wrong(TINY, f"{flag} --fp16_opt_level O2", ("--fp16_opt_level", "O2 with float16 and --device cpu: weights"))
        for flag in ("--fp16 1", "--precision fp16")
    ),
    wrong(PRETRAIN, "--loss_scale_window 0", ("--loss_scale_window", "found '0'")),
    wrong(PRETRAIN, "--loss_scale_hysteresis 0", ("--loss_scale_hysteresis", "found '0'")),
    wrong(
        PRETRAIN, "--precision auto --bf16 1", ("--precision", "auto with --bf16 or --fp16: it is said instead of them")
    ),
    wrong(
        PRETRAIN,
        "--scale_loss 8 --min_loss_scale 16",
        ("--min_loss_scale", "16 with --scale_loss 8: the loss scale"),
    ),
    wrong(PRETRAIN, "--gradient_accumulation_steps 0", ("--gradient_accumulation_steps", "found '0'")),
    wrong(FOUR_D, "--gradient_accumulation_steps 1", told=[BUBBLE, EVALUATION]),
    wrong(FOUR_D, "--per_device_eval_batch_size 1", told=[("--per_device_eval_batch_size", "1 becomes 128")]),
    wrong(PRETRAIN, "--max_steps 0", ("--max_steps", "0: pretraining runs for a number of steps")),
    wrong(
        PRETRAIN,
        "--num_train_epochs 3 --warmup_steps 5",
        told=[("--num_train_epochs", "does nothing"), ("--warmup_ratio", "does nothing")],
    ),
    wrong(
        PRETRAIN,
        "--warmup_ratio 0 --warmup_steps 20000 --max_steps 20000",
        told=[("--warmup_steps", "20000 with --max_steps 20000")],
    ),
    wrong(PRETRAIN, "--learning_rate 0 --min_learning_rate 0", told=[("--learning_rate", "0: no weight changes")]),
    wrong(
        PRETRAIN,
        "--learning_rate 1e-6",
        ("--learning_rate", "1e-06 with --min_learning_rate 5e-06: --lr_scheduler_type cosine ends at the latter"),
    ),
    wrong(PRETRAIN, "--learning_rate 0", ("--learning_rate", "0 with --min_learning_rate 5e-06")),
    wrong(PRETRAIN, "--learning_rate 1e-6 --lr_scheduler_type constant"),
    wrong(PRETRAIN, "--max_eval_samples 0", ("--max_eval_samples", "0 with --do_eval 1: an evaluation needs samples")),
    wrong(PRETRAIN, "--bf16 1 --fp16 1", ("--fp16", "one precision at a time")),
    wrong(
        TINY,
        "--amp_master_grad 1",
        told=[("--amp_master_grad", "1 does nothing")],
    ),
    wrong(
        PRETRAIN,
        "--amp_master_grad 1 --sharding_parallel_degree 4",
        ("--amp_master_grad", "1 with stage2 and data parallel 2"),
    ),
]
