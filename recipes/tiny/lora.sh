#!/usr/bin/env bash
# A small LLaMA's LoRA fine-tuning on a CPU.
# Alias      lora-cpu
# Hardware   1 process on any CPU; about 2 minutes on 2 cores
# Batch      1 data rank x 16 samples x 1 accumulation = 16 a step
# Trains     0.2 M of 6.8 M parameters: r (inputs + outputs) for each of the 7 x 6 linear layers
# Saves      only the adapter, 1 MB
# Expect     evaluation loss 3.8 at the end on the model of `make demo`, which has 5.5 before training
# Data       build/demo-finetune/data/train.json, build/demo-finetune/data/dev.json: questions about Python's standard
#            library from `make demo-finetune`; made within a second if they are missing
# Model      build/demo/model, made by `make demo`
# Lengths    64 tokens for the question, 48 for the answer, 112 together
# Licence    of the weights: yours, because they start from random values
source "$(dirname "$0")/../../launch/recipe.sh"
GPUS=0 PROCESSES=1

run launch/finetune_generation.py \
    --model_name_or_path build/demo/model \
    --dataset_name_or_path build/demo-finetune/data \
    --src_length 64 \
    --max_length 112 \
    --output_dir build/demo/lora \
    --lora 1 \
    --lora_rank 8 \
    --per_device_train_batch_size 16 \
    --per_device_eval_batch_size 32 \
    --gradient_accumulation_steps 1 \
    --learning_rate 5e-3 \
    --lr_scheduler_type linear \
    --warmup_steps 10 \
    --max_grad_norm 1.0 \
    --max_steps 200 \
    --save_steps 100 \
    --eval_steps 100 \
    --evaluation_strategy steps \
    --logging_steps 10 \
    --do_train 1 \
    --do_eval 1 \
    --disable_tqdm 1 \
    --report_to visualdl \
    --device cpu \
    "$@"
