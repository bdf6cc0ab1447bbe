# Supervised fine-tuning of all parameters of an 8B model on one card of 24 GB, loss on answers only.
#
# The recipes of a model run this with its name and template; what they state wins over what is here.
# Data       ./data/train.json, ./data/dev.json: {"messages": [...]}, Alpaca, ShareGPT, {"src": ..., "tgt": ...}
#            (docs/finetune.md)
# Lengths    1536 tokens for the question, 2048 for a dialogue; turns that do not fit are left out and counted
# Packing    a row of 2048 tokens holds as many dialogues as fit, and none sees another. `--zero_padding 0` makes each
#            dialogue a row
# Optimizer  AdamW with moments in 8 bits in host memory, weights in bfloat16 without a float32 copy, each updated as
#            soon as its gradient is there (docs/low-memory.md)
# Batch      one micro batch a step, since no gradient is kept for the next one
run launch/finetune_generation.py \
    --dataset_name_or_path ./data \
    --src_length 1536 \
    --max_length 2048 \
    --zero_padding 1 \
    --per_device_train_batch_size 4 \
    --gradient_accumulation_steps 1 \
    --per_device_eval_batch_size 1 \
    --precision bf16 \
    --fp16_opt_level O2 \
    --use_flash_attention auto \
    --use_fused_rms_norm auto \
    --recompute 1 \
    --offload activations \
    --optim adamw_8bit \
    --offload_optim 1 \
    --update_in_backward 1 \
    --loss_chunk_tokens 256 \
    --learning_rate 5e-6 \
    --min_learning_rate 5e-7 \
    --lr_scheduler_type cosine \
    --warmup_ratio 0.03 \
    --weight_decay 0 \
    --max_grad_norm 1.0 \
    --num_train_epochs 1 \
    --save_steps 1000 \
    --save_total_limit 1 \
    --eval_steps 500 \
    --evaluation_strategy steps \
    --logging_steps 10 \
    --dataloader_num_workers 1 \
    --do_train 1 \
    --do_eval 1 \
    --disable_tqdm 1 \
    --report_to visualdl \
    --device gpu \
    "$@"
