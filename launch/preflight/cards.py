"""Are the cards here that a run shall use, and do they have the memory that it needs?"""

import os

from launch.devices.cards import Card, list_cards
from launch.preflight.report import Finding

# Cards report 90 to 100 % of the memory they are named after (a part keeps error-correcting codes).
NAMED_MEMORY_SHARE = 0.9
GIB = 2**30


def check_cards(devices: tuple[str, ...], memory_gb: int = 0) -> list[Finding]:
    """devices: the numbers, as in CUDA_VISIBLE_DEVICES, of the cards wanted; memory_gb: needed on each, 0:
    unknown."""
    here = list_cards()
    cards = {str(card.index): card for card in here} | {card.uuid: card for card in here}
    needed = f"{len(devices)}" + (f" of {memory_gb} GB" if memory_gb else "") + " needed"
    if len(here) < len(devices):
        return [Finding(False, "cards", f"{needed}, here: {describe(here)}", _fewer(len(here)))]
    absent = [device for device in devices if device not in cards or not _visible(device)]
    if absent:
        found = f"no card {', '.join(absent)} among {', '.join(str(card.index) for card in here)}"
        return [Finding(False, "cards", found, "DEVICES=0,1,... names cards that are here and visible")]
    chosen = [cards[device] for device in devices]
    small = [card for card in chosen if card.memory_bytes < NAMED_MEMORY_SHARE * memory_gb * GIB]
    if small:
        fix = f"GPU_MEMORY_GB={round(small[0].memory_bytes / GIB)} to try all the same"
        return [Finding(False, "cards", f"{needed}, chosen: {describe(chosen)}", fix)]
    return [Finding(True, "cards", describe(chosen))]


def describe(cards: list[Card]) -> str:
    """2 x NVIDIA A100-SXM4-80GB (80 GB)"""
    kinds: dict[str, int] = {}
    for card in cards:
        kind = f"{card.name} ({round(card.memory_bytes / GIB)} GB)"
        kinds[kind] = kinds.get(kind, 0) + 1
    return ", ".join(f"{count} x {kind}" for kind, count in kinds.items()) or "none"


def _fewer(count: int) -> str:
    if not count:
        return "run it on a machine that has them"
    return f"GPUS={count} (a step keeps its samples where they can be dealt to {count} cards)"


def _visible(device: str) -> bool:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return visible is None or device in visible.split(",")
