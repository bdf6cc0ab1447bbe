"""What sharding costs: memory by stage and number of cards, and which stage is the fastest by link and batch."""

from launch.plan.guide.case import HALF, Case
from launch.plan.hardware import CARDS, GIB, Card
from launch.plan.memory import plan_memory
from launch.plan.memory_plan import MemoryPlan, Phase
from launch.plan.time import plan_time
from launch.plan.time.plan import with_pcie

STAGES = {
    "none": "",
    "1": "--sharding stage1",
    "2": "--sharding stage2",
    "2 + offload": "--sharding stage2 offload",
    "3": "--sharding stage3",
    "3 + offload": "--sharding stage3 offload",
}
STATES = ("parameters", "adapter", "gradients", "master weights", "moments")
LINKS: dict[str, Card] = {
    "A100, NVLink": CARDS["A100-80G"],
    "4090, PCIe 4 x16": CARDS["4090"],
    "4090, PCIe 3 x8": with_pcie(CARDS["4090"], 3, 8),
}
MICRO_BATCHES, ACCUMULATIONS = (1, 8), (1, 16)
MEMORY_HEAD = ["method", "cards", "stage", "weights, gradients, optimizer: GiB on a card", "at the peak", "host, a rank"]
ORDER_HEAD = ["link", "method", "micro batch", "accumulation", "from fast to slow, tokens/s of all cards"]


def memory_table(case: Case) -> list[list[str]]:
    """Full fine-tuning and LoRA on one, two and three cards, 16 bit, micro batch 1, recompute."""
    rows = [MEMORY_HEAD]
    for method, flags in (("full", ""), ("LoRA", "--lora 1")):
        for cards in (1, 2, 3):
            one = Case(case.model, cards, case.card, case.length, batch=cards)
            stages = {"none": ""} if cards == 1 else STAGES
            rows += [[method, str(cards), stage, *_sizes(one, f"{HALF} --recompute 1 {flags} {words}")]
                     for stage, words in stages.items()]  # fmt: skip
    return rows


def _sizes(case: Case, flags: str) -> list[str]:
    plan = plan_memory(case.job(flags), case.card)
    host = sum(plan.host.values()) / GIB
    return [f"{_kept(plan) / GIB:.1f}", f"{plan.peak_bytes / GIB:.1f} ({plan.worst.peak.name})", f"{host:.1f}"]


def _kept(plan: MemoryPlan) -> int:
    """Of states, before the optimizer's step."""

    def states(phase: Phase) -> int:
        return sum(phase.parts.get(part, 0) for part in STATES)

    return max(states(phase) for phase in plan.worst.phases if phase.name != "loading")


def order_table(case: Case) -> list[list[str]]:
    """Stages by speed on several links, micro batches and accumulations."""
    rows = [ORDER_HEAD]
    for link, card in LINKS.items():
        for method, flags in (("full", ""), ("LoRA", "--lora 1")):
            for micro_batch in MICRO_BATCHES:
                for accumulation in ACCUMULATIONS:
                    batch = micro_batch * accumulation * case.gpus
                    one = Case(case.model, case.gpus, card, case.length, batch)
                    order = order_of(one, f"{HALF} --recompute 1 --per_device_train_batch_size {micro_batch} {flags}")
                    shown = " > ".join(f"{stage} ({speed:,.0f})" for stage, speed in order)
                    rows.append([link, method, str(micro_batch), str(accumulation), shown])
    return rows


def order_of(case: Case, flags: str) -> list[tuple[str, float]]:
    """(stage, tokens a second of all cards together), the fastest first."""
    speeds = {
        stage: plan_time(case.job(f"{flags} {words}"), case.card).tokens_per_second for stage, words in STAGES.items()
    }
    return sorted(speeds.items(), key=lambda one: -one[1])
