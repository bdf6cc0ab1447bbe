"""Preference tuning."""

import json

from tests.preflight.variants.variant import wrong

DPO, KTO, REWARD = "qwen2.5-7b/dpo-lora", "qwen3-8b/kto-lora", "qwen2.5-7b/reward-lora"
ROWS = "".join(json.dumps({"prompt": f"{n}", "chosen": f"yes {n}", "rejected": f"no {n}"}) + "\n" for n in range(8))
FILES = {"data/train.json": ROWS, "data/dev.json": ROWS}


def said(argv: str, *faults, told=(), **more):
    return wrong(DPO, argv, *faults, told=told, files=FILES, **more)


def of_kto(argv: str, *faults, told=(), **more):
    return wrong(KTO, argv, *faults, told=told, files=FILES, **more)


def of_reward(argv: str, *faults, told=(), **more):
    return wrong(REWARD, argv, *faults, told=told, files=FILES, **more)


VARIANTS = [
    said(
        "--loss_type apo",
        ("--loss_type", "'apo'"),
    ),
    of_kto(
        "--zero_padding 1 --reference_free 1",
        ("--zero_padding", "1 with --loss_type kto: single responses are not packed"),
        ("--reference_free", "1 with --loss_type kto: KTO compares each response"),
    ),
    of_kto("--reference precomputed", ("--reference", "precomputed with --loss_type kto")),
    of_kto(
        "--lora 0 --sharding 'stage3 offload'",
        ("--weight_quantize_algo", "nf4 without an adapter"),
        ("--sharding", "the copy would stay on the device, whole. Fix: --lora 1, which needs no copy, or --sharding"),
        told=[("--sharding", "only tensor parallelism shards it; --lora 1 needs none")],
        wishes={"GPUS": "2"},
    ),
    of_kto(
        "--metric_for_best_model rewards_margin",
        ("--metric_for_best_model", "does not measure it. Fix: one of loss, accuracy, kl; in"),
    ),
    said(
        "--metric_for_best_model kl --reference_free 1",
        ("--metric_for_best_model", "Fix: one of loss, accuracy, rewards_chosen, rewards_rejected, rewards_margin; in"),
    ),
    said("--metric_for_best_model kl"),
    of_kto("--metric_for_best_model kl"),
    of_kto(
        "--sft_loss_ratio 0.5",
        told=[("--pref_loss_ratio", "this and --sft_loss_ratio do nothing with --loss_type kto")],
    ),
    said(
        "--undesirable_weight 2",
        told=[("--desirable_weight", "this and --undesirable_weight do nothing with --loss_type sigmoid")],
    ),
    said(
        "--pipeline_parallel_degree 2",
        ("--reference", "auto with --pipeline_parallel_degree 2: a micro batch goes through the stages once"),
        ("--pipeline_parallel_config", "stages expect the length of the first one. Fix: --pipeline_parallel_config"),
        told=[("--per_device_eval_batch_size", "1 becomes 16")],
        wishes={"GPUS": "2"},
    ),
    said(
        "--pipeline_parallel_degree 2 --reference precomputed --pipeline_parallel_config disable_p2p_cache_shape",
        told=[("--per_device_eval_batch_size", "1 becomes 16")],
        wishes={"GPUS": "2"},
    ),
    of_kto(
        "--pipeline_parallel_degree 2 --pipeline_parallel_config disable_p2p_cache_shape",
        ("--pipeline_parallel_degree", "2 with --loss_type kto: the passes that z0 needs"),
        told=[("--per_device_eval_batch_size", "1 becomes 32")],
        wishes={"GPUS": "2"},
    ),
    said(
        "--lora 0 --sharding 'stage3 offload'",
        ("--weight_quantize_algo", "nf4 without an adapter"),
        ("--sharding", "stage3 offload with a reference that is a second copy: the copy would stay on the device"),
        told=[("--sharding", "stage3 with a reference that is a second copy")],
        wishes={"GPUS": "2"},
    ),
    said(
        "--lora 0 --prefix_tuning 1 --zero_padding 0",
        ("--prefix_tuning", "1 in preference tuning: a prefix cannot be switched off"),
    ),
    said(
        "--reference copy",
        ("--reference", "copy with --lora 1: the model without its adapter is the reference already"),
    ),
    said(
        "--lora 0 --reference adapter_off",
        ("--weight_quantize_algo", "nf4 without an adapter"),
        ("--reference", "adapter_off without --lora 1: there is no adapter"),
    ),
    said(
        "--loss_type simpo --reference precomputed",
        told=[("--reference", "precomputed does nothing here: no reference is compared with")],
    ),
    said("--pissa 1 --weight_double_quant 0", ("--pissa", "weights are quantized"), ("--pissa", "1 in preference")),
    said(
        "--model_name_or_path chatglm-6b --zero_padding 0 --chat_template none",
        ("--model_name_or_path", "it reads a prompt in both directions"),
    ),
    said(
        "--loss_type ipo --label_smoothing 0.1 --simpo_gamma 1 --loss_spike 3",
        told=[
            ("--label_smoothing", "0.1 does nothing with --loss_type ipo"),
            ("--simpo_gamma", "1 does nothing with --loss_type ipo"),
            ("--loss_spike", "this and --loss_collapse do nothing"),
        ],
    ),
    of_reward(
        "--model_name_or_path opt-6.7b --zero_padding 0 --chat_template none",
        ("--model_name_or_path", "a OPT: a reward model is made of a decoder that transformers opens with a score"),
    ),
    of_reward(
        "--pipeline_parallel_degree 2",
        ("--pipeline_parallel_degree", "2 for a reward model: the last stage"),
        told=[("--per_device_eval_batch_size", "1 becomes 16")],
        wishes={"GPUS": "2"},
    ),
    of_reward(
        "--lora 0 --prefix_tuning 1 --zero_padding 0",
        ("--prefix_tuning", "1 for a reward model: the files of a prefix have no place for the score"),
    ),
    of_reward("--pissa 1 --weight_double_quant 0", ("--pissa", "weights are quantized"), ("--pissa", "1 for a reward")),
    of_reward(
        "--loss_chunk_tokens 256 --loss_spike 3",
        told=[
            ("--loss_spike", "this and --loss_collapse do nothing"),
            ("--loss_chunk_tokens", "256 does nothing for a reward model: there are no logits"),
        ],
    ),
]
