"""What sharding costs: memory by stage and number of cards, and which stage is the fastest by link and batch."""

from itertools import product

from launch.plan.guide.case import HALF, Case
from launch.plan.hardware import CARDS, GIB, Card
from launch.plan.memory import plan_memory
from launch.plan.memory_plan import WEIGHTS, MemoryPlan, Phase
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
METHODS = {"full": "", "LoRA": "--lora 1"}
STATES = (*WEIGHTS, "gradients", "master weights", "moments")
LINKS = (CARDS["A100-80G"], CARDS["4090"], with_pcie(CARDS["4090"], 3, 8))
MICRO_BATCHES, ACCUMULATIONS = (1, 8), (1, 16)
SAME = 0.02  # speeds that are no further apart count as equal
MEMORY_HEAD = ["method", "cards", "stage", "states on a card, GiB", "at the peak (when)", "host memory of a rank"]
ORDER_HEAD = ["from fast to slow", "for instance", "tokens/s in that order"]


def memory_table(case: Case) -> list[list[str]]:
    """Full fine-tuning and LoRA on one, two and three cards, 16 bit, micro batch 1, recompute."""
    rows = [MEMORY_HEAD]
    for method, flags in METHODS.items():
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
    """Every order of the stages that comes up on the case's own link and on these, with these micro batches and
    accumulations, and the first case of it."""
    found = {}
    cards = [case.card, *(card for card in LINKS if card != case.card)]
    for card, (method, flags) in product(cards, METHODS.items()):
        for micro_batch, accumulation in product(MICRO_BATCHES, ACCUMULATIONS):
            one = Case(case.model, case.gpus, card, case.length, micro_batch * accumulation * case.gpus)
            order = order_of(one, f"{HALF} --recompute 1 --per_device_train_batch_size {micro_batch} {flags}")
            told = f"{method}, {_link(card)}, micro batch {micro_batch} x accumulation {accumulation}"
            found.setdefault(_in_words(order), [told, ", ".join(f"{speed:,.0f}" for _, speed in order)])
    return [ORDER_HEAD, *([order, *rest] for order, rest in found.items())]


def _link(card: Card) -> str:
    return f"{card.name}, " + ("NVLink" if card.nvlink else "PCIe {} x{}".format(*card.pcie))


def _in_words(order: list[tuple[str, float]]) -> str:
    """none = 1 > 2 > 3: those that are as fast within SAME by name."""
    groups = []
    for stage, speed in order:
        if groups and speed > groups[-1][1] * (1 - SAME):
            groups[-1][0].append(stage)
        else:
            groups.append(([stage], speed))
    return " > ".join(" = ".join(sorted(stages, key=list(STAGES).index)) for stages, _ in groups)


def order_of(case: Case, flags: str) -> list[tuple[str, float]]:
    """(stage, tokens a second of all cards together), the fastest first."""
    speeds = {
        stage: plan_time(case.job(f"{flags} {words}"), case.card).tokens_per_second for stage, words in STAGES.items()
    }
    return sorted(speeds.items(), key=lambda one: -one[1])
