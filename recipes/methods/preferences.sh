# Preference tuning on pairs of responses to a prompt, a chosen and a rejected one.
#
# The recipes of a model run this with its name, what they train, loss, layout and batch; what they state wins over what
# is here.
# Data       ./data/train.json, ./data/dev.json: {"prompt": ..., "chosen": ..., "rejected": ...} and more forms
#            (docs/align.md)
# Lengths    1536 tokens for the prompt where a response needs the room, 2048 for a prompt with a response
# Packing    a sample is two rows of 2048 tokens: chosen responses in one, rejected ones in the other, each behind its
#            prompt, as many as fit, and none sees another. `--zero_padding 0` makes each pair a sample
# Precision  bf16 on A100, 3090 and newer, fp16 on older cards; --precision auto prints its choice and why
run launch/run_dpo.py \
    --dataset_name_or_path ./data \
    --src_length 1536 \
    --max_length 2048 \
    --zero_padding 1 \
    --per_device_eval_batch_size 1 \
    --precision auto --scale_loss 1024 \
    --fp16_opt_level O2 \
    --use_flash_attention auto \
    --use_fused_rms_norm auto \
    --lr_scheduler_type cosine \
    --warmup_ratio 0.1 \
    --weight_decay 0 \
    --max_grad_norm 1.0 \
    --num_train_epochs 1 \
    --save_steps 200 \
    --save_total_limit 2 \
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
