#!/usr/bin/env bash
# LLaMA-7B prefix tuning on one card.
# Alias      prefix-1gpu
# Hardware   1 card of 40 GB (A100, A800, H100, RTX 6000 Ada)
# Batch      1 data rank x 8 samples x 2 accumulation = 16 a step
# Trains     16.8 M of 6.74 B parameters: 64 keys and values for each of 32 layers x 32 heads x 128 elements
# Saves      only the prefix, 67 MB
# Rate       3e-2: AdamW changes each element by about the learning rate a step. A prefix starts near 0 (0.003) and
#            must reach the size of the model's own keys and values (about 1). The rate 3e-5, also found in examples,
#            is for full fine-tuning: in 1,000 steps it changes a prefix by at most 0.03
# Data       ./data/train.json, ./data/dev.json: {"src": ..., "tgt": ...} or another schema of docs/finetune.md
# Lengths    128 tokens for the question, 160 for the answer, 288 together
# Precision  bf16 on A100, 3090 and newer, fp16 on older cards; --precision auto prints its choice and why
# Licence    of the weights: LLaMA License Agreement, non-commercial research only; Meta grants it on application.
#            facebook/llama-7b is a copy on PaddleNLP's hub, under the same terms
source "$(dirname "$0")/../../launch/recipe.sh"
GPUS=1 GPU_MEMORY_GB=40

run launch/finetune_generation.py \
    --model_name_or_path facebook/llama-7b \
    --dataset_name_or_path ./data \
    --src_length 128 \
    --max_length 288 \
    --output_dir ./checkpoints/llama-7b-prefix \
    --prefix_tuning 1 \
    --num_prefix_tokens 64 \
    --per_device_train_batch_size 8 \
    --per_device_eval_batch_size 4 \
    --gradient_accumulation_steps 2 \
    --precision auto --scale_loss 1024 \
    --fp16_opt_level O2 \
    --use_flash_attention auto \
    --use_fused_rms_norm auto \
    --recompute 0 \
    --learning_rate 3e-2 \
    --lr_scheduler_type linear \
    --warmup_steps 20 \
    --max_grad_norm 1.0 \
    --num_train_epochs 2 \
    --save_steps 400 \
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
