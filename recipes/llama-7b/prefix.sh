#!/usr/bin/env bash
# LLaMA-7B prefix tuning on one card.
# Alias      prefix-1gpu
# Hardware   1 card of 40 GB (A100, A800, H100, RTX 6000 Ada)
# Batch      1 data rank x 4 samples x 4 accumulation = 16 a step
# Trains     16.8 M of 6.74 B parameters: 64 keys and values for each of 32 layers x 32 heads x 128 numbers
# Leaves     the prefix alone, 67 MB
# Rate       3e-2: AdamW moves each number by about the learning rate a step. The prefix begins near 0 (0.003) and must
#            reach the size of a model's own keys and values (about 1). 3e-5, which circulates too, is that of full
#            fine-tuning: in 1,000 steps it moves a prefix by 0.03 at most
# Data       ./data/train.json, ./data/dev.json: {"src": ..., "tgt": ...} or another schema of docs/finetune.md
# Lengths    128 of a question, 160 of its answer, together 288
# Precision  fp16 runs on every card since V100 and needs a loss scale. On A100 and newer replace the line
#            `--fp16 1 --scale_loss 1024` by `--bf16 1`: as wide a range as fp32, nothing to scale.
# Licence    of the weights: LLaMA License Agreement, non-commercial research only; Meta grants it to those who apply.
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
    --per_device_train_batch_size 4 \
    --per_device_eval_batch_size 4 \
    --gradient_accumulation_steps 4 \
    --fp16 1 --scale_loss 1024 \
    --fp16_opt_level O2 \
    --use_flash_attention auto \
    --use_fused_rms_norm auto \
    --recompute 1 \
    --learning_rate 3e-2 \
    --lr_scheduler_type linear \
    --warmup_steps 20 \
    --max_grad_norm 1.0 \
    --num_train_epochs 2 \
    --save_steps 500 \
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
