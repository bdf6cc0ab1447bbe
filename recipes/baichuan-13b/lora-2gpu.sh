#!/usr/bin/env bash
# Baichuan-13B continued pretraining with LoRA on raw text, sharding stage 3 with offload.
# Target     pretrain-baichuan13b-lora
# Alias      baichuan13b-lora-2gpu
# Hardware   2 cards of 24 GB (RTX 3090, 4090, A10) and 64 GB of host memory
# Base       in 16 bits, half of it in the host memory of each rank; a card holds only the layer that computes. An
#            interrupted run continues at its last checkpoint and reads each row of text once
# Tokens     2 cards x 16 samples x 1 accumulation x 1024 = 32,768 a step, 164 M in 5,000 steps
# Expect     first loss about 2 on text similar to the training data of the model
# Trains     31.2 M of 13.26 B parameters: r (inputs + outputs) for each of the 7 x 40 linear layers
# Saves      only the adapter, 125 MB; use it with make merge or make predict
# Data       ./data/*.bin + *.idx: token ids of the model's own tokenizer, made by make data-tokenize
# Weights    import those of Hugging Face with `make import MODEL=Baichuan-13B-Base OUTPUT=models/baichuan-13b`, then
#            start with MODEL=models/baichuan-13b
# Precision  bf16 on A100, 3090 and newer, fp16 on older cards; --precision auto prints its choice and why
# Licence    of the weights: Community License for Baichuan-13B Model; free for research, and commercially with written
#            permission from Baichuan Inc.
source "$(dirname "$0")/../../launch/recipe.sh"
GPUS=2 GPU_MEMORY_GB=24

run launch/run_pretrain.py \
    --model_name_or_path baichuan-inc/baichuan-13b \
    --continue_training 1 \
    --input_dir ./data \
    --split 949,50,1 \
    --max_seq_length 1024 \
    --output_dir ./checkpoints/baichuan-13b-lora \
    --lora 1 \
    --lora_rank 8 \
    --lora_alpha 16 \
    --sharding "stage3 offload" \
    --per_device_train_batch_size 16 \
    --per_device_eval_batch_size 1 \
    --gradient_accumulation_steps 1 \
    --precision auto \
    --fp16_opt_level O2 \
    --use_fused_rms_norm auto \
    --recompute 1 \
    --learning_rate 2e-4 \
    --min_learning_rate 2e-5 \
    --lr_scheduler_type cosine \
    --warmup_steps 50 \
    --max_grad_norm 1.0 \
    --max_steps 5000 \
    --save_steps 250 \
    --save_total_limit 2 \
    --eval_steps 250 \
    --evaluation_strategy steps \
    --logging_steps 10 \
    --dataloader_num_workers 1 \
    --do_train 1 \
    --do_eval 1 \
    --disable_tqdm 1 \
    --report_to visualdl \
    --device gpu \
    "$@"
