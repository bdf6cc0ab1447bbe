"""Published training speeds on several nodes as jobs of the planner: data for benchmarks/plan_published.py.

    E  Megatron-LM, arXiv 2104.04473 (2021), table 1: A100-80G, DGX A100, HDR InfiniBand
    F  the same, table 2, without ZeRO
    G  Megatron-LM, arXiv 2205.05198 (2022), table 5: the same machines, rows on several of them
    H  Megatron-LM, README of github.com/NVIDIA/Megatron-LM (2024), images/model_table.png: H100, NDR InfiniBand
    I  Llama 3, arXiv 2407.21783 (2024), table 4: H100, 400 Gbit/s RoCE; the row with context parallel is left out

Their engine is no PaddleNLP. What a source states is taken from it: sizes, layout, samples, recompute, what overlaps.
The micro batch and the virtual stages that it does not state are those with which the plan is fastest: such runs are
tuned. Speeds are FLOP/s a card by the source's own formula; here they become tokens a second of a card.

Constants of the network might be fitted to one half of the rows, FITTED, which is drawn by this seed; the other half
was looked at once, at the end. None is fitted: the errors of that half hardly depend on what the network reaches.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from launch.config.layout import Layout
from launch.families.parameters import layers
from launch.plan.hardware import CARDS, Card
from launch.plan.interconnect import NETWORKS
from launch.plan.job import ACTIVATIONS, BFLOAT16, FLOAT16, GRADIENTS, PARAMETERS, Engine, Job
from launch.plan.time_plan import TimePlan, plan_time

SEED = 25
CARDS_OF_A_NODE = 8
TABLE_21, TABLE_22 = "https://arxiv.org/abs/2104.04473", "https://arxiv.org/abs/2205.05198"
README_24, LLAMA_3 = "https://github.com/NVIDIA/Megatron-LM", "https://arxiv.org/abs/2407.21783"

# Megatron-LM's kernel for softmax, scale and mask (megatron/fused_kernels): scores written by the product, read and
# written by the kernel, by dropout with its mask of bytes, read by the next product; 8 times in the backward pass.
FUSED_SOFTMAX = (6.5, 8.0)
MEGATRON = Engine(softmax_passes=FUSED_SOFTMAX)
OVERLAPPING = Engine(overlapped=frozenset({GRADIENTS, PARAMETERS, ACTIVATIONS}))


@dataclass(frozen=True)
class NodesRun:
    """A published run on several nodes.

    Attributes:
        tokens_per_second: Of a card.
        job: With micro batches of 1.
        states_micro_batch, states_stages: Whether the source has the micro batch and the virtual stages; where it
            does not, `plan` takes the fastest.
    """

    source: str
    url: str
    name: str
    card: str
    job: Job
    tokens_per_second: float
    states_micro_batch: bool = False
    states_stages: bool = False

    @cached_property
    def plan(self) -> TimePlan:
        """The plan, with the fastest of the values that the source lacks."""
        card = CARDS[self.card]
        return min((plan_time(job, card) for job in self._jobs()), key=lambda plan: plan.step_seconds)

    @property
    def error(self) -> float:
        """Relative error of the plan's speed."""
        return self.plan.tokens_per_second_per_card / self.tokens_per_second - 1

    def _jobs(self) -> Iterator[Job]:
        """Yield the job with each micro batch and each number of virtual stages that the source allows.

        The micro batch divides the samples of a rank, the virtual stages the layers of a stage.
        """
        job, samples = self.job, self.job.accumulation
        pipeline = job.layout.pipeline_parallel_degree
        each = -(-layers(job.config) // pipeline)
        sizes = (1,) if self.states_micro_batch else [n for n in (1, 2, 4, 8, 16) if samples % n == 0]
        stages = [n for n in range(1, each + 1) if each % n == 0 and pipeline > 1] or [1]
        for size in sizes:
            for count in [job.engine.virtual_stages] if self.states_stages else stages:
                if count == 1 or (samples // size) % pipeline == 0:  # what the interleaved schedule needs
                    engine = replace(job.engine, virtual_stages=count)
                    yield job.changed(micro_batch=size, accumulation=samples // size, engine=engine)


def _gpt(hidden: int, heads: int, count: int, vocabulary: int) -> dict:
    """Return the configuration of a GPT with one product for queries, keys and values: the layers of Bloom."""
    return {
        "model_type": "bloom",
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "n_layer": count,
        "n_head": heads,
    }


def _job(config: dict, cards: int, tensor: int, pipeline: int, samples: int, length: int, card: Card, **others) -> Job:
    """Return the job of a run. samples: of a step, of all ranks."""
    data = cards // (tensor * pipeline)
    network = "ib-hdr" if card.name.startswith("A100") else "ib-ndr"
    return Job(
        config=config,
        layout=others.pop("layout", Layout(data, 1, tensor, pipeline, "")),
        micro_batch=1,
        accumulation=samples // data,
        sequence_length=length,
        amp="O2",
        master_weights=True,
        fused_rms_norm=True,
        fused_rope=True,
        loss_chunk_tokens="off",
        nodes=cards // CARDS_OF_A_NODE,
        network=NETWORKS[others.pop("network", network)],
        **others,
    )


A100, H100 = CARDS["A100-80G"], CARDS["H100"]
VOCABULARY_21, LENGTH_21 = 51200, 2048


def _with_recompute(hidden: int, count: int) -> float:
    """Return FLOPs a token by equation 3 of arXiv 2104.04473, which counts the forward pass twice."""
    return 96 * count * hidden**2 * (1 + LENGTH_21 / (6 * hidden) + VOCABULARY_21 / (16 * count * hidden))


def _without(hidden: int, count: int, length: int, vocabulary: int) -> float:
    """Return FLOPs a token by equation 7 of arXiv 2205.05198, forward and backward."""
    return 72 * count * hidden**2 * (1 + length / (6 * hidden) + vocabulary / (12 * count * hidden))


def _2021(source: str, size: str, shape: tuple[int, int, int], layout: tuple[int, int], cards: int, samples: int,
          teraflops: float, **stated) -> NodesRun:  # fmt: skip
    hidden, heads, count = shape
    tensor, pipeline = layout
    config = _gpt(hidden, heads, count, VOCABULARY_21)
    job = _job(config, cards, tensor, pipeline, samples, LENGTH_21, A100, compute=FLOAT16, recompute="full",
               engine=MEGATRON)  # fmt: skip
    name = f"GPT {size}, {cards:,} x A100, TP{tensor}, PP{pipeline}, {samples:,} samples"
    speed = teraflops * 1e12 / _with_recompute(hidden, count)
    return NodesRun(source, TABLE_21, name, A100.name, job, speed, **stated)


def _2022(size: str, shape: tuple[int, int, int], pipeline: int, stages: int, cards: int, samples: int,
          seconds: float, selective: bool) -> NodesRun:  # fmt: skip
    hidden, heads, count = shape
    config = _gpt(hidden, heads, count, VOCABULARY_21)
    how = {"recompute": "core_attn", "sequence_parallel": True} if selective else {"recompute": "full"}
    engine = replace(MEGATRON, virtual_stages=stages)
    job = _job(config, cards, 8, pipeline, samples, LENGTH_21, A100, compute=FLOAT16, engine=engine, **how)
    recompute = "selective recompute, sequence parallel" if selective else "full recompute"
    name = f"GPT {size}, {cards:,} x A100, TP8, PP{pipeline}, {recompute}"
    speed = samples * LENGTH_21 / seconds / cards
    return NodesRun("G", TABLE_22, name, A100.name, job, speed, states_micro_batch=True, states_stages=True)


def _2024(size: str, shape: tuple[int, int, int], layout: tuple[int, int], cards: int, samples: int,
          teraflops: float) -> NodesRun:  # fmt: skip
    hidden, heads, count = shape
    tensor, pipeline = layout
    length, vocabulary = 4096, 131072
    config = _gpt(hidden, heads, count, vocabulary)
    data = cards // (tensor * pipeline)
    job = _job(config, cards, tensor, pipeline, samples, length, H100, compute=BFLOAT16, flash_attention=True,
               sequence_parallel=tensor > 1, tensor_parallel_overlap=tensor > 1, engine=OVERLAPPING,
               layout=Layout(1, data, tensor, pipeline, "stage1"))  # fmt: skip
    name = f"GPT {size}, {cards:,} x H100, TP{tensor}, PP{pipeline}, {samples:,} samples"
    speed = teraflops * 1e12 / _without(hidden, count, length, vocabulary)
    return NodesRun("H", README_24, name, H100.name, job, speed)


LLAMA_405B = {
    "model_type": "llama",
    "vocab_size": 128256,
    "hidden_size": 16384,
    "intermediate_size": 53248,
    "num_hidden_layers": 126,
    "num_attention_heads": 128,
    "num_key_value_heads": 8,
    "max_position_embeddings": 8192,
}


def _llama(cards: int, teraflops: float) -> NodesRun:
    """Return a run of 2,048 samples of 8,192 tokens a step.

    The report counts 6 FLOPs a parameter and token (3.8e25 for 15.6 T).
    """
    tensor, pipeline = 8, 16
    data = cards // (tensor * pipeline)
    job = _job(LLAMA_405B, cards, tensor, pipeline, 2048, 8192, H100, compute=BFLOAT16, flash_attention=True,
               sequence_parallel=True, engine=OVERLAPPING, network="roce-400",
               layout=Layout(1, data, tensor, pipeline, "stage1"))  # fmt: skip
    name = f"Llama 3 405B, {cards:,} x H100, TP8, PP16"
    return NodesRun("I", LLAMA_3, name, H100.name, job, teraflops * 1e12 / (6 * 405e9), states_micro_batch=True)


GPT_175B, GPT_530B, GPT_1T = (12288, 96, 96), (20480, 128, 105), (25600, 160, 128)
RUNS = (
    _2021("E", "1.7B", (2304, 24, 24), (1, 1), 32, 512, 137),
    _2021("E", "3.6B", (3072, 32, 30), (2, 1), 64, 512, 138),
    _2021("E", "7.5B", (4096, 32, 36), (4, 1), 128, 512, 142),
    _2021("E", "18.4B", (6144, 48, 40), (8, 1), 256, 1024, 135),
    _2021("E", "39.1B", (8192, 64, 48), (8, 2), 512, 1536, 138),
    _2021("E", "76.1B", (10240, 80, 60), (8, 4), 1024, 1792, 140),
    _2021("E", "145.6B", (12288, 96, 80), (8, 8), 1536, 2304, 148),
    _2021("E", "310.1B", (16384, 128, 96), (8, 16), 1920, 2160, 155),
    _2021("E", "529.6B", GPT_530B, (8, 35), 2520, 2520, 163),
    _2021("E", "1008B", GPT_1T, (8, 64), 3072, 3072, 163),
    _2021("F", "174.6B", GPT_175B, (8, 12), 384, 1536, 153, states_micro_batch=True),
    _2021("F", "174.6B", GPT_175B, (8, 12), 768, 1536, 149, states_micro_batch=True),
    _2021("F", "174.6B", GPT_175B, (8, 12), 1536, 1536, 141, states_micro_batch=True),
    _2021("F", "529.6B", GPT_530B, (8, 35), 560, 2240, 171, states_micro_batch=True),
    _2021("F", "529.6B", GPT_530B, (8, 35), 1120, 2240, 167, states_micro_batch=True),
    _2021("F", "529.6B", GPT_530B, (8, 35), 2240, 2240, 159, states_micro_batch=True),
    _2022("175B", GPT_175B, 8, 3, 64, 64, 18.13, selective=False),
    _2022("175B", GPT_175B, 8, 3, 64, 64, 13.75, selective=True),
    _2022("530B", GPT_530B, 35, 3, 280, 280, 49.05, selective=False),
    _2022("530B", GPT_530B, 35, 3, 280, 280, 37.83, selective=True),
    _2022("1T", GPT_1T, 64, 1, 512, 512, 94.42, selective=False),
    _2022("1T", GPT_1T, 64, 1, 512, 512, 71.49, selective=True),
    _2024("1.7B", (2048, 16, 24), (1, 1), 48, 192, 408.8),
    _2024("7.1B", (4096, 32, 30), (2, 1), 96, 192, 465.9),
    _2024("16B", (6144, 48, 32), (4, 1), 192, 192, 489.1),
    _2024("32B", (7168, 56, 48), (8, 1), 384, 192, 459.6),
    _2024("70B", (8192, 64, 84), (8, 2), 768, 384, 419.7),
    _2024("119B", (10240, 80, 92), (8, 4), 1536, 768, 420.5),
    _2024("177B", (12288, 96, 96), (8, 6), 2304, 1152, 432.8),
    _2024("314B", (16384, 128, 96), (8, 8), 3072, 1536, 474.4),
    _2024("462B", (18432, 144, 112), (8, 16), 6144, 3072, 459.9),
    _llama(8192, 430),
    _llama(16384, 400),
)
# Rows that a constant might be fitted to, by their places.
FITTED = frozenset(random.Random(SEED).sample(range(len(RUNS)), len(RUNS) // 2))
