"""Shipped recipes as someone may change them, and exactly what the preflight says: rules, machines, data, output.

TABLE has, below a recipe and a situation, a row for each change: variables and flags (`-`: none), then each fault (✗)
and each announcement about a flag (✓), by subject and a part of its text or fix.
"""

import json
import re
from dataclasses import dataclass, field

from launch.families.named_configs import load_config
from tests.devices.fake_nvml import card

PRETRAIN, FOUR_D, TINY = "llama-7b/pretrain", "llama-7b/pretrain-4d", "tiny/pretrain"
A100S = [card("A100", index) for index in range(16)]
ROWS = "".join(json.dumps({"prompt": f"{n}", "chosen": f"yes {n}", "rejected": f"no {n}"}) + "\n" for n in range(8))
PAIRS = {"data/train.json": ROWS, "data/dev.json": ROWS}
EARLIER = "checkpoints/llama-7b-pretrain"


def odd(base: str = "llama-rehearsal", **sizes) -> dict:
    """A model directory with a small model's configuration."""
    return {"files": {"odd/config.json": json.dumps(load_config(base) | {"max_position_embeddings": 2048} | sizes)}}


# Files in the folder that the run is started from, or the machine's cards.
SITUATIONS = {
    "": {},
    "pairs": {"files": PAIRS},
    "hidden size of 102": odd(hidden_size=102, head_dim=26),
    "four layers": odd(),
    "window of 512": odd(sliding_window=512),
    "qwen2 with a window": odd(sliding_window=512, model_type="qwen2", architectures=["Qwen2ForCausalLM"]),
    "mixture of experts": odd("mixtral-rehearsal", output_router_logits=True),
    "dynamic rope": odd(rope_scaling={"type": "dynamic", "factor": 2.0}),
    "finished run": {"files": {f"{EARLIER}/train_log.jsonl": "{}", f"{EARLIER}/run_summary.json": "{}"}},
    "two cards": {"here": A100S[:2]},
    "sixteen cards": {"here": A100S},
    "V100s": {"here": [card("V100", index) for index in range(8)]},
}


@dataclass(frozen=True)
class Variant:
    """faults, told: (subject, a part of the text) of each. here: the machine's cards. files: path -> text."""

    recipe: str
    argv: str
    wishes: dict
    faults: list
    told: list
    here: list = field(default_factory=lambda: A100S[:8])
    files: dict = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.recipe} {self.argv} {self.wishes or ''}".strip()

    @property
    def of_flags_alone(self) -> bool:
        """Whether flags and the model's configuration decide all that is said."""
        subjects = {subject for subject, _ in [*self.faults, *self.told]}
        of_cards = {"--bf16", "--use_flash_attention"}
        return self.here == A100S[:8] and all(one.startswith("--") for one in subjects) and not subjects & of_cards


TABLE = r"""
== llama-7b/pretrain
--max_step 10 ✗ --max_step: unknown flag
--sharding stage4 ✗ --sharding: found 'stage4'
--lr_scheduler_type cosinus ✗ --lr_scheduler_type: found 'cosinus'
--merge_weights True ✗ --merge_weights: a flag of PaddleNLP
--virtual_pp_degree 2 ✗ --virtual_pp_degree: interleaved pipeline
--prefix_tuning 1 ✗ --prefix_tuning: 1 in pretraining
--optim adafactor ✗ --optim: adafactor on 8 processes ✗ --optim: adafactor in float16
--sharding "stage1 offload" ✗ --sharding: offload is of stage2 and stage3
--sharding "stage2 offload" --tensor_parallel_degree 8
    ✗ --sharding: the sharding degree is 1, where upstream switches sharding off and offload with it
    ✓ --sharding: does nothing
--sharding "stage2 offload" --offload_optim 1 ✗ --offload_optim: all of the optimizer's states to the card at once
--sharding "stage3 offload" --amp_master_grad 1 ✗ --amp_master_grad: where offload does not look
--sharding "stage2 offload" --sharding_parallel_config enable_stage2_overlap --logging_steps 10
    --gradient_accumulation_steps 1 --bf16 1 --fp16 0
    ✗ --sharding_parallel_config: leave for the host before its sum
--sharding "stage2 offload" --optim adamw_mini ✗ --optim: not made parameter by parameter
--offload activations --recompute 1 --recompute_granularity core_attn ✗ --offload: other activations stay on the card
--sharding "stage1 stage2" ✗ --sharding: one stage at a time
--sharding stage3
--sharding stage3 --tensor_parallel_degree 2 ✗ --sharding: stage3 with --tensor_parallel_degree 2
GPUS=1 ✗ memory: DOES NOT FIT: 137 ✓ --sharding: stage2 does nothing on 1 process
--sharding_parallel_degree 3 ✗ --sharding_parallel_degree: 3 does not divide the 8
--sharding "" --sharding_parallel_degree 4 ✗ --sharding_parallel_degree: 4 without --sharding
--tensor_parallel_degree 3 ✗ --tensor_parallel_degree: do not divide 8 processes
    ✗ --tensor_parallel_degree: 3 for 32 attention heads
    ✗ --tensor_parallel_degree: 3 for an intermediate size of 11008
    ✓ --tensor_parallel_degree: 3 does not divide the vocabulary of 32000
--model_name_or_path some/bloom-7b1 --tensor_parallel_degree 3 --sharding stage1
    ✗ --tensor_parallel_degree: do not divide 8 processes ✗ --tensor_parallel_degree: 3 for 32 attention heads
    ✗ --tensor_parallel_degree: 3 does not divide the vocabulary of 250880
--sequence_parallel 1 ✗ --sequence_parallel: 1 without tensor parallel
--warmup_ratio 2 ✗ --warmup_ratio: found '2'
--precision auto --bf16 1 ✗ --precision: auto with --bf16 or --fp16: it is said instead of them
--scale_loss 8 --min_loss_scale 16 ✗ --min_loss_scale: 16 with --scale_loss 8: the loss scale
--max_steps 0 ✗ --max_steps: 0: pretraining runs for a number of steps
--num_train_epochs 3 --warmup_steps 5 ✓ --num_train_epochs: does nothing ✓ --warmup_ratio: does nothing
--warmup_ratio 0 --warmup_steps 20000 --max_steps 20000 ✓ --warmup_steps: 20000 with --max_steps 20000
--learning_rate 0 --min_learning_rate 0 ✓ --learning_rate: 0: no weight changes
--learning_rate 1e-6
    ✗ --learning_rate: 1e-06 with --min_learning_rate 5e-06: --lr_scheduler_type cosine ends at the latter
--learning_rate 0 ✗ --learning_rate: 0 with --min_learning_rate 5e-06
--learning_rate 1e-6 --lr_scheduler_type constant
--learning_rate 90 ✓ --learning_rate: 90 for all parameters: usual rates are 1e-6 to 6e-4
--learning_rate 1e-3
--max_eval_samples 0 ✗ --max_eval_samples: 0 with --do_eval 1: an evaluation needs samples
--bf16 1 --fp16 1 ✗ --fp16: one precision at a time
--amp_master_grad 1 --sharding_parallel_degree 4 ✗ --amp_master_grad: 1 with stage2 and data parallel 2
--sharding stage1 --sharding_parallel_config enable_stage1_broadcast_overlap
    ✗ --sharding_parallel_config: USE_CASUAL_MASK
--sharding_parallel_config enable_stage2_overlap --logging_steps 1 --gradient_accumulation_steps 1 --bf16 1 --fp16 0
    ✗ --sharding_parallel_config: enable_stage2_overlap with --sharding stage2 --logging_steps 1
--sharding_parallel_config enable_stage2_overlap --gradient_accumulation_steps 4 --bf16 0 --fp16 1
    ✗ --sharding_parallel_config: enable_stage2_overlap in float16
    ✗ --sharding_parallel_config: enable_stage2_overlap with --gradient_accumulation_steps 4
--sharding_parallel_config enable_stage2_overlap --gradient_accumulation_steps 4 --precision auto
    ✗ --sharding_parallel_config: enable_stage2_overlap in float16
    ✗ --sharding_parallel_config: enable_stage2_overlap with --gradient_accumulation_steps 4
--sharding_parallel_config enable_stage2_overlap --logging_steps 10 --bf16 1 --fp16 0 --gradient_accumulation_steps 1
--sharding_parallel_config split_param ✗ --sharding_parallel_config: split_param is of stage1
    ✗ --sharding_parallel_config: split_param without --amp_master_grad 1
--sharding stage1 --sharding_parallel_config enable_stage1_tensor_fusion
    ✗ --sharding_parallel_config: a run that is continued would begin without them
--sharding stage1 --sharding_parallel_config enable_stage1_tensor_fusion --save_strategy no
--pipeline_parallel_config enable_timer ✓ --pipeline_parallel_config: the pipeline parallel degree is 1
--tensor_parallel_config sync_param ✓ --tensor_parallel_config: the tensor parallel degree is 1
--tensor_parallel_degree 8 --model_name_or_path llama-3-8b --sequence_parallel 0
    ✓ --sharding: stage2 does nothing on 8 processes: tensor parallel 8
--tensor_parallel_degree 8 --model_name_or_path some/qwen2-7b ✗ --tensor_parallel_degree: 8 for 28 attention heads
    ✓ --sharding: stage2 does nothing on 8 processes: tensor parallel 8
--model_name_or_path some/chatglm-6b ✗ --model_name_or_path: has no pretraining
--loss_chunk_tokens 0 ✗ --loss_chunk_tokens: '0': the tokens of a chunk are a whole number
--sequence_slices 0 ✗ --sequence_slices: '0': the slices of a micro batch are a whole number
--sequence_slices 4 --model_name_or_path some/bloom-7b1 ✗ --sequence_slices: 4 for Bloom
--sequence_slices auto --sharding stage3 ✗ --sequence_slices: auto on 8 processes: sharding stage3 8
--sequence_slices auto
--sep_parallel_degree 4
--sep_parallel_degree 3 ✗ --sep_parallel_degree: 3 does not divide the 8
--sep_parallel_degree 4 --model_name_or_path some/bloom-7b1 ✗ --sep_parallel_degree: 4 for Bloom
--sep_parallel_degree 8 --model_name_or_path some/qwen2-7b ✗ --sep_parallel_degree: 8 for 28 attention heads
--sep_parallel_degree 8 --model_name_or_path tinyllama-1.1b ✗ --sep_parallel_degree: 8 for 4 key/value heads
--sep_parallel_degree 4 --max_seq_length 2046 ✗ --max_seq_length: 2046 with --sep_parallel_degree 4
--sep_parallel_degree 2 --tensor_parallel_degree 2 ✗ --sep_parallel_degree: 2 on 8 processes: sharding stage2 4
--rslora 1 --lora_plus_scale 16 ✓ --rslora: does nothing without --lora 1 ✓ --lora_plus_scale: 16 does nothing without
--model_name_or_path nowhere/x ✗ model: 'nowhere/x' is no directory
--max_seq_length 4096 ✗ --max_seq_length: 4096, and the model knows 2048 positions
--max_seq_length 4096 --continue_training 0 ✓ --max_seq_length: the new model gets as many positions
--metric_for_best_model accuracy ✗ --metric_for_best_model: accuracy: an evaluation of this
--unified_checkpoint_config "skip_save_model_weight ignore_merge_optimizer"
    ✗ --unified_checkpoint_config: exclude each other
--load_best_model_at_end 1 --evaluation_strategy epoch
    ✗ --load_best_model_at_end: 1 with --evaluation_strategy epoch --save_strategy steps
--ignore_load_lr_and_optim 1 --ignore_data_skip 1 ✗ --ignore_data_skip: would see again what it has seen
    ✓ --ignore_load_lr_and_optim: only the weights
--save_sharded_model 1 ✗ --save_sharded_model: each rank always saves its own part
--unified_checkpoint_config "enable_all_options remove_master_weight"
    ✗ --unified_checkpoint_config: drops every other word
--unified_checkpoint 1 --unified_checkpoint_config enable_all_options
    ✓ --unified_checkpoint_config: checkpoints are this program's own
--unified_checkpoint_config remove_master_weight ✓ --unified_checkpoint_config: async_save alone means something
--load_best_model_at_end 1 --save_steps 150 ✗ --save_steps: 150 with --eval_steps 100
--resume_from_checkpoint True ✗ resume: True is no checkpoint
--input_dir nowhere ✗ data: no data at nowhere
== tiny/pretrain
--max_steps ten ✗ --max_steps: found 'ten'
--tensor_parallel_degree 4 ✗ --tensor_parallel_degree: do not divide 2 processes
--fp16 1 --fp16_opt_level O2 ✗ --fp16_opt_level: O2 with float16 and --device cpu: weights
--precision fp16 --fp16_opt_level O2 ✗ --fp16_opt_level: O2 with float16 and --device cpu: weights
--amp_master_grad 1 ✓ --amp_master_grad: 1 does nothing
--sharding stage1 --sharding_parallel_config enable_stage1_overlap
    ✗ --sharding_parallel_config: enable_stage1_overlap with --device cpu
--use_flash_attention required ✗ --use_flash_attention: found required, not possible here
== llama-7b/finetune
--do_train 0 --do_eval 0 ✗ --do_train: 0, and no --do_eval
--model_name_or_path glm-515m --tensor_parallel_degree 1 --sharding stage3 ✗ --sharding: stage3 with GLM
--lora 1 --pissa 1 ✗ --pissa: 1 with --tensor_parallel_degree 4:
--metric_for_best_model eval_bleu ✗ --metric_for_best_model: eval_bleu: an evaluation of this run does not measure it
== llama-7b/lora
--model_name_or_path glm-515m --zero_padding 1 ✗ --zero_padding: GLM has no packing
GPUS=2 --sharding stage2 --sharding_parallel_config enable_stage2_overlap --logging_steps 10 --lora_dropout 0.1
    --gradient_accumulation_steps 2 --bf16 1 --fp16 0
    ✗ --sharding_parallel_config: enable_stage2_overlap with --lora_dropout 0.1
--pissa 1 --weight_quantize_algo nf4 ✗ --pissa: 1 with --weight_quantize_algo nf4: weights are quantized
--pissa 1 --lora 0 ✗ --pissa: 1 without --lora 1
--dora 1 --pissa 1 --lora 0
    ✗ --pissa: 1 without --lora 1 ✗ --dora: 1 without --lora 1 ✗ --dora: 1 with --pissa 1: PiSSA's adapter is written
--trainable_token_indices 7 64000 --pissa 1
    ✗ --trainable_token_indices: 7 64000 with a vocabulary of ✗ --trainable_token_indices: 7 64000 with --pissa 1
--trainable_token_indices 7 --weight_quantize_algo nf4 --quantize_head 1
    ✗ --trainable_token_indices: 7 with --quantize_head or --offload_embedding
--trainable_token_indices 7 --lora 0 ✗ --trainable_token_indices: 7 without --lora 1
GPUS=2 --tensor_parallel_degree 2 --trainable_token_indices 7
    ✗ --trainable_token_indices: 7 with --tensor_parallel_degree 2 and
--model_name_or_path glm-515m --zero_padding 0 --trainable_token_indices 7 ✗ --trainable_token_indices: 7 with a GLM
--lora_target_modules q_proj qkv_proj ✗ --lora_target_modules: found qkv_proj, allowed: q_proj, k_proj
--prefix_tuning 1 ✗ --zero_padding: in a way of its own ✗ --lora: 1 with --prefix_tuning 1: one adapter at a time
--lora 0 --prefix_tuning 1 --zero_padding 0
--learning_rate 90 ✓ --learning_rate: 90 for a LoRA: usual rates are 1e-5 to 1e-3
--learning_rate 0.01
--pad_to_multiple_of 7 ✗ --pad_to_multiple_of: 7, which does not divide --max_length
--lora 0 --weight_quantize_algo nf4 ✗ --weight_quantize_algo: nf4 without an adapter
--weight_quantize_algo llm.int8 --pad_to_multiple_of 8
--quantize_head 1 ✓ --quantize_head: 1 does nothing without --weight_quantize_algo
--offload_embedding 1
--lora 0 --offload_embedding 1 ✗ --offload_embedding: 1 without an adapter
--model_name_or_path qwen2.5-0.5b --offload_embedding 1 ✗ --offload_embedding: 1 for a model without an output layer
GPUS=2 --tensor_parallel_degree 2 --offload_embedding 1 ✗ --offload_embedding: 1 with a model that is divided
--weight_quantize_algo llm.int8 --quantize_head 1 ✗ --quantize_head: 1 with --weight_quantize_algo llm.int8
--weight_quantize_algo nf4 --quantize_head 1 --fp32_norms_and_head 1
    ✗ --quantize_head: 1 with --fp32_norms_and_head 1
--model_name_or_path qwen2.5-0.5b --weight_quantize_algo nf4 --quantize_head 1
    ✗ --quantize_head: 1 for a model without an output layer of its own
GPUS=2 --tensor_parallel_degree 2 --weight_quantize_algo nf4 --quantize_head 1
    ✗ --quantize_head: 1 with --tensor_parallel_degree 2 and --pipeline_parallel_degree 1
--weight_quantize_algo llm.int8 --sequence_slices auto ✗ --sequence_slices: auto with --weight_quantize_algo llm.int8
GPUS=2 --sharding stage1 --sharding_parallel_config enable_stage1_overlap --save_strategy no
    ✗ --sharding_parallel_config: enable_stage1_overlap with --lora 1
GPUS=2 --sep_parallel_degree 2 --lora 0 --prefix_tuning 1 --zero_padding 0
    ✗ --prefix_tuning: 1 with --sep_parallel_degree 2
GPUS=2 --sep_parallel_degree 2 --eval_with_do_generation 1 --neftune 1
    ✗ --eval_with_do_generation: 1 with --sep_parallel_degree 2 ✗ --neftune: 1 with --sep_parallel_degree 2
GPUS=2 --eval_with_do_generation 1 --tensor_parallel_degree 2 --sequence_parallel 1
    ✗ --eval_with_do_generation: 1 with --sequence_parallel 1
GPUS=2 --pipeline_parallel_degree 2 --gradient_accumulation_steps 2 --eval_with_do_generation 1
    ✗ --eval_with_do_generation: a pipeline does not generate ✓ --per_device_eval_batch_size: 4 becomes 16
    ✓ --pipeline_parallel_config: disable_p2p_cache_shape is added
GPUS=2 --pipeline_parallel_degree 2 --gradient_accumulation_steps 2 --fp32_norms_and_head 1
    --pipeline_parallel_config disable_p2p_cache_shape --per_device_eval_batch_size 16
    ✗ --fp32_norms_and_head: 1 with --pipeline_parallel_degree 2
GPUS=2 --pipeline_parallel_degree 2 --gradient_accumulation_steps 2 --lora 0 --prefix_tuning 1 --zero_padding 0
    --pipeline_parallel_config disable_p2p_cache_shape --per_device_eval_batch_size 16
    ✗ --prefix_tuning: 1 with --pipeline_parallel_degree 2
== llama3-8b/finetune-1gpu
--gradient_accumulation_steps 2 ✗ --update_in_backward: no gradient is there to add
--precision fp16 ✗ --optim: adamw_8bit in float16 ✗ --update_in_backward: 1 in float16
--amp_master_grad 1 ✗ --update_in_backward: where it does not look
--optim adamw_mini ✗ --update_in_backward: not made parameter by parameter
    ✗ --offload_optim: 1 with --update_in_backward 1 --optim adamw_mini
--optim adamw ✗ --offload_optim: which needs them before
--offload_optim 0 ✗ memory: DOES NOT FIT: 36
GPUS=2 ✗ --optim: adamw_8bit on 2 processes ✗ --update_in_backward: 1 on 2 processes
--optim adafactor --offload_optim 0
--optim adafactor --offload_optim 0 --adam_beta1 0.8 --adam_beta2 0.99 --adam_epsilon 1e-6 ✓ --adam_beta1: does nothing
    ✓ --adam_beta2: does nothing ✓ --adam_epsilon: does nothing
--optim adafactor ✗ --offload_optim: 1 with --optim adafactor
GPUS=2 --optim adafactor --offload_optim 0 --update_in_backward 0 ✗ --optim: adafactor on 2 processes
== llama-7b/pretrain-4d
--sharding stage2 ✗ --sharding: stage2 with --pipeline_parallel_degree 2
--sharding stage3 ✗ --sharding: stage3 with --pipeline_parallel_degree 2
    ✗ --sharding: stage3 with --tensor_parallel_degree 2
--tensor_parallel_degree 4 ✓ --sharding: stage1 does nothing on 8 processes: tensor parallel 4 x pipeline parallel 2
--max_seq_length 2047 ✗ --max_seq_length: 2047 with --sequence_parallel over 2 ranks
--pipeline_parallel_config use_dualpipev ✗ --pipeline_parallel_config: interleaved pipeline
--optim adamw_mini ✗ --optim: adamw_mini with --tensor_parallel_degree 2
--gradient_accumulation_steps 1 ✓ --gradient_accumulation_steps: stages wait for each other
    ✓ --per_device_eval_batch_size: becomes
--per_device_eval_batch_size 1 ✓ --per_device_eval_batch_size: 1 becomes 128
--sharding_parallel_config split_param --amp_master_grad 1
    ✗ --sharding_parallel_config: split_param: the optimizer's states then lie in fused buffers
--sharding_parallel_config enable_stage1_tensor_fusion ✓ --sharding_parallel_config: ignores
--pipeline_parallel_config enable_dp_comm_overlap ✗ --pipeline_parallel_config: overlap has accuracy issue
--pipeline_parallel_config enable_sharding_comm_overlap
    ✗ --pipeline_parallel_config: enable_sharding_comm_overlap without --amp_master_grad 1
--tensor_parallel_config enable_mp_skip_c_identity ✗ --tensor_parallel_config: without enable_mp_async_allreduce
--pipeline_parallel_config enable_sharding_comm_overlap --sharding_parallel_degree 1
    ✗ --pipeline_parallel_config: enable_sharding_comm_overlap with data parallel 2
    ✓ --sharding: stage1 does nothing on 8 processes: data parallel 2 x
--tensor_parallel_degree 4 --sharding_parallel_config disable_stage1_reduce_avg ✓ --sharding: stage1 does nothing
    ✓ --sharding_parallel_config: the sharding parallel degree is 1
--tensor_parallel_degree 1 --pipeline_parallel_degree 8 --sequence_parallel 0 --gradient_accumulation_steps 32
    --per_device_eval_batch_size 64 --model_name_or_path some/qwen2-7b
    ✓ --sharding: stage1 does nothing on 8 processes: pipeline parallel 8
    ✓ --pipeline_parallel_degree: 8 stages for 28 layers
--model_name_or_path some/bloom-7b1 ✗ --pipeline_parallel_degree: Bloom has no pipeline parallel:
    ✗ --sequence_parallel: Bloom has no sequence parallel:
--model_name_or_path some/chatglm2-6b --sequence_parallel 0 --recompute 1
    ✗ --recompute_granularity: saves every activation all the same
== baichuan-13b/lora-2gpu
--pissa 1 ✗ --pissa: 1 with --sharding stage3 offload: weights are sliced
--dora 1 ✗ --dora: 1 with --sharding stage3 offload: weights are sliced
--trainable_token_indices 7 ✗ --trainable_token_indices: 7 with --sharding stage3 offload: weights are sliced
== llama-7b/pretrain @ sixteen cards
GPUS=16 --tensor_parallel_degree 16 --model_name_or_path some/llama-3-8b
    ✗ --tensor_parallel_degree: 16 for 8 key/value heads
    ✓ --sharding: stage2 does nothing on 16 processes: tensor parallel 16
== llama-7b/pretrain @ hidden size of 102
--tensor_parallel_degree 4 --model_name_or_path odd --continue_training 0
    ✗ --tensor_parallel_degree: 4 for a hidden size of 102
== llama-7b/pretrain-4d @ four layers
--model_name_or_path odd --continue_training 0 --tensor_parallel_degree 1 --sequence_parallel 0
    --pipeline_parallel_degree 8
    ✗ --pipeline_parallel_degree: 8 stages for 4 layers
    ✓ --sharding: stage1 does nothing on 8 processes: pipeline parallel 8
== llama-7b/pretrain @ window of 512
--max_seq_length 1024 --model_name_or_path odd --continue_training 0
    ✗ --max_seq_length: 1024, and the model's attention reaches 512 positions
== llama-7b/pretrain @ qwen2 with a window
--max_seq_length 1024 --model_name_or_path odd --continue_training 0
== llama-7b/finetune @ mixture of experts
--model_name_or_path odd --continue_training 0 --tensor_parallel_degree 2
    ✓ --model_name_or_path: fine-tuning leaves the auxiliary loss of experts out
== llama-7b/finetune @ dynamic rope
--zero_padding 1 --model_name_or_path odd --continue_training 0 --tensor_parallel_degree 1
    ✗ --zero_padding: 1, and rope_scaling in the model's config.json is dynamic
== llama-7b/finetune @ window of 512
--max_length 1024 --model_name_or_path odd --continue_training 0 --tensor_parallel_degree 1
    ✗ --max_length: 1024, and the model's attention reaches 512 positions
== llama-7b/pretrain @ finished run
- ✗ output: holds an earlier run
== qwen2.5-7b/dpo-lora @ pairs
--loss_type apo ✗ --loss_type: 'apo'
GPUS=2 --sep_parallel_degree 2 ✗ --sep_parallel_degree: 2 with a loss of whole texts
--metric_for_best_model kl --reference_free 1
    ✗ --metric_for_best_model: Fix: one of loss, accuracy, rewards_chosen, rewards_rejected, rewards_margin; in
--metric_for_best_model kl
--undesirable_weight 2 ✓ --desirable_weight: this and --undesirable_weight do nothing with --loss_type sigmoid
GPUS=2 --pipeline_parallel_degree 2
    ✗ --reference: auto with --pipeline_parallel_degree 2: a micro batch goes through the stages once
    ✓ --per_device_eval_batch_size: 1 becomes 16
    ✓ --pipeline_parallel_config: disable_p2p_cache_shape is added
GPUS=2 --pipeline_parallel_degree 2 --reference precomputed --pipeline_parallel_config disable_p2p_cache_shape
    ✓ --per_device_eval_batch_size: 1 becomes 16
GPUS=2 --lora 0 --sharding 'stage3 offload' ✗ --weight_quantize_algo: nf4 without an adapter
    ✗ --sharding: stage3 offload with a reference that is a second copy: the copy would stay on the device
    ✓ --sharding: stage3 with a reference that is a second copy
--lora 0 --prefix_tuning 1 --zero_padding 0 ✗ --prefix_tuning: 1 in preference tuning: a prefix cannot be switched off
--reference copy ✗ --reference: copy with --lora 1: the model without its adapter is the reference already
--lora 0 --reference adapter_off ✗ --weight_quantize_algo: nf4 without an adapter
    ✗ --reference: adapter_off without --lora 1: there is no adapter
--loss_type simpo --reference precomputed ✓ --reference: precomputed does nothing here: no reference is compared with
--pissa 1 --weight_double_quant 0 ✗ --pissa: weights are quantized ✗ --pissa: 1 in preference
--model_name_or_path chatglm-6b --zero_padding 0 --chat_template none
    ✗ --model_name_or_path: it reads a prompt in both directions
--loss_type ipo --label_smoothing 0.1 --simpo_gamma 1 --loss_spike 3
    ✓ --label_smoothing: 0.1 does nothing with --loss_type ipo ✓ --simpo_gamma: 1 does nothing with --loss_type ipo
    ✓ --loss_spike: this and --loss_collapse do nothing
== qwen3-8b/kto-lora @ pairs
--zero_padding 1 --reference_free 1 ✗ --zero_padding: 1 with --loss_type kto: single responses are not packed
    ✗ --reference_free: 1 with --loss_type kto: KTO compares each response
--reference precomputed ✗ --reference: precomputed with --loss_type kto
GPUS=2 --lora 0 --sharding 'stage3 offload' ✗ --weight_quantize_algo: nf4 without an adapter
    ✗ --sharding: the copy would stay on the device, whole. Fix: --lora 1, which needs no copy, or --sharding
    ✓ --sharding: only tensor parallelism shards it; --lora 1 needs none
--metric_for_best_model rewards_margin
    ✗ --metric_for_best_model: does not measure it. Fix: one of loss, accuracy, kl; in
--metric_for_best_model kl
--sft_loss_ratio 0.5 ✓ --pref_loss_ratio: this and --sft_loss_ratio do nothing with --loss_type kto
GPUS=2 --pipeline_parallel_degree 2 --pipeline_parallel_config disable_p2p_cache_shape
    ✗ --pipeline_parallel_degree: 2 with --loss_type kto: the passes that z0 needs
    ✓ --per_device_eval_batch_size: 1 becomes 32
== qwen2.5-7b/reward-lora @ pairs
--model_name_or_path opt-6.7b --zero_padding 0 --chat_template none
    ✗ --model_name_or_path: a OPT: a reward model is made of a decoder that transformers opens with a score
GPUS=2 --pipeline_parallel_degree 2 ✗ --pipeline_parallel_degree: 2 for a reward model: the last stage
    ✓ --per_device_eval_batch_size: 1 becomes 16
    ✓ --pipeline_parallel_config: disable_p2p_cache_shape is added
--lora 0 --prefix_tuning 1 --zero_padding 0
    ✗ --prefix_tuning: 1 for a reward model: the files of a prefix have no place for the score
--pissa 1 --weight_double_quant 0 ✗ --pissa: weights are quantized ✗ --pissa: 1 for a reward
--loss_chunk_tokens 256 --loss_spike 3 ✓ --loss_spike: this and --loss_collapse do nothing
    ✓ --loss_chunk_tokens: 256 does nothing for a reward model: there are no logits
GPUS=2 --sep_parallel_degree 2 ✗ --sep_parallel_degree: 2 with a loss of whole texts
== qwen3-0.6b/grpo-lora @ pairs
-
GPUS=2 --sep_parallel_degree 2 ✗ --sep_parallel_degree: 2 with a loss of whole texts
--reward numbers ✗ --reward: numbers: not a reward that there is
--reward '' ✗ --reward: none, and no --teacher
GPUS=2 --tensor_parallel_degree 2 ✗ --tensor_parallel_degree: 2 in reinforcement: each rank samples
GPUS=2 --pipeline_parallel_degree 2 ✗ --pipeline_parallel_degree: 2 in reinforcement: each rank samples
    ✓ --per_device_eval_batch_size: 64 becomes 16
    ✓ --pipeline_parallel_config: disable_p2p_cache_shape is added
GPUS=2 --sharding stage3 ✗ --sharding: stage3 in reinforcement: each rank samples answers of other lengths
--lora 0 --prefix_tuning 1 ✗ --prefix_tuning: 1 in reinforcement
--lora_dropout 0.1 ✗ --lora_dropout: 0.1 in reinforcement
--kl_weight 0.1 --pissa 1 ✗ --pissa: 1 with --kl_weight 0.1
--fp16_opt_level O1 ✗ --fp16_opt_level: O1 in reinforcement
--reference copy --loss_spike 3 ✓ --reference: copy does nothing here ✓ --loss_spike: this and --loss_collapse do
--reference copy --kl_weight 0.1 ✗ --reference: copy with --lora 1: the model without
GPUS=2 --lora 0 --kl_weight 0.1 --sharding 'stage2 offload'
    ✗ --sharding: the copy would stay on the device, whole. Fix: --lora 1, which needs no copy, or --sharding
--teacher qwen3-4b --reward '' --do_eval 1 ✗ --do_eval: 1 with --teacher and no --reward
--teacher qwen3-4b --reference copy ✓ --reference: copy does nothing here
--teacher qwen3-4b --kl_weight 0.1 --redraw_rounds 1
    ✗ --kl_weight: 0.1 with --teacher ✗ --redraw_rounds: 1 with --teacher
--model_name_or_path qwen3-8b --teacher qwen3-4b --offload_embedding 1
    ✗ --offload_embedding: 1 for a model without an output layer of its own
GPUS=2 --teacher qwen3-4b --sharding 'stage2 offload' ✗ --sharding: the copy would stay on the device, whole
--model_name_or_path chatglm-6b --chat_template none ✗ --model_name_or_path: a ChatGLM-6B: it reads a prompt
== llama-7b/pretrain @ two cards
- ✗ cards: 8 of 80 GB needed, here: 2 x
== llama-7b/pretrain @ V100s
GPU_MEMORY_GB=32 --bf16 1 --fp16 0 ✗ --bf16: compute capability 7.0 has no bfloat16
GPU_MEMORY_GB=32 --use_flash_attention required ✗ --use_flash_attention: found required, not possible here
"""

# Flags of PaddleNLP that are not supported, and values out of range: each is refused by its name with its value.
UNSUPPORTED = (
    "context_parallel_degree 2, expert_parallel_degree 2, expert_tensor_parallel_degree 2, "
    "use_expert_parallel True, enable_auto_parallel True, to_static True, flatten_param_grads True, do_export True, "
    "data_parallel_config gradient_sync_after_accumulate, no_cuda True, refined_recompute flash_attn:1, "
    "sequence_parallel_config enable_allreduce_avg_in_gradinent_scale, auto_parallel_resume_form_hybrid_parallel True"
)
OF_ONE_OR_MORE = (
    "per_device_train_batch_size per_device_eval_batch_size logging_steps loss_scale_window loss_scale_hysteresis "
    "gradient_accumulation_steps"
)


def read(table: str) -> list[Variant]:
    """Return the variants of a table."""
    variants = []
    for line in re.sub(r"\n {4}", " ", table).strip().splitlines():
        if line.startswith("== "):
            recipe, _, situation = line[3:].partition(" @ ")
            continue
        change, *said = re.split(r" (?=[✗✓] )", line)
        found = {"✗": [], "✓": []}
        for mark, subject, part in (re.match(r"(.) (.*?): (.*)", one, re.S).groups() for one in said):
            found[mark].append((subject, part))
        wishes = dict(re.findall(r"^([A-Z_]+)=(\S+) ?", change))
        argv = re.sub(r"^[A-Z_]+=\S+ ?|^-$", "", change)
        variants.append(Variant(recipe, argv, wishes, found["✗"], found["✓"], **SITUATIONS[situation]))
    return variants


VARIANTS = [
    *read(TABLE),
    *(
        Variant(PRETRAIN, f"--{name} {value}", {}, [(f"--{name}", f"{value}: ")], [])
        for name, value in map(str.split, UNSUPPORTED.split(", "))
    ),
    *(Variant(PRETRAIN, f"--{name} 0", {}, [(f"--{name}", "found '0'")], []) for name in OF_ONE_OR_MORE.split()),
]
