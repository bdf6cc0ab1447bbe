"""Words of the *_parallel_config flags."""

from tests.preflight.variants.variant import FOUR_D, PRETRAIN, TINY, Variant, wrong

VARIANTS = [
    wrong(
        PRETRAIN,
        "--sharding stage1 --sharding_parallel_config enable_stage1_broadcast_overlap",
        ("--sharding_parallel_config", "USE_CASUAL_MASK"),
    ),
    wrong(
        PRETRAIN,
        "--sharding_parallel_config enable_stage2_overlap --logging_steps 1 --gradient_accumulation_steps 1 "
        "--bf16 1 --fp16 0",
        ("--sharding_parallel_config", "enable_stage2_overlap with --sharding stage2 --logging_steps 1"),
    ),
    *(
        wrong(
            PRETRAIN,
            f"--sharding_parallel_config enable_stage2_overlap --gradient_accumulation_steps 4 {precision}",
            ("--sharding_parallel_config", "enable_stage2_overlap in float16"),
            ("--sharding_parallel_config", "enable_stage2_overlap with --gradient_accumulation_steps 4"),
        )
        for precision in ("--bf16 0 --fp16 1", "--precision auto")
    ),
    Variant(
        PRETRAIN,
        "--sharding_parallel_config enable_stage2_overlap --logging_steps 10 --bf16 1 --fp16 0 "
        "--gradient_accumulation_steps 1",
    ),
    wrong(
        "llama-7b/lora",
        "--sharding stage2 --sharding_parallel_config enable_stage2_overlap --logging_steps 10 --lora_dropout 0.1 "
        "--gradient_accumulation_steps 2 --bf16 1 --fp16 0",
        ("--sharding_parallel_config", "enable_stage2_overlap with --lora_dropout 0.1"),
        wishes={"GPUS": "2"},
    ),
    wrong(
        PRETRAIN,
        "--sharding_parallel_config split_param",
        ("--sharding_parallel_config", "split_param is of stage1"),
        ("--sharding_parallel_config", "split_param without --amp_master_grad 1"),
    ),
    wrong(
        PRETRAIN,
        "--sharding stage1 --sharding_parallel_config enable_stage1_tensor_fusion",
        ("--sharding_parallel_config", "a run that is continued would begin without them"),
    ),
    Variant(PRETRAIN, "--sharding stage1 --sharding_parallel_config enable_stage1_tensor_fusion --save_strategy no"),
    wrong(
        FOUR_D,
        "--sharding_parallel_config split_param --amp_master_grad 1",
        ("--sharding_parallel_config", "split_param: the optimizer's states then lie in fused buffers"),
    ),
    wrong(
        FOUR_D,
        "--sharding_parallel_config enable_stage1_tensor_fusion",
        told=[("--sharding_parallel_config", "ignores")],
    ),
    wrong(
        FOUR_D,
        "--pipeline_parallel_config enable_dp_comm_overlap",
        ("--pipeline_parallel_config", "overlap has accuracy issue"),
    ),
    wrong(
        FOUR_D,
        "--pipeline_parallel_config enable_sharding_comm_overlap",
        ("--pipeline_parallel_config", "enable_sharding_comm_overlap without --amp_master_grad 1"),
    ),
    wrong(
        FOUR_D,
        "--tensor_parallel_config enable_mp_skip_c_identity",
        ("--tensor_parallel_config", "without enable_mp_async_allreduce"),
    ),
    wrong(
        PRETRAIN,
        "--pipeline_parallel_config enable_timer",
        told=[("--pipeline_parallel_config", "the pipeline parallel degree is 1")],
    ),
    wrong(
        FOUR_D,
        "--pipeline_parallel_config enable_sharding_comm_overlap --sharding_parallel_degree 1",
        ("--pipeline_parallel_config", "enable_sharding_comm_overlap with data parallel 2"),
        told=[("--sharding", "stage1 does nothing on 8 processes: data parallel 2 x")],
    ),
    wrong(
        FOUR_D,
        "--tensor_parallel_degree 4 --sharding_parallel_config disable_stage1_reduce_avg",
        told=[
            ("--sharding", "stage1 does nothing"),
            ("--sharding_parallel_config", "the sharding parallel degree is 1"),
        ],
    ),
    wrong(
        PRETRAIN,
        "--tensor_parallel_config sync_param",
        told=[("--tensor_parallel_config", "the tensor parallel degree is 1")],
    ),
    wrong(
        TINY,
        "--sharding stage1 --sharding_parallel_config enable_stage1_overlap",
        ("--sharding_parallel_config", "enable_stage1_overlap with --device cpu"),
    ),
]
