"""The layouts that must give the single-process loss: one entry each, from which the parity tests, the benchmark
and docs/layouts.md are made."""

from dataclasses import dataclass

GLOBAL_BATCH = 8


@dataclass(frozen=True)
class Layout:
    """A way of dividing one training over processes: the product of its four degrees.

    stage: of sharding. sequence: ranks of data parallel or sharding that share a sample. accumulation: micro batches a
    step, whose size is chosen so that every layout has the same global batch. slow: not needed in every run of the
    tests.
    """

    tensor: int = 1
    pipeline: int = 1
    sharding: int = 1
    data: int = 1
    stage: int = 0
    sequence: int = 1
    sequence_parallel: bool = False
    accumulation: int = 1
    slow: bool = False

    @property
    def name(self) -> str:
        """Such as tp2-pp2-stage1-2-dp2: each degree above 1 beside its kind."""
        parts = [
            (f"tp{self.tensor}", self.tensor),
            (f"pp{self.pipeline}", self.pipeline),
            (f"stage{self.stage}-{self.sharding}", self.sharding),
            (f"dp{self.data}", self.data),
            (f"sep{self.sequence}", self.sequence),
        ]
        named = [part for part, degree in parts if degree > 1] or ["single"]
        return "-".join(named + (["sp"] if self.sequence_parallel else []))

    @property
    def processes(self) -> int:
        return self.tensor * self.pipeline * self.sharding * self.data

    @property
    def data_ranks(self) -> int:
        """Processes that see different samples."""
        return self.sharding * self.data // self.sequence

    @property
    def micro_batch(self) -> int:
        return GLOBAL_BATCH // self.data_ranks // self.accumulation

    @property
    def flags(self) -> dict[str, str]:
        """Those of run_pretrain.py that make the layout; data parallel takes the processes that are left."""
        degrees = {
            "tensor_parallel_degree": self.tensor,
            "pipeline_parallel_degree": self.pipeline,
            "sep_parallel_degree": self.sequence,
        }
        flags = {name: str(degree) for name, degree in degrees.items() if degree > 1}
        if self.sequence_parallel:
            flags["sequence_parallel"] = "1"
        if self.stage:
            flags |= {"sharding": f"stage{self.stage}", "sharding_parallel_degree": str(self.sharding)}
        return flags

    @property
    def batch(self) -> dict[str, str]:
        """Flags that make the global batch."""
        return {
            "per_device_train_batch_size": str(self.micro_batch),
            "gradient_accumulation_steps": str(self.accumulation),
        }

    @property
    def argv(self) -> list[str]:
        return [word for name, value in (self.flags | self.batch).items() for word in (f"--{name}", value)]


SINGLE = Layout()
DP2 = Layout(data=2)
STAGE2 = Layout(stage=2, sharding=2)
STAGE3 = Layout(stage=3, sharding=2)
TP2 = Layout(tensor=2)
TP2_SP = Layout(tensor=2, sequence_parallel=True, accumulation=2)
PP2 = Layout(pipeline=2, accumulation=4)
TP2_PP2 = Layout(tensor=2, pipeline=2, accumulation=4)
TP2_PP2_SP = Layout(tensor=2, pipeline=2, sequence_parallel=True, accumulation=4)
LAYOUTS = [
    DP2,
    Layout(stage=1, sharding=2),
    STAGE2,
    STAGE3,
    TP2,
    TP2_SP,
    PP2,
    Layout(pipeline=4, accumulation=4),
    TP2_PP2,
    TP2_PP2_SP,
    Layout(tensor=2, data=2),
    Layout(tensor=2, stage=1, sharding=2),
    Layout(tensor=2, stage=2, sharding=2),
    Layout(pipeline=2, stage=1, sharding=2, accumulation=4),
    Layout(stage=3, sharding=2, data=2, accumulation=2),
    Layout(data=8, slow=True),
    Layout(stage=1, sharding=8, slow=True),
    Layout(stage=2, sharding=8),
    Layout(stage=2, sharding=4, data=2),
    Layout(tensor=2, pipeline=2, stage=1, sharding=2, sequence_parallel=True, accumulation=4),
]

# Each --recompute_granularity, and where it is tried.
RECOMPUTED = {
    "full": [DP2, STAGE3, TP2_SP, PP2, TP2_PP2_SP],
    "full_attn": [STAGE2, TP2_SP, PP2],
    "core_attn": [DP2, TP2_SP, PP2],
}


def everything_on(layout: Layout) -> dict[str, str]:
    """Return the flags that save memory and time, together, of a layout on a CPU: the loss in chunks of fewer tokens
    than a micro batch has, inputs of recomputed layers in host memory, sums over tensor parallel ranks beside products.
    """
    flags = {"loss_chunk_tokens": "24", "recompute": "1", "offload": "activations"}
    if layout.tensor > 1:
        beside = "enable_mp_async_allreduce,enable_mp_skip_c_identity"
        flags["tensor_parallel_config"] = "enable_sp_async_reduce_scatter" if layout.sequence_parallel else beside
    return flags
