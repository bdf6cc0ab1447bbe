"""Training speeds that others have published, as jobs that the planner understands: data for benchmarks/plan_speed.py.

    A  FlagPerf, training/nvidia/llama1_7B-paddle: 8 x A100, Paddle 2.5.1, LLaMA-7B, fp16 O2, samples of 2048
    B  PaddleNLP, llm/docs/pretrain.rst of 2023-11: 8 x A100-80G, bf16 O2, samples of 4096
    C  PaddleNLP, examples/benchmark/peft/README.md of 2023: A100-80G, fp16 O2, real samples, no flash attention
    D  make certify on somebody's cards, random weights: lines of its page (docs/certify.md). There are none yet

A row to add is a Published(...) at the end of a list; another model is a file in launch/families/configs.
"""

import shlex
from dataclasses import dataclass

from launch.config.flag_values import parse_flags
from launch.config.layout import Layout
from launch.families.named_configs import load_config
from launch.plan.hardware import CARDS
from launch.plan.job import BFLOAT16, FLOAT16, Job, Lora


@dataclass(frozen=True)
class Published:
    """A published speed.

    Attributes:
        tokens_per_second: A card in A, B and D; of all cards, tokens that do not pad, in C.
        effective_tokens: Tokens of a step that do not pad, in C; 0: all.
    """

    source: str
    name: str
    card: str
    job: Job
    tokens_per_second: float
    effective_tokens: float = 0.0


def _layout(tensor: int = 1, pipeline: int = 1, sharding: str = "", ranks: int = 1) -> Layout:
    return Layout(1, ranks if sharding else 1, tensor, pipeline, sharding)


def _pretraining(model: str, layout: Layout, dtype: str, **others) -> Job:
    return Job(
        config=load_config(model) | others.pop("config", {}),
        layout=layout,
        compute=dtype,
        amp="O2",
        master_weights=True,
        flash_attention=True,
        loss_chunk_tokens="off",
        **others,
    )


def _a(name: str, speed: float, layout: Layout, accumulation: int, small: bool = False) -> Published:
    """Return a row of source A. small: on A100-40G: micro batch 2 instead of 4, recomputed layers, separate RMSNorm."""
    job = _pretraining(
        "llama-7b",
        layout,
        FLOAT16,
        micro_batch=2 if small else 4,
        accumulation=accumulation,
        sequence_length=2048,
        recompute="full" if small else "",
        fused_rms_norm=not small,
    )
    return Published("A", f"LLaMA-7B, {name}", "A100-40G" if small else "A100-80G", job, speed)


def _b(model: str, name: str, speed: float, micro_batch: int, accumulation: int, **config) -> Published:
    job = _pretraining(
        model,
        _layout(2, sharding="stage2", ranks=4),
        BFLOAT16,
        micro_batch=micro_batch,
        accumulation=accumulation,
        sequence_length=4096,
        fused_rms_norm=True,
        fused_rope=True,
        config=config,
    )
    return Published("B", f"{name}, TP2, stage 2 x 4", "A100-80G", job, speed)


# Tokens of an Alpaca sample, on average: 409 characters a sample of tatsu-lab/stanford_alpaca data/alpaca_5000.json,
# 360 of them text, four to a token of LLaMA. Lengths fall off like an exponential law: the longest of n, to which the
# others are padded, has 1 + 1/2 + ... + 1/n times the mean. The Chinese samples of the ChatGLM and Bloom rows are taken
# to be as long.
ALPACA_TOKENS = 90
LORA_C = Lora(8, ("q_proj", "k_proj", "v_proj", "query_key_value"))


def _c(model: str, name: str, speed: float, samples: int, layout: Layout, **others) -> Published:
    """Return a row of source C.

    samples: of a step. They are padded to the longest of a micro batch, and ranks wait for the longest.
    """
    accumulation = others.pop("accumulation", 1)
    at_once = samples // accumulation
    job = Job(
        config=load_config(model),
        layout=layout,
        micro_batch=at_once // layout.data_ranks,
        accumulation=accumulation,
        sequence_length=round(ALPACA_TOKENS * sum(1 / number for number in range(1, at_once + 1))),
        compute=FLOAT16,
        amp="O2",
        master_weights=True,
        own_loss=True,
        loss_chunk_tokens="off",
        **others,
    )
    return Published("C", name, "A100-80G", job, speed, samples * ALPACA_TOKENS)


def _d(name: str, card: str, speed: float, script: str, processes: int, flags: str) -> Published:
    """Return a row of source D: a line of `make certify`. speed: tokens a second of a card; flags: of the script."""
    job = Job.from_flags(f"launch/{script}.py", parse_flags(shlex.split(flags)), processes, CARDS[card])
    return Published("D", name, card, job, speed)


ROWS = (
    _a("stage 2 x 8", 4267, _layout(sharding="stage2", ranks=8), 64),
    _a("TP2, stage 1 x 4", 3888, _layout(2, sharding="stage1", ranks=4), 128),
    _a("TP2, stage 2 x 4", 3650, _layout(2, sharding="stage2", ranks=4), 128),
    _a("TP2, PP4", 3722, _layout(2, 4), 512),
    _a("40G, stage 2 x 8, recompute", 2744, _layout(sharding="stage2", ranks=8), 128, small=True),
    _a("40G, TP2, stage 1 x 4, recompute", 2163, _layout(2, sharding="stage1", ranks=4), 256, small=True),
    _a("40G, TP2, stage 2 x 4, recompute", 2160, _layout(2, sharding="stage2", ranks=4), 256, small=True),
    _a("40G, TP2, PP4, recompute", 2232, _layout(2, 4), 1024, small=True),
    _b("llama-7b", "LLaMA-7B", 3754.73, 2, 8),
    _b("llama-13b", "LLaMA-13B", 1969.64, 1, 16),
    _b("llama-2-13b", "LLaMA-2-13B", 1975.63, 1, 16),
    _b("baichuan-7b", "Baichuan2-7B", 3542.45, 2, 8, vocab_size=125696),
    _c("llama-7b", "LLaMA-7B LoRA, batch 4", 1986.63, 4, _layout(), adapter=LORA_C),
    _c("llama-13b", "LLaMA-13B LoRA, batch 8, recompute", 838.78, 8, _layout(), adapter=LORA_C, recompute="full"),
    _c("llama-7b", "LLaMA-7B, TP4, batch 8", 2213.46, 8, _layout(4)),
    _c("llama-7b", "LLaMA-7B, TP4, batch 8 x 2", 2630.30, 16, _layout(4), accumulation=2),
    _c("llama-7b", "LLaMA-7B, stage 2 x 4, batch 8", 1781.27, 8, _layout(sharding="stage2", ranks=4)),
    _c("llama-7b", "LLaMA-7B, stage 2 x 4, batch 16", 2804.19, 16, _layout(sharding="stage2", ranks=4)),
    _c("llama-7b", "LLaMA-7B, stage 3 x 4, batch 8", 1256.82, 8, _layout(sharding="stage3", ranks=4)),
    _c("llama-7b", "LLaMA-7B, stage 3 x 4, batch 16", 2115.58, 16, _layout(sharding="stage3", ranks=4)),
    _c("llama-13b", "LLaMA-13B, TP4, batch 8, recompute", 1651.50, 8, _layout(4), recompute="full"),
    _c("llama-13b", "LLaMA-13B, stage 3 x 4, batch 8", 747.17, 8, _layout(sharding="stage3", ranks=4)),
    _c("chatglm-6b", "ChatGLM-6B LoRA, batch 4", 2654.73, 4, _layout(), adapter=LORA_C),
    _c("chatglm-6b", "ChatGLM-6B, TP4, batch 8", 3109.83, 8, _layout(4)),
    _c("chatglm-6b", "ChatGLM-6B, TP4, batch 16", 3569.95, 16, _layout(4)),
    _c("bloom-7b1", "Bloomz-7B1 LoRA, batch 4", 2293.46, 4, _layout(), adapter=LORA_C),
    _c("bloom-7b1", "Bloomz-7B1, TP4, batch 8", 2873.13, 8, _layout(4)),
    _c("bloom-7b1", "Bloomz-7B1, TP4, batch 16", 2853.83, 16, _layout(4)),
)
