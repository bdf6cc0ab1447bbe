"""Flags of PaddleNLP's own scripts, and what each is called or done by here.

    flags, lines = todays_flags({"r": ["4"], "tgt_length": ["160"]})
    # {"lora_rank": ["4"], "src_length": ["128"], "max_length": ["288"]}, one line for each that was changed

Sources: examples/language_model/llama of mid 2023 (run_pretrain.py, finetune_generation.py,
finetune_instruction_generation.py, predict_generation.py), llm/ of v2.6.1, and llm/ of 3.0 with its files of arguments
(run_pretrain.py, run_finetune.py, config/; paddlenlp/trl and LlmMetaConfig of the wheel).
"""

from launch.config.flag import NO
from launch.config.flag_values import Flags

# Another name, the same meaning.
RENAMED = {
    "r": "lora_rank",
    "do_generation": "eval_with_do_generation",
    "task_name": "dataset_name_or_path",
    "task_name_or_path": "dataset_name_or_path",
    "dataset_path": "dataset_name_or_path",
    "data_path": "dataset_name_or_path",
    "data_name_or_path": "dataset_name_or_path",
    "train_dataset_path": "dataset_name_or_path",
    "model_path": "model_name_or_path",
    "model_dir": "model_name_or_path",
    "sharding_degree": "sharding_parallel_degree",
    "max_seq_len": "max_length",
    "max_prompt_len": "src_length",
}

LOSS_IN_CHUNKS = "--loss_chunk_tokens auto computes output layer and loss a few tokens at a time"
FOR_GPT = "it is for GPT-3, which is no family here"
NO_SUCH_ADAPTER = "adapters here are LoRA (with --rslora, --lora_plus_scale, --pissa, --dora) and prefixes"

# Accepted, and nothing is done: what the flag said is found elsewhere.
DROPPED = {
    "model_type": "the model's config.json says it (--model_name_or_path)",
    "instruction_generation": "the form of the data says it: dialogues in --dataset_name_or_path",
    "share_folder": "rank 0 makes the sample indices, --data_cache says where",
    "flash_mask": "packed rows use FlashMask where it is right (--zero_padding, --use_flash_attention)",
    "greedy_zero_padding": "--zero_padding says whether rows are packed",
    "fuse_attention_qkv": "weights keep q, k and v apart: fusing them would save 1 to 2 % (docs/gpu-speed.md)",
    "fuse_attention_ffn": "weights keep gate and up apart: fusing them would save 1 % (docs/gpu-speed.md)",
    "dev_dataset_path": "the file beside the training data is evaluated on: dev.json beside train.json",
    "select_topk": "evaluation generates greedily (--eval_with_do_generation)",
    "save_generation_output": "--eval_with_do_generation saves what was said",
    "model_prefix": "--model_name_or_path names the whole model directory",
    "lazy": "how rows are read is the same for all data, and changes no result",
    "pad_to_max_length": "rows are padded to the longest of their batch: the loss is the same",
    "data_impl": "token files are .bin and .idx, read where they are needed",
    "skip_warmup": "token files are .bin and .idx, read where they are needed",
    "tensor_parallel_output": "each family has the setting that is right",
    "use_fused_head_and_loss_fn": LOSS_IN_CHUNKS,
    "use_sparse_head_and_loss_fn": LOSS_IN_CHUNKS,
    "use_fused_linear_cross_entropy": LOSS_IN_CHUNKS,
    "enable_linear_fused_grad_add": "gradients are added by Paddle's own operators (docs/gpu-speed.md)",
    "recompute_use_reentrant": "--recompute has one way, with the same results",
    "use_quick_lora": "LoRA is computed in one way, with the same results",
    "use_fast_layer_norm": FOR_GPT,
    "use_fused_linear": FOR_GPT,
    "fused_linear": FOR_GPT,
    "use_fused_dropout_add": FOR_GPT,
    "num_hidden_layers": "all layers of the model's config.json are trained; for fewer, give a config.json of your own",
    "do_predict": "a run ends with an evaluation (--do_eval), without a test on the last part of --split",
    "benchmark": "the run is an ordinary one: other flags say what it evaluates and saves",
}

# Left out where they ask for nothing (a value that means no, or these), else refused with the reason.
REFUSED = {
    "merge_weights": ((), "adapters are kept apart from their base; merging is a command of its own"),
    "virtual_pp_degree": (("1",), "the interleaved pipeline is not supported here"),
    "label_smoothing": (("0.0",), "the loss is plain cross-entropy"),
    "lr_decay_ratio": ((), "schedules end at --min_learning_rate"),
    "min_tgt_length": ((), "evaluation generates greedily (--eval_with_do_generation)"),
    "length_penalty": ((), "evaluation generates greedily (--eval_with_do_generation)"),
    "no_repeat_ngram_size": ((), "evaluation generates greedily (--eval_with_do_generation)"),
    "num_beams": (("1",), "evaluation generates greedily (--eval_with_do_generation)"),
    "generate_num": ((), "predictions are saved by --eval_with_do_generation"),
    "merge_tensor_parallel_path": ((), "the model that a run leaves is whole, whatever its layout"),
    "save_onepiece_model_path": ((), "the model that a run leaves is whole, whatever its layout"),
    "tp": ((), "the model that a run leaves is whole, whatever its layout"),
    "pp": ((), "the model that a run leaves is whole, whatever its layout"),
    "config_name": ((), "--model_name_or_path names the configuration, too"),
    "data_name": ((), "data are files, --dataset_name_or_path FOLDER; a data set is not loaded by its name"),
    "autotuner_benchmark": ((), "--max_steps 5 --save_strategy no --do_eval 0 means the same"),
    "profiler_options": ((), "there is no profiler here"),
    "qat": ((), "quantization-aware training is not supported here"),
    "qat_type": ((), "quantization-aware training is not supported here"),
    "do_qat": ((), "quantization-aware training is not supported here"),
    "hidden_dropout_prob": (("0.0",), "the model's config.json says it"),
    "attention_probs_dropout_prob": (("0.0",), "the model's config.json says it"),
    "lora_path": ((), "adapters begin anew; --resume_from_checkpoint goes on from a checkpoint"),
    "prefix_path": ((), "adapters begin anew; --resume_from_checkpoint goes on from a checkpoint"),
    "lora_use_mixer": ((), NO_SUCH_ADAPTER),
    "use_mora": ((), NO_SUCH_ADAPTER),
    "vera": ((), NO_SUCH_ADAPTER),
    "lokr": ((), NO_SUCH_ADAPTER),
    "reft": ((), NO_SUCH_ADAPTER),
    "dislora": ((), NO_SUCH_ADAPTER),
    "hqlora_quantize_cfg": ((), NO_SUCH_ADAPTER),
    "lqlora_quantize_cfg": ((), NO_SUCH_ADAPTER),
    "use_ssa": ((), "attention reaches all positions: LongLoRA's shifted sparse attention is not supported here"),
    "use_shift_sparse_attention": (
        (),
        "attention reaches all positions: LongLoRA's shifted sparse attention is not supported here",
    ),
    "use_pose_convert": ((), "positions are those of the tokens: PoSE is not supported here"),
    "use_long_sequence_strategies": ((), "the model's config.json says how positions are scaled"),
    "autoregressive": ((), "the form of the data says which tokens count in the loss"),
    "no_recompute_layers": ((), "every layer is computed again; --recompute_granularity says what of it"),
    "pp_recompute_interval": (("1",), "every layer is computed again; --recompute_granularity says what of it"),
    "offload_recompute_inputs": ((), "--offload activations does it"),
    "from_aistudio": ((), "models are directories; docs/ai-studio.md"),
    "save_to_aistudio": ((), "nothing is uploaded; docs/ai-studio.md"),
}

# Translated by arithmetic, and refused where that cannot be done.
UNREADABLE = {
    "tgt_length": "it is a whole number, and --src_length, too",
    "pipeline_parallel_mirco_batch_size": "it is a whole number that divides --per_device_train_batch_size",
}

# What --src_length was where a command gave --tgt_length alone (README of the 2.6 example).
DEFAULT_SRC_LENGTH = "128"
# PaddleNLP's own default, then and now.
DEFAULT_TRAIN_BATCH = "8"


def todays_flags(flags: Flags) -> tuple[Flags, list[str]]:
    """Return the flags by today's names, and a line for each that had another.

    A flag whose meaning is gone stays as it is, and so does one with a value that cannot be translated: the check of
    the flags refuses it, with refusal()'s reason.
    """
    today, lines = {}, []
    for name, words in flags.items():
        if name in RENAMED:
            lines.append(f"--{name} is --{RENAMED[name]} today")
            today[RENAMED[name]] = words
        # A refused flag may be there if it asks for nothing.
        elif name in DROPPED or (name in REFUSED and words and words[0].lower() in (*NO, *REFUSED[name][0])):
            lines.append(f"--{name} is left out: {DROPPED.get(name) or REFUSED[name][1]}")
        else:
            today[name] = words
    for translate in (_lengths, _pipeline_batch):
        today, line = translate(today)
        lines += [line] if line else []
    return today, lines


def refusal(name: str) -> str | None:
    """Return why a flag of PaddleNLP's was not translated; None for other flags."""
    return UNREADABLE.get(name) or (REFUSED[name][1] if name in REFUSED else None)


def _lengths(flags: Flags) -> tuple[Flags, str]:
    """Return the flags without --tgt_length, the room for the answer.

    --max_length is prompt and answer together.
    """
    source, target = flags.get("src_length", [DEFAULT_SRC_LENGTH]), flags.get("tgt_length", [])
    if not _are_numbers(source, target):
        return flags, ""
    together = str(int(source[0]) + int(target[0]))
    rest = {name: words for name, words in flags.items() if name != "tgt_length"}
    line = f"--tgt_length is --max_length {together} today, with --src_length {source[0]}: both together"
    return rest | {"src_length": source, "max_length": [together]}, line


def _pipeline_batch(flags: Flags) -> tuple[Flags, str]:
    """Return the flags without --pipeline_parallel_mirco_batch_size (sic).

    It cut a larger train batch; today the train batch is the micro batch.
    """
    old, batch_flag, steps_flag = (
        "pipeline_parallel_mirco_batch_size",
        "per_device_train_batch_size",
        "gradient_accumulation_steps",
    )
    micro = flags.get(old, [])
    batch, steps = flags.get(batch_flag, [DEFAULT_TRAIN_BATCH]), flags.get(steps_flag, ["1"])
    if not _are_numbers(micro, batch, steps) or int(micro[0]) == 0 or int(batch[0]) % int(micro[0]):
        return flags, ""
    accumulation = str(int(batch[0]) // int(micro[0]) * int(steps[0]))
    rest = {name: words for name, words in flags.items() if name != old}
    line = f"--{old} is --{batch_flag} {micro[0]} --{steps_flag} {accumulation} today"
    return rest | {batch_flag: micro, steps_flag: [accumulation]}, line


def _are_numbers(*values: list[str]) -> bool:
    return all(len(words) == 1 and words[0].isdecimal() for words in values)
