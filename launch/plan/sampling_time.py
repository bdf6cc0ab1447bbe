"""The time in which reinforcement samples its answers, before a step learns from them (launch/generation/sampler.py).

All answers are taken as long as they may be, rewards as free, and no groups as replaced. Decoding as a whole was never
measured on cards: weights are read as by torch (READING), keys and values go by the rates of training, and what the
host does was measured on a CPU.
"""

from dataclasses import dataclass
from math import ceil, fsum

from launch.families.arithmetic import PROMPT_CHUNK, TEXTS_TOGETHER
from launch.families.parameters import attention_heads, head_size, key_value_heads, layers
from launch.plan.hardware import Card
from launch.plan.job import FLOAT32, ITEM, Job
from launch.plan.work import MATMUL, Pace, Work
from launch.tape.quantized import Format

# The least share of its bandwidth at which an H200 reads weights for products with 1 to 64 rows, by torch: 71 to 74 %
# (benchmarks/results/bare_card.md).
READING = 0.71
# Seconds that Python and the framework need to start the operators of a layer that reads one token of each text, and
# those of attention for each group of texts. Measured on a CPU with models of 64 dimensions, 2 and 10 layers, 16 and 64
# texts (Paddle 3.3.1): 1.1 and 2.7 ms a layer.
HOST_LAYER, HOST_GROUP = 0.6e-3, 0.5e-3
# Seconds for each id of the vocabulary in which the host draws a token; where --top_p sorts all ids. Measured alike
# with 32,000 and 151,936 ids: 6.2 to 6.5, and 110 to 167 ns.
DRAWN, SORTED = 6.5e-9, 140e-9
# Tensors of keys and values are up to a fourth longer than their texts (launch/generation/key_values.py).
CAPACITY = 1.125
# Bytes that attention of Paddle's operators moves for each score: those of its products and of two casts in the dtype
# of the weights, and float32 beside the bias, the softmax and these casts.
SCORE_ITEMS, SCORE_BYTES = 4, 24

# The parts of sampling.
PROMPTS, PRODUCTS, CACHE, ELEMENTWISE, LOGITS = (
    "prompts",
    "matrix products",
    "keys and values",
    "element-wise",
    "logits",
)
HOST, DRAWING = "waiting for the host", "drawing tokens"
SAMPLING_PARTS = (PROMPTS, CACHE, LOGITS, DRAWING)  # that learning has not


@dataclass(frozen=True)
class SamplingTime:
    """The sampling of one rank for a step."""

    job: Job
    card: Card

    @property
    def pace(self) -> Pace:
        """The rates of the card."""
        return Pace(self.card, self.job.compute, self.job.item)

    @property
    def longest(self) -> int:
        """Tokens of an answer."""
        return self.job.sequence_length - self.job.prompt_length

    def parts(self) -> dict[str, float]:
        """Return the seconds of a step by part; {} where nothing is sampled.

        A rollout of several steps has fewer decoding steps with few texts.
        """
        job = self.job
        if not job.sampled_at_once:
            return {}
        prompts = job.micro_batch * job.accumulation * job.rollout_steps
        whole, rest = divmod(prompts * job.rows, job.sampled_at_once)
        waves = [(whole, self.decoding(job.sampled_at_once))] if whole else []
        waves += [(1, self.decoding(rest))] if rest else []
        seconds = {PROMPTS: prompts * job.prompt_length / PROMPT_CHUNK * self.chunk()}
        for part in waves[0][1]:
            seconds[part] = self.longest * fsum(count * wave[part] for count, wave in waves)
        steps = job.rollout_steps * job.rollout_passes
        return {part: each / steps for part, each in seconds.items() if each > 0}

    def chunk(self) -> float:
        """Return the seconds of a part of a prompt."""
        work = self._work(1, PROMPT_CHUNK)
        computed = layers(self.job.config) * work.forward.total
        return computed + self._waiting(work, 1, computed)

    def decoding(self, texts: int) -> dict[str, float]:
        """Return the seconds by part of one more token for each of so many texts, half of whose answers are there."""
        job, pace, work, count = self.job, self.pace, self._work(texts, 1), layers(self.job.config)
        vocabulary = job.config["vocab_size"]
        seen = texts * (job.prompt_length + self.longest / 2) * CAPACITY
        cached = 2 * key_value_heads(job.config) * head_size(job.config) * job.item
        scored = attention_heads(job.config) * (SCORE_ITEMS * job.item + SCORE_BYTES)
        widened = texts * vocabulary * (job.item + ITEM[FLOAT32])
        parts = {
            PRODUCTS: count * fsum(self._product(work.rows(one), one.size, job.base) for one in work.linear),
            CACHE: count * pace.stream(seen * (cached + scored)),
            ELEMENTWISE: count * work.forward.elementwise,
            LOGITS: self._product(texts, job.config["hidden_size"] * vocabulary, None) + pace.stream(widened),
        }
        parts[HOST] = self._waiting(work, ceil(texts / TEXTS_TOGETHER), fsum(parts.values()))
        copied = pace.copy(texts * vocabulary * ITEM[FLOAT32]) if job.on_gpu else 0.0
        return parts | {DRAWING: copied + texts * vocabulary * (SORTED if job.sorts_ids else DRAWN)}

    def _product(self, rows: float, size: int, base: Format | None) -> float:
        """Return the seconds of a product with few rows: a weight is read, or all of its arithmetic takes longer.

        The shares of training's products (Pace.multiply) are those of rows that fill tiles.
        """
        arithmetic = 2 * rows * size / (self.card.flops(self.job.compute) * self.card.reach[0] * MATMUL)
        dequantized = base.moved(size, self.job.item) if base else 0.0
        reading = self.job.item * size / (self.card.memory_bandwidth * READING)
        return max(arithmetic, reading) + self.pace.stream(dequantized)

    def _work(self, texts: int, tokens: int) -> Work:
        return Work(self.job.changed(micro_batch=texts, rows=1, sequence_length=tokens), self.pace)

    def _waiting(self, work: Work, groups: int, computed: float) -> float:
        """Return the seconds in which a step's operators are started and nothing is computed: all of them on a CPU."""
        starting = layers(self.job.config) * (HOST_LAYER * work.host_layers + HOST_GROUP * groups)
        return max(0.0, starting - computed) if self.job.on_gpu else starting
