"""Files of arguments like those of PaddleNLP's llm/config/, written by us: the keys and values that matter in each.

arguments("llama/sft")     the object of that file
"""

COMMON = {
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 4,
    "per_device_eval_batch_size": 8,
    "warmup_steps": 30,
    "logging_steps": 1,
    "fp16_opt_level": "O2",
    "do_train": True,
    "do_eval": True,
    "disable_tqdm": True,
    "save_total_limit": 1,
    "tensor_parallel_degree": 1,
    "pipeline_parallel_degree": 1,
    "unified_checkpoint": True,
    "recompute": True,
    "output_dir": "./checkpoints/of_file",
}
PRETRAIN = COMMON | {
    "input_dir": "./data",
    "max_seq_length": 4096,
    "virtual_pp_degree": 1,
    "sequence_parallel": 0,
    "learning_rate": 3e-05,
    "min_learning_rate": 3e-06,
    "max_steps": 10000,
    "save_steps": 5000,
    "eval_steps": 1000,
    "weight_decay": 0.01,
    "warmup_ratio": 0.01,
    "max_grad_norm": 1.0,
    "dataloader_num_workers": 1,
    "continue_training": 1,
    "do_predict": True,
    "distributed_dataloader": 1,
    "recompute_granularity": "full",
}
FINETUNE = COMMON | {
    "dataset_name_or_path": "./data",
    "eval_accumulation_steps": 16,
    "num_train_epochs": 3,
    "learning_rate": 3e-05,
    "evaluation_strategy": "epoch",
    "save_strategy": "epoch",
    "src_length": 1024,
    "max_length": 2048,
    "load_best_model_at_end": True,
    "eval_with_do_generation": False,
    "metric_for_best_model": "accuracy",
    "zero_padding": False,
    "use_flash_attention": False,
}
LORA = FINETUNE | {"lora": True, "learning_rate": 3e-04}
PREFIX = FINETUNE | {"prefix_tuning": True, "learning_rate": 3e-02}
BF16, FP16, FLASH = {"bf16": True}, {"fp16": True}, {"use_flash_attention": True}
FUSED = FLASH | {"use_fused_rms_norm": True, "use_fused_rope": True}
STAGE1, STAGE2, SHARDED = {"sharding": "stage1"}, {"sharding": "stage2"}, {"sharding_parallel_degree": 4}
STEPS = {"evaluation_strategy": "steps", "save_strategy": "steps", "save_steps": 1}
FLASH_MASK = {"zero_padding": True, "greedy_zero_padding": True, "flash_mask": True, "lazy": True}
LONG = (
    BF16
    | FLASH
    | FLASH_MASK
    | {
        "evaluation_strategy": "no",
        "save_strategy": "no",
        "do_eval": False,
        "max_steps": 12000,
        "warmup_ratio": 0.03,
        "src_length": 8000,
        "max_length": 8192,
        "tensor_parallel_degree": 2,
        "pipeline_parallel_config": "disable_p2p_cache_shape",
        "tensor_parallel_output": True,
        "recompute": False,
        "gradient_accumulation_steps": 4,
        "per_device_train_batch_size": 1,
    }
)

FORMERS = {
    "train_dataset_type": "erniekit",
    "train_dataset_path": "./data/sft-train.jsonl",
    "train_dataset_prob": "1.0",
    "eval_dataset_path": "./data/sft-eval.jsonl",
    "max_seq_len": 8192,
    "seed": 23,
    "do_train": True,
    "do_eval": True,
    "max_steps": 100,
    "gradient_accumulation_steps": 8,
    "output_dir": "./output",
    "learning_rate": 1e-05,
    "weight_decay": 0.1,
    "sharding": "stage1",
    "fp16_opt_level": "O2",
}

MODELS = {
    "llama": "meta-llama/Meta-Llama-3-8B",
    "llama-3.1": "meta-llama/Meta-Llama-3.1-8B-Instruct",
    "baichuan": "baichuan-inc/Baichuan2-7B-Base",
    "bloom": "bigscience/bloomz-7b1-mt",
    "chatglm": "THUDM/chatglm-6b",
    "chatglm2": "THUDM/chatglm2-6b",
    "qwen": "Qwen/Qwen2-7B",
    "qwen-0.5b": "Qwen/Qwen2.5-0.5B",
    "qwen-0.5b-instruct": "Qwen/Qwen2.5-0.5B-Instruct",
    "mistral": "mistralai/Mistral-7B-Instruct-v0.3",
    "opt": "facebook/opt-125m",
    "ernie": "baidu/ERNIE-4.5-21B-A3B-Paddle",
    "qwen3": "Qwen/Qwen3-0.6B-Base",
}
# model/method -> the file, but for the model's name
FILES = {
    "llama/pretrain": PRETRAIN | BF16 | FUSED | STAGE2 | {"tensor_parallel_degree": 2, "recompute": False},
    "llama/sft": FINETUNE | BF16 | STAGE2 | {"pipeline_parallel_config": "disable_p2p_cache_shape", "recompute": False},
    "llama/lora": LORA | BF16 | FLASH | STAGE1 | {"pissa": False, "do_eval": False} | STEPS,
    "llama/qlora": LORA | BF16 | {"weight_quantize_algo": "nf4"},
    "llama/pt": PREFIX | BF16 | FLASH,
    "llama-3.1/flashmask-sft": FINETUNE | LONG | STAGE2,
    "llama-3.1/flashmask-lora": LORA | LONG | STAGE1 | {"benchmark": True},
    "llama-3.1/sft-long": FINETUNE
    | BF16
    | FLASH
    | STAGE2
    | {"tensor_parallel_degree": 8, "src_length": 131000, "max_length": 131072, "zero_padding": True}
    | {"flash_mask": True, "use_fused_head_and_loss_fn": True, "use_sparse_head_and_loss_fn": True}
    | {"autotuner_benchmark": False},
    "baichuan/pretrain": PRETRAIN | BF16 | FUSED | STAGE2 | {"tensor_parallel_degree": 2, "recompute": False} | SHARDED,
    "baichuan/lora": LORA | FP16 | FLASH | STAGE1 | {"sharding_parallel_degree": 1},
    "bloom/sft": FINETUNE | FP16 | {"tensor_parallel_degree": 4},
    "bloom/pt": PREFIX | FP16,
    "chatglm/lora": LORA | FP16,
    "chatglm2/pretrain": PRETRAIN
    | FP16
    | STAGE2
    | {"tensor_parallel_degree": 8, "sharding_parallel_degree": 1, "max_seq_length": 512, "num_hidden_layers": 2}
    | {"num_train_epochs": 2, "evaluation_strategy": "epoch", "save_strategy": "epoch"}
    | {"load_best_model_at_end": True, "metric_for_best_model": "accuracy", "use_flash_attention": False},
    "chatglm2/sft": FINETUNE | FP16 | STAGE1 | {"sharding_parallel_degree": 8},
    "qwen-0.5b/pretrain": PRETRAIN
    | FP16
    | STAGE2
    | {"continue_training": 0, "max_seq_length": 1024, "use_flash_attention": False, "use_fused_rms_norm": False},
    "qwen-0.5b-instruct/sft-best": FINETUNE
    | FP16
    | FUSED
    | STAGE2
    | {"zero_padding": True, "fuse_attention_qkv": True, "fuse_attention_ffn": True}
    | {"use_fused_linear_cross_entropy": True, "recompute": False},
    "qwen/lora": LORA | BF16 | FLASH | {"tensor_parallel_degree": 4, "pissa": False},
    "mistral/sft": FINETUNE | BF16 | {"tensor_parallel_degree": 8, "zero_padding": True},
    # of ERNIEKit and PaddleFormers
    "ernie/stage-sft": FORMERS
    | {"stage": "SFT", "fine_tuning": "Full", "batch_size": 1, "compute_type": "bf16", "moe_group": "mp"}
    | {"tensor_parallel_degree": 4, "pipeline_parallel_degree": 2, "sharding_parallel_degree": 1, "min_lr": 1e-6}
    | {"lr_scheduler_type": "cosine", "sequence_parallel": True, "recompute": True, "optim": "adamw_custom"},
    "ernie/stage-dpo": FORMERS
    | {"stage": "DPO", "fine_tuning": "LoRA", "batch_size": 1, "compute_type": "wint4/8", "rslora": True}
    | {"lora_plus_scale": 12, "lora_alpha": 128, "layerwise_lr_decay_bound": 0.5, "offset_alpha": 0.0},
    "qwen3/stage-dpo": FORMERS
    | {"stage": "DPO", "fine_tuning": "full", "packing": True, "template": "qwen3", "attn_impl": "flashmask"}
    | {"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2, "sequence_parallel": True}
    | {"recompute_granularity": "full", "per_device_train_batch_size": 1},
    "qwen3/stage-pt": FORMERS
    | {"stage": "PT", "fine_tuning": "lora", "packing": True, "max_steps": -1, "num_train_epochs": 1}
    | {"per_device_train_batch_size": 1},
    "opt/sft": FINETUNE | FP16 | STAGE2 | SHARDED,
}


def arguments(name: str) -> dict:
    model = MODELS[name.partition("/")[0]]
    tokenizer = {"tokenizer_name_or_path": model} if "input_dir" in FILES[name] else {}
    return {"model_name_or_path": model} | tokenizer | FILES[name]
