"""The trainings that the tests read: method x layout x model x what saves memory, each pair of them somewhere.

A cell is trained once for all tests (tests/runs.py). Its numbers are those of one process, and it goes on from its
checkpoint to the bit: test_cells.py.
"""

from dataclasses import dataclass, field

from tests.distributed import layouts
from tests.distributed.layouts import (
    DP2,
    LAYOUTS,
    PP2,
    SINGLE,
    STAGE2,
    STAGE3,
    TP2,
    TP2_PP2,
    TP2_PP2_SP,
    TP2_SP,
    Layout,
)

LORA = {"lora": 1, "lora_rank": 4}
DORA = {"dora": 1}
PREFIX = {"prefix_tuning": 1, "num_prefix_tokens": 6}
ROWS = LORA | {"trainable_token_indices": "369 260 353"}
DROPOUT = LORA | {"lora_dropout": 0.2}
NF4 = {"weight_quantize_algo": "nf4", "weight_blocksize": 16}
INT8 = {"weight_quantize_algo": "weight_only_int8"}
PACKED = {"zero_padding": 1}
CHUNKS = {"loss_chunk_tokens": 24}  # of 256 tokens a micro batch or fewer, and none a multiple of 24
SLICES = {"sequence_slices": 3}
NARROW = {"optim": "adamw_16bit_moment"}
SCALED = {"fp16": 1, "fp16_opt_level": "O1", "scale_loss": 4096, "loss_scale_window": 2}
ONCE = {"reference": "precomputed"}
# Whose last step has fewer samples.
EPOCH = {"max_steps": -1, "num_train_epochs": 1, "save_steps": 1}
KTO = {"loss_type": "kto", "desirable_weight": 2, "undesirable_weight": 0.5}
# Of reinforcement. Some answers of random weights have the reward.
ANSWERED = {"reward": "regex:[aeiou][a-z][aeiou]", "group_size": 4, "max_length": 60, "temperature": 0.8}
# Flags that change no number beyond rounding: one process is trained without them.
COMPUTED_ALIKE = {
    "sharding",  # with offload
    *("loss_chunk_tokens", "recompute", "recompute_granularity", "offload", "tensor_parallel_config", "reference"),
    "sequence_slices",
    *SCALED,
}
STAGE1 = Layout(stage=1, sharding=2)
DP2_TWICE = Layout(data=2, accumulation=2)
SEP2 = Layout(data=2, sequence=2)


def recompute(granularity: str) -> dict:
    return {"recompute": 1, "recompute_granularity": granularity}


def model_of(layout: Layout) -> str:
    """Return the model that has a layer for each stage of the layout's pipeline."""
    return "deep" if layout.pipeline > 2 else "model"


@dataclass(frozen=True)
class Cell:
    """A training. flags: beside those that its method usually has (tests/runs.py)."""

    method: str
    layout: Layout
    flags: dict = field(default_factory=dict, hash=False)
    model: str = "model"

    @property
    def name(self) -> str:
        words = [f"{key}={value}" for key, value in self.flags.items()]
        accumulation = f"x{self.layout.accumulation}" if self.layout.accumulation > 1 else ""
        return " ".join(filter(None, [self.method, self.layout.name, accumulation, self.model, *words]))

    @property
    def alone(self) -> "Cell":
        """The cell on one process, without what changes no number."""
        flags = {name: value for name, value in self.flags.items() if name not in COMPUTED_ALIKE}
        return Cell(self.method, SINGLE, flags | {"loss_chunk_tokens": "off"}, self.model)

    @property
    def random(self) -> bool:
        """Whether numbers depend on how the training is divided: by dropout, noise, or what rounds moments up."""
        return bool({"lora_dropout", "neftune", "optim"} & self.flags.keys())

    @property
    def arguments(self) -> dict:
        """Arguments of runs(...)."""
        return {"method": self.method, "layout": self.layout, "model": self.model, **self.flags}


PRETRAINING, FULL, PAIRS, REWARDS = "pretraining", "finetuning", "preferences", "rewards"
REINFORCEMENT = "reinforcement"
CELLS = [
    Cell(PRETRAINING, TP2, recompute("core_attn"), "grouped"),
    Cell(PRETRAINING, TP2_SP, recompute("full"), "qwen3"),
    Cell(PRETRAINING, PP2, CHUNKS, "tied"),
    Cell(PRETRAINING, STAGE2, NARROW),
    Cell(PRETRAINING, STAGE3, recompute("full_attn"), "qwen2"),
    Cell(PRETRAINING, DP2, SCALED, "qwen3"),
    Cell(PRETRAINING, TP2_PP2_SP, layouts.everything_on(TP2_PP2_SP)),
    Cell(FULL, TP2, CHUNKS, "qwen2"),
    Cell(FULL, TP2_SP, PACKED, "grouped"),
    Cell(FULL, PP2, SCALED),
    Cell(FULL, PP2, EPOCH | PACKED, "ernie4_5"),
    Cell(PRETRAINING, STAGE3, recompute("full"), "ernie4_5"),
    Cell(FULL, STAGE1, NARROW, "qwen3"),
    Cell(FULL, STAGE3, PACKED, "tied"),
    Cell(FULL, DP2_TWICE, EPOCH | SLICES | recompute("full"), "grouped"),
    Cell(FULL, TP2, LORA | NF4),
    Cell(FULL, TP2_SP, LORA | DORA | CHUNKS, "qwen2"),
    Cell(FULL, PP2, DROPOUT, "grouped"),
    Cell(FULL, STAGE2, ROWS | INT8 | SLICES, "qwen2"),
    Cell(FULL, STAGE3, ROWS | DORA | PACKED | layouts.everything_on(STAGE3), "qwen3"),
    Cell(FULL, TP2, PREFIX, "grouped"),
    Cell(FULL, STAGE2, PREFIX | CHUNKS),
    Cell(PAIRS, PP2, LORA | DORA | ONCE | PACKED | {"beta": 0.05}, "grouped"),
    Cell(PAIRS, PP2, EPOCH | ONCE),
    Cell(PAIRS, TP2, CHUNKS, "qwen2"),
    Cell(PAIRS, STAGE3, ONCE, "qwen3"),
    Cell(PAIRS, STAGE2, KTO | ROWS, "qwen2"),
    Cell(PAIRS, TP2_SP, EPOCH | KTO | CHUNKS),
    Cell(FULL, SEP2, PACKED | SLICES | recompute("core_attn"), "grouped"),
    Cell(PRETRAINING, Layout(stage=2, sharding=4, sequence=2), CHUNKS | recompute("full"), "qwen3"),
    Cell(PRETRAINING, Layout(data=4, sequence=4), SCALED),
    Cell(FULL, Layout(stage=1, sharding=2, sequence=2), LORA | DORA | CHUNKS, "ernie4_5"),
    Cell(FULL, Layout(stage=3, sharding=2, sequence=2), ROWS | INT8 | recompute("full_attn"), "qwen2"),
    Cell(FULL, Layout(data=8, sequence=4, accumulation=2), EPOCH | PACKED | CHUNKS),
    Cell(REWARDS, TP2, EPOCH, "qwen2"),
    Cell(REWARDS, STAGE3, ROWS),
]
# `make test` has these: a pipeline, tensor parallelism, sharding; pretraining and LoRA on a quantized base.
ESSENTIAL = [CELLS[0], CELLS[2], CELLS[16]]

# Whole products of methods and layouts, for `make test-nightly` and benchmarks/resuming.py.
RESUMED = [
    Cell(PRETRAINING, SINGLE),
    Cell(PRETRAINING, Layout(accumulation=4)),
    *[Cell(PRETRAINING, layout, model=model_of(layout)) for layout in LAYOUTS if not layout.slow],
    *[Cell(FULL, layout, DROPOUT) for layout in (SINGLE, DP2, TP2, PP2, STAGE2, STAGE3)],
    *[Cell(FULL, layout, DROPOUT | INT8) for layout in (SINGLE, STAGE3)],
    Cell(FULL, TP2, DROPOUT | NF4 | {"weight_double_quant": 1}),
    *[Cell(FULL, layout, PREFIX) for layout in (SINGLE, TP2)],
]
PRODUCTS = [
    *RESUMED,
    Cell(FULL, STAGE3, DROPOUT | {"sharding": ["stage3 offload"]}),
    # As recipes/chatglm-6b/int8-lora-1gpu.sh: rows of weights that outliers need are read again.
    Cell(
        FULL, SINGLE, DROPOUT | {"weight_quantize_algo": "llm.int8", "fp32_norms_and_head": 1, "pad_to_multiple_of": 8}
    ),
    Cell(FULL, PP2, LORA | {"pissa": 1}),
    Cell(FULL, STAGE2, LORA | {"neftune": 1}),
    *[Cell(PRETRAINING, layout, NARROW) for layout in (TP2, STAGE2, STAGE3)],
    Cell(PRETRAINING, TP2_PP2_SP, layouts.everything_on(TP2_PP2_SP) | NARROW),
    Cell(FULL, TP2, layouts.everything_on(TP2) | DROPOUT | NARROW | PACKED),
    *[Cell(PRETRAINING, layout, {}, "grouped") for layout in (TP2, PP2, TP2_PP2_SP)],
    *[
        Cell(FULL, layout, method)
        for method in ({}, LORA)
        for layout in (Layout(tensor=4), TP2, STAGE2, TP2_PP2, PP2, STAGE1, STAGE3, DP2_TWICE, TP2_SP)
    ],
    *[Cell(FULL, layout, PREFIX, "grouped") for layout in (TP2, STAGE1, STAGE2, STAGE3, DP2_TWICE, TP2_SP)],
    *[Cell(FULL, layout, LORA | NF4) for layout in (STAGE2, PP2)],
    *[Cell(FULL, layout, PACKED) for layout in (TP2, TP2_SP, PP2, STAGE2)],
    *[
        Cell(PRETRAINING, layout, CHUNKS)
        for layout in (SINGLE, TP2, STAGE3, DP2_TWICE, Layout(stage=2, sharding=2, accumulation=2), TP2_PP2_SP)
    ],
    *[Cell(FULL, layout, CHUNKS) for layout in (PP2, TP2_SP)],
    Cell(FULL, SINGLE, PACKED | CHUNKS),
    Cell(FULL, SINGLE, PREFIX | CHUNKS),
    *[Cell(FULL, layout, LORA | CHUNKS) for layout in (TP2, PP2)],
    *[Cell(PRETRAINING, layout, layouts.everything_on(layout)) for layout in (TP2, STAGE2, STAGE3)],
    *[Cell(FULL, layout, LORA | PACKED | layouts.everything_on(layout)) for layout in (TP2, STAGE2)],
    *[
        Cell(PAIRS, layout, method)
        for method in ({}, LORA)
        for layout in (Layout(accumulation=4), TP2, TP2_SP, STAGE2, STAGE3)
    ],
    *[Cell(PAIRS, TP2, ONCE | method) for method in ({}, LORA)],
    *[Cell(PAIRS, layout, ONCE | {"sharding": [f"stage{layout.stage} offload"]}) for layout in (STAGE2, STAGE3)],
    Cell(PAIRS, TP2_PP2, ONCE | PACKED | LORA | {"beta": 0.05}),
    Cell(PAIRS, TP2_PP2, {"loss_type": "simpo"}),
    Cell(PAIRS, PP2, {"loss_type": "or"} | LORA | CHUNKS),
    *[Cell(PAIRS, layout, KTO | LORA) for layout in (Layout(accumulation=4), TP2, STAGE3)],
    *[Cell(PAIRS, layout, KTO) for layout in (Layout(accumulation=4), STAGE2, STAGE3)],
    *[
        Cell(REWARDS, layout, method)
        for method in ({}, LORA)
        for layout in (Layout(accumulation=4), TP2, TP2_SP, STAGE2, STAGE3)
    ],
]


def products(*methods: str) -> list[Cell]:
    """Return the products of some methods, each once, that are no cells of their own."""
    known = {cell.name for cell in CELLS}
    found = {cell.name: cell for cell in PRODUCTS if cell.method in methods}
    return [cell for name, cell in found.items() if name not in known]
