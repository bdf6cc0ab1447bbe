"""YAML files of PaddleFormers and ERNIEKit, which a key `stage` tells, as files of PaddleNLP's arguments.

    entries, implied, lines = paddlenlp_entries(read_source("sft.yaml"), FINETUNING)

A key has another name in PaddleNLP (NAMES), is a word of a flag that holds several (WORDS), is left out with a line
(LEFT_OUT), is refused with its reason (REFUSED), or becomes flags by a function (TRANSLATED); any other is
PaddleNLP's own key. What a file does not say has the default of its program (DEFAULTS), not PaddleNLP's.

Sources: paddleformers 1.2.0 (cli/hparams, cli/train, trainer/training_args.py, datasets/) and erniekit 1.3.0 (hparams,
train), read from their wheels.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from launch.config.flag import NO
from launch.config.flag_values import Flags, all_flags, known_flags, split_words
from launch.config.key_files import Stated
from launch.errors import UserError
from launch.methods.method import Method

NAMES = {
    "tensor_model_parallel_size": "tensor_parallel_degree",
    "pipeline_model_parallel_size": "pipeline_parallel_degree",
    "sharding_parallel_size": "sharding_parallel_degree",
    "context_parallel_size": "context_parallel_degree",
    "sep_parallel_size": "sep_parallel_degree",
    "virtual_pipeline_model_parallel_size": "virtual_pp_degree",
    "apply_rope_fusion": "use_fused_rope",
    "fuse_rope": "use_fused_rope",
    "fuse_rms_norm": "use_fused_rms_norm",
    "tensorwise_offload_optimizer": "offload_optim",
}

# Key -> the value that asks for a word, the flag and its word.
WORDS = {
    "pp_delay_scale_loss": (True, "pipeline_parallel_config", "enable_delay_scale_loss"),
    "pp_release_grads": (True, "pipeline_parallel_config", "enable_release_grads"),
    "clear_every_step_cache": (True, "pipeline_parallel_config", "enable_clear_every_step_cache"),
    "non_batch_p2p_comm": (True, "pipeline_parallel_config", "disable_batch_p2p_comm"),
    "batch_p2p_comm": (False, "pipeline_parallel_config", "disable_batch_p2p_comm"),
    "partial_send_recv": (False, "pipeline_parallel_config", "disable_partial_send_recv"),
    "variable_seq_lengths": (True, "pipeline_parallel_config", "disable_p2p_cache_shape"),
    "p2p_cache_shape": (False, "pipeline_parallel_config", "disable_p2p_cache_shape"),
    "tp_delay_scale_loss": (True, "tensor_parallel_config", "enable_delay_scale_loss"),
    "tp_sync_param": (True, "tensor_parallel_config", "sync_param"),
    "tp_sync_moment": (True, "tensor_parallel_config", "sync_moment"),
    "sync_grad": (True, "tensor_parallel_config", "sync_grad"),
}
USED_WORDS = {(flag, word) for _, flag, word in WORDS.values()}
OF_OTHERS = "another method reads it"
OVERLAP = "what communication overlaps with changes no result"

# Why keys are left out -> the keys, each with all keys below it.
LEFT_OUT = {
    "the form of the data is found in its first rows": (
        "train_dataset_type,eval_dataset_type,dataset_type,template_backend,dataset_text_field,encode_one_turn,"
        "dataset_kwargs,use_cls,data_impl"
    ),
    "the file beside the training data is evaluated on: eval.jsonl beside train.jsonl": (
        "eval_dataset_path,eval_dataset_prob,eval_iters"
    ),
    "an epoch has each row once, in an order that --seed decides": (
        "num_samples_each_epoch,random_shuffle,dataloader_shuffle,buffer_size,greedy_intokens,in_tokens_batching,"
        "binpacking,packing_interval,packed_idx_cache_dir,same_data,num_consecutive,shuffle_consecutive,"
        "mix_strategy,truncate_packing"
    ),
    "a row that is too long is cut at the end of its question (--src_length)": "truncation_strategy",
    "rows are padded to the longest of their batch: the loss is the same": "padding_free",
    "the loss is computed a few tokens at a time (--loss_chunk_tokens)": (
        "loss_subbatch_seqlen,loss_subbatch_sequence_length,use_recompute_loss_fn,use_filtered_label_loss"
    ),
    "kernels are chosen by the card and the model": (
        "fuse_linear,fuse_swiglu,fuse_softmax_mask,fuse_gate_detach_matmul,use_sparse_flash_attn,"
        "use_mem_eff_attn,use_flash_attn_with_mask,fa_version,use_attn_mask_start_row_indices,"
        "use_attn_mask_startend_row_indices"
    ),
    "the model's config.json says it": (
        "num_hidden_layers,gated_linear_unit,fp32_residual_connection,use_qk_norm,rope_3d,params_dtype,"
        "bos_token_id,eos_token_id,max_position_embeddings,vision_config,router_aux_loss_coef,moe_use_aux_free,"
        "moe_aux_loss_lambda,moe_orthogonal_loss_lambda,moe_z_loss_lambda,moe_with_send_router_loss,"
        "moe_use_aux_free_update_coef,moe_router_bias_update_rate,moe_gate,moe_group_experts"
    ),
    "models are trained without dropout": (
        "attention_probs_dropout_prob,attention_dropout,hidden_dropout_prob,dropout_warmup_steps,moe_dropout_prob"
    ),
    "experts are computed in one way, each token by those that its router picks": (
        "moe_group,moe_grouped_gemm,moe_deep_gemm,use_deep_gemm,moe_router_fusion,moe_token_dispatcher_type,"
        "moe_ep_barrier,using_sonic_moe,moe_subbatch_token_num_before_dispatch,moe_router_force_load_balancing,"
        "using_fake_gate,use_recompute_moe,moe_multimodal_dispatch_use_allgather,use_moe"
    ),
    "experts are divided by --tensor_parallel_degree alone": (
        "use_expert_parallel,expert_model_parallel_size,expert_tensor_model_parallel_size"
    ),
    "stages have as many layers each": (
        "pp_seg_method,add_tail_layers,num_empty_layers_add_in_head,num_empty_layers_add_in_tail"
    ),
    "every layer is computed again; --recompute_granularity says what of it": (
        "recompute_method,recompute_modules,recompute_num_layers,recompute_mtp_granularity,recompute_mtp_method,"
        "recompute_mtp_modules,use_recompute_mtp"
    ),
    "a checkpoint resumes in any layout, and its model is whole (docs/resume.md)": (
        "save_checkpoint_format,load_checkpoint_format,load_via_cpu,convert_from_hf,load_from_hf,save_to_hf,"
        "save_hf_steps,save_hf_total_limit,aoa_config,disable_ckpt_quant,save_tokenizer,save_rng_states,"
        "load_sharded_model_remap_parameter_name,copy_custom_file_list,use_huggingface_model,"
        "resume_from_huggingface_ckpt,flex_ckpt_comm_method"
    ),
    "`make download` fetches a model": "download_hub",
    "memory and processes are the framework's and the machine's": (
        "pre_alloc_memory,gc_interval,prefetch_factor,nccl_comm_group_config,use_sp_callback,optim_shard_num,"
        "reorder_pipeline_priority,split_norm_comm,num_of_gpus,server_tp_degree,pp_need_data,pp_need_data_degree,"
        "dataset_num_proc,dataset_batch_size,use_paddlefleet,max_estimate_samples,estimation_output_file,"
        "hadamard_block_size,apply_hadamard,use_intermediate_api"
    ),
    "train_log.jsonl has it": (
        "enable_timer,timer,log_global_grad_norm,global_logging_interval,profile,enable_global_training_logs,"
        "enable_optimizer_timer"
    ),
    OVERLAP: (
        "overlap_p2p_comm,best_unbalanced_scheduler,split_param,stage1_overlap,stage1_tensor_fusion,"
        "stage2_overlap,stage1_broadcast_overlap,stage1_allgather_overlap,stage1_reduce_avg,dp_comm_overlap,"
        "pp_sharding_comm_overlap,sd_sharding_comm_overlap,sd_shardingv1_comm_overlap,sd_release_grads,"
        "tp_async_allreduce,mp_async_allreduce,mp_skip_c_identity,mp_fused_linear_param_grad_add,use_dualpipev,"
        "sp_async_reduce_scatter,fuse_optimizer_states,send_recv_overlap,forward_backward_overlap_scheduler"
    ),
}
REASONS = {key: reason for reason, keys in LEFT_OUT.items() for key in keys.split(",")}

FLOAT8 = "training in float8 is not supported here"
NO_MTP = "further-token heads (MTP) are not trained here"
# Left out where they ask for nothing (a value that means no, or these), else refused with the reason.
REFUSED = {
    "use_fp8": ((), FLOAT8),
    "fp8": ((), FLOAT8),
    "num_nextn_predict_layers": ((), NO_MTP),
    "mtp_num_layers": ((), NO_MTP),
    "train_mtp_only": ((), NO_MTP),
    "layerwise_lr_decay_bound": (("1.0", "1"), "all layers have one learning rate"),
    "moe_gate_lr_ratio": ((), "all layers have one learning rate"),
    "freeze_config": (("",), "what a file does not freeze by LoRA is trained"),
    "use_lowprecision_moment": ((), "moments of 16 bits are --optim adamw_16bit_moment"),
    "offset_alpha": (("0.0",), "the loss has no offset by scores"),
    "ref_model_update_steps": (("-1",), "the reference is the model before training, to the end"),
    "normalize_logps": ((), "log-probabilities are not scaled by length; --loss_type simpo takes their means"),
    "ignore_eos_token": ((), "the end of a response is part of it"),
    "dpop_lambda": (("50", "50.0"), "DPOP is not among the losses (--loss_type)"),
    "rslora_plus": ((), "it is --rslora 1 with --lora_plus_scale"),
    "split_multi_turn": ((), "a dialogue is one sample; --trained_answers last trains on its last answer"),
    "use_global_causal_attn": ((), "packed samples do not see each other"),
    "make_offline_data": ((), "rows are encoded when a run starts; there are no files of encoded rows"),
    "offline_dataset_path": ((), "rows are encoded when a run starts; there are no files of encoded rows"),
    "new_special_tokens_path": ((), "a file cannot add tokens to a model"),
    "custom_register_path": ((), "no code of a file's is run; --chat_template takes a template"),
    "decay_function": ((), "schedules are linear, cosine, constant and polynomial (--lr_scheduler_type)"),
}

TENSOR = ("tensor_parallel_degree", "tensor_model_parallel_size")
PIPELINE = ("pipeline_parallel_degree", "pipeline_model_parallel_size")
BATCH = "per_device_train_batch_size"
# Quantization by --compute_type; wint4/8 has attention in 8 bits and experts in 4.
QUANTIZED = {"wint8": "weight_only_int8", "wint4": "weight_only_int4", "wint4/8": "weight_only_int8", "nf4": "nf4"}
TEMPLATES = {
    **dict.fromkeys(("qwen", "qwen3_nothink"), "qwen2"),
    **{"qwen3": "qwen3_thinking", "ernie_nothink": "ernie4_5", "llama3": "llama3", "empty": "none"},
}
LONGEST = 4096  # tokens, of both programs
LONGEST_PROMPT = 2048  # of preference tuning

# From a key's entry, the file's values and the method to flags of PaddleNLP; None as a value leaves a flag out.
Translation = Callable[[Stated, dict[str, Any], Method], dict[str, Any]]


def _fine_tuning(entry: Stated, values: dict[str, Any], method: Method) -> dict[str, Any]:
    kind = str(entry.value).lower()
    if kind not in ("full", "lora"):
        raise UserError(f"{entry.place}: found {entry.text}; allowed: full, lora")
    return {"lora": kind == "lora"}


def _compute_type(entry: Stated, values: dict[str, Any], method: Method) -> dict[str, Any]:
    if entry.value == "fp8":
        raise UserError(f"{entry.place}: {FLOAT8}")
    if entry.value in QUANTIZED:
        return {"bf16": True, "weight_quantize_algo": QUANTIZED[entry.value]}
    if entry.value not in ("bf16", "fp16", "float32"):
        raise UserError(f"{entry.place}: found {entry.text}; allowed: bf16, fp16, float32, {', '.join(QUANTIZED)}")
    return {"bf16": entry.value == "bf16", "fp16": entry.value == "fp16"}


def _template(entry: Stated, values: dict[str, Any], method: Method) -> dict[str, Any]:
    if entry.value is None:
        return {}
    if entry.value not in TEMPLATES:
        raise UserError(
            f"{entry.place}: found {entry.text}; allowed: {', '.join(TEMPLATES)}. Leave it out for the model's own "
            "template, or give --chat_template a file."
        )
    return {"chat_template": TEMPLATES[entry.value]}


def _granularity(entry: Stated, values: dict[str, Any], method: Method) -> dict[str, Any]:
    """Return what is recomputed. PaddleFormers recomputes by it alone; "selective" is a list of modules."""
    name = {"selective": "core_attn"}.get(entry.value, entry.value)
    stated = {} if "recompute" in values else {"recompute": bool(name)}
    return stated | ({"recompute_granularity": name} if name else {})


def _data(entry: Stated, values: dict[str, Any], method: Method) -> dict[str, Any]:
    """Return where the training data are: files of rows, or of text that is tokenized once to files of its name."""
    paths = [path.strip() for path in str(entry.value).split(",")]
    if not method.reads_rows:
        paths = [path.removesuffix(Path(path).suffix) for path in paths]
    shares = [share.strip() for share in str(values.get("train_dataset_prob") or "").split(",")]
    if len(paths) > 1 and len(shares) != len(paths):
        raise UserError(
            f"{entry.place}: found {len(paths)} files and {len(shares)} shares at train_dataset_prob; expected one each"
        )
    named = [word for pair in zip(shares, paths, strict=True) for word in pair] if len(paths) > 1 else paths
    return {method.data_flag: " ".join(named)}


def _layerwise(entry: Stated, values: dict[str, Any], method: Method) -> dict[str, Any]:
    """Return nothing of LoRA, where ERNIEKit does not read it."""
    if str(values.get("fine_tuning", "lora")).lower() == "full":
        _refuse(entry)
    return {}


def _has(method: Method, flag: str) -> bool:
    return flag in known_flags(method.name)


def _many(values: dict[str, Any], *names: str) -> bool:
    return any(isinstance(values.get(name), int) and values[name] > 1 for name in names)


TRANSLATED: dict[str, Translation] = {
    **dict.fromkeys(("stage", "lora", "train_dataset_prob"), lambda one, values, method: {}),
    "fine_tuning": _fine_tuning,
    "compute_type": _compute_type,
    # What --compute_type decides where a file has it.
    **dict.fromkeys(
        ("bf16", "fp16", "weight_quantize_algo"),
        lambda one, values, method: {} if "compute_type" in values else {one.key: one.value},
    ),
    "max_seq_len": lambda one, values, method: {method.length_flag: one.value},
    "max_prompt_len": lambda one, values, method: {"src_length": one.value} if _has(method, "loss_type") else {},
    "packing": lambda one, values, method: {"zero_padding": one.value},
    "batch_size": lambda one, values, method: {BATCH: one.value, "per_device_eval_batch_size": one.value},
    "template": _template,
    "use_template": lambda one, values, method: {"chat_template": "none"} if one.value is False else {},
    **dict.fromkeys(
        ("attn_impl", "_attn_implementation"),
        lambda one, values, method: {"use_flash_attention": "off" if one.value == "eager" else "auto"},
    ),
    "recompute_granularity": _granularity,
    "train_dataset_path": _data,
    "device": lambda one, values, method: {"device": one.value if one.value == "cpu" else "gpu"},
    # A cosine schedule alone reads it.
    "min_lr": lambda one, values, method: (
        {"min_learning_rate": one.value} if values.get("lr_scheduler_type") == "cosine" else {}
    ),
    "loss_type": lambda one, values, method: {"loss_type": {"orpo": "or"}.get(one.value, one.value)},
    # On one rank upstream switches it off.
    "sequence_parallel": lambda one, values, method: {one.key: one.value} if _many(values, *TENSOR) else {},
    # Pretraining counts steps, no epochs.
    "max_steps": lambda one, values, method: (
        {one.key: one.value} if method.reads_rows or not str(one.value).startswith("-") else {}
    ),
    "num_train_epochs": lambda one, values, method: {one.key: one.value} if method.reads_rows else {},
    "layerwise_lr_decay_bound": _layerwise,
}


def paddlenlp_entries(stated: list[Stated], method: Method) -> tuple[list[Stated], Flags, list[str]]:
    """Return the entries by PaddleNLP's names, the flags that the program implies, and lines about what is left out.

    Raises:
        UserError: With file, line and key, for all keys at once that ask for what cannot be done here.
    """
    values = {entry.key: entry.value for entry in stated}
    entries: list[Stated] = []
    words: dict[str, list[str]] = {}
    left_out: dict[str, list[str]] = {}
    faults = []
    for entry in stated:
        try:
            entries += _translated(entry, values, method, words, left_out)
        except UserError as error:
            faults.append(str(error))
    if faults:
        raise UserError("\n".join(faults))
    implied = _implied(values, method)
    implied |= {flag: [" ".join(dict.fromkeys(found))] for flag, found in words.items() if found}
    lines = [f"{', '.join(keys)}: left out, {reason}" for reason, keys in left_out.items() if keys]
    renamed = [f"{entry.written} is --{entry.key}" for entry in entries if entry.written not in ("", entry.key)]
    names = [f"by PaddleNLP's names: {', '.join(renamed)}"] if renamed else []
    return entries, implied, [*names, *lines, *_remarks(values, method)]


def _remarks(values: dict[str, Any], method: Method) -> list[str]:
    lines = []
    if "train_dataset_path" in values and not method.reads_rows:
        lines.append(
            "train_dataset_path: text is tokenized once, to files of its name: "
            'make data-tokenize ARGS="--input TEXT.jsonl --tokenizer MODEL --output TEXT"'
        )
    if values.get("mix_strategy", "concat") == "concat" and "," in str(values.get("train_dataset_path", "")):
        lines.append("mix_strategy concat: several files are mixed by train_dataset_prob")
    if TEMPLATES.get(values.get("template", "")) == "qwen2":
        lines.append("template: a dialogue without a system text gets Qwen2.5's own from --chat_template qwen2")
    if values.get("compute_type") == "wint4/8":
        lines.append("compute_type wint4/8: experts have 8 bits, like all layers")
    if "batch_size" in values and _has(method, "loss_type") and "normalize_logps" not in values:
        lines.append(
            "normalize_logps: ERNIEKit scales log-probabilities by length unless it is false, the loss here does not"
        )
    return lines


def _translated(
    entry: Stated, values: dict[str, Any], method: Method, words: dict[str, list[str]], left_out: dict[str, list[str]]
) -> list[Stated]:
    """Return a key's entries. Words of flags are collected in `words`, keys that are left out in `left_out`."""
    key, section = entry.key, entry.key.partition(".")[0]
    if key in TRANSLATED:
        if isinstance(entry.value, (list, dict)):
            raise UserError(f"{entry.place}: found {entry.text}; allowed: one value")
        flags = TRANSLATED[key](entry, values, method)
        found = [replace(entry, key=flag, value=value, written=entry.key) for flag, value in flags.items()]
        return _of_method([one for one in found if one.value is not None], method, left_out)
    if key in WORDS:
        wanted, flag, word = WORDS[key]
        words.setdefault(flag, []).extend([word] if entry.value is wanted else [])
        return []
    if entry.key in ("tensor_parallel_config", "pipeline_parallel_config", "sharding_parallel_config"):
        for word in split_words(entry.key, str(entry.value or "")):
            used = (entry.key, word) in USED_WORDS
            (words if used else left_out).setdefault(entry.key if used else OVERLAP, []).append(word)
        return []
    if section in REASONS:
        left_out.setdefault(REASONS[section], []).append(key)
        return []
    if key in REFUSED:
        _refuse(entry)
        return []
    return _of_method([replace(entry, key=NAMES.get(key, key), written=key)], method, left_out)


def _of_method(entries: list[Stated], method: Method, left_out: dict[str, list[str]]) -> list[Stated]:
    """Return the entries without those whose flag only another method has: one file may have the keys of all."""
    others = all_flags().keys() - known_flags(method.name).keys()
    left_out.setdefault(OF_OTHERS, []).extend(entry.written for entry in entries if entry.key in others)
    return [entry for entry in entries if entry.key not in others]


def _refuse(entry: Stated) -> None:
    nothing, reason = REFUSED[entry.key]
    if entry.value is not None and str(entry.value).lower() not in (*NO, *nothing):
        raise UserError(f"{entry.place}: {reason}")


def _implied(values: dict[str, Any], method: Method) -> Flags:
    """Return the program's defaults that are not PaddleNLP's."""
    known = known_flags(method.name)
    implied: dict[str, Any] = {"bf16": True, "lora": True, "sharding": "stage1", "amp_master_grad": True}
    longest = LONGEST if values.get("max_seq_len") is None else values["max_seq_len"]
    implied |= {method.length_flag: longest}
    if isinstance(longest, int):
        implied |= {"src_length": LONGEST_PROMPT if "loss_type" in known else longest - 1}  # as long as it needs to be
    if "batch_size" in values:
        implied |= {"zero_padding": True}  # ERNIEKit packs
    if not values.get("reference_free") and _many(values, *PIPELINE):
        implied |= {"reference": "precomputed"}  # the only one that a pipeline has here
    return {
        name: [str(int(value) if isinstance(value, bool) else value)]
        for name, value in implied.items()
        if name in known
    }
