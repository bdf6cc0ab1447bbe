# Supervised fine-tuning of all parameters on dialogues, loss on answers only.
#
# The recipes of a model run this with its name, template, layout and batch; what they state wins over what is here.
# Data       ./data/train.json, ./data/dev.json: {"messages": [...]}, Alpaca, ShareGPT, {"src": ..., "tgt": ...}
#            (docs/finetune.md)
# Lengths    3072 tokens for the question, 4096 for a dialogue; turns that do not fit are left out and counted
# Packing    a row of 4096 tokens holds as many dialogues as fit, and none sees another; so the shorter they are, the
#            fewer steps an epoch has. `--zero_padding 0` makes each dialogue a row
# Precision  bf16 on A100, 3090 and newer, fp16 on older cards; --precision auto prints its choice and why
run launch/finetune_generation.py \
    --dataset_name_or_path ./data \
    --src_length 3072 \
    --max_length 4096 \
    --zero_padding 1 \
    --per_device_eval_batch_size 1 \
    --precision auto --scale_loss 1024 \
    --fp16_opt_level O2 \
    --use_flash_attention auto \
    --use_fused_rms_norm auto \
    --recompute 0 \
    --learning_rate 1e-5 \
    --min_learning_rate 1e-6 \
    --lr_scheduler_type cosine \
    --warmup_ratio 0.03 \
    --weight_decay 0 \
    --max_grad_norm 1.0 \
    --num_train_epochs 2 \
    --save_steps 200 \
    --save_total_limit 1 \
    --eval_steps 100 \
    --evaluation_strategy steps \
    --logging_steps 5 \
    --dataloader_num_workers 1 \
    --do_train 1 \
    --do_eval 1 \
    --disable_tqdm 1 \
    --report_to visualdl \
    --device gpu \
    "$@"
