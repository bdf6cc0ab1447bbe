#!/usr/bin/env bash
# A tiny LLaMA's reinforcement (GRPO) on a CPU, all parameters.
# Hardware   1 process on any CPU; about 2 minutes on 2 cores
# Batch      1 data rank x 64 prompts of 8 answers x 1 accumulation = 64 prompts, 512 answers a step
# Expect     the right letter in 90 % and more of the answers to held-out prompts at the end, 7 % before
# Data       build/demo-grpo/prompts/train.json, build/demo-grpo/prompts/dev.json: four letters each, made by
#            `make demo-grpo`, which runs this recipe
# Model      build/demo-grpo/base, made by `make demo-grpo`: it answers with any letter
# Reward     1 for the letter that is the last in the alphabet, 0 for any other
# Lengths    16 tokens for the prompt, 4 for an answer
# Loss       GRPO; --kl_weight keeps answers varied until the right ones are found
# Licence    of the weights: yours, because they start from random values
source "$(dirname "$0")/../../launch/recipe.sh"
GPUS=0 PROCESSES=1

run recipes/methods/reinforcement.sh \
    --model_name_or_path build/demo-grpo/base \
    --dataset_name_or_path build/demo-grpo/prompts \
    --output_dir build/demo-grpo/grpo \
    --reward exact \
    --kl_weight 0.05 \
    --precision fp32 \
    --src_length 16 \
    --max_length 20 \
    --per_device_train_batch_size 64 \
    --per_device_eval_batch_size 300 \
    --sampled_at_once 512 \
    --learning_rate 7e-4 \
    --warmup_steps 2 \
    --max_steps 160 \
    --save_steps 40 \
    --eval_steps 10 \
    --logging_steps 5 \
    --device cpu \
    "$@"
