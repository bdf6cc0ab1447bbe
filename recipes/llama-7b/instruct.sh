#!/usr/bin/env bash
# LLaMA-7B instruction tuning on chats, loss on answers only, all parameters, tensor parallel 4.
# Hardware   4 cards of 80 GB (A100, A800, H100)
# Batch      1 data rank x 32 rows x 4 accumulation = 128 a step
# Data       ./data/train.json, ./data/dev.json: Alpaca, ShareGPT or {"messages": [...]} (docs/finetune.md)
# Template   LLaMA 2's: [INST] question [/INST] answer </s>; select another with ARGS="--chat_template NAME"
# Lengths    128 tokens for the question, 288 for a dialogue; turns that do not fit are left out and counted
# Packing    a row of 288 tokens holds as many samples as fit, and none sees another; so the shorter they are, the fewer
#            steps an epoch has. `--zero_padding 0` makes each sample a row
# Licence    of the weights: LLaMA License Agreement, non-commercial research only; Meta grants it on application.
#            facebook/llama-7b is a copy on PaddleNLP's hub, under the same terms
source "$(dirname "$0")/../../launch/recipe.sh"
GPUS=4 GPU_MEMORY_GB=80

run recipes/methods/short-pairs.sh \
    --model_name_or_path facebook/llama-7b \
    --chat_template llama \
    --zero_padding 1 \
    --output_dir ./checkpoints/llama-7b-instruct \
    --tensor_parallel_degree 4 \
    --per_device_train_batch_size 32 \
    --gradient_accumulation_steps 4 \
    --scale_loss 1024 \
    --recompute 0 \
    --learning_rate 3e-5 \
    --num_train_epochs 1 \
    "$@"
