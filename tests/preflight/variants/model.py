"""What a model's family, its sizes and its positions allow."""

import json

from launch.families.named_configs import load_config
from tests.preflight.variants.variant import A100S, FOUR_D, PRETRAIN, odd, wrong

VARIANTS = [
    wrong(
        PRETRAIN,
        "--tensor_parallel_degree 8 --model_name_or_path llama-3-8b --sequence_parallel 0",
        told=[("--sharding", "stage2 does nothing on 8 processes: tensor parallel 8")],
    ),
    wrong(
        PRETRAIN,
        "--tensor_parallel_degree 8 --model_name_or_path some/qwen2-7b",
        ("--tensor_parallel_degree", "8 for 28 attention heads"),
        told=[("--sharding", "stage2 does nothing on 8 processes: tensor parallel 8")],
    ),
    wrong(
        FOUR_D,
        "--tensor_parallel_degree 1 --pipeline_parallel_degree 8 --sequence_parallel 0 --gradient_accumulation_steps 32"
        " --per_device_eval_batch_size 64 --model_name_or_path some/qwen2-7b",
        told=[
            ("--sharding", "stage1 does nothing on 8 processes: pipeline parallel 8"),
            ("--pipeline_parallel_degree", "8 stages for 28 layers"),
        ],
    ),
    wrong(
        FOUR_D,
        "--model_name_or_path some/bloom-7b1",
        ("--pipeline_parallel_degree", "Bloom has no pipeline parallel: "),
        ("--sequence_parallel", "Bloom has no sequence parallel: "),
    ),
    wrong(
        FOUR_D,
        "--model_name_or_path some/chatglm2-6b --sequence_parallel 0 --recompute 1",
        ("--recompute_granularity", "saves every activation all the same"),
    ),
    wrong(PRETRAIN, "--model_name_or_path some/chatglm-6b", ("--model_name_or_path", "has no pretraining")),
    wrong(PRETRAIN, "--loss_chunk_tokens 0", ("--loss_chunk_tokens", "'0': the tokens of a chunk are a whole number")),
    wrong(
        "llama-7b/finetune",
        "--lora 1 --pissa 1",
        ("--pissa", "1 with --tensor_parallel_degree 4: "),
    ),
    wrong(
        "llama-7b/lora",
        "--pissa 1 --weight_quantize_algo nf4",
        ("--pissa", "1 with --weight_quantize_algo nf4: weights are quantized"),
    ),
    wrong("llama-7b/lora", "--pissa 1 --lora 0", ("--pissa", "1 without --lora 1")),
    wrong(
        PRETRAIN,
        "--rslora 1 --lora_plus_scale 16",
        told=[("--rslora", "does nothing without --lora 1"), ("--lora_plus_scale", "16 does nothing without")],
    ),
    wrong("baichuan-13b/lora-2gpu", "--pissa 1", ("--pissa", "1 with --sharding stage3 offload: weights are sliced")),
    wrong(PRETRAIN, "--model_name_or_path nowhere/x", ("model", "'nowhere/x' is no directory")),
    wrong(PRETRAIN, "--max_seq_length 4096", ("--max_seq_length", "4096, and the model knows 2048 positions")),
    wrong(
        PRETRAIN,
        "--max_seq_length 4096 --continue_training 0",
        told=[("--max_seq_length", "the new model gets as many positions")],
    ),
    wrong(
        PRETRAIN,
        "--tensor_parallel_degree 16 --model_name_or_path some/llama-3-8b",
        ("--tensor_parallel_degree", "16 for 8 key/value heads"),
        told=[("--sharding", "stage2 does nothing on 16 processes: tensor parallel 16")],
        wishes={"GPUS": "16"},
        here=A100S,
    ),
    wrong(
        PRETRAIN,
        "--tensor_parallel_degree 4 --model_name_or_path odd --continue_training 0",
        ("--tensor_parallel_degree", "4 for a hidden size of 102"),
        files=odd(hidden_size=102, head_dim=26),
    ),
    wrong(
        FOUR_D,
        "--model_name_or_path odd --continue_training 0 --tensor_parallel_degree 1 --sequence_parallel 0"
        " --pipeline_parallel_degree 8",
        ("--pipeline_parallel_degree", "8 stages for 4 layers"),
        told=[("--sharding", "stage1 does nothing on 8 processes: pipeline parallel 8")],
        files=odd(),
    ),
    wrong(
        PRETRAIN,
        "--max_seq_length 1024 --model_name_or_path odd --continue_training 0",
        ("--max_seq_length", "1024, and the model's attention reaches 512 positions"),
        files=odd(sliding_window=512),
    ),
    wrong(
        PRETRAIN,
        "--max_seq_length 1024 --model_name_or_path odd --continue_training 0",
        files=odd(sliding_window=512, model_type="qwen2", architectures=["Qwen2ForCausalLM"]),
    ),
    wrong(
        "llama-7b/finetune",
        "--model_name_or_path odd --continue_training 0 --tensor_parallel_degree 2",
        told=[("--model_name_or_path", "fine-tuning leaves the auxiliary loss of experts out")],
        files={"odd/config.json": json.dumps(load_config("mixtral-rehearsal") | {"output_router_logits": True})},
    ),
    wrong(
        "llama-7b/finetune",
        "--zero_padding 1 --model_name_or_path odd --continue_training 0 --tensor_parallel_degree 1",
        ("--zero_padding", "1, and rope_scaling in the model's config.json is dynamic"),
        files=odd(rope_scaling={"type": "dynamic", "factor": 2.0}),
    ),
    wrong(
        "llama-7b/finetune",
        "--max_length 1024 --model_name_or_path odd --continue_training 0 --tensor_parallel_degree 1",
        ("--max_length", "1024, and the model's attention reaches 512 positions"),
        files=odd(sliding_window=512),
    ),
]
