"""The table of docs/gpu-speed.md: what each switch changes by the plan, on a recipe and its card.

    python -m docs.tools.switch_table docs/gpu-speed.md

replaces what stands between the two marks, a line each: <!-- switches --> and <!-- end of switches -->.
"""

import shlex
import sys
from dataclasses import dataclass

from data_tools.cli import Parser
from docs.tools.pages import ROOT, write_tables
from launch.config.flag_values import parse_flags
from launch.config.layout import ACCUMULATION, Layout
from launch.config.recipe_file import Recipe
from launch.guard import guarded
from launch.plan.hardware import GIB, card_of_memory
from launch.plan.job import Job
from launch.plan.memory_model import plan_memory
from launch.plan.plan_report import speed_of
from launch.plan.time_plan import plan_time
from launch.reporting.markdown import markdown

NAME = "switches"
HEAD = ["switch", "recipe", "from", "to", "tokens/s", "speed", "GiB on a card"]
PRETRAIN, PRETRAIN_4D = "llama-7b/pretrain.sh", "llama-7b/pretrain-4d.sh"
FINETUNE, LORA, QLORA_13B = "llama-7b/finetune.sh", "llama-7b/lora.sh", "baichuan-13b/qlora-1gpu.sh"
# Of a step, where a row does not say it.
SAMPLES = {PRETRAIN: 256, PRETRAIN_4D: 256, FINETUNE: 128, LORA: 16, QLORA_13B: 16}
# Of every row, unless it says otherwise.
USUAL = parse_flags(shlex.split("--fp16 0 --precision auto"))

OVERLAP = "tensor parallel beside products"


@dataclass(frozen=True)
class Compared:
    """Flags that are added to a recipe's own, and those that it is compared with."""

    title: str
    recipe: str
    before: str
    after: str


LONGER = "--per_device_train_batch_size 4 --src_length 1024 --max_length 2048"
SWITCHES = (
    Compared("16 bit", LORA, "--precision fp32", "--precision auto"),
    Compared("flash attention", PRETRAIN, "--use_flash_attention off", "--use_flash_attention auto"),
    Compared(
        "flash attention, ALiBi",
        QLORA_13B,
        f"{LONGER} --use_flash_attention off",
        f"{LONGER} --use_flash_attention auto",
    ),
    Compared("fused RMSNorm", PRETRAIN, "--use_fused_rms_norm off", "--use_fused_rms_norm auto"),
    Compared("fused rotary embedding", PRETRAIN_4D, "--use_fused_rope off", "--use_fused_rope auto"),
    Compared(
        "loss in chunks",
        PRETRAIN,
        "--per_device_train_batch_size 4 --loss_chunk_tokens off",
        "--per_device_train_batch_size 4 --loss_chunk_tokens auto",
    ),
    Compared("loss in chunks", LORA, "--loss_chunk_tokens off", "--loss_chunk_tokens auto"),
    Compared("recompute", PRETRAIN, "--recompute 0", "--recompute 1"),
    Compared(
        "recompute, attention alone", PRETRAIN, "--recompute 0", "--recompute 1 --recompute_granularity full_attn"
    ),
    Compared("recompute", LORA, "--recompute 0", "--recompute 1"),
    Compared("micro batch", PRETRAIN, "--per_device_train_batch_size 1", "--per_device_train_batch_size 2"),
    Compared("micro batch", FINETUNE, "--per_device_train_batch_size 4", "--per_device_train_batch_size 16"),
    Compared("accumulation", PRETRAIN, "--gradient_accumulation_steps 1", "--gradient_accumulation_steps 16"),
    Compared("gradients in float32", PRETRAIN, "--amp_master_grad 0", "--amp_master_grad 1"),
    Compared("moments in 16 bits", PRETRAIN, "--optim adamw", "--optim adamw_16bit_moment"),
    Compared("optimizer in host memory", PRETRAIN, "--offload_optim 0", "--offload_optim 1"),
    Compared("activations in host memory", LORA, "--recompute 1", "--recompute 1 --offload activations"),
    Compared("a base in 4 bits", LORA, "", "--weight_quantize_algo nf4"),
    Compared("sharding", PRETRAIN, "--sharding stage1", "--sharding stage2"),
    Compared("sharding", PRETRAIN, "--sharding stage2", "--sharding stage3"),
    Compared("tensor parallel", FINETUNE, "--tensor_parallel_degree 1 --sharding stage2", "--tensor_parallel_degree 4"),
    Compared("pipeline parallel", PRETRAIN_4D, "--pipeline_parallel_degree 1", "--pipeline_parallel_degree 2"),
    Compared("sequence parallel", PRETRAIN_4D, "--sequence_parallel 0", "--sequence_parallel 1"),
    Compared(OVERLAP, FINETUNE, "--tensor_parallel_overlap off", "--tensor_parallel_overlap auto"),
    Compared(OVERLAP, PRETRAIN_4D, "--tensor_parallel_overlap off", "--tensor_parallel_overlap auto"),
)


def table() -> str:
    return markdown(HEAD, map(_row, SWITCHES))


def _row(switch: Compared) -> list[str]:
    recipe = Recipe.load(ROOT / "recipes" / switch.recipe)
    card = card_of_memory(recipe.gpu_memory_gb)
    jobs = [_job(recipe, switch.recipe, flags) for flags in (switch.before, switch.after)]
    before, after = (plan_time(job, card) for job in jobs)
    sizes = (plan_memory(job, card).peak_bytes for job in jobs)
    memory = " → ".join(f"{size / GIB:.1f}{'' if size <= card.memory_bytes else ' (too much)'}" for size in sizes)
    return [
        switch.title,
        f"`{recipe.target}`, {recipe.gpus} x {card.name}",
        *(f"`{flags}`" if flags else "" for flags in (switch.before, switch.after)),
        f"{speed_of(before)} → {speed_of(after)}",
        f"x {after.tokens_per_second / before.tokens_per_second:.2f}",
        memory,
    ]


def _job(recipe: Recipe, path: str, flags: str) -> Job:
    """With as many micro batches as make up the samples of a step, unless the flags say how many."""
    stated = parse_flags(shlex.split(flags))
    words = recipe.flags | USUAL | stated
    if ACCUMULATION not in stated:
        at_once = int(words["per_device_train_batch_size"][0]) * Layout.from_flags(words, recipe.gpus).data_ranks
        words[ACCUMULATION] = [str(SAMPLES[path] // at_once)]
    return Job.from_flags(recipe.script, words, recipe.gpus, card_of_memory(recipe.gpu_memory_gb))


def main(argv: list[str]) -> None:
    write_tables(Parser("python -m docs.tools.switch_table", __doc__), argv, {NAME: table})


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))
