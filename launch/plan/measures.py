"""Tables of what saves memory, on the user's own case.

The measures in the literature's order, what sharding costs by stage and number of cards, which stage is the fastest by
link and batch, and when recomputation pays. launch/commands/guide.py prints them.
"""

import re
from dataclasses import dataclass
from itertools import product

from launch.config.flag_values import parse_flags
from launch.config.layout import Layout
from launch.families.named_configs import load_config
from launch.families.registry import family_of_config
from launch.plan.hardware import CARDS, GIB, Card
from launch.plan.job import Job
from launch.plan.memory_model import MemoryPlan, Phase, plan_memory
from launch.plan.plan_report import speed_of
from launch.plan.states import WEIGHTS
from launch.plan.time_plan import TimePlan, plan_time, with_pcie

SCRIPT = "launch/finetune_generation.py"
HALF = "--precision auto --fp16_opt_level O2 --use_flash_attention auto"


@dataclass(frozen=True)
class ComparedCase:
    """A model on cards whose measures are compared.

    Attributes:
        length: Tokens of a sample.
        batch: Samples of a step, of all cards together.
    """

    model: str
    gpus: int
    card: Card
    length: int = 1024
    batch: int = 16

    def job(self, flags: str) -> Job:
        """Return the job with these flags, and the micro batches that make up the samples of a step."""
        given = parse_flags(flags.split())
        micro_batch = int(given.setdefault("per_device_train_batch_size", ["1"])[0])
        ranks = Layout.from_flags(given, self.gpus).data_ranks
        given["gradient_accumulation_steps"] = [str(max(1, self.batch // (micro_batch * ranks)))]
        given |= {"model_name_or_path": [self.model], "max_length": [str(self.length)]}
        return Job.from_flags(SCRIPT, given, self.gpus, self.card)

    @property
    def title(self) -> str:
        """The title of the table."""
        return f"{self.model}, {self.gpus} x {self.card.name}, {self.batch} samples of {self.length} tokens a step"


# Each is added to those before it; a flag that is there already is replaced.
BEFORE_SHARDING = (
    ("all parameters, float32, micro batch 4", "--per_device_train_batch_size 4"),
    ("16 bit", "--precision auto --fp16_opt_level O2"),
    ("flash attention", "--use_flash_attention auto"),
    ("micro batch 1, more accumulation", "--per_device_train_batch_size 1"),
    ("recompute", "--recompute 1"),
)
# Beside those that follow, which do without.
MOMENTS = ("moments in 16 bits", "--optim adamw_16bit_moment")
ACTIVATIONS = ("activations in host memory", "--offload activations")
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
    ("LoRA, stage 3: the base is sharded", "--sharding stage3"),
    ("LoRA, stage 3 with offload", "--sharding stage3 offload"),
    ("LoRA on a base of 8 bits", "--weight_quantize_algo weight_only_int8"),
    ("LoRA on a base of 4 bits (QLoRA)", "--weight_quantize_algo nf4 --weight_double_quant 1"),
)
MEASURES_HEAD = ("measure", "GiB on a card (when)", "fits", "host memory of all ranks, GiB", "tokens/s", "adds")


@dataclass(frozen=True)
class Measured:
    """A measure, planned.

    Attributes:
        flags: What it adds.
        phase: In which a card is fullest.
        host_bytes: Of all ranks.
    """

    name: str
    flags: str
    card_bytes: int
    phase: str
    host_bytes: int
    fits: bool
    time: TimePlan

    @property
    def tokens_per_second(self) -> float:
        """Tokens a second of all cards."""
        return self.time.tokens_per_second

    @property
    def numbers(self) -> tuple[int, int, float]:
        """The numbers by which measures differ."""
        return self.card_bytes, self.host_bytes, self.tokens_per_second

    @property
    def cells(self) -> tuple[str, ...]:
        """The cells of the row."""
        return (
            self.name,
            f"{self.card_bytes / GIB:.1f} ({self.phase})",
            "yes" if self.fits else "no",
            f"{self.host_bytes / GIB:.0f}",
            speed_of(self.time),
            f"`{self.flags}`" if self.flags else "",
        )


def measures(case: ComparedCase) -> list[Measured]:
    """Return all measures on this case, with several cards' where there are several.

    A measure that changes nothing is left out, such as flash attention on a card that cannot.
    """
    found, flags = [], ""
    for name, added in BEFORE_SHARDING:
        flags += " " + added
        planned = _planned(case, name, flags, added)
        if not found or planned.numbers != found[-1].numbers:
            found.append(planned)
    several = case.gpus > 1
    lacking = family_of_config(load_config(case.model)).lacking
    beside = (MOMENTS,) if "recompute" in lacking else (MOMENTS, ACTIVATIONS)
    for name, added in (*beside, *(SHARDING if several else ())):
        found.append(_planned(case, name, f"{flags} {added}", added))
    kinds = [kind for kind in ("tensor", "pipeline") if several and f"{kind}_parallel" not in lacking]
    parallel = [(f"LoRA, {kind} parallel {case.gpus}", f"--{kind}_parallel_degree {case.gpus}") for kind in kinds]
    for name, added in (*ADAPTERS, *parallel):
        if several or "sharding" not in added:
            found.append(_planned(case, name, f"{flags} --lora 1 {added}", f"--lora 1 {added}".strip()))
    return found


def _planned(case: ComparedCase, name: str, flags: str, added: str) -> Measured:
    job = case.job(flags)
    memory = plan_memory(job, case.card)
    return Measured(
        name,
        flags=re.sub(r"stage[23] offload", r'"\g<0>"', added),  # as a shell takes them
        card_bytes=memory.peak_bytes,
        phase=memory.worst.peak.name,
        host_bytes=case.gpus * sum(memory.host.values()),
        fits=bool(memory.fits),
        time=plan_time(job, case.card),
    )


def measures_table(case: ComparedCase) -> list[list[str]]:
    """Return the table of all measures."""
    return [list(MEASURES_HEAD), *(list(measured.cells) for measured in measures(case))]


STAGES = {
    "none": "",
    "1": "--sharding stage1",
    "2": "--sharding stage2",
    "2 + offload": "--sharding stage2 offload",
    "3": "--sharding stage3",
    "3 + offload": "--sharding stage3 offload",
}
METHODS = {"full": "", "LoRA": "--lora 1"}
STATES = (*WEIGHTS, "gradients", "master weights", "moments")
LINKS = (CARDS["A100-80G"], CARDS["4090"], with_pcie(CARDS["4090"], 3, 8))
MICRO_BATCHES, ACCUMULATIONS = (1, 8), (1, 16)
SAME = 0.02  # speeds that are no further apart count as equal
MEMORY_HEAD = ["method", "cards", "stage", "states on a card, GiB", "at the peak (when)", "host memory of a rank"]
ORDER_HEAD = ["from fast to slow", "for instance", "their speed, the fastest being 1"]


def memory_table(case: ComparedCase) -> list[list[str]]:
    """Return the table of full fine-tuning and LoRA on one, two and three cards, 16 bit, micro batch 1, recompute."""
    rows = [MEMORY_HEAD]
    for method, flags in METHODS.items():
        for cards in (1, 2, 3):
            small = ComparedCase(case.model, cards, case.card, case.length, batch=cards)
            stages = {"none": ""} if cards == 1 else STAGES
            for stage, words in stages.items():
                plan = plan_memory(small.job(f"{HALF} --recompute 1 {flags} {words}"), small.card)
                peak = f"{plan.peak_bytes / GIB:.1f} ({plan.worst.peak.name})"
                host = f"{sum(plan.host.values()) / GIB:.1f}"
                rows.append([method, str(cards), stage, f"{_kept(plan) / GIB:.1f}", peak, host])
    return rows


def _kept(plan: MemoryPlan) -> int:
    """Return the bytes of states, before the optimizer's step."""

    def states(phase: Phase) -> int:
        return sum(phase.parts.get(part, 0) for part in STATES)

    return max(states(phase) for phase in plan.worst.phases if phase.name != "loading")


def order_table(case: ComparedCase) -> list[list[str]]:
    """Return every order of the stages by speed, and the first case of it.

    Orders are of the case's own link and LINKS, with MICRO_BATCHES and ACCUMULATIONS.
    """
    found = {}
    cards = [case.card, *(card for card in LINKS if card != case.card)]
    for card, (method, flags) in product(cards, METHODS.items()):
        link = "NVLink" if card.nvlink else "PCIe {} x{}".format(*card.pcie)
        for micro_batch, accumulation in product(MICRO_BATCHES, ACCUMULATIONS):
            sized = ComparedCase(case.model, case.gpus, card, case.length, micro_batch * accumulation * case.gpus)
            order = order_of(sized, f"{HALF} --recompute 1 --per_device_train_batch_size {micro_batch} {flags}")
            case_of_order = f"{method}, {card.name}, {link}, micro batch {micro_batch} x accumulation {accumulation}"
            shares = ", ".join(f"{speed / order[0][1]:.2f}" for _, speed in order)
            found.setdefault(_in_words(order), [case_of_order, shares])
    return [ORDER_HEAD, *([order, *rest] for order, rest in found.items())]


def _in_words(order: list[tuple[str, float]]) -> str:
    """Return an order such as "none = 1 > 2 > 3": stages that are equally fast within SAME stand together."""
    groups = []
    for stage, speed in order:
        if groups and speed > groups[-1][1] * (1 - SAME):
            groups[-1][0].append(stage)
        else:
            groups.append(([stage], speed))
    return " > ".join(" = ".join(sorted(stages, key=list(STAGES).index)) for stages, _ in groups)


def order_of(case: ComparedCase, flags: str) -> list[tuple[str, float]]:
    """Return (stage, tokens a second of all cards together), the fastest first."""
    speeds = {
        stage: plan_time(case.job(f"{flags} {words}"), case.card).tokens_per_second for stage, words in STAGES.items()
    }
    return sorted(speeds.items(), key=lambda stage: -stage[1])


RECOMPUTE_HEAD = [
    "method",
    "tokens of a sample",
    "recompute",
    "largest micro batch that fits",
    "GiB on a card",
    "tokens/s",
]
GRANULARITIES = {"none": "", "full": "--recompute 1"}
ADAPTER_METHODS = {"LoRA": "--lora 1", "QLoRA": "--lora 1 --weight_quantize_algo nf4 --weight_double_quant 1"}
LENGTHS = (512, 2048)


def recompute_table(case: ComparedCase) -> list[list[str]]:
    """Return the table of recompute. The samples of a step are a multiple of every micro batch that is tried."""
    rows = [RECOMPUTE_HEAD]
    for method, flags in ADAPTER_METHODS.items():
        for length in LENGTHS:
            longer = ComparedCase(case.model, case.gpus, case.card, length, batch=64 * case.gpus)
            for name, words in GRANULARITIES.items():
                rows.append([method, f"{length:,}", name, *_largest(longer, f"{HALF} {flags} {words}")])
    return rows


def _largest(case: ComparedCase, flags: str) -> list[str]:
    found = ["none", "", ""]
    micro_batch = 1
    while micro_batch <= 64:
        job = case.job(f"{flags} --per_device_train_batch_size {micro_batch}")
        plan = plan_memory(job, case.card)
        if not plan.fits:
            break
        found = [str(micro_batch), f"{plan.peak_bytes / GIB:.1f}", speed_of(plan_time(job, case.card))]
        micro_batch *= 2
    return found
