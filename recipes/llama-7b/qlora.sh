#!/usr/bin/env bash
# LLaMA-7B LoRA fine-tuning on one card, with a base in 4 bits.
# Alias      qlora-1gpu
# Hardware   1 card of 24 GB (A10, RTX 3090, RTX 4090): 3.9 GB of weights in 4 bits. They are read one by one, so
#            the 13.5 GB in 16 bits are never in memory
# Base       nf4, with one scale of 8 bits for 64 weights: 4.13 bits a weight in the linear layers. For less rounding,
#            ARGS="--weight_quantize_algo weight_only_int8" uses 8 bits
# Batch      1 data rank x 16 rows x 1 accumulation = 16 a step
# Trains     20.0 M of 6.74 B parameters: r (inputs + outputs) for each of the 7 x 32 linear layers
# Saves      only the adapter, 80 MB
# Data       ./data/train.json, ./data/dev.json: {"src": ..., "tgt": ...} or another schema of docs/finetune.md
# Lengths    128 tokens for the question, 160 for the answer, 288 together
# Packing    a row of 288 tokens holds as many samples as fit, and none sees another; so the shorter they are, the fewer
#            steps an epoch has. `--zero_padding 0` makes each sample a row
# Precision  bf16 on A100, 3090 and newer, fp16 on older cards; --precision auto prints its choice and why
# Licence    of the weights: LLaMA License Agreement, non-commercial research only; Meta grants it on application.
#            facebook/llama-7b is a copy on PaddleNLP's hub, under the same terms
source "$(dirname "$0")/../../launch/recipe.sh"
GPUS=1 GPU_MEMORY_GB=24

run launch/finetune_generation.py \
    --model_name_or_path facebook/llama-7b \
    --dataset_name_or_path ./data \
    --src_length 128 \
    --max_length 288 \
    --zero_padding 1 \
    --output_dir ./checkpoints/llama-7b-qlora \
    --lora 1 \
    --lora_rank 8 \
    --lora_alpha 16 \
    --weight_quantize_algo nf4 \
    --weight_double_quant 1 \
    --per_device_train_batch_size 16 \
    --per_device_eval_batch_size 4 \
    --gradient_accumulation_steps 1 \
    --precision auto --scale_loss 1024 \
    --fp16_opt_level O2 \
    --use_flash_attention auto \
    --use_fused_rms_norm auto \
    --recompute 1 --recompute_granularity full_attn \
    --learning_rate 3e-4 \
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
