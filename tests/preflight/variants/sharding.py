"""Stages of sharding, offload, and what does not go with them."""

from tests.preflight.variants.variant import FOUR_D, PRETRAIN, Variant, wrong

VARIANTS = [
    wrong(PRETRAIN, '--sharding "stage1 offload"', ("--sharding", "offload is of stage2 and stage3")),
    wrong(
        PRETRAIN,
        '--sharding "stage2 offload" --tensor_parallel_degree 8',
        ("--sharding", "the sharding degree is 1, where upstream switches sharding off and offload with it"),
        told=[("--sharding", "does nothing")],
    ),
    wrong(
        PRETRAIN,
        '--sharding "stage2 offload" --offload_optim 1',
        ("--offload_optim", "all of the optimizer's states to the card at once"),
    ),
    wrong(
        PRETRAIN,
        '--sharding "stage3 offload" --amp_master_grad 1',
        ("--amp_master_grad", "where offload does not look"),
    ),
    wrong(
        PRETRAIN,
        '--sharding "stage2 offload" --sharding_parallel_config enable_stage2_overlap --logging_steps 10 '
        "--gradient_accumulation_steps 1 --bf16 1 --fp16 0",
        ("--sharding_parallel_config", "leave for the host before its sum"),
    ),
    wrong(PRETRAIN, '--sharding "stage2 offload" --optim adamw_mini', ("--optim", "not made parameter by parameter")),
    wrong(
        "llama-7b/finetune",
        "--model_name_or_path glm-515m --tensor_parallel_degree 1 --sharding stage3",
        ("--sharding", "stage3 with GLM"),
    ),
    wrong(
        "llama-7b/lora",
        "--model_name_or_path glm-515m --zero_padding 1",
        ("--zero_padding", "GLM has no packing"),
    ),
    wrong(
        PRETRAIN,
        "--offload activations --recompute 1 --recompute_granularity core_attn",
        ("--offload", "other activations stay on the card"),
    ),
    wrong(PRETRAIN, '--sharding "stage1 stage2"', ("--sharding", "one stage at a time")),
    Variant(PRETRAIN, "--sharding stage3"),
    wrong(
        PRETRAIN,
        "--sharding stage3 --tensor_parallel_degree 2",
        ("--sharding", "stage3 with --tensor_parallel_degree 2"),
    ),
    wrong(FOUR_D, "--sharding stage2", ("--sharding", "stage2 with --pipeline_parallel_degree 2")),
    wrong(
        FOUR_D,
        "--sharding stage3",
        ("--sharding", "stage3 with --pipeline_parallel_degree 2"),
        ("--sharding", "stage3 with --tensor_parallel_degree 2"),
    ),
    wrong(
        FOUR_D,
        "--tensor_parallel_degree 4",
        told=[("--sharding", "stage1 does nothing on 8 processes: tensor parallel 4 x pipeline parallel 2")],
    ),
    wrong(
        PRETRAIN,
        "",
        ("memory", "DOES NOT FIT: 137"),
        wishes={"GPUS": "1"},
        told=[("--sharding", "stage2 does nothing on 1 process")],
    ),
    wrong(PRETRAIN, "--sharding_parallel_degree 3", ("--sharding_parallel_degree", "3 does not divide the 8")),
    wrong(
        PRETRAIN,
        '--sharding "" --sharding_parallel_degree 4',
        ("--sharding_parallel_degree", "4 without --sharding"),
    ),
]
