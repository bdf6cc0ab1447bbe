#!/usr/bin/env bash
# LLaMA-7B supervised fine-tuning, all parameters, tensor parallel 4.
# Hardware   4 cards of 80 GB (A100, A800, H100)
# Batch      1 data rank x 32 rows x 4 accumulation = 128 a step
# Faster     on the same cards: make finetune-llama7b-stage2, which shards optimizer and gradients, not the model
# Data       ./data/train.json, ./data/dev.json: {"src": ..., "tgt": ...} or another schema of docs/finetune.md
# Lengths    128 tokens for the question, 160 for the answer, 288 together
# Packing    a row of 288 tokens holds as many samples as fit, and none sees another; so the shorter they are, the fewer
#            steps an epoch has. `--zero_padding 0` makes each sample a row
# Precision  bf16 on A100, 3090 and newer, fp16 on older cards; --precision auto prints its choice and why
# Licence    of the weights: LLaMA License Agreement, non-commercial research only; Meta grants it on application.
#            facebook/llama-7b is a copy on PaddleNLP's hub, under the same terms
source "$(dirname "$0")/../../launch/recipe.sh"
GPUS=4 GPU_MEMORY_GB=80

run launch/finetune_generation.py \
    --model_name_or_path facebook/llama-7b \
    --dataset_name_or_path ./data \
    --src_length 128 \
    --max_length 288 \
    --zero_padding 1 \
    --output_dir ./checkpoints/llama-7b-finetune \
    --tensor_parallel_degree 4 \
    --per_device_train_batch_size 32 \
    --per_device_eval_batch_size 4 \
    --gradient_accumulation_steps 4 \
    --precision auto --scale_loss 1024 \
    --fp16_opt_level O2 \
    --use_flash_attention auto \
    --use_fused_rms_norm auto \
    --recompute 0 \
    --learning_rate 3e-5 \
    --lr_scheduler_type linear \
    --warmup_steps 20 \
    --max_grad_norm 1.0 \
    --num_train_epochs 1 \
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
