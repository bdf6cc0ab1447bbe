"""Configurations of DeepSpeed and arguments of Hugging Face's Trainer in our flags: whole files, and what is wrong."""

import json
import re
import shlex
import subprocess
import sys

import pytest

from docs.tools import deepspeed_page as page
from launch.config.deepspeed import AUTO, parse_words, show, table, translate
from launch.config.flag_values import known_flags, parse_flags
from launch.config.key_files import read_source
from launch.errors import UserError
from launch.preflight.flag_check import check_flags
from tests.store import ROOT

SCRIPTS = ("finetune_generation", "run_pretrain", "run_dpo")
KNOWN = {name for script in SCRIPTS for name in known_flags(script)}
OF_OTHER_COMMANDS = {"workers", "data_file", "deepspeed"}
ROWS = [row for rows in table().values() for row in rows]

# ptuning/deepspeed.json of ChatGLM2-6B, filled in.
CHATGLM2 = {
    "train_micro_batch_size_per_gpu": 4,
    "zero_allow_untested_optimizer": True,
    "fp16": {"enabled": True, "loss_scale": 0, "initial_scale_power": 16}
    | {"loss_scale_window": 1000, "hysteresis": 2, "min_loss_scale": 1},
    "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": True}}
    | {"allgather_partitions": True, "allgather_bucket_size": 5e8, "overlap_comm": False, "reduce_scatter": True}
    | {"reduce_bucket_size": 5e8, "contiguous_gradients": True},
}
# ds_config_zero3.json of transformers' tests.
TRAINER_FILLS_IN = {
    "bf16": {"enabled": AUTO},
    "optimizer": {"type": "AdamW", "params": dict.fromkeys(("lr", "betas", "eps", "weight_decay"), AUTO)},
    "scheduler": {
        "type": "WarmupLR",
        "params": dict.fromkeys(("warmup_min_lr", "warmup_max_lr", "warmup_num_steps"), AUTO),
    },
    "zero_optimization": {"stage": 3, "offload_param": {"device": "none"}}
    | {"sub_group_size": 1e9, "stage3_gather_16bit_weights_on_model_save": True},
    "gradient_clipping": AUTO,
    "train_batch_size": AUTO,
    "wall_clock_breakdown": False,
}
# All numbers stated, as DeepSpeed's own examples have them; with older names.
ADAM = {"lr": 2e-5, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}
COSINE = {"total_num_steps": 5000, "warmup_num_steps": 100, "cos_min_ratio": 0.1}
STATED = {
    "train_batch_size": 64,
    "gradient_accumulation_steps": 8,
    "steps_per_print": 10,
    "gradient_clipping": 1.0,
    "optimizer": {"type": "Adam", "params": ADAM},
    "scheduler": {"type": "WarmupCosineLR", "params": COSINE},
    "bf16": {"enabled": True},
    "fp16": {},
    "zero_optimization": {"stage": 1, "cpu_offload": True},
    "activation_checkpointing": {"cpu_checkpointing": True, "number_checkpoints": 4},
    "aio": {"block_size": 1048576, "queue_depth": 8},
}
LORA = (
    {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 16, "num_train_epochs": 10, "fp16": True}
    | {"learning_rate": 3e-4, "gradient_checkpointing": True, "max_source_length": 64, "max_target_length": 128}
    | {"train_file": "AdvertiseGen/train.json", "prompt_column": "content", "response_column": "summary"}
    | {"load_in_8bit": True, "lora_rank": 8, "target_modules": ["query_key_value", "dense"], "optim": "adamw_torch"}
    | {"predict_with_generate": True, "label_smoothing_factor": 0.1, "group_by_length": False}
)


FSDP = """
distributed_type: FSDP
downcast_bf16: 'no'
fsdp_config:
  fsdp_activation_checkpointing: true
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_offload_params: true
  fsdp_sharding_strategy: FULL_SHARD
  fsdp_state_dict_type: FULL_STATE_DICT
machine_rank: 0
mixed_precision: bf16
num_processes: 8
tpu_env: []
"""
WITH_COMMENTS = """{
  # what hjson reads, too
  "zero_optimization": {
    "stage": 3, // and "stage": 2 is not read
    "max_live_parameters": 0, /* by its
    other name */
    "offload_param": {"device": "cpu",},
  },
  "compile": {"disable": false, "backend": "# no comment"},
}"""
FACTORY = (
    {"stage": "sft", "finetuning_type": "lora", "lora_target": "q_proj,v_proj", "use_rslora": True, "pissa_init": False}
    | {"loraplus_lr_ratio": 16.0, "neftune_alpha": 5, "dataset": "harbour", "template": "qwen3", "cutoff_len": 99}
    | {"packing": True, "val_size": 0.1}
)


def translated(tmp_path, content):
    file = tmp_path / ("config.yaml" if content is FSDP else "config.json")
    file.write_text(content if isinstance(content, str) else json.dumps(content, indent=2))
    return translate(read_source(file, lenient=True))


def remarks(translation) -> dict[str, str]:
    return {one.stated.key: one.remark for one in translation.keys if one.remark}


FILLED_IN = "the Trainer fills it in; here {} says it"
ZERO, PARAMS, WARM_UP = "zero_optimization.", "optimizer.params.", "scheduler.params."


@pytest.mark.parametrize(
    ("content", "flags", "untranslated"),
    [
        (
            CHATGLM2,
            "--per_device_train_batch_size 4 --fp16 1 --fp16_opt_level O2 --scale_loss 65536 --loss_scale_window 1000 "
            '--loss_scale_hysteresis 2 --min_loss_scale 1 --sharding "stage2 offload"',
            "zero_allow_untested_optimizer zero_optimization.offload_optimizer.pin_memory "
            "zero_optimization.allgather_partitions zero_optimization.allgather_bucket_size "
            "zero_optimization.reduce_scatter zero_optimization.reduce_bucket_size "
            "zero_optimization.contiguous_gradients",
        ),
        (
            TRAINER_FILLS_IN,
            "--optim adamw --lr_scheduler_type constant_with_warmup --sharding stage3",
            {
                "bf16.enabled": FILLED_IN.format("--bf16"),
                f"{PARAMS}lr": FILLED_IN.format("--learning_rate"),
                f"{PARAMS}betas": FILLED_IN.format("--adam_beta1 --adam_beta2"),
                f"{PARAMS}eps": FILLED_IN.format("--adam_epsilon"),
                f"{PARAMS}weight_decay": FILLED_IN.format("--weight_decay"),
                f"{WARM_UP}warmup_min_lr": "a warm-up begins at 0",
                f"{WARM_UP}warmup_max_lr": FILLED_IN.format("--learning_rate"),
                f"{WARM_UP}warmup_num_steps": FILLED_IN.format("--warmup_steps"),
                f"{ZERO}sub_group_size": "the optimizer goes tensor by tensor",
                f"{ZERO}stage3_gather_16bit_weights_on_model_save": "the model that a run leaves is whole",
                "gradient_clipping": FILLED_IN.format("--max_grad_norm"),
                "train_batch_size": "follows from micro batch x accumulation x data ranks",
            },
        ),
        (
            STATED,
            "--gradient_accumulation_steps 8 --logging_steps 10 --max_grad_norm 1 --optim adamw --learning_rate 2e-05 "
            "--adam_beta1 0.9 --adam_beta2 0.95 --adam_epsilon 1e-08 --weight_decay 0.1 --lr_scheduler_type cosine "
            "--max_steps 5000 --warmup_steps 100 --min_learning_rate 2.0000000000000003e-06 --bf16 1 "
            "--fp16_opt_level O2 --sharding stage1 --offload_optim 1 --recompute 1 --offload activations",
            "train_batch_size activation_checkpointing.number_checkpoints aio.block_size aio.queue_depth",
        ),
        (
            LORA,
            "--per_device_train_batch_size 8 --gradient_accumulation_steps 16 --num_train_epochs 10 "
            "--learning_rate 0.0003 --fp16 1 --recompute 1 --src_length 64 --max_length 192 "
            "--dataset_name_or_path AdvertiseGen/train.json --prompt_column content --response_column summary "
            "--weight_quantize_algo weight_only_int8 --lora_rank 8 "
            '--lora_target_modules "query_key_value dense" --optim adamw --eval_with_do_generation 1',
            {"label_smoothing_factor": "the loss is plain cross-entropy"},
        ),
        (
            FSDP,
            '--recompute 1 --sharding "stage3 offload" --bf16 1',
            "downcast_bf16 fsdp_config.fsdp_auto_wrap_policy fsdp_config.fsdp_state_dict_type machine_rank "
            "num_processes tpu_env",
        ),
        (
            {"distributed_type": "DEEPSPEED", "mixed_precision": "fp16"}
            | {"deepspeed_config": {"zero_stage": 2, "offload_optimizer_device": "cpu", "gradient_clipping": 0.5}},
            '--fp16 1 --sharding "stage2 offload" --max_grad_norm 0.5',
            "",
        ),
        (
            {"distributed_type": "FSDP", "fsdp_config": {"fsdp_version": 2, "fsdp_reshard_after_forward": False}},
            "--sharding stage2",
            "fsdp_config.fsdp_version",
        ),
        (
            WITH_COMMENTS,
            '--sharding "stage3 offload"',
            "zero_optimization.max_live_parameters compile.disable compile.backend",
        ),
        (
            FACTORY,
            '--lora 1 --lora_target_modules "q_proj v_proj" --rslora 1 --pissa 0 '
            "--lora_plus_scale 16 --neftune 1 --neftune_noise_alpha 5 --chat_template qwen3_thinking --max_length 99 "
            "--zero_padding 1",
            "dataset val_size",
        ),
        ({"stage": "dpo", "pref_loss": "orpo", "pref_beta": 0.2}, "--loss_type or --beta 0.2", ""),
    ],
    ids=["chatglm2", "auto", "stated", "lora", "fsdp", "accelerate", "fsdp2", "comments", "factory", "pairs"],
)
def test_whole_files(tmp_path, content, flags, untranslated):
    """And the line that is printed passes the check of flags."""
    found = translated(tmp_path, content)
    assert found.flags == parse_words(flags)
    keys = untranslated.split() if isinstance(untranslated, str) else list(untranslated)
    assert list(remarks(found)) == keys
    if isinstance(untranslated, dict):
        assert all(remarks(found)[key].startswith(text) for key, text in untranslated.items())
    line = show(found, "config.json").splitlines()[-1]
    flags = parse_flags(shlex.split(line))
    findings = check_flags(next(script for script in SCRIPTS[::2] if flags.keys() <= known_flags(script).keys()), flags)
    assert [finding.found for finding in findings if not finding.ok] == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"fp16": {\n  # ,\n  "enabled": true,,\n}}', "config.json:4: no JSON at column 1: "),
        (
            '{"distributed_type": "FSDP", "fsdp_config": {"fsdp_sharding_strategy": 9}}',
            "found 9; expected one of FULL_",
        ),
        ("[1]", "config.json:1: found list; expected an object"),
        ('{\n "fp16": {"enabled": true},\n "fp16": {"enabled": true}\n}', ":3: fp16: also in line 2"),
        ('{"zero_optimization": {\n "stage": 4}}', ":2: zero_optimization.stage: found 4; expected 0, 1, 2 or 3"),
        ('{"fp16": {"enabled": "yes"}}', ':1: fp16.enabled: found "yes"; expected one of true, false'),
        ('{"gradient_accumulation_steps": 1.5}', "found 1.5; expected a whole number"),
        ('{"gradient_accumulation_steps": true}', "found true; expected a whole number"),
        ('{"gradient_clipping": Infinity}', "gradient_clipping: found Infinity; expected a number"),
        ('{"train_micro_batch_size_per_gpu": NaN}', "found NaN; expected a whole number"),
        ('{"fp16": {"initial_scale_power": 20000}}', "initial_scale_power: found 20000; expected 0 to 127"),
        ('{"fp16": {"initial_scale_power": -1}}', "initial_scale_power: found -1; expected 0 to 127"),
        ('{"zero_optimization": {"stage": 2.0}}', "zero_optimization.stage: found 2.0; expected 0, 1, 2 or 3"),
        ('{"learning_rate": "1e-4", "warmup_steps": 3}', 'learning_rate: found "1e-4"; expected a number'),
        ('{"lora_rank": 8, "fp16": 1}', "fp16: found 1; expected true or false"),
        ('{"optimizer": {"params": {"betas": [0.9]}}}', "found [0.9]; expected a list of 2 numbers"),
        (
            '{"optimizer": {"params": {"lr": 1e-4}},\n "scheduler": {"params": {"warmup_max_lr": 3e-4}}}',
            ":2: scheduler.params.warmup_max_lr: found 0.0003, but optimizer.params.lr in line 1 is 0.0001: "
            "both are --learning_rate. Keep one.",
        ),
    ],
)
def test_what_is_wrong_is_an_error_with_its_place(tmp_path, content, message):
    with pytest.raises(UserError) as error:
        translated(tmp_path, content)
    assert message in str(error.value)


def test_unknown_keys_are_told_beside_the_rest_and_arithmetic_needs_what_it_is_made_of(tmp_path):
    found = translated(tmp_path, '{"zero_optimization": {"stage": 2,\n"reduce_buket_size": 1},\n"b": {"c": 2}}')
    assert found.flags == {"sharding": "stage2"}
    nearest, other = (line.partition("config.json")[2] for line in found.unknown)
    assert nearest == (
        ":2: zero_optimization.reduce_buket_size: no key of a configuration of DeepSpeed that is known "
        "here; the nearest that is known: zero_optimization.reduce_bucket_size"
    )
    assert other == ":3: b.c: no key of a configuration of DeepSpeed that is known here"
    found = translated(tmp_path, {"max_target_length": 64, "lora_rank": 8})
    assert found.flags == {"lora_rank": "8"}
    assert remarks(found)["max_target_length"].endswith("with max_source_length, which is not stated here")


def test_every_flag_of_the_table_exists():
    for row in ROWS:
        flags = row.get("flag", [])
        named = {flags} if isinstance(flags, str) else set(flags)
        named |= {flag for words in row.get("values", {}).values() for flag in parse_words(words)}
        named |= {row["auto"]} if "auto" in row else set()
        named |= set(re.findall(r"--(\w+)", " ".join(str(row.get(text, "")) for text in ("why", "note", "other"))))
        assert named - OF_OTHER_COMMANDS <= KNOWN, row["key"]
        for words in row.get("values", {}).values():  # those that their flags take
            values = {flag: [value] for flag, value in parse_words(words).items()}
            script = "run_dpo" if "loss_type" in values else "finetune_generation"
            findings = check_flags(script, values)
            assert [one.found for one in findings if not one.ok] == [], row["key"]


def test_the_page_is_current():
    assert page.PAGE.read_text() == page.render(), "run python -m docs.tools.deepspeed_page"


def test_the_command(tmp_path):
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text('{"zero_optimization": {"stage": 3}, "gradient_clipping": 0.5}')
    bad.write_text('{"zero_optimization": {"stage": 3},\n"gradient_cliping": 0.5}')
    command = [sys.executable, ROOT / "launch" / "commands" / "doctor.py", "--deepspeed"]
    done = subprocess.run([*command, good], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.splitlines()[1:] == [
        "  --sharding stage3    zero_optimization.stage (line 1)",
        "  --max_grad_norm 0.5  gradient_clipping (line 1)",
        "in one line:",
        "  --sharding stage3 --max_grad_norm 0.5",
    ]
    failed = subprocess.run([*command, bad], capture_output=True, text=True, cwd=tmp_path)
    assert failed.returncode == 2 and failed.stdout.endswith("in one line:\n  --sharding stage3\n")
    assert failed.stderr.startswith(f"error: {bad}:2: gradient_cliping: no key")
