# Reinforcement with rewards that can be checked: the model answers each prompt several times, and learns from how much
# better each answer is than the others.
#
# The recipes of a model run this with its name, what they train, batch and lengths; what they state wins over what is
# here.
# Data       ./data/train.json, ./data/dev.json: {"question": ..., "answer": "... #### 42"} and more forms
#            (docs/reinforce.md)
# Reward     1 where the last number of an answer, or what stands in \boxed{}, equals the right answer's by value;
#            ARGS="--reward FILE.py:FUNCTION" gives your own
# Loss       GRPO; ARGS="--algorithm dr_grpo", dapo, gspo or rloo (docs/reinforce.md)
# Precision  bf16 on A100, 3090 and newer, fp16 on older cards; --precision auto prints its choice and why
run launch/train.py reinforcement \
    --dataset_name_or_path ./data \
    --reward number \
    --algorithm grpo \
    --group_size 8 \
    --temperature 1.0 \
    --per_device_eval_batch_size 64 \
    --precision auto --scale_loss 1024 \
    --fp16_opt_level O2 \
    --use_flash_attention auto \
    --use_fused_rms_norm auto \
    --lr_scheduler_type constant \
    --weight_decay 0 \
    --max_grad_norm 1.0 \
    --max_steps 200 \
    --save_steps 50 \
    --save_total_limit 2 \
    --eval_steps 50 \
    --evaluation_strategy steps \
    --logging_steps 1 \
    --do_train 1 \
    --do_eval 1 \
    --disable_tqdm 1 \
    --report_to visualdl \
    --device gpu \
    "$@"
