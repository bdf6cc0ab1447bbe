"""The cells whose peak memory is planned and measured: layout x method x family."""

from dataclasses import dataclass

from tests.distributed.layouts import Layout

PRETRAIN, FINETUNE, LORA, DORA, PREFIX = "pretrain", "finetune", "lora", "dora", "prefix"
DPO, DPO_LORA, DPO_ONCE, KTO, KTO_LORA = "dpo", "dpo-lora", "dpo-precomputed", "kto", "kto-lora"
SIMPO_LORA = "simpo-lora"
REWARD, REWARD_LORA = "reward", "reward-lora"
INT8, INT4, NF4, FP4, LLM_INT8 = "weight_only_int8", "weight_only_int4", "nf4", "fp4", "llm.int8"
METHOD_FLAGS = {
    PRETRAIN: {},
    FINETUNE: {},
    LORA: {"lora": "1", "lora_rank": "8"},
    DORA: {"lora": "1", "lora_rank": "8", "dora": "1"},
    PREFIX: {"prefix_tuning": "1", "num_prefix_tokens": "16"},
    DPO: {},
    DPO_LORA: {"lora": "1", "lora_rank": "8"},
    DPO_ONCE: {"reference": "precomputed"},
    SIMPO_LORA: {"loss_type": "simpo", "lora": "1", "lora_rank": "8"},
    REWARD: {},
    REWARD_LORA: {"lora": "1", "lora_rank": "8"},
    KTO: {"loss_type": "kto"},
    KTO_LORA: {"loss_type": "kto", "lora": "1", "lora_rank": "8"},
}


@dataclass(frozen=True)
class Cell:
    """recompute: granularity, "" for none. base: how the frozen weights are quantized, "" for not at all.
    offload: of the stage of sharding. chunk: tokens whose loss is computed at once, 0 for all. activations: those that
    recompute keeps are in host memory. moments: of AdamW, in so many bits; 0: Adafactor's. overlap: of
    --tensor_parallel_config. packed: by a mask. slices: of MLPs and norms, 0 for whole.
    in_backward: parameters are updated there; of 8 bits offload pages the moments."""

    family: str = "llama"
    method: str = PRETRAIN
    layout: Layout = Layout()
    recompute: str = ""
    base: str = ""
    offload: bool = False
    chunk: int = 0
    activations: bool = False
    moments: int = 32
    overlap: str = ""
    packed: bool = False
    in_backward: bool = False
    slices: int = 0

    @property
    def name(self) -> str:
        parts = [self.family, self.method, self.layout.name]
        parts += [f"x{self.layout.accumulation}"] if self.layout.accumulation > 1 else []
        parts += [f"recompute-{self.recompute}"] if self.recompute else []
        parts += [self.base] if self.base else []
        parts += [f"chunks-{self.chunk}"] if self.chunk else []
        parts += ["activations-offload"] if self.activations else []
        parts += [f"moments-{self.moments}" if self.moments else "adafactor"] if self.moments < 32 else []
        parts += ["overlap"] if self.overlap else []
        parts += ["packed"] if self.packed else []
        parts += [f"slices-{self.slices}"] if self.slices else []
        parts += ["updated-in-backward"] if self.in_backward else []
        return " ".join(parts + (["offload"] if self.offload else []))

    @property
    def script(self) -> str:
        scripts = {
            PRETRAIN: "run_pretrain",
            **dict.fromkeys((DPO, DPO_LORA, DPO_ONCE, SIMPO_LORA, KTO, KTO_LORA), "run_dpo"),
            **dict.fromkeys((REWARD, REWARD_LORA), "run_reward"),
        }
        return scripts.get(self.method, "finetune_generation")

    @property
    def flags(self) -> dict[str, str]:
        recompute = {"recompute": "1", "recompute_granularity": self.recompute} if self.recompute else {}
        words = self.layout.argv
        layout = {name.removeprefix("--"): value for name, value in zip(words[::2], words[1::2], strict=True)}
        base = {"weight_quantize_algo": self.base} if self.base else {}
        if self.base == NF4:
            base["weight_double_quant"] = "1"
        if self.offload and self.layout.stage:
            layout["sharding"] += " offload"
        elif self.offload:
            base["offload_optim"] = "1"
        base["loss_chunk_tokens"] = str(self.chunk) if self.chunk else "off"
        if self.moments < 32:
            base["optim"] = {0: "adafactor", 8: "adamw_8bit", 16: "adamw_16bit_moment"}[self.moments]
        if self.slices:
            base["sequence_slices"] = str(self.slices)
        if self.in_backward:
            base["update_in_backward"] = "1"
        if self.activations:
            base["offload"] = "activations"
        if self.overlap:
            base["tensor_parallel_config"] = self.overlap
        if self.packed:
            base["zero_padding"] = "1"
        return layout | METHOD_FLAGS[self.method] | recompute | base


DP2, S1, S2, S3 = Layout(data=2), *(Layout(stage=stage, sharding=2) for stage in (1, 2, 3))
TP2, SP2, PP2 = Layout(tensor=2), Layout(tensor=2, sequence_parallel=True), Layout(pipeline=2, accumulation=4)
FULL, ATTENTION, CORE = "full", "full_attn", "core_attn"

LAYOUTS = [
    Layout(),
    Layout(accumulation=2),
    DP2,
    Layout(data=2, accumulation=2),
    S1,
    S2,
    Layout(stage=2, sharding=2, accumulation=2),
    S3,
    Layout(stage=3, sharding=2, accumulation=2),
    TP2,
    SP2,
    PP2,
    Layout(pipeline=2, accumulation=2),
    Layout(pipeline=4, accumulation=8),
    Layout(tensor=2, pipeline=2, accumulation=4),
    Layout(tensor=2, pipeline=2, accumulation=4, sequence_parallel=True),
    Layout(tensor=2, data=2),
    Layout(tensor=2, stage=1, sharding=2),
    Layout(tensor=2, stage=2, sharding=2),
    Layout(pipeline=2, stage=1, sharding=2, accumulation=4),
    Layout(stage=3, sharding=2, data=2),
    Layout(stage=2, sharding=4),
    Layout(stage=3, sharding=4),
    Layout(stage=2, sharding=8),
    Layout(tensor=2, pipeline=2, stage=1, sharding=2, accumulation=4, sequence_parallel=True),
]

CELLS = [
    *[Cell(layout=layout) for layout in LAYOUTS],
    *[Cell(recompute=granularity) for granularity in (FULL, ATTENTION, CORE)],
    *[Cell(layout=layout, recompute=FULL) for layout in (DP2, S2, S3, TP2, SP2, PP2)],
    Cell(layout=SP2, recompute=CORE),
    Cell(layout=TP2, recompute=ATTENTION),
    *[Cell("qwen2", layout=layout) for layout in (Layout(), DP2, S2, S3, TP2, SP2, PP2)],
    Cell("qwen2", recompute=FULL),
    *[Cell("qwen3", layout=layout) for layout in (Layout(), DP2, S2, S3, TP2, SP2, PP2)],
    *[Cell("qwen3", recompute=granularity) for granularity in (FULL, ATTENTION, CORE)],
    *[Cell("qwen3", method) for method in (FINETUNE, LORA, PREFIX)],
    Cell("qwen3", LORA, base=NF4),
    Cell("qwen3", chunk=32),
    *[Cell("baichuan", layout=layout) for layout in (Layout(), S2, TP2)],
    Cell("baichuan", recompute=FULL),
    *[Cell("chatglm2", layout=layout) for layout in LAYOUTS],
    Cell("chatglm2", recompute=FULL),
    *[Cell("bloom", layout=layout) for layout in (Layout(), S2, S3, TP2)],
    Cell("bloom", recompute=FULL),
    *[Cell("opt", layout=layout) for layout in (Layout(), S2, S3, TP2)],
    *[Cell(method=FINETUNE, layout=layout) for layout in (Layout(), TP2, S2)],
    *[Cell(method=LORA, layout=layout) for layout in (Layout(), DP2, S1, S2, S3, TP2)],
    *[Cell("qwen2", DORA, layout) for layout in (Layout(), TP2, PP2)],
    *[Cell(method=DORA, recompute=recompute, base=NF4) for recompute in ("", FULL)],
    Cell(method=LORA, recompute=FULL),
    *[Cell(family, LORA) for family in ("qwen2", "baichuan", "chatglm2", "bloom", "opt")],
    *[Cell(family, PREFIX) for family in ("llama", "qwen2", "chatglm2", "bloom")],
    *[Cell(family, FINETUNE) for family in ("chatglm2", "bloom", "opt")],
    *[Cell(family, method) for family in ("chatglm", "glm") for method in (FINETUNE, LORA)],
    *[Cell(family, FINETUNE, TP2) for family in ("chatglm", "glm")],
    *[Cell(family, FINETUNE, recompute=FULL) for family in ("chatglm", "glm")],
    Cell("chatglm", PREFIX),
    *[Cell(method=LORA, base=base) for base in (INT8, INT4, NF4, FP4, LLM_INT8)],
    *[Cell(method=LORA, layout=layout, base=NF4) for layout in (DP2, S1, S2, S3, TP2, PP2)],
    *[Cell(method=LORA, recompute=FULL, base=base) for base in (INT8, NF4)],
    *[Cell("chatglm", LORA, recompute=recompute, base=INT8) for recompute in ("", FULL)],
    *[Cell(family, LORA, base=NF4) for family in ("baichuan", "chatglm2", "bloom")],
    *[Cell(method=method, layout=layout, offload=True) for method in (PRETRAIN, LORA) for layout in (S2, S3)],
    Cell(method=LORA, layout=S3, recompute=FULL),
    *[Cell(method=method, layout=S3, recompute=FULL, offload=True) for method in (PRETRAIN, LORA)],
    *[Cell(layout=Layout(stage=stage, sharding=2, accumulation=2), offload=True) for stage in (2, 3)],
    Cell("chatglm2", FINETUNE, S2, offload=True),
    Cell("baichuan", LORA, S3, recompute=FULL, offload=True),
    *[Cell("mistral", layout=layout) for layout in (Layout(), DP2, S2, S3, TP2)],
    Cell("mistral", recompute=FULL),
    *[Cell("mistral", method) for method in (FINETUNE, LORA, PREFIX)],
    *[Cell("mixtral", layout=layout) for layout in (Layout(), DP2, S1, S2, S3, TP2)],
    *[Cell("mixtral", recompute=granularity) for granularity in (FULL, ATTENTION)],
    *[Cell("mixtral", method) for method in (FINETUNE, LORA, PREFIX)],
    Cell("mixtral", LORA, base=NF4),
    *[Cell("qwen2-moe", layout=layout) for layout in (Layout(), DP2, S1, S2, S3, TP2)],
    *[Cell("qwen2-moe", recompute=granularity) for granularity in (FULL, ATTENTION, CORE)],
    *[Cell("qwen2-moe", method) for method in (FINETUNE, LORA, PREFIX)],
    Cell("qwen2-moe", LORA, base=NF4),
    *[Cell("ernie4_5", layout=layout) for layout in (Layout(), DP2, S2, S3, TP2, SP2, PP2)],
    *[Cell("ernie4_5", recompute=granularity) for granularity in (FULL, ATTENTION, CORE)],
    *[Cell("ernie4_5", method) for method in (FINETUNE, LORA, PREFIX)],
    Cell("ernie4_5", LORA, base=NF4),
    *[Cell(family, layout=layout) for family in ("qwen3-moe", "ernie4_5-moe") for layout in (Layout(), S2, S3, TP2)],
    *[Cell(family, recompute=FULL) for family in ("qwen3-moe", "ernie4_5-moe")],
    *[Cell(family, method) for family in ("qwen3-moe", "ernie4_5-moe") for method in (FINETUNE, LORA, PREFIX)],
    *[Cell(family, LORA, base=NF4) for family in ("qwen3-moe", "ernie4_5-moe")],
    *[Cell(layout=layout, chunk=32) for layout in (Layout(), S3, TP2, SP2, PP2)],
    *[Cell(family, chunk=32) for family in ("chatglm2", "bloom", "mistral")],
    *[Cell(family, FINETUNE, chunk=32) for family in ("llama", "chatglm", "glm")],
    *[Cell(layout=layout, recompute=FULL, activations=True) for layout in (Layout(), S3, SP2, PP2)],
    *[Cell(family, recompute=FULL, activations=True) for family in ("chatglm2", "bloom", "mistral")],
    Cell("glm", FINETUNE, recompute=FULL, activations=True),
    Cell("chatglm", LORA, recompute=FULL, activations=True),
    *[Cell(layout=layout, moments=16) for layout in (Layout(), Layout(accumulation=2), S1, S2, S3, TP2, PP2)],
    Cell(layout=S2, offload=True, moments=16),
    Cell(moments=8),
    *[Cell(moments=bits, in_backward=True) for bits in (32, 16, 8)],
    *[Cell(recompute=FULL, chunk=32, moments=8, in_backward=True, offload=offload) for offload in (False, True)],
    *[
        Cell(family, FINETUNE, recompute=FULL, chunk=32, moments=8, in_backward=True)
        for family in ("qwen3", "chatglm2")
    ],
    Cell(moments=0),
    *[Cell(family, recompute=FULL, chunk=32, moments=0, in_backward=True) for family in ("llama", "qwen3", "chatglm2")],
    Cell(method=LORA, chunk=32),
    *[Cell(recompute=recompute, slices=4) for recompute in ("", FULL)],
    *[Cell(family, LORA, recompute=FULL, slices=8) for family in ("baichuan", "mistral", "ernie4_5")],
    Cell("qwen3", LORA, recompute=FULL, base=NF4, activations=True, chunk=32, slices=8),
    Cell("qwen2", recompute=FULL, chunk=32, moments=8, in_backward=True, slices=4),
    Cell(layout=TP2, overlap="enable_mp_async_allreduce,enable_mp_skip_c_identity"),
    Cell(layout=SP2, overlap="enable_sp_async_reduce_scatter"),
    *[Cell(family, FINETUNE, packed=True) for family in ("llama", "bloom")],
    Cell(method=FINETUNE, layout=PP2, packed=True),
    *[Cell(method=method, chunk=chunk) for method in (DPO, DPO_LORA) for chunk in (0, 64)],
    *[Cell(method=method, layout=layout) for method in (DPO, DPO_LORA) for layout in (S2, S3, TP2)],
    *[Cell(method=DPO_ONCE, layout=layout) for layout in (Layout(), S3)],
    Cell(method=DPO_ONCE, layout=S3, offload=True),
    *[Cell(method=DPO_ONCE, layout=PP2, chunk=chunk) for chunk in (0, 64)],
    Cell(method=DPO_ONCE, layout=Layout(tensor=2, pipeline=2, accumulation=4)),
    Cell(method=SIMPO_LORA, layout=PP2),
    Cell("opt", DPO),
    Cell("qwen2", DPO_LORA, recompute=FULL, base=NF4, chunk=64),
    Cell(method=DPO, recompute=FULL, packed=True),
    *[Cell(method=method, layout=layout) for method in (REWARD, REWARD_LORA) for layout in (Layout(), S3)],
    *[Cell(method=REWARD, layout=layout) for layout in (S2, TP2, SP2)],
    Cell("qwen2", REWARD_LORA, recompute=FULL, base=NF4),
    Cell(method=KTO, chunk=64),
    *[Cell(method=KTO, layout=layout) for layout in (S3, TP2)],
    Cell(method=KTO_LORA, layout=S2),
    Cell("qwen2", KTO_LORA, recompute=FULL, base=NF4, chunk=64),
]
