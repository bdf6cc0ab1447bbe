#!/usr/bin/env bash
# A small LLaMA from random weights on a CPU, sharding stage 2.
# Hardware   2 processes on any CPU; 4 to 9 minutes on 2 cores
# Tokens     2 processes x 4 samples x 256 = 2048 a step, 1.02 M in 500 steps
# Expect     first loss 8.4 (ln 4096 + 256 x 0.02^2 / 2), evaluation loss below 4.3 at the end on Python's
#            standard library
# Data       build/demo/data/*.bin + *.idx, made by `make demo`
# Licence    of the weights: yours, because they start from random values
source "$(dirname "$0")/../../launch/recipe.sh"
GPUS=0 PROCESSES=2

run launch/run_pretrain.py \
    --model_name_or_path llama-tiny \
    --continue_training 0 \
    --input_dir build/demo/data \
    --split 949,50,1 \
    --max_seq_length 256 \
    --output_dir build/demo/model \
    --sharding stage2 \
    --per_device_train_batch_size 4 \
    --per_device_eval_batch_size 4 \
    --gradient_accumulation_steps 1 \
    --learning_rate 1e-3 \
    --min_learning_rate 1e-4 \
    --lr_scheduler_type cosine \
    --warmup_ratio 0.02 \
    --weight_decay 0.1 \
    --max_grad_norm 1.0 \
    --max_steps 500 \
    --save_steps 250 \
    --eval_steps 250 \
    --evaluation_strategy steps \
    --logging_steps 20 \
    --do_train 1 \
    --do_eval 1 \
    --disable_tqdm 1 \
    --report_to visualdl \
    --device cpu \
    "$@"
