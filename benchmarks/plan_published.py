"""The plan beside published measurements on A100 cards, and beside runs on several nodes (published_nodes.py).

    python benchmarks/plan_published.py
    python benchmarks/plan_published.py --markdown      # writes both, to benchmarks/results/plan_published.md

Nothing is run: each row is the configuration that its source names, planned. Published are gigabytes by nvidia-smi
(FlagPerf) or Paddle's max_memory_allocated (PaddleNLP), and whether a run went out of memory. Add a row to ROWS and run
tests/plan/test_published.py.
"""

import argparse
import statistics
import sys
from dataclasses import dataclass, replace
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks.page import put
from benchmarks.published_nodes import FITTED, RUNS
from launch.config.layout import Layout
from launch.families.forward import FLOAT32
from launch.families.gated_decoder import LINEAR_LAYERS, rotary_rows
from launch.families.named_configs import load_config
from launch.guard import guarded
from launch.plan.hardware import CARDS, GIB
from launch.plan.job import BFLOAT16, FLOAT16, Job, Lora
from launch.plan.memory_model import plan_memory
from launch.plan.shards import stage_layers
from launch.plan.time_plan import plan_time

NODES = """\
E, F and G are Megatron-LM of 2021 and 2022 on machines with `ib-hdr`, H is Megatron-LM of 2024, for which `ib-ndr`
is assumed, I is the Llama 3 report with `roce-400`. What differs from PaddleNLP is modeled as the source states it:
the fused softmax of Megatron-LM, virtual stages, and in H and I the overlap of gradients, parameters and pipeline
sends. Micro batch and virtual stages that a source does not state are those with which the plan is fastest. Speeds
are FLOP/s by each source's formula, as tokens per second of a card; for I, 6 FLOP per parameter and token. The row
of I with context parallel is left out. The rows were divided into two halves by a fixed seed before the first
estimate. Half 2 was looked at only once, when the model was complete; nothing was changed afterwards."""
NVIDIA_SMI, ALLOCATED = "nvidia-smi", "max_memory_allocated"
# FlagPerf training/nvidia/llama1_7B-paddle: fp16 O2, 2048 tokens, flash attention, fused RMSNorm.
# A100-40G: without fused RMSNorm, recompute full.
FLAGPERF = "FlagPerf"
# PaddleNLP llm/docs/pretrain.rst, 2023-11: bf16 O2, 4096 tokens, flash attention, fused RMSNorm, TP2 x stage 2 of 4.
PRETRAIN = "PaddleNLP pretrain.rst"
# PaddleNLP examples/benchmark/peft/README.md, 2023: 4 x A100-80G, fp16 O2, exact attention, samples of Alpaca, whose
# length in a batch is taken as 256.
PEFT = "PaddleNLP benchmark/peft"
PEFT_LENGTH = 256


@dataclass(frozen=True)
class PublishedMemory:
    """A published measurement.

    Attributes:
        published: GiB of each pipeline stage by `counted`; empty where only whether it fitted is known.
    """

    source: str
    name: str
    job: Job
    published: tuple[float, ...] = ()
    counted: str = NVIDIA_SMI
    fitted: bool = True
    card: str = "A100-80G"

    @property
    def planned(self) -> list[float]:
        """GiB of each pipeline stage, as published: with the rotary tables that upstream keeps in every layer."""
        peaks = [stage.peak for stage in plan_memory(self.job, CARDS[self.card]).stages]
        sizes = [peak.total_bytes if self.counted == NVIDIA_SMI else peak.allocated_bytes for peak in peaks]
        extra = [_tables_of_more_layers(self.job, len(layers)) for layers in stage_layers(self.job)]
        return [(size + more) / GIB for size, more in zip(sizes, extra, strict=True)]

    @property
    def errors(self) -> list[float]:
        """Relative error of each stage."""
        return [planned / published - 1 for planned, published in zip(self.planned, self.published, strict=True)]

    @property
    def fits(self) -> bool:
        """Whether the plan says that the job fits."""
        return bool(plan_memory(self.job, CARDS[self.card]).fits)


def _tables_of_more_layers(job: Job, layers: int) -> int:
    """Return the bytes of the tables that upstream/rotary_tables_of_every_layer.py saves in the layers of a LLaMA."""
    if job.family.model_type != "llama":
        return 0
    config = job.config
    positions = max(config["max_position_embeddings"], job.sequence_length)
    head_size = config["hidden_size"] // config["num_attention_heads"]
    return (layers * positions - rotary_rows(job.sequence_length, positions)) * head_size * 2 * FLOAT32


def _job(model: str, layout: Layout, micro_batch: int, accumulation: int, length: int, **more) -> Job:
    """Return a job with fp16 O2, flash attention, fused RMSNorm and whole logits, unless `more` changes it."""
    usual = {"compute": FLOAT16, "flash_attention": True, "fused_rms_norm": True}
    return Job(
        config=load_config(model) | more.pop("sizes", {}),
        layout=layout,
        micro_batch=micro_batch,
        accumulation=accumulation,
        sequence_length=length,
        amp="O2",
        master_weights=True,
        loss_chunk_tokens="off",
        **usual | more,
    )


TP2_S1, TP2_S2, TP2_PP4 = Layout(1, 4, 2, 1, "stage1"), Layout(1, 4, 2, 1, "stage2"), Layout(1, 1, 2, 4, "")
S2, S2_4, S3_4 = Layout(1, 8, 1, 1, "stage2"), Layout(1, 4, 1, 1, "stage2"), Layout(1, 4, 1, 1, "stage3")
TP4 = Layout(1, 1, 4, 1, "")
ONE = Layout(1, 1, 1, 1, "")


def _flagperf(name: str, layout: Layout, accumulation: int, *published: float, small: bool = False) -> PublishedMemory:
    more = {"fused_rms_norm": False, "recompute": "full"} if small else {}
    job = _job("llama-7b", layout, 2 if small else 4, accumulation, 2048, **more)
    card = "A100-40G" if small else "A100-80G"
    return PublishedMemory(FLAGPERF, f"LLaMA-7B, {name}, {card}", job, published, card=card)


def _pretrain(name: str, model: str, micro_batch: int, accumulation: int, megabytes: int, **more) -> PublishedMemory:
    job = _job(model, TP2_S2, micro_batch, accumulation, 4096, compute=BFLOAT16, fused_rope=True, **more)
    return PublishedMemory(PRETRAIN, name, job, (megabytes / 1024,), ALLOCATED)


def _peft(name: str, model: str, layout: Layout, micro_batch: int, fitted: bool = True, **more) -> PublishedMemory:
    exact = {"flash_attention": False, "fused_rms_norm": False}
    job = _job(model, layout, micro_batch, 1, PEFT_LENGTH, own_loss=True, **exact | more)
    return PublishedMemory(PEFT, name, job, fitted=fitted)


LORA = Lora(8, ("q_proj", "k_proj", "v_proj"))
ROWS = [
    _flagperf("stage 2 of 8", S2, 64, 70.09),
    _flagperf("TP2, stage 1 of 4", TP2_S1, 128, 58.73),
    _flagperf("TP2, stage 2 of 4", TP2_S2, 128, 54.01),
    _flagperf("TP2, PP4", TP2_PP4, 512, 46.80, 38.93, 31.74, 26.92),
    _flagperf("stage 2 of 8", S2, 128, 33.55, small=True),
    _flagperf("TP2, stage 1 of 4", TP2_S1, 256, 28.40, small=True),
    _flagperf("TP2, stage 2 of 4", TP2_S2, 256, 25.80, small=True),
    _flagperf("TP2, PP4", TP2_PP4, 1024, 20.41, 19.80, 19.41, 20.12, small=True),
    _pretrain("LLaMA-7B, Llama-2-7B", "llama-7b", 2, 8, 52092),
    _pretrain("LLaMA-13B", "llama-13b", 1, 16, 64278),
    _pretrain("Llama-2-13B", "llama-2-13b", 1, 16, 64294),
    _pretrain("Baichuan2-7B", "llama-7b", 2, 8, 58363, sizes={"vocab_size": 125696}),
    _peft("LLaMA-7B LoRA, 1 card, batch 4", "llama-7b", ONE, 4, adapter=LORA),
    _peft("LLaMA-13B LoRA, 1 card, batch 8, recompute", "llama-13b", ONE, 8, adapter=LORA, recompute="full"),
    _peft("LLaMA-7B, TP4, batch 8", "llama-7b", TP4, 8),
    _peft("LLaMA-7B, ZeRO-2, batch 8", "llama-7b", S2_4, 8),
    _peft("LLaMA-7B, ZeRO-2, batch 16", "llama-7b", S2_4, 16),
    _peft("LLaMA-7B, ZeRO-3, batch 8", "llama-7b", S3_4, 8),
    _peft("LLaMA-7B, ZeRO-3, batch 16", "llama-7b", S3_4, 16),
    _peft("LLaMA-13B, TP4, batch 8, recompute", "llama-13b", TP4, 8, recompute="full"),
    _peft("LLaMA-13B, ZeRO-3, batch 8", "llama-13b", S3_4, 8),
    _peft("LLaMA-13B, ZeRO-2, batch 8", "llama-13b", S2_4, 8, fitted=False),
    _peft("ChatGLM-6B LoRA, 1 card, batch 4", "chatglm-6b", ONE, 4, adapter=Lora(8, ("query_key_value",))),
    _peft("ChatGLM-6B, TP4, batch 16", "chatglm-6b", TP4, 16),
    _peft("Bloomz-7B1 LoRA, 1 card, batch 4", "bloom-7b1", ONE, 4, adapter=Lora(8, ("query_key_value",))),
    _peft("Bloomz-7B1, TP4, batch 8", "bloom-7b1", TP4, 8),
]


LONG = """\
A class of its own, with which nothing was fitted: samples whose tokens ranks share, on 8 cards, all layers computed
again, planned with `--sep_parallel_degree`. J is torchtitan's table of context parallel (a ring) with torch.compile
and float8 products on H100 of 96 GB, planned with stage 3; float8 is not planned, and the published speeds contain it.
K is a table of ms-swift: LoRA of Qwen2.5-3B on 8 A100, 4 samples of 9,000 tokens each in one row, 2 ranks by heads as
here, the others in a ring, since it has 2 key/value heads; this repository would refuse more. The rank of its LoRA is
taken for 8, ms-swift's default. Whole logits are what the sources have, or nearly; in chunks is what a run here has,
by default."""
TORCHTITAN = "https://github.com/pytorch/torchtitan/blob/main/benchmarks/llama3_h100_202412_torchtitan.md"
MS_SWIFT = (
    "https://github.com/modelscope/modelscope-classroom/blob/main/Blogs/Articles/Ulysses_Ring_Attention/report.md"
)
QWEN_3B = {
    "hidden_size": 2048,
    "num_hidden_layers": 36,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "intermediate_size": 11008,
}
# Source, ranks of a sample, its tokens, GiB of a card, tokens/s of a card
LONG_ROWS = (
    *(("J", *row) for row in ((1, 32768, 83.9, 3890), (2, 65536, 84.2, 2540), (4, 131072, 84.0, 1071))),
    ("J", 8, 262144, 84.5, 548),
    *(("K", ranks, 9000, memory, 0) for ranks, memory in ((1, 75.35), (2, 48.5), (4, 27.78), (8, 17.92))),
)


def long_markdown() -> str:
    """Return the table of runs whose ranks share samples."""
    lines = [
        "| source | run | published GiB | planned, whole logits | in chunks | published tokens/s | planned |",
        "| --- " * 2 + "| ---: " * 5 + "|",
    ]
    for source, ranks, length, memory, speed in LONG_ROWS:
        usual = {"compute": BFLOAT16, "fused_rope": True, "recompute": "full"}
        if source == "J":
            layout, card = Layout(1, 8, 1, 1, "stage3", sep_parallel_degree=ranks), CARDS["H100"]
            job = _job("llama-3.1-8b", layout, 1, 1, length, **usual)
        else:
            layout, card = Layout(8, 1, 1, 1, "", sep_parallel_degree=ranks), CARDS["A100-80G"]
            adapter = Lora(8, LINEAR_LAYERS)
            job = _job("qwen2.5-0.5b", layout, 4, 1, length, sizes=QWEN_3B, adapter=adapter, **usual)
        jobs = (job, replace(job, loss_chunk_tokens="auto"))
        whole, chunked = (plan_memory(one, card).stages[0].peak.total_bytes / GIB for one in jobs)
        planned = plan_time(job, card).tokens_per_second_per_card
        speeds = f"{speed:,} | {planned:,.0f} ({planned / speed - 1:+.0%})" if speed else "|"
        name, address = ("Llama-3.1-8B,", TORCHTITAN) if source == "J" else ("Qwen2.5-3B, LoRA, 4 samples of", MS_SWIFT)
        lines.append(
            f"| [{source}]({address}) | {name} {length:,} tokens, {ranks} to a sample | {memory:.1f} | "
            f"{whole:.1f} ({whole / memory - 1:+.0%}) | {chunked:.1f} | {speeds} |"
        )
    return "\n".join(lines)


def markdown() -> str:
    """Return the table for the page."""
    lines = ["| source | run | counted by | published GiB | planned GiB | error |", "| --- " * 3 + "| ---: " * 3 + "|"]
    for row in ROWS:
        planned = " / ".join(f"{value:.1f}" for value in row.planned)
        if row.published:
            published = " / ".join(f"{value:.1f}" for value in row.published)
            errors = " / ".join(f"{value:+.1%}" for value in row.errors)
            lines.append(f"| {row.source} | {row.name} | {row.counted} | {published} | {planned} | {errors} |")
        else:
            published, found = ("fits" if fits else "out of memory" for fits in (row.fitted, row.fits))
            lines.append(f"| {row.source} | {row.name} | whether it fits | {published} | {planned} | {found} |")
    return "\n".join(lines)


def nodes_markdown() -> str:
    """Return tokens a second of a card on several nodes. Half 2 was looked at only at the end."""
    lines = [
        "| source | run | half | micro batch, virtual stages | published tokens/s | planned | error |",
        "| --- | --- | --- | --- | ---: | ---: | ---: |",
    ]
    errors: dict[int, list[float]] = {1: [], 2: []}
    for number, run in enumerate(RUNS):
        half = 1 if number in FITTED else 2
        errors[half].append(abs(run.error))
        job = run.plan.job
        lines.append(
            f"| [{run.source}]({run.url}) | {run.name} | {half} | {job.micro_batch}, {job.engine.virtual_stages} | "
            f"{run.tokens_per_second:,.0f} | {run.plan.tokens_per_second_per_card:,.0f} | {run.error:+.1%} |"
        )
    for half, found in errors.items():
        lines.append(
            f"| all | median, largest error | {half} | | | | {statistics.median(found):.1%}, {max(found):.1%}; "
            f"{sum(error <= 0.15 for error in found)} of {len(found)} within 15 % |"
        )
    return "\n".join(lines)


def main(argv: list[str]) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--markdown", action="store_true", help="also write the page of the results")
    arguments = parser.parse_args(argv)
    print(text := page())
    if arguments.markdown:
        put("plan_published", "plan", text)


def page() -> str:
    """Return the page of the results."""
    nodes = f"## Speed on several nodes\n\n{NODES}\n\n{nodes_markdown()}"
    shared = f"## Long samples over several ranks\n\n{LONG}\n\n{long_markdown()}"
    return f"## Memory on one node\n\n{markdown()}\n\n{nodes}\n\n{shared}"


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))
