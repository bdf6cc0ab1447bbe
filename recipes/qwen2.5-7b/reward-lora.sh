#!/usr/bin/env bash
# Qwen2.5-7B reward model by LoRA on one card, with a base in 4 bits.
# Target     reward-lora-qwen2.5-7b
# Hardware   1 card of 24 GB (RTX 3090, RTX 4090, A10); on 40 and 80 GB FIT computes less again and is faster
# Base       nf4, with one scale of 8 bits for 64 weights: 4.13 bits a weight in the linear layers
# Data       ./data/train.json, ./data/dev.json: {"prompt": ..., "chosen": ..., "rejected": ...} and more forms
#            (docs/align.md)
# Lengths    1536 tokens for the prompt where a response needs the room, 2048 for a prompt with a response
# Batch      1 data rank x 4 samples of 2 rows x 4 accumulation = 16 a step
# Packing    a sample is two rows of 2048 tokens: chosen responses in one, rejected ones in the other, each behind its
#            prompt, as many as fit, and none sees another. `--zero_padding 0` makes each pair a sample
# Loss       -ln sigmoid(chosen - rejected) of the scores of the last tokens (docs/align.md)
# Rate       1e-4, half of that of fine-tuning: the pairs are read once
# Precision  bf16 on A100, 3090 and newer, fp16 on older cards; --precision auto prints its choice and why
# Trains     40.4 M of 7.07 B parameters: r (inputs + outputs) for each of the 7 x 28 linear layers, and the score
# Saves      only the adapter, 161 MB, with the score; docs/align.md shows how to merge and to use them
# Template   Qwen2's ChatML; ARGS="--chat_template NAME" selects another
# Weights    `make download MODEL=Qwen/Qwen2.5-7B-Instruct`, then start with MODEL=models/Qwen2.5-7B-Instruct
# Licence    of the weights: Apache 2.0
source "$(dirname "$0")/../../launch/recipe.sh"
GPUS=1 GPU_MEMORY_GB=24

run launch/run_reward.py \
    --model_name_or_path Qwen/qwen2.5-7b \
    --dataset_name_or_path ./data \
    --chat_template qwen2 \
    --output_dir ./checkpoints/qwen2.5-7b-reward-lora \
    --src_length 1536 \
    --max_length 2048 \
    --zero_padding 1 \
    --lora 1 \
    --lora_rank 16 \
    --lora_alpha 32 \
    --weight_quantize_algo nf4 \
    --weight_double_quant 1 \
    --per_device_train_batch_size 4 \
    --per_device_eval_batch_size 1 \
    --gradient_accumulation_steps 4 \
    --recompute 1 \
    --precision auto --scale_loss 1024 \
    --fp16_opt_level O2 \
    --use_flash_attention auto \
    --use_fused_rms_norm auto \
    --learning_rate 1e-4 \
    --min_learning_rate 1e-5 \
    --lr_scheduler_type cosine \
    --warmup_ratio 0.1 \
    --weight_decay 0 \
    --max_grad_norm 1.0 \
    --num_train_epochs 1 \
    --save_steps 200 \
    --save_total_limit 2 \
    --eval_steps 200 \
    --evaluation_strategy steps \
    --logging_steps 10 \
    --dataloader_num_workers 1 \
    --do_train 1 \
    --do_eval 1 \
    --disable_tqdm 1 \
    --report_to visualdl \
    --device gpu \
    "$@"
