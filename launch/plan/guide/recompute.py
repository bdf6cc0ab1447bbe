"""When recomputation pays: the largest micro batch with and without it, and what it reaches."""

from launch.plan.guide.case import HALF, Case
from launch.plan.hardware import GIB
from launch.plan.memory import plan_memory
from launch.plan.time import plan_time

HEAD = ["method", "tokens of a sample", "recompute", "largest micro batch that fits", "GiB on a card", "tokens/s"]
GRANULARITIES = {"none": "", "full": "--recompute 1"}
METHODS = {"LoRA": "--lora 1", "QLoRA": "--lora 1 --weight_quantize_algo nf4 --weight_double_quant 1"}
LENGTHS = (512, 2048)


def recompute_table(case: Case) -> list[list[str]]:
    """Samples of a step are a multiple of every micro batch that is tried."""
    rows = [HEAD]
    for method, flags in METHODS.items():
        for length in LENGTHS:
            one = Case(case.model, case.gpus, case.card, length, batch=64 * case.gpus)
            for name, words in GRANULARITIES.items():
                rows.append([method, f"{length:,}", name, *_largest(one, f"{HALF} {flags} {words}")])
    return rows


def _largest(case: Case, flags: str) -> list[str]:
    found = ["none", "", ""]
    micro_batch = 1
    while micro_batch <= 64:
        job = case.job(f"{flags} --per_device_train_batch_size {micro_batch}")
        plan = plan_memory(job, case.card)
        if not plan.fits:
            break
        speed = plan_time(job, case.card).tokens_per_second
        found = [str(micro_batch), f"{plan.peak_bytes / GIB:.1f}", f"{speed:,.0f}"]
        micro_batch *= 2
    return found
