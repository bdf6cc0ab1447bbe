"""Shipped recipes and wrong variants of them, on pretended machines: exactly which findings appear.

Each variant names a recipe, what is changed, and every fault (✗) and announcement (✓ about a flag) that follows, by
subject and a part of its text.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from launch.devices.cards import Process
from launch.errors import UserError
from launch.models.named_configs import load_config
from launch.preflight.machine import cards, disk, gates, memory
from launch.preflight.rules import RULES, Rule, family, finetuning
from tests.corpora import write_corpus, write_dialogues
from tests.devices.fake_nvml import GIB, FakeNvml, card
from tests.preflight.recipe_findings import recipe_findings
from tests.recipes.test_rendered import RECIPES, name

PRETRAIN, FOUR_D, TINY = "llama-7b/pretrain", "llama-7b/pretrain-4d", "tiny/pretrain"
A100S = [card("A100", index) for index in range(16)]
BUBBLE = ("--gradient_accumulation_steps", "stages wait for each other")
EVALUATION = ("--per_device_eval_batch_size", "becomes")


@dataclass(frozen=True)
class Variant:
    recipe: str
    argv: str = ""
    wishes: dict = field(default_factory=dict)
    faults: tuple = ()
    told: tuple = ()
    here: list = field(default_factory=lambda: A100S[:8])
    files: dict = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.recipe} {self.argv} {self.wishes or ''}".strip()


def wrong(recipe: str, argv: str, *faults, told=(), **more) -> Variant:
    return Variant(recipe, argv, faults=faults, told=told, **more)


def odd(**sizes) -> dict:
    """A model directory with a small LLaMA's configuration."""
    config = load_config("llama-rehearsal") | {"max_position_embeddings": 2048} | sizes
    return {"odd/config.json": json.dumps(config)}


UNSUPPORTED = {
    "sep_parallel_degree": "2",
    "context_parallel_degree": "2",
    "expert_parallel_degree": "2",
    "expert_tensor_parallel_degree": "2",
    "use_expert_parallel": "True",
    "enable_auto_parallel": "True",
    "to_static": "True",
    "data_parallel_config": "gradient_sync_after_accumulate",
    "sequence_parallel_config": "enable_allreduce_avg_in_gradinent_scale",
    "auto_parallel_resume_form_hybrid_parallel": "True",
    "flatten_param_grads": "True",
    "refined_recompute": "flash_attn:1",
    "do_predict": "True",
    "do_export": "True",
    "no_cuda": "True",
}

VARIANTS = [
    # Flags
    wrong(PRETRAIN, "--max_step 10", ("--max_step", "unknown flag")),
    wrong(PRETRAIN, "--sharding stage4", ("--sharding", "found 'stage4'")),
    wrong(PRETRAIN, "--lr_scheduler_type cosinus", ("--lr_scheduler_type", "found 'cosinus'")),
    wrong(PRETRAIN, "--merge_weights True", ("--merge_weights", "a flag of PaddleNLP 2.6")),
    wrong(PRETRAIN, "--virtual_pp_degree 2", ("--virtual_pp_degree", "interleaved pipeline")),
    wrong(TINY, "--max_steps ten", ("--max_steps", "found 'ten'")),
    # Layout
    wrong(PRETRAIN, "--prefix_tuning 1", ("--prefix_tuning", "1 in pretraining")),
    wrong(PRETRAIN, '--sharding "stage1 offload"', ("--sharding", "offload is of stage2 and stage3")),
    wrong(
        PRETRAIN,
        '--sharding "stage2 offload" --tensor_parallel_degree 8',
        ("--sharding", "the sharding degree is 1, where upstream switches sharding off and offload with it"),
        told=[("--sharding", "does nothing")],
    ),
    wrong(
        PRETRAIN,
        '--sharding "stage2 offload" --offload_optim 1',
        ("--offload_optim", "all of the optimizer's states to the card at once"),
    ),
    wrong(
        PRETRAIN,
        '--sharding "stage3 offload" --amp_master_grad 1',
        ("--amp_master_grad", "where offload does not look"),
    ),
    wrong(
        PRETRAIN,
        '--sharding "stage2 offload" --sharding_parallel_config enable_stage2_overlap --logging_steps 10',
        ("--sharding_parallel_config", "leave for the host before its sum"),
    ),
    wrong(PRETRAIN, '--sharding "stage2 offload" --optim adamw_mini', ("--optim", "not made parameter by parameter")),
    wrong(
        "llama-7b/finetune",
        "--model_name_or_path glm-515m --tensor_parallel_degree 1 --sharding stage3",
        ("--sharding", "stage3 with GLM"),
    ),
    wrong(PRETRAIN, '--sharding "stage1 stage2"', ("--sharding", "one stage at a time")),
    wrong(
        PRETRAIN,
        "--sharding stage3",
    ),
    wrong(
        PRETRAIN,
        "--sharding stage3 --tensor_parallel_degree 2",
        ("--sharding", "stage3 with --tensor_parallel_degree 2"),
    ),
    wrong(FOUR_D, "--sharding stage2", ("--sharding", "stage2 with --pipeline_parallel_degree 2")),
    wrong(
        FOUR_D,
        "--sharding stage3",
        ("--sharding", "stage3 with --pipeline_parallel_degree 2"),
        ("--sharding", "stage3 with --tensor_parallel_degree 2"),
    ),
    wrong(
        FOUR_D,
        "--tensor_parallel_degree 4",
        told=[("--sharding", "stage1 does nothing on 8 processes: tensor parallel 4 x pipeline parallel 2")],
    ),
    wrong(
        PRETRAIN,
        "",
        ("memory", "DOES NOT FIT: 105"),
        wishes={"GPUS": "1"},
        told=[("--sharding", "stage2 does nothing on 1 process")],
    ),
    wrong(
        PRETRAIN,
        "--tensor_parallel_degree 3",
        ("--tensor_parallel_degree", "do not divide 8 processes"),
        ("--tensor_parallel_degree", "3 for 32 attention heads"),
        ("--tensor_parallel_degree", "3 for an intermediate size of 11008"),
        told=[("--tensor_parallel_degree", "3 does not divide the vocabulary of 32000")],
    ),
    wrong(
        PRETRAIN,
        "--model_name_or_path some/bloom-7b1 --tensor_parallel_degree 3 --sharding stage1",
        ("--tensor_parallel_degree", "do not divide 8 processes"),
        ("--tensor_parallel_degree", "3 for 32 attention heads"),
        ("--tensor_parallel_degree", "3 does not divide the vocabulary of 250880"),
    ),
    wrong(TINY, "--tensor_parallel_degree 4", ("--tensor_parallel_degree", "do not divide 2 processes")),
    wrong(PRETRAIN, "--sharding_parallel_degree 3", ("--sharding_parallel_degree", "3 does not divide the 8")),
    wrong(
        PRETRAIN,
        '--sharding "" --sharding_parallel_degree 4',
        ("--sharding_parallel_degree", "4 without --sharding"),
    ),
    wrong(PRETRAIN, "--sequence_parallel 1", ("--sequence_parallel", "1 without tensor parallel")),
    wrong(FOUR_D, "--max_seq_length 2047", ("--max_seq_length", "2047 with --sequence_parallel over 2 ranks")),
    wrong(
        FOUR_D,
        "--pipeline_parallel_config use_dualpipev",
        ("--pipeline_parallel_config", "interleaved pipeline"),
    ),
    wrong(FOUR_D, "--optim adamw_mini", ("--optim", "adamw_mini with --tensor_parallel_degree 2")),
    wrong(PRETRAIN, "--optim adafactor", ("--optim", "has no such optimizer")),
    *(wrong(PRETRAIN, f"--{flag} {value}", (f"--{flag}", f"{value}: ")) for flag, value in UNSUPPORTED.items()),
    # Model
    wrong(
        PRETRAIN,
        "--tensor_parallel_degree 8 --model_name_or_path llama-3-8b --sequence_parallel 0",
        told=[("--sharding", "stage2 does nothing on 8 processes: tensor parallel 8")],
    ),
    wrong(
        PRETRAIN,
        "--tensor_parallel_degree 8 --model_name_or_path some/qwen2-7b",
        ("--tensor_parallel_degree", "8 for 28 attention heads"),
        told=[("--sharding", "stage2 does nothing on 8 processes: tensor parallel 8")],
    ),
    wrong(
        FOUR_D,
        "--tensor_parallel_degree 1 --pipeline_parallel_degree 8 --sequence_parallel 0 --gradient_accumulation_steps 32"
        " --per_device_eval_batch_size 32 --model_name_or_path some/qwen2-7b",
        told=[
            ("--sharding", "stage1 does nothing on 8 processes: pipeline parallel 8"),
            ("--pipeline_parallel_degree", "8 stages for 28 layers"),
        ],
    ),
    wrong(
        FOUR_D,
        "--model_name_or_path some/bloom-7b1",
        ("--pipeline_parallel_degree", "Bloom has no pipeline parallel: "),
        ("--sequence_parallel", "Bloom has no sequence parallel: "),
    ),
    wrong(
        FOUR_D,
        "--model_name_or_path some/chatglm2-6b --sequence_parallel 0 --recompute 1",
        ("--recompute_granularity", "saves every activation all the same"),
    ),
    wrong(PRETRAIN, "--model_name_or_path some/chatglm-6b", ("--model_name_or_path", "has no pretraining")),
    wrong(PRETRAIN, "--model_name_or_path nowhere/x", ("model", "'nowhere/x' is no directory")),
    wrong(PRETRAIN, "--max_seq_length 4096", ("--max_seq_length", "4096, and the model knows 2048 positions")),
    wrong(
        PRETRAIN,
        "--max_seq_length 4096 --continue_training 0",
        told=[("--max_seq_length", "the new model gets as many positions")],
    ),
    wrong(
        PRETRAIN,
        "--tensor_parallel_degree 16 --model_name_or_path some/llama-3-8b",
        ("--tensor_parallel_degree", "16 for 8 key/value heads"),
        told=[("--sharding", "stage2 does nothing on 16 processes: tensor parallel 16")],
        wishes={"GPUS": "16"},
        here=A100S,
    ),
    wrong(
        PRETRAIN,
        "--tensor_parallel_degree 4 --model_name_or_path odd --continue_training 0",
        ("--tensor_parallel_degree", "4 for a hidden size of 102"),
        files=odd(hidden_size=102),
    ),
    wrong(
        FOUR_D,
        "--model_name_or_path odd --continue_training 0 --tensor_parallel_degree 1 --sequence_parallel 0"
        " --pipeline_parallel_degree 8",
        ("--pipeline_parallel_degree", "8 stages for 4 layers"),
        told=[("--sharding", "stage1 does nothing on 8 processes: pipeline parallel 8")],
        files=odd(),
    ),
    # Batch, steps, precision
    wrong(PRETRAIN, "--per_device_train_batch_size 0", ("--per_device_train_batch_size", "0: a step needs samples")),
    wrong(PRETRAIN, "--per_device_eval_batch_size 0", ("--per_device_eval_batch_size", "0: a step needs samples")),
    wrong(PRETRAIN, "--warmup_ratio 2", ("--warmup_ratio", "2.0: a share of the steps")),
    wrong(PRETRAIN, "--logging_steps 0", ("--logging_steps", "0: the interval of the log")),
    wrong(TINY, "--fp16 1 --fp16_opt_level O2", ("--fp16_opt_level", "O2 with --fp16 1 and --device cpu: weights")),
    wrong(PRETRAIN, "--loss_scale_window 0", ("--loss_scale_window", "0: a number of steps")),
    wrong(PRETRAIN, "--loss_scale_hysteresis 0", ("--loss_scale_hysteresis", "0: a number of steps")),
    wrong(PRETRAIN, "--precision auto", ("--precision", "auto with --bf16 or --fp16: it is said instead of them")),
    wrong(PRETRAIN, "--scale_loss 8 --min_loss_scale 16", ("--min_loss_scale", "16 with --scale_loss 8: a loss scale")),
    wrong(PRETRAIN, "--gradient_accumulation_steps 0", ("--gradient_accumulation_steps", "0: a step needs samples")),
    wrong(FOUR_D, "--gradient_accumulation_steps 1", told=[BUBBLE, EVALUATION]),
    wrong(FOUR_D, "--per_device_eval_batch_size 1", told=[("--per_device_eval_batch_size", "1 becomes 16")]),
    wrong(PRETRAIN, "--max_steps 0", ("--max_steps", "0: pretraining runs for a number of steps")),
    wrong(
        PRETRAIN,
        "--num_train_epochs 3 --warmup_steps 5",
        told=[("--num_train_epochs", "does nothing"), ("--warmup_ratio", "does nothing")],
    ),
    wrong(PRETRAIN, "--bf16 1", ("--fp16", "one precision at a time")),
    wrong(
        TINY,
        "--amp_master_grad 1",
        told=[("--amp_master_grad", "1 does nothing")],
    ),
    wrong(
        PRETRAIN,
        "--amp_master_grad 1 --sharding_parallel_degree 4",
        ("--amp_master_grad", "1 with stage2 and data parallel 2"),
    ),
    # Overlap and other words
    wrong(
        PRETRAIN,
        "--sharding stage1 --sharding_parallel_config enable_stage1_broadcast_overlap",
        ("--sharding_parallel_config", "USE_CASUAL_MASK"),
    ),
    wrong(
        PRETRAIN,
        "--sharding_parallel_config enable_stage2_overlap --logging_steps 1",
        ("--sharding_parallel_config", "enable_stage2_overlap with --sharding stage2 --logging_steps 1"),
    ),
    wrong(
        PRETRAIN,
        "--sharding_parallel_config split_param",
        ("--sharding_parallel_config", "split_param is of stage1"),
        ("--sharding_parallel_config", "split_param without --amp_master_grad 1"),
    ),
    wrong(
        PRETRAIN,
        "--sharding stage1 --sharding_parallel_config enable_stage1_tensor_fusion",
        ("--sharding_parallel_config", "a run that is continued would begin without them"),
    ),
    Variant(PRETRAIN, "--sharding stage1 --sharding_parallel_config enable_stage1_tensor_fusion --save_strategy no"),
    wrong(
        FOUR_D,
        "--sharding_parallel_config enable_stage1_tensor_fusion",
        told=[("--sharding_parallel_config", "ignores")],
    ),
    wrong(
        FOUR_D,
        "--pipeline_parallel_config enable_dp_comm_overlap",
        ("--pipeline_parallel_config", "overlap has accuracy issue"),
    ),
    wrong(
        FOUR_D,
        "--pipeline_parallel_config enable_sharding_comm_overlap",
        ("--pipeline_parallel_config", "enable_sharding_comm_overlap without --amp_master_grad 1"),
    ),
    wrong(
        FOUR_D,
        "--tensor_parallel_config enable_mp_skip_c_identity",
        ("--tensor_parallel_config", "without enable_mp_async_allreduce"),
    ),
    wrong(
        PRETRAIN,
        "--pipeline_parallel_config enable_timer",
        told=[("--pipeline_parallel_config", "the pipeline parallel degree is 1")],
    ),
    wrong(
        FOUR_D,
        "--pipeline_parallel_config enable_sharding_comm_overlap --sharding_parallel_degree 1",
        ("--pipeline_parallel_config", "enable_sharding_comm_overlap with data parallel 2"),
        told=[("--sharding", "stage1 does nothing on 8 processes: data parallel 2 x")],
    ),
    wrong(
        FOUR_D,
        "--tensor_parallel_degree 4 --sharding_parallel_config disable_stage1_reduce_avg",
        told=[
            ("--sharding", "stage1 does nothing"),
            ("--sharding_parallel_config", "the sharding parallel degree is 1"),
        ],
    ),
    wrong(
        PRETRAIN,
        "--tensor_parallel_config sync_param",
        told=[("--tensor_parallel_config", "the tensor parallel degree is 1")],
    ),
    wrong(
        TINY,
        "--sharding stage1 --sharding_parallel_config enable_stage1_overlap",
        ("--sharding_parallel_config", "enable_stage1_overlap with --device cpu"),
    ),
    # Checkpoints
    wrong(
        PRETRAIN,
        '--unified_checkpoint_config "skip_save_model_weight ignore_merge_optimizer"',
        ("--unified_checkpoint_config", "exclude each other"),
    ),
    wrong(
        PRETRAIN,
        "--load_best_model_at_end 1 --evaluation_strategy epoch",
        ("--load_best_model_at_end", "1 with --evaluation_strategy epoch --save_strategy steps"),
    ),
    wrong(
        PRETRAIN,
        "--ignore_load_lr_and_optim 1 --ignore_data_skip 1",
        ("--ignore_data_skip", "would see again what it has seen"),
        told=[("--ignore_load_lr_and_optim", "only the weights")],
    ),
    wrong(PRETRAIN, "--save_sharded_model 1", ("--save_sharded_model", "each rank always saves its own part")),
    wrong(
        PRETRAIN,
        '--unified_checkpoint_config "enable_all_options remove_master_weight"',
        ("--unified_checkpoint_config", "drops every other word"),
    ),
    wrong(
        PRETRAIN,
        "--unified_checkpoint_config remove_master_weight",
        told=[("--unified_checkpoint_config", "async_save alone means something")],
    ),
    wrong(
        PRETRAIN,
        "--load_best_model_at_end 1 --save_steps 1500",
        ("--save_steps", "1500 with --eval_steps 1000"),
    ),
    wrong(PRETRAIN, "--resume_from_checkpoint True", ("resume", "True is no checkpoint")),
    wrong(
        PRETRAIN,
        "--resume_from_checkpoint ckpt",
        ("resume", "PaddleNLP's own"),
        files={"ckpt/trainer_state.json": "{}"},
    ),
    wrong(
        PRETRAIN,
        "--overwrite_output_dir 1 --resume_from_checkpoint auto",
        ("resume", "one continues a run, the other starts at step 0"),
    ),
    # Data and output
    wrong(PRETRAIN, "--input_dir nowhere", ("data", "no data at nowhere")),
    wrong(
        PRETRAIN,
        "",
        ("output", "holds an earlier run"),
        files={
            "checkpoints/llama-7b-pretrain/train_log.jsonl": "{}",
            "checkpoints/llama-7b-pretrain/run_summary.json": "{}",
        },
    ),
    wrong(
        PRETRAIN,
        "--resume_from_checkpoint none",
        ("output", "holds an earlier run"),
        files={"checkpoints/llama-7b-pretrain/train_log.jsonl": "{}"},
    ),
    # Cards
    wrong(PRETRAIN, "", ("cards", "here: none"), here=[]),
    wrong(PRETRAIN, "", ("cards", "8 of 80 GB needed, here: 2 x"), here=A100S[:2]),
    wrong(
        PRETRAIN,
        "",
        ("cards", "8 of 80 GB needed, chosen: 8 x NVIDIA A100-SXM4-40GB"),
        here=[card("A100-40G", index) for index in range(8)],
    ),
    wrong(
        PRETRAIN,
        "",
        ("card 3", "20.0 of 80 GiB are in use by process 7"),
        here=[
            *A100S[:3],
            card("A100", 3, free_bytes=60 * GIB, processes=(Process(7, None),)),
            *A100S[4:8],
        ],
    ),
    # Devices that cannot
    wrong(
        PRETRAIN,
        "--bf16 1 --fp16 0",
        ("--bf16", "compute capability 7.0 has no bfloat16"),
        wishes={"GPU_MEMORY_GB": "32"},
        here=[card("V100", index) for index in range(8)],
    ),
    wrong(
        PRETRAIN,
        "--use_flash_attention required",
        ("--use_flash_attention", "found required, not possible here"),
        wishes={"GPU_MEMORY_GB": "32"},
        here=[card("V100", index) for index in range(8)],
    ),
    wrong(TINY, "--use_flash_attention required", ("--use_flash_attention", "found required, not possible here")),
]


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """machine(cards, files): a folder with the recipes' data on a machine with those cards."""
    for variable in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)
    for corpus in ("data/corpus", "build/demo/data/corpus"):
        (tmp_path / corpus).parent.mkdir(parents=True)
        write_corpus(tmp_path / corpus)
    write_dialogues(tmp_path / "data")
    monkeypatch.setattr(disk, "free_bytes", lambda directory: 10**12)
    monkeypatch.setattr(memory.psutil, "virtual_memory", lambda: SimpleNamespace(available=512 * GIB))

    def make(here, files=()):
        nvml = FakeNvml(here, has_driver=bool(here))
        for module, names in [(cards, ("list_cards", "driver")), (gates, ("list_cards",))]:
            for one in names:
                monkeypatch.setattr(module, one, lambda real=getattr(module, one): real(nvml))
        monkeypatch.setattr(cards, "nvlink_pairs", lambda chosen, real=cards.nvlink_pairs: real(chosen, nvml))
        monkeypatch.setattr(cards, "paddle_build", lambda: "12.6")
        write_files(dict(files))

    return make


def write_files(files: dict) -> None:
    for path, text in files.items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text)


def matches(found: list, expected: tuple) -> bool:
    """Whether they are as many, and each has the subject and the part of the text expected."""
    return len(found) == len(expected) and all(
        one.subject == subject and part in one.found for one, (subject, part) in zip(found, expected)
    )


def split(findings: list) -> tuple[list, list]:
    """(faults, announcements about flags), each in the order in which they are shown."""
    faults = [finding for finding in findings if not finding.ok]
    return faults, [finding for finding in findings if finding.ok and finding.subject.startswith("--")]


@pytest.mark.parametrize("recipe", RECIPES, ids=name)
def test_a_recipe_as_shipped_passes_on_the_machine_it_is_for(machine, recipe):
    machine(A100S[:8])
    assert split(recipe_findings(name(recipe))) == ([], [])


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_variant(machine, variant):
    machine(variant.here, variant.files)
    faults, told = split(recipe_findings(variant.recipe, variant.argv, **variant.wishes))
    assert matches(faults, variant.faults), faults
    assert matches(told, variant.told), told
    assert all(fault.fix for fault in faults)


def test_there_are_forty_and_more():
    assert len(VARIANTS) >= 40


def test_wishes_that_cannot_be_met_are_refused_before(machine):
    machine(A100S)
    for wishes, message in [
        ({"DEVICES": "0,0"}, "names a card twice"),
        ({"GPUS": "3"}, "cannot be dealt to 3 cards"),
    ]:
        with pytest.raises(UserError, match=message):
            recipe_findings(PRETRAIN, **wishes)
    with pytest.raises(UserError, match="4 for each copy of the model. Possible: 4, 8, 16"):
        recipe_findings(FOUR_D, GPUS="6")


def test_two_nodes_worth_of_cards_keep_the_samples_of_a_step(machine):
    machine(A100S)
    findings = recipe_findings(FOUR_D, GPUS="16", ARGS="--tensor_parallel_degree 4")
    assert split(findings) == ([], [])
    [layout] = [finding.found for finding in findings if finding.subject == "layout"]
    assert layout == (
        "16 processes: sharding stage1 2 x tensor parallel 4 x pipeline parallel 2; 32 samples a step "
        "(data ranks 2 x micro batch 1 x accumulation 16)"
    )


def test_every_row_of_the_matrix_is_met(machine, monkeypatch):
    """All but those of model families, which have tests of their own, and of flags that pretraining does not have."""
    met = []
    monkeypatch.setattr(Rule, "finding", lambda rule, run, real=Rule.finding: met.append(rule) or real(rule, run))
    machine(A100S[:8])
    for variant in VARIANTS:
        write_files(variant.files)
        recipe_findings(variant.recipe, variant.argv, **variant.wishes)
    elsewhere = [*family.RULES, *finetuning.RULES, *(rule for rule in RULES if "lora" in rule.found)]
    missing = [(rule.flag, rule.found) for rule in RULES if rule not in met and rule not in elsewhere]
    assert not missing, "\n".join(map(str, missing))
