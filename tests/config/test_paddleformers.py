"""Files of PaddleFormers and ERNIEKit, told by `stage`: what each key becomes, and what is refused."""

import json

import pytest

from launch.config.argument_files import read_arguments
from launch.config.flag_values import known_flags, parse_flags
from launch.config.paddleformers import LEFT_OUT, NAMES, REASONS, REFUSED, TRANSLATED, WORDS
from launch.errors import UserError

SCRIPTS = {"PT": "run_pretrain", "SFT": "finetune_generation", "DPO": "run_dpo"}
COMMON = "--bf16 1 --lora 1 --sharding stage1 --amp_master_grad 1"
IMPLIED = {
    "PT": f"{COMMON} --max_seq_length 4096",
    "SFT": f"{COMMON} --max_length 4096 --src_length 4095",
    "DPO": f"{COMMON} --max_length 4096 --src_length 2048",
}
TENSOR, COSINE = "tensor_model_parallel_size", {"lr_scheduler_type": "cosine"}
MIXED = {"train_dataset_path": "a.jsonl, b.jsonl", "train_dataset_prob": "0.3,0.7"}
PIPELINE = {"pipeline_parallel_config": "disable_partial_send_recv best_unbalanced_scheduler", "pp_release_grads": True}


def read(tmp_path, stage, stated):
    file = tmp_path / "arguments.json"
    file.write_text(json.dumps({"stage": stage} | stated, indent=0))
    return read_arguments(str(file), SCRIPTS.get(stage, "finetune_generation"))


@pytest.mark.parametrize("stage", SCRIPTS)
def test_what_a_file_leaves_out_has_its_programs_default(tmp_path, stage):
    assert read(tmp_path, stage, {})[0] == parse_flags(IMPLIED[stage].split())


@pytest.mark.parametrize(
    ("stage", "stated", "words"),
    [
        ("SFT", {"fine_tuning": "Full", "lora": True}, "--lora 0"),
        ("SFT", {"max_seq_len": 8192, "max_prompt_len": 9}, "--max_length 8192 --src_length 8191"),
        ("DPO", {"max_seq_len": 8192, "max_prompt_len": 9}, "--max_length 8192 --src_length 9"),
        ("PT", {"max_seq_len": 99, "packing": True, "max_steps": -1, "num_train_epochs": 1}, "--max_seq_length 99"),
        ("PT", MIXED | {"max_steps": 7}, "--input_dir|0.3 a 0.7 b --max_steps 7"),
        ("DPO", MIXED, "--dataset_name_or_path|0.3 a.jsonl 0.7 b.jsonl"),
        ("SFT", {"batch_size": 2}, "--per_device_train_batch_size 2 --per_device_eval_batch_size 2 --zero_padding 1"),
        ("SFT", {"packing": True, "padding_free": True}, "--zero_padding 1"),
        ("SFT", {"compute_type": "fp16", "bf16": True}, "--bf16 0 --fp16 1"),
        ("SFT", {"compute_type": "wint4/8"}, "--weight_quantize_algo weight_only_int8"),
        ("SFT", {"compute_type": "nf4", "weight_quantize_algo": "fp4"}, "--weight_quantize_algo nf4"),
        ("SFT", {"template": "qwen3"}, "--chat_template qwen3_thinking"),
        ("SFT", {"template": "ernie_nothink"}, "--chat_template ernie4_5"),
        ("SFT", {"use_template": False}, "--chat_template none"),
        ("SFT", {"attn_impl": "eager"}, "--use_flash_attention off"),
        ("SFT", {"_attn_implementation": "sdpa"}, "--use_flash_attention auto"),
        ("SFT", {TENSOR: 2, "sequence_parallel": True}, "--tensor_parallel_degree 2 --sequence_parallel 1"),
        ("SFT", {TENSOR: 1, "sequence_parallel": True}, "--tensor_parallel_degree 1"),
        ("DPO", {"pipeline_model_parallel_size": 2}, "--pipeline_parallel_degree 2 --reference precomputed"),
        ("PT", PIPELINE, "--pipeline_parallel_config|disable_partial_send_recv enable_release_grads"),
        ("SFT", {"recompute_granularity": "full"}, "--recompute 1 --recompute_granularity full"),
        ("SFT", {"recompute_granularity": "selective"}, "--recompute 1 --recompute_granularity core_attn"),
        ("SFT", {"recompute_granularity": ""}, "--recompute 0"),
        ("SFT", {"min_lr": 1e-6}, ""),
        ("SFT", {"min_lr": 1e-6} | COSINE, "--min_learning_rate 1e-06 --lr_scheduler_type cosine"),
        ("SFT", {"device": "xpu", "evaluation_strategy": False}, "--device gpu --evaluation_strategy no"),
        ("DPO", {"loss_type": "orpo", "pref_loss_ratio": 0.5}, "--loss_type or --pref_loss_ratio 0.5"),
        ("DPO", {"loss_type": "simpo", "simpo_gamma": 0.4}, "--loss_type simpo --simpo_gamma 0.4"),
        ("SFT", {"loss_type": "sigmoid", "offset_alpha": 0.0, "layerwise_lr_decay_bound": 0.5}, ""),
    ],
)
def test_each_key_becomes_flags(tmp_path, stage, stated, words):
    """A | in the words stands for the space between a flag and one word with spaces."""
    changed = {}
    for part in filter(None, words.removeprefix("--").split(" --")):
        name, _, value = part.partition("|" if "|" in part else " ")
        changed[name] = [value]
    assert read(tmp_path, stage, stated)[0] == parse_flags(IMPLIED[stage].split()) | changed


def test_what_is_left_out_is_told_by_its_reason(tmp_path):
    stated = {"moe_group": "mp", "using_sonic_moe": True, "overlap_p2p_comm": True, "recompute_modules": {"mlp": 1}}
    assert read(tmp_path, "SFT", stated | {"packing": True})[1][1:] == [
        "by PaddleNLP's names: packing is --zero_padding",
        "moe_group, using_sonic_moe: left out, experts are computed in one way, each token by those that its router "
        "picks",
        "overlap_p2p_comm: left out, what communication overlaps with changes no result",
        "recompute_modules.mlp: left out, every layer is computed again; --recompute_granularity says what of it",
    ]


@pytest.mark.parametrize(
    ("stage", "stated", "message"),
    [
        ("VL-SFT", {}, ":2: stage: this is a file for the stage VL-SFT, which has no module here. Files for DPO"),
        ("sft", {}, ":2: stage: this is a file for the stage sft, which has no module here"),
        ("SFT", {"compute_type": "fp8"}, ":3: compute_type: training in float8 is not supported here"),
        ("SFT", {"compute_type": "int3"}, ':3: compute_type: found "int3"; allowed: bf16, fp16, float32, wint8'),
        ("SFT", {"fine_tuning": "qlora"}, ':3: fine_tuning: found "qlora"; allowed: full, lora'),
        ("SFT", {"template": "kimi_k2"}, ':3: template: found "kimi_k2"; allowed: qwen'),
        ("SFT", {"train_dataset_path": "a,b"}, ":3: train_dataset_path: found 2 files and 1 shares at train_"),
        ("DPO", {"layerwise_lr_decay_bound": 0.5, "fine_tuning": "full"}, ":3: layerwise_lr_decay_bound: all layers"),
        ("SFT", {"split_multi_turn": True}, ":3: split_multi_turn: a dialogue is one sample"),
        ("SFT", {"max_seq_len": "long"}, ':3: max_seq_len: found "long"; allowed: a whole number'),
        ("SFT", {"no_such_key": 1}, ":3: no_such_key: no argument of PaddleNLP that is known here"),
    ],
)
def test_what_is_refused_names_its_key(tmp_path, stage, stated, message):
    with pytest.raises(UserError) as error:
        read(tmp_path, stage, stated)
    assert message in str(error.value)


def test_the_tables_have_each_key_once_and_refuse_few():
    keys = [*NAMES, *WORDS, *REASONS, *REFUSED, *TRANSLATED]
    assert {key for key in keys if keys.count(key) > 1} == {"layerwise_lr_decay_bound"}  # which LoRA does not read
    assert sum(len(keys.split(",")) for keys in LEFT_OUT.values()) == len(REASONS) and len(REFUSED) <= 25
    known = {name for script in SCRIPTS.values() for name in known_flags(script)}
    assert {*NAMES.values()} - known <= {"virtual_pp_degree"}
