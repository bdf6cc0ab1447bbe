"""The measures against too little memory in the literature's order: memory and time of each on the user's own case."""

from dataclasses import dataclass

from launch.families.named_configs import load_config
from launch.families.registry import family_of_config
from launch.plan.guide.case import Case
from launch.plan.hardware import GIB
from launch.plan.memory import plan_memory
from launch.plan.time import plan_time

# Each is added to those before it; a flag that is there already is replaced.
BEFORE_SHARDING = (
    ("all parameters, float32, micro batch 4", "--per_device_train_batch_size 4"),
    ("16 bit", "--precision auto --fp16_opt_level O2"),
    ("flash attention", "--use_flash_attention auto"),
    ("micro batch 1, more accumulation", "--per_device_train_batch_size 1"),
    ("recompute", "--recompute 1"),
)
SHARDING = (
    ("sharding stage 1", "--sharding stage1"),
    ("stage 2", "--sharding stage2"),
    ("stage 2 with offload", "--sharding stage2 offload"),
    ("stage 3", "--sharding stage3"),
    ("stage 3 with offload", "--sharding stage3 offload"),
)
# Adapters, beside the measures before sharding.
ADAPTERS = (
    ("LoRA, each card has the base", ""),
    ("LoRA, stage 3: the base is divided", "--sharding stage3"),
    ("LoRA, stage 3 with offload", "--sharding stage3 offload"),
    ("LoRA on a base of 8 bits", "--weight_quantize_algo weight_only_int8"),
    ("LoRA on a base of 4 bits (QLoRA)", "--weight_quantize_algo nf4 --weight_double_quant 1"),
)
HEAD = ("measure", "GiB on a card (when)", "fits", "host memory of all ranks, GiB", "tokens/s", "adds")


@dataclass(frozen=True)
class Measured:
    """A measure, planned. flags: what it adds. phase: in which a card is fullest. host_bytes: of all ranks."""

    name: str
    flags: str
    card_bytes: int
    phase: str
    host_bytes: int
    fits: bool
    tokens_per_second: float

    @property
    def numbers(self) -> tuple[int, int, float]:
        return self.card_bytes, self.host_bytes, self.tokens_per_second

    @property
    def cells(self) -> tuple[str, ...]:
        return (
            self.name,
            f"{self.card_bytes / GIB:.1f} ({self.phase})",
            "yes" if self.fits else "no",
            f"{self.host_bytes / GIB:.0f}",
            f"{self.tokens_per_second:,.0f}",
            f"`{self.flags}`" if self.flags else "",
        )


def measures(case: Case) -> list[Measured]:
    """All of them on this case, those of several cards where there are several; none that changes nothing, such as
    flash attention on a card that cannot."""
    found, flags = [], ""
    for name, added in BEFORE_SHARDING:
        flags += " " + added
        planned = _planned(case, name, flags, added)
        if not found or planned.numbers != found[-1].numbers:
            found.append(planned)
    several = case.gpus > 1
    for name, added in SHARDING if several else ():
        found.append(_planned(case, name, f"{flags} {added}", added))
    for name, added in (*ADAPTERS, *_parallel(case)):
        if several or "sharding" not in added:
            found.append(_planned(case, name, f"{flags} --lora 1 {added}", f"--lora 1 {added}".strip()))
    return found


def _parallel(case: Case) -> list[tuple[str, str]]:
    """LoRA on a model that is divided over all cards, where its family can be."""
    lacking = family_of_config(load_config(case.model)).lacking
    kinds = [kind for kind in ("tensor", "pipeline") if case.gpus > 1 and f"{kind}_parallel" not in lacking]
    return [(f"LoRA, {kind} parallel {case.gpus}", f"--{kind}_parallel_degree {case.gpus}") for kind in kinds]


def _planned(case: Case, name: str, flags: str, added: str) -> Measured:
    job = case.job(flags)
    memory = plan_memory(job, case.card)
    return Measured(
        name,
        flags=_shown(added),
        card_bytes=memory.peak_bytes,
        phase=memory.worst.peak.name,
        host_bytes=case.gpus * sum(memory.host.values()),
        fits=memory.fits,
        tokens_per_second=plan_time(job, case.card).tokens_per_second,
    )


def _shown(flags: str) -> str:
    """As a shell takes them."""
    return flags.replace("stage2 offload", '"stage2 offload"').replace("stage3 offload", '"stage3 offload"')


def measures_table(case: Case) -> list[list[str]]:
    return [list(HEAD), *(list(one.cells) for one in measures(case))]
