#!/usr/bin/env bash
# LLaMA-7B supervised fine-tuning, all parameters, sharding stage 2.
# Target     finetune-llama7b-stage2
# Hardware   4 cards of 80 GB (A100, A800, H100)
# Batch      4 data ranks x 16 rows x 2 accumulation = 128 a step
# Packing    a row of 288 tokens holds as many samples as fit, and none sees another; so the shorter they are, the fewer
#            steps an epoch has. `--zero_padding 0` makes each sample a row
# Licence    of the weights: LLaMA License Agreement, non-commercial research only; Meta grants it on application.
#            facebook/llama-7b is a copy on PaddleNLP's hub, under the same terms
source "$(dirname "$0")/../../launch/recipe.sh"
GPUS=4 GPU_MEMORY_GB=80

run recipes/methods/short-pairs.sh \
    --model_name_or_path facebook/llama-7b \
    --zero_padding 1 \
    --output_dir ./checkpoints/llama-7b-finetune-stage2 \
    --sharding stage2 \
    --per_device_train_batch_size 16 \
    --gradient_accumulation_steps 2 \
    --scale_loss 1024 \
    --recompute 0 \
    --learning_rate 3e-5 \
    --num_train_epochs 1 \
    "$@"
